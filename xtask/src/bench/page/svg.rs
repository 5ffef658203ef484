//! Charts as inline SVG: lines and points on logarithmic axes, and bars.

use std::fmt::Write;

use super::html::escape;
use crate::bench::papers::figure;

/// Width of a chart in its own units. A page that is 400 pixels wide shows it at about this size.
const WIDTH: f64 = 380.0;
const HEIGHT: f64 = 270.0;
/// Margins of the plotted area: left, right, top, bottom.
const MARGIN: [f64; 4] = [46.0, 14.0, 12.0, 38.0];
/// Number of colors of the style sheet.
const N_COLORS: usize = 6;

/// Named points; a line connects them if `is_line`.
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points.
    pub points: Vec<(f64, f64)>,
    /// Whether a line connects the points.
    pub is_line: bool,
    /// Whether the line is a ceiling, drawn without a color of its own.
    pub is_ceiling: bool,
}

/// Chart with logarithmic axes.
pub struct Chart<'a> {
    /// Description for readers that do not see it.
    pub title: &'a str,
    /// Label of the horizontal axis.
    pub x: &'a str,
    /// Label of the vertical axis.
    pub y: &'a str,
    /// Series.
    pub series: &'a [Series],
}

/// Logarithmic scale from values to positions.
struct Scale {
    values: (f64, f64),
    positions: (f64, f64),
}

impl Scale {
    /// Scale of values from the power of ten or its half or fifth at or below the least, to that at or above the
    /// greatest.
    fn new(values: impl Iterator<Item = f64> + Clone, positions: (f64, f64)) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let greatest = values.fold(0.0, f64::max);
        let (low, high) = (step_below(least), step_above(greatest));
        Self { values: if low < high { (low, high) } else { (low / 2.0, high * 2.0) }, positions }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value / self.values.0).ln() / (self.values.1 / self.values.0).ln();
        self.positions.0 + share * (self.positions.1 - self.positions.0)
    }

    /// Values with a mark: 1, 2 and 5 of each power of ten, or the powers alone if there are many.
    fn marks(&self) -> Vec<f64> {
        let (low, high) = self.values;
        let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
        let of = |steps: &[f64]| -> Vec<f64> {
            let all = decades.clone().flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            all.filter(|mark| *mark >= 0.999 * low && *mark <= 1.001 * high).collect()
        };
        let fine = of(&[1.0, 2.0, 5.0]);
        if fine.len() <= 7 { fine } else { of(&[1.0]) }
    }
}

const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];

fn step_below(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    STEPS.iter().rev().map(|step| step * power).find(|step| *step <= 1.0001 * value).unwrap_or(power)
}

fn step_above(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    STEPS.iter().map(|step| step * power).find(|step| *step >= 0.9999 * value).unwrap_or(10.0 * power)
}

/// Chart of series, with a legend below.
pub fn chart(chart: &Chart<'_>) -> String {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    if points().next().is_none() {
        return String::new();
    }
    let [left, right, top, bottom] = MARGIN;
    let x = Scale::new(points().map(|point| point.0), (left, WIDTH - right));
    let y = Scale::new(points().map(|point| point.1), (HEIGHT - bottom, top));
    let mut svg =
        format!("<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n", escape(chart.title));
    axes(&mut svg, chart, (&x, &y));
    let mut legend = String::new();
    let mut color = 0;
    for series in chart.series {
        let class = if series.is_ceiling { "ceiling".to_owned() } else { format!("c{}", color % N_COLORS) };
        color += usize::from(!series.is_ceiling);
        draw(&mut svg, series, &class, (&x, &y));
        let _ = write!(legend, "<span><i class=\"{class}\"></i>{}</span> ", escape(&series.name));
    }
    let title = escape(chart.title);
    svg + &format!("</svg>\n<figcaption><b>{title}</b><br>{legend}</figcaption></figure>\n")
}

