//! `report.html`: one self-contained page with the curves and the result of a training session.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use girih_graph_format::file;
use plotters::prelude::*;

use crate::error::CliError;
use crate::history::Point;
use crate::output::Results;
use crate::scores::NodeScore;

/// How pages look.
pub const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;\
     color:#222}svg{width:100%;height:auto}table{border-collapse:collapse}th{text-align:left;font-weight:600}\
     th,td{padding:.15rem 1.5rem .15rem 0}.legend{margin:0}.legend span{margin-left:1.5rem}pre{background:#f5f5f5;padding:1rem;overflow:auto}\
     h1,td{overflow-wrap:anywhere}.wide{overflow-x:auto}.wide svg{min-width:36rem}";

const SIZE: (u32, u32) = (720, 360);
/// Points of a curve that are marked, where there are so few.
const MARKED_MAX: usize = 12;
const TRAIN: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const VAL: RGBColor = RGBColor(0xd6, 0x5f, 0x0e);
const TEST: RGBColor = RGBColor(0x2c, 0x8a, 0x3d);

/// A line of a plot: the mean over runs at each epoch.
struct Curve {
    name: &'static str,
    color: RGBColor,
    points: Vec<(u64, f64)>,
}

impl Curve {
    fn new(name: &'static str, color: RGBColor, history: &[Point], value: impl Fn(&Point) -> Option<f64>) -> Self {
        let mut sums: BTreeMap<u64, (f64, u32)> = BTreeMap::new();
        for point in history {
            if let Some(value) = value(point).filter(|v| v.is_finite()) {
                let (sum, n) = sums.entry(point.epoch).or_default();
                *sum += value;
                *n += 1;
            }
        }
        let points = sums.into_iter().map(|(epoch, (sum, n))| (epoch, sum / f64::from(n))).collect();
        Self { name, color, points }
    }
}

/// Writes the page of a title and a configuration; of classified nodes, the curves of `score`.
pub fn write(
    path: &Path,
    (title, config): (&str, &str),
    results: &Results,
    (history, score): (&[Point], NodeScore),
) -> Result<(), CliError> {
    let losses = [
        Curve::new("training", TRAIN, history, |p| Some(f64::from(p.train_loss))),
        Curve::new("validation", VAL, history, |p| p.val_loss),
        Curve::new("test", TEST, history, |p| p.test_loss),
    ];
    let accuracies = [
        Curve::new("training", TRAIN, history, |p| p.train_accuracy),
        Curve::new("validation", VAL, history, |p| p.val_accuracy),
        Curve::new("test", TEST, history, |p| p.test_accuracy),
    ];
    let rankings = [
        Curve::new("recall@20", VAL, history, |p| p.recall_at_20),
        Curve::new("NDCG@20", TEST, history, |p| p.ndcg_at_20),
    ];
    let areas = [
        Curve::new("validation", VAL, history, |p| p.val_roc_auc),
        Curve::new("test", TEST, history, |p| p.test_roc_auc),
    ];
    let any = |of: fn(&Point) -> bool| history.iter().any(of);
    let (what, scores) = if any(|p| p.recall_at_20.is_some()) {
        ("Ranking", &rankings[..])
    } else if score == NodeScore::RocAuc || !any(|p| p.train_accuracy.is_some()) {
        ("ROC-AUC", &areas[..])
    } else if score == NodeScore::MicroF1 {
        ("Micro-F1", &accuracies[..])
    } else {
        ("Accuracy", &accuracies[..])
    };
    let page = page(title, config, results, &plot("Loss", &losses)?, (what, &plot(what, scores)?));
    Ok(file::write_file(path, |out| Ok(out.write_all(page.as_bytes())?))?)
}

fn page(title: &str, config: &str, results: &Results, loss: &str, (what, scores): (&str, &str)) -> String {
    let mut rows = String::new();
    for (label, shown) in results.shown() {
        let _ = write!(rows, "<tr><th>{}</th><td>{}</td></tr>", escape(label), escape(shown));
    }
    let (title, config) = (escape(title), escape(config));
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>\
         <h1>{title}</h1><table>{rows}</table><h2>Loss</h2>{loss}<h2>{what}</h2>{scores}\
         <p>Curves are means over the runs at each epoch; the training loss is taken before the step.</p>\
         <h2>Configuration</h2><pre>{config}</pre></body></html>\n"
    )
}

