//! `report.html`: one self-contained page with the curves and the result of a training session.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use girih_graph_format::file;
use plotters::prelude::*;

use crate::curves::{Curves, Measure};
use crate::error::CliError;
use crate::output::Results;
use crate::scores::NodeScore;

/// Style of all pages.
const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:2rem auto;padding:0 1rem;\
     color:#222}svg{width:100%;height:auto}table{border-collapse:collapse}th{text-align:left;font-weight:600}\
     th,td{padding:.15rem 1.5rem .15rem 0}.legend{margin:0}.legend span{margin-left:1.5rem}pre{background:#f5f5f5;padding:1rem;overflow:auto}\
     h1,td{overflow-wrap:anywhere}.wide{overflow-x:auto}.wide svg{min-width:36rem}";

const SIZE: (u32, u32) = (720, 360);
/// Points are marked on lines with at most this many points.
const MARKED_MAX: usize = 12;
const TRAIN: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const VAL: RGBColor = RGBColor(0xd6, 0x5f, 0x0e);
const TEST: RGBColor = RGBColor(0x2c, 0x8a, 0x3d);

/// Line of a plot: mean over runs at each epoch.
struct Line {
    name: &'static str,
    color: RGBColor,
    points: Vec<(u64, f64)>,
}

impl Line {
    fn new(name: &'static str, color: RGBColor, curves: &Curves, measure: Measure) -> Self {
        Self { name, color, points: curves.means(measure) }
    }
}

/// Writes the page with a title and a configuration; `score` selects the curves of classified nodes.
pub fn write(
    path: &Path,
    (title, config): (&str, &str),
    results: &Results,
    (curves, score): (&Curves, NodeScore),
) -> Result<(), CliError> {
    let line = |name, color, measure| Line::new(name, color, curves, measure);
    let of_parts = |[train, val, test]: [Measure; 3]| {
        vec![line("training", TRAIN, train), line("validation", VAL, val), line("test", TEST, test)]
    };
    let losses = of_parts([Measure::TrainLoss, Measure::ValLoss, Measure::TestLoss]);
    let accuracies = || of_parts([Measure::TrainAccuracy, Measure::ValAccuracy, Measure::TestAccuracy]);
    let (what, scores) = if curves.have(Measure::RecallAt20) {
        ("Ranking", vec![line("recall@20", VAL, Measure::RecallAt20), line("NDCG@20", TEST, Measure::NdcgAt20)])
    } else if score == NodeScore::RocAuc || !curves.have(Measure::TrainAccuracy) {
        ("ROC-AUC", vec![line("validation", VAL, Measure::ValRocAuc), line("test", TEST, Measure::TestRocAuc)])
    } else if score == NodeScore::MicroF1 {
        ("Micro-F1", accuracies())
    } else {
        ("Accuracy", accuracies())
    };
    let page = page(title, config, results, &plot("Loss", &losses)?, (what, &plot(what, &scores)?));
    Ok(file::write_file(path, |out| Ok(out.write_all(page.as_bytes())?))?)
}

fn page(title: &str, config: &str, results: &Results, loss: &str, (what, scores): (&str, &str)) -> String {
    let mut rows = String::new();
    for (label, shown) in results.shown() {
        let _ = write!(rows, "<tr><th>{}</th><td>{}</td></tr>", escape(label), escape(shown));
    }
    let (opening, config) = (opening(title, ""), escape(config));
    format!(
        "{opening}<table>{rows}</table><h2>Loss</h2>{loss}<h2>{what}</h2>{scores}\
         <p>Curves are means over the runs at each epoch; the training loss is taken before the step.</p>\
         <h2>Configuration</h2><pre>{config}</pre></body></html>\n"
    )
}

/// Beginning of a page: its title as the heading, and `style` in addition to that of all pages.
pub fn opening(title: &str, style: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}{style}</style></head>\
         <body><h1>{title}</h1>"
    )
}

/// Text escaped for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Legend with an SVG of curves over epochs below it.
fn plot(what: &str, lines: &[Line]) -> Result<String, CliError> {
    let mut svg = String::new();
    draw(&mut svg, what, lines).map_err(|e| CliError::Other(format!("the {what} plot cannot be drawn: {e}")))?;
    Ok(format!("<p class=\"legend\">{}</p><div class=\"wide\">{svg}</div>", legend(lines)))
}

/// Name of each curve in its colour, outside the plot so that it covers no curve.
fn legend(lines: &[Line]) -> String {
    let drawn = lines.iter().filter(|line| !line.points.is_empty());
    drawn.fold(String::new(), |mut legend, Line { name, color: RGBColor(r, g, b), .. }| {
        let _ = write!(legend, "<span style=\"color:rgb({r},{g},{b})\">&#9632; {name}</span>");
        legend
    })
}

fn draw(svg: &mut String, what: &str, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let all = || lines.iter().flat_map(|line| &line.points);
    let last = all().map(|p| p.0).fold(2, u64::max);
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p.1), high.max(p.1)));
    let (low, high) = if low < high { (low, high) } else { (0.0, 1.0) };
    let margin = 0.05 * (high - low);

    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    let mut chart = ChartBuilder::on(&root)
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(60)
        // Whole numbers, so that ticks are whole as well.
        .build_cartesian_2d(1..last, low - margin..high + margin)?;
    chart
        .configure_mesh()
        .x_desc("epoch")
        .y_desc(what.to_lowercase())
        .light_line_style(WHITE)
        .bold_line_style(RGBColor(0xe4, 0xe4, 0xe4))
        .draw()?;
    for line in lines.iter().filter(|line| !line.points.is_empty()) {
        chart.draw_series(LineSeries::new(line.points.iter().copied(), line.color.stroke_width(2)))?;
        // A line with few points is hard to see, so its points are marked.
        if line.points.len() <= MARKED_MAX {
            let marks = line.points.iter().map(|&point| Circle::new(point, 3, line.color.filled()));
            chart.draw_series(marks)?;
        }
    }
    root.present()?;
    Ok(())
}