fn axes(svg: &mut String, chart: &Chart<'_>, (x, y): (&Scale, &Scale)) {
    let [left, right, top, bottom] = MARGIN;
    let (floor, edge) = (HEIGHT - bottom, WIDTH - right);
    for mark in x.marks() {
        let at = x.at(mark);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{at:.1} {top}V{floor}\"/>");
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{:.0}\" class=\"mid\">{}</text>", floor + 14.0, mark_text(mark));
    }
    for mark in y.marks() {
        let at = y.at(mark);
        let _ = writeln!(svg, "<path class=\"grid\" d=\"M{left} {at:.1}H{edge}\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.1}\" class=\"end\">{}</text>",
            left - 4.0,
            at + 4.0,
            mark_text(mark)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.0}\" y=\"{:.0}\" class=\"mid\">{}</text>",
        f64::midpoint(left, edge),
        HEIGHT - 6.0,
        escape(chart.x)
    );
    let middle = f64::midpoint(top, floor);
    let _ = writeln!(
        svg,
        "<text x=\"10\" y=\"{middle:.0}\" class=\"mid\" transform=\"rotate(-90 10 {middle:.0})\">{}</text>",
        escape(chart.y)
    );
}

/// Mark of an axis, as short as it goes.
fn mark_text(value: f64) -> String {
    if value >= 0.999 { format!("{value:.0}") } else { format!("{value:.6}").trim_end_matches('0').to_owned() }
}

fn draw(svg: &mut String, series: &Series, class: &str, (x, y): (&Scale, &Scale)) {
    if series.is_line {
        let path: Vec<String> =
            series.points.iter().map(|point| format!("{:.1} {:.1}", x.at(point.0), y.at(point.1))).collect();
        let _ = writeln!(svg, "<path class=\"line {class}\" d=\"M{}\"/>", path.join("L"));
    }
    if series.is_ceiling {
        return;
    }
    for point in &series.points {
        let _ = writeln!(
            svg,
            "<circle class=\"{class}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}: {}, {}</title></circle>",
            x.at(point.0),
            y.at(point.1),
            escape(&series.name),
            figure(point.0),
            figure(point.1)
        );
    }
}

/// Bar with its label above.
pub struct Bar {
    /// Label.
    pub label: String,
    /// Length.
    pub value: f64,
}

/// Horizontal bars on a logarithmic scale; those below `neutral` start there and go left, in another color.
pub fn bars(title: &str, neutral: f64, bars: &[Bar]) -> String {
    const STEP: f64 = 32.0;
    if bars.is_empty() {
        return String::new();
    }
    let height = STEP * bars.len() as f64 + 8.0;
    let scale = Scale::new(bars.iter().map(|bar| bar.value).chain([neutral]), (8.0, WIDTH - 56.0));
    let title = escape(title);
    let mut svg = format!("<figure><svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n");
    let zero = scale.at(neutral);
    let _ = writeln!(svg, "<path class=\"axis\" d=\"M{zero:.1} 0V{height:.0}\"/>");
    for (at, bar) in bars.iter().enumerate() {
        let (top, end) = (STEP * at as f64, scale.at(bar.value));
        let (from, class) = if bar.value < neutral { (end, "worse") } else { (zero, "c0") };
        let length = (end - zero).abs().max(1.0);
        let _ = writeln!(svg, "<text x=\"14\" y=\"{:.0}\">{}</text>", top + 13.0, escape(&bar.label));
        let _ = writeln!(
            svg,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{:.0}\" width=\"{length:.1}\" height=\"9\"/>",
            top + 18.0
        );
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            end.max(zero) + 5.0,
            top + 27.0,
            figure(bar.value)
        );
    }

    svg + &format!("</svg>\n<figcaption><b>{title}</b></figcaption></figure>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_end_at_marks() {
        let scale = Scale::new([3.0, 40.0].into_iter(), (0.0, 100.0));
        assert_eq!(scale.values, (2.0, 50.0));
        assert_eq!((scale.at(2.0), scale.at(50.0)), (0.0, 100.0));
        assert_eq!(scale.marks(), [2.0, 5.0, 10.0, 20.0, 50.0]);
        assert_eq!(Scale::new([1.0, 1e6].into_iter(), (0.0, 1.0)).marks().len(), 7);
        assert_eq!(Scale::new([1.0].into_iter(), (0.0, 1.0)).values, (0.5, 2.0));
        assert_eq!([0.02, 1.0, 500.0].map(mark_text), ["0.02", "1", "500"]);
    }

    #[test]
    fn bars_below_the_neutral_value_go_left() {
        let of = |value: f64| bars("a & b", 1.0, &[Bar { label: "x<y".to_owned(), value }]);
        assert!(of(0.5).contains("class=\"worse\"") && of(2.0).contains("class=\"c0\""));
        assert!(of(2.0).contains("a &amp; b") && of(2.0).contains("x&lt;y"));
        assert_eq!(bars("none", 1.0, &[]), "");
    }
}