/// Text as it stands in a page.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A legend, and below it an SVG of curves over epochs.
fn plot(what: &str, curves: &[Curve]) -> Result<String, CliError> {
    let mut svg = String::new();
    draw(&mut svg, what, curves).map_err(|e| CliError::Other(format!("the {what} plot cannot be drawn: {e}")))?;
    Ok(format!("<p class=\"legend\">{}</p><div class=\"wide\">{svg}</div>", legend(curves)))
}

/// The name of each curve in its color. It stands in the page's text, where it covers no curve.
fn legend(curves: &[Curve]) -> String {
    let drawn = curves.iter().filter(|curve| !curve.points.is_empty());
    drawn.fold(String::new(), |mut legend, Curve { name, color: RGBColor(r, g, b), .. }| {
        let _ = write!(legend, "<span style=\"color:rgb({r},{g},{b})\">&#9632; {name}</span>");
        legend
    })
}

fn draw(svg: &mut String, what: &str, curves: &[Curve]) -> Result<(), Box<dyn std::error::Error>> {
    let all = || curves.iter().flat_map(|c| &c.points);
    let last = all().map(|p| p.0).fold(2, u64::max);
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let (low, high) = if low < high { (low, high) } else { (0.0, 1.0) };
    let margin = 0.05 * (high - low);

    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        // Whole numbers, so that ticks are.
        .build_cartesian_2d(1..last, low - margin..high + margin)?;
    chart
        .configure_mesh()
        .x_desc("epoch")
        .y_desc(what.to_lowercase())
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(0xe4, 0xe4, 0xe4))
        .draw()?;
    for curve in curves.iter().filter(|c| !c.points.is_empty()) {
        chart.draw_series(LineSeries::new(curve.points.iter().copied(), curve.color.stroke_width(2)))?;
        // A line of few points, or of one, is not seen.
        if curve.points.len() <= MARKED_MAX {
            let marks = curve.points.iter().map(|&point| Circle::new(point, 3, curve.color.filled()));
            chart.draw_series(marks)?;
        }
    }
    root.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_both_plots_and_escapes_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let mut results = Results::default();
        results.add("test_accuracy", 0.8, "Test accuracy", "80 % <of nodes>");
        let history = [Point { epoch: 1, train_loss: 2.0, val_loss: Some(1.5), ..Point::default() }];
        write(&path, ("gcn & co", "epochs = 1"), &results, (&history, NodeScore::Accuracy)).unwrap();
        let page = std::fs::read_to_string(path).unwrap();
        assert_eq!(page.matches("training</span>").count(), 1, "a legend names the curves that there are");
        assert_eq!(page.matches("test</span>").count(), 0);
        assert_eq!(page.matches("<svg").count(), 2);
        assert!(page.contains("80 % &lt;of nodes&gt;") && page.contains("gcn &amp; co"));
        let ticks = page.lines().map(str::trim).filter(|line| line.parse::<u64>().is_ok()).collect::<Vec<_>>();
        assert_eq!(ticks, ["1", "2", "1", "2"], "each epoch once");
        assert!(!page.contains("http:") || page.contains("http://www.w3.org/2000/svg"), "nothing is fetched");
    }

    #[test]
    fn curves_are_of_the_score_that_chooses_the_epoch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let point = Point { epoch: 1, train_accuracy: Some(0.5), val_roc_auc: Some(0.9), ..Point::default() };
        for (score, title) in [
            (NodeScore::RocAuc, "<h2>ROC-AUC</h2>"),
            (NodeScore::MicroF1, "<h2>Micro-F1</h2>"),
            (NodeScore::Accuracy, "<h2>Accuracy</h2>"),
        ] {
            write(&path, ("gcn", ""), &Results::default(), (std::slice::from_ref(&point), score)).unwrap();
            assert!(std::fs::read_to_string(&path).unwrap().contains(title), "{title}");
        }
    }
}
