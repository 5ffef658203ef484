//! [`Chart`]: curves over epochs, as HTML that keeps the size of its text at every width.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::escape;
use crate::curves::CurvePoint;

/// Points are marked on curves with at most this many points.
const MARKED_MAX: usize = 12;
/// Side of the coordinates that curves are drawn in; the page stretches them.
const SIDE: f64 = 1000.0;
/// Number of colours of the style.
const COLOURS: usize = 8;
/// Number of labels of an axis that is aimed at.
const TICKS: f64 = 5.0;

/// Curve: mean over runs at each epoch, with a band from the lowest to the highest run.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Number of its colour.
    pub colour: usize,
    /// Points by epoch.
    pub points: Vec<CurvePoint>,
}

/// Curves on common axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Heading.
    pub title: String,
    /// Whether values are shares, shown in percent.
    pub is_share: bool,
    /// Curves; those without points are left out.
    pub series: Vec<Series>,
    /// Marked epochs, with their legend.
    pub marks: Option<(String, Vec<u64>)>,
}

impl Chart {
    /// Whether there is a point to draw.
    pub fn has_points(&self) -> bool {
        self.series.iter().any(|series| !series.points.is_empty())
    }

    /// Section with heading, legend and plot; empty without points.
    pub fn html(&self) -> String {
        let drawn: Vec<&Series> = self.series.iter().filter(|series| !series.points.is_empty()).collect();
        if drawn.is_empty() {
            return String::new();
        }
        let axes = Axes::of(&drawn, if self.is_share { 100.0 } else { 1.0 });
        let mut svg = axes.grid();
        drawn.iter().for_each(|series| svg.push_str(&axes.curve(series)));
        for &epoch in self.marks.iter().flat_map(|(_, epochs)| epochs) {
            let _ = write!(svg, "<path class=\"mark\" d=\"M{:.1} 0V{SIDE}\"/>", axes.x(epoch));
        }
        format!(
            "<section><h2>{}</h2><figure><figcaption>{}</figcaption><div class=\"plot\" tabindex=\"0\">\
             <svg viewBox=\"0 0 {SIDE} {SIDE}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">{svg}</svg>{}\
             <i></i><output></output><script type=\"application/json\">{}</script></div></figure></section>",
            escape(&self.title),
            self.legend(&drawn),
            axes.labels(self.unit()),
            self.data(&drawn, &axes)
        )
    }

    fn unit(&self) -> &'static str {
        if self.is_share { " %" } else { "" }
    }

    fn legend(&self, drawn: &[&Series]) -> String {
        let mut legend = String::new();
        for series in drawn {
            let (class, name) = (class(series), escape(&series.name));
            let _ = write!(legend, "<span class=\"key {class}\">{name}</span>");
        }
        if let Some((name, _)) = self.marks.as_ref().filter(|(_, epochs)| !epochs.is_empty()) {
            let _ = write!(legend, "<span class=\"key mark\">{}</span>", escape(name));
        }
        legend
    }

    /// Values for the pointer, as JSON inside of a script element.
    fn data(&self, drawn: &[&Series], axes: &Axes) -> String {
        let point = |point: &CurvePoint| {
            let [mean, low, high] = [point.mean, point.low, point.high].map(|value| rounded(axes.scale * value));
            if low == high { json!([point.epoch, mean]) } else { json!([point.epoch, mean, low, high]) }
        };
        let series: Vec<Value> = drawn
            .iter()
            .map(|series| json!({ "name": series.name, "points": series.points.iter().map(point).collect::<Vec<_>>() }))
            .collect();
        let data = json!({ "first": axes.epochs.0, "last": axes.epochs.1, "unit": self.unit(), "series": series });
        // Names could end the element.
        data.to_string().replace('<', "\\u003c")
    }
}

fn class(series: &Series) -> String {
    format!("c{}", series.colour % COLOURS)
}

/// Number with four significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Ranges of both axes.
struct Axes {
    epochs: (u64, u64),
    /// Lowest and highest value, scaled.
    values: (f64, f64),
    scale: f64,
}

impl Axes {
    fn of(drawn: &[&Series], scale: f64) -> Self {
        let points = || drawn.iter().flat_map(|series| &series.points);
        let first = points().map(|point| point.epoch).min().unwrap_or(1);
        let last = points().map(|point| point.epoch).max().unwrap_or(1);
        let low = points().map(|point| scale * point.low).fold(f64::INFINITY, f64::min);
        let high = points().map(|point| scale * point.high).fold(f64::NEG_INFINITY, f64::max);
        let margin = if low < high { 0.05 * (high - low) } else { low.abs().mul_add(0.05, 0.01) };
        Self { epochs: (first, last), values: (low - margin, high + margin), scale }
    }

    /// Horizontal place of an epoch; a single epoch stands in the middle.
    fn x(&self, epoch: u64) -> f64 {
        let (first, last) = self.epochs;
        if first == last { SIDE / 2.0 } else { SIDE * (epoch as f64 - first as f64) / (last - first) as f64 }
    }

    /// Vertical place of a scaled value.
    fn y(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        SIDE * (high - value) / (high - low)
    }

    fn value_ticks(&self) -> (Vec<f64>, usize) {
        let (low, high) = self.values;
        let step = round_step((high - low) / TICKS);
        let decimals = (-step.log10().floor()).max(0.0) as usize;
        let first = (low / step).ceil() as i64;
        let last = (high / step).floor() as i64;
        ((first..=last).map(|i| i as f64 * step).collect(), decimals)
    }

    /// Whole epochs, the first and the last one among them.
    fn epoch_ticks(&self) -> Vec<u64> {
        let (first, last) = self.epochs;
        let step = (round_step((last - first) as f64 / TICKS).round() as u64).max(1);
        let inner = (1..).map(|i| i * step).take_while(|&epoch| epoch + step / 2 < last);
        let mut ticks = vec![first];
        ticks.extend(inner.filter(|&epoch| epoch > first + step / 2));
        ticks.extend((last > first).then_some(last));
        ticks
    }

    fn grid(&self) -> String {
        let mut path = String::new();
        for value in self.value_ticks().0 {
            let _ = write!(path, "M0 {:.1}H{SIDE}", self.y(value));
        }
        for epoch in self.epoch_ticks() {
            let _ = write!(path, "M{:.1} 0V{SIDE}", self.x(epoch));
        }
        format!("<path class=\"grid\" d=\"{path}\"/>")
    }

    fn labels(&self, unit: &str) -> String {
        let (values, decimals) = self.value_ticks();
        let mut labels = String::new();
        for value in values {
            let bottom = 100.0 - self.y(value) * 100.0 / SIDE;
            let _ = write!(labels, "<span class=\"y\" style=\"bottom:{bottom:.2}%\">{value:.decimals$}{unit}</span>");
        }
        for epoch in self.epoch_ticks() {
            let left = self.x(epoch) * 100.0 / SIDE;
            let _ = write!(labels, "<span class=\"x\" style=\"left:{left:.2}%\">{epoch}</span>");
        }
        labels + "<span class=\"of\">epoch</span>"
    }

    /// Band, line and, for few points, dots of a curve.
    fn curve(&self, series: &Series) -> String {
        let place =
            |point: &CurvePoint, value: f64| format!("{:.1} {:.1}", self.x(point.epoch), self.y(self.scale * value));
        let points = &series.points;
        let line = |places: Vec<String>| format!("M{}", places.join("L"));
        let mut drawn = format!("<g class=\"{}\">", class(series));
        if points.iter().any(|point| point.low < point.high) {
            let low = points.iter().rev().map(|point| place(point, point.low));
            let all = points.iter().map(|point| place(point, point.high)).chain(low).collect();
            let _ = write!(drawn, "<path class=\"band\" d=\"{}Z\"/>", line(all));
        }
        let means = points.iter().map(|point| place(point, point.mean));
        let _ = write!(drawn, "<path class=\"line\" d=\"{}\"/>", line(means.clone().collect()));
        // A line with few points is hard to see, so its points are marked.
        if points.len() <= MARKED_MAX {
            let dots: String = means.map(|place| format!("M{place}h0")).collect();
            let _ = write!(drawn, "<path class=\"dots\" d=\"{dots}\"/>");
        }
        drawn + "</g>"
    }
}

/// The next of 1, 2 and 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&round| round >= step).unwrap_or(10.0 * power)
}
