//! Generated parts of `docs/scaling.md`, from the suite `scaling`: a plot, and a table between two marks.

use std::fs;
use std::path::Path;

use plotters::prelude::*;

use crate::{Case, Error, Report};

const PAGE: &str = "scaling.md";
const PLOT: &str = "scaling.svg";
const BEGIN: &str = "<!-- made by: cargo xtask bench scaling --docs docs -->\n";
const END: &str = "<!-- end of what is made -->\n";
const SIZE: (u32, u32) = (760, 440);
const COLORS: [RGBColor; 5] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xd6, 0x5f, 0x0e),
    RGBColor(0x2c, 0x8a, 0x3d),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
];

/// Plan that was chosen for a number of GPUs.
struct Point<'a> {
    graph: &'a str,
    gpus: u32,
    scheme: &'a str,
    case: &'a Case,
}

/// Draws the plot in the folder of documents, and writes the table into the page there.
///
/// # Errors
/// When files cannot be read or written, or the page lacks the marks.
pub fn write(docs: &Path, report: &Report) -> Result<(), Error> {
    let points: Vec<Point<'_>> = report.cases.iter().filter_map(Point::of).collect();
    let path = docs.join(PAGE);
    let page = fs::read_to_string(&path)?;
    fs::write(&path, with_table(&page, &table(&points, report)).ok_or("the page has no marks for the table")?)?;
    fs::write(docs.join(PLOT), plot(&points)?)?;
    Ok(())
}

impl<'a> Point<'a> {
    fn of(case: &'a Case) -> Option<Self> {
        case.metrics.get("is_choice")?;
        let mut parts = case.name.split('/');
        let (graph, gpus, scheme) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
        Some(Self { graph, gpus, scheme, case })
    }

    fn ms(&self) -> f64 {
        1e3 * self.case.time.median_s
    }
}

/// Page with the table between the marks replaced.
fn with_table(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

fn table(points: &[Point<'_>], report: &Report) -> String {
    format!("{}\n{}", chosen(points), checked(&report.cases))
}

/// Epoch and partition of each choice: a row for each number of GPUs, a column for each graph.
fn chosen(points: &[Point<'_>]) -> String {
    let mut gpus: Vec<u32> = points.iter().map(|point| point.gpus).collect();
    gpus.sort_unstable();
    gpus.dedup();
    let graphs = distinct(points.iter().map(|point| point.graph));
    let rows = gpus.into_iter().map(|gpus| {
        let cell = |graph: &&str| {
            let point = points.iter().find(|point| point.graph == *graph && point.gpus == gpus);
            point.map_or_else(String::new, |point| format!("{:.2}, {}", point.ms(), point.scheme))
        };
        (gpus.to_string(), graphs.iter().map(cell).collect())
    });
    markdown("GPUs", &graphs, rows)
}

/// Recorded and planned epochs on one GPU: a row for each graph, a column for each kind of epoch.
fn checked(cases: &[Case]) -> String {
    let recorded: Vec<(&str, &str, &Case)> = cases
        .iter()
        .filter(|case| case.metrics.contains_key("predicted_over_measured"))
        .filter_map(|case| case.name.split_once("/1/recorded/").map(|(graph, kind)| (graph, kind, case)))
        .collect();
    let kinds = distinct(recorded.iter().map(|(_, kind, _)| *kind));
    let rows = distinct(recorded.iter().map(|(graph, ..)| *graph)).into_iter().map(|of_graph| {
        let cell = |of_kind: &&str| {
            let found = recorded.iter().find(|(graph, kind, _)| *graph == of_graph && kind == of_kind);
            found.map_or_else(String::new, |(_, _, case)| {
                let predicted = case.metrics.get("predicted_ms").copied().unwrap_or(0.0);
                format!("{:.2}, {predicted:.2}", 1e3 * case.time.median_s)
            })
        };
        (of_graph.to_owned(), kinds.iter().map(cell).collect())
    });
    markdown("graph", &kinds, rows)
}

/// Items in the order in which they first appear.
fn distinct<'a>(items: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

/// Markdown table of rows that each have a name and a cell for each of `columns`.
fn markdown(corner: &str, columns: &[&str], rows: impl Iterator<Item = (String, Vec<String>)>) -> String {
    let mut lines = format!("| {corner} | {} |\n|--:|{}\n", columns.join(" | "), "--:|".repeat(columns.len()));
    for (name, cells) in rows {
        lines += &format!("| {name} | {} |\n", cells.join(" | "));
    }
    lines
}

/// Plot of milliseconds per epoch over GPUs, both on logarithmic axes, with one line per graph.
fn plot(points: &[Point<'_>]) -> Result<String, Error> {
    let mut graphs: Vec<&str> = points.iter().map(|point| point.graph).collect();
    graphs.dedup();
    let gpus_max = points.iter().map(|point| f64::from(point.gpus)).fold(1.0, f64::max);
    let ms = || points.iter().map(Point::ms);
    let (least, most) = (ms().fold(f64::INFINITY, f64::min), ms().fold(f64::MIN_POSITIVE, f64::max));
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let (x, y) = ((1.0..1.2 * gpus_max).log_scale(), (0.8 * least..1.3 * most).log_scale());
        let mut chart =
            ChartBuilder::on(&area).margin(12).x_label_area_size(40).y_label_area_size(64).build_cartesian_2d(x, y)?;
        chart.configure_mesh().x_desc("GPUs").y_desc("epoch, ms").light_line_style(WHITE).draw()?;
        for (graph, color) in graphs.iter().zip(COLORS.into_iter().cycle()) {
            let of_graph = points.iter().filter(|point| point.graph == *graph);
            let line = of_graph.map(|point| (f64::from(point.gpus), point.ms()));
            let series = chart.draw_series(LineSeries::new(line, color.stroke_width(2)))?;
            series
                .label(*graph)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2)));
        }
        chart.configure_series_labels().background_style(WHITE).border_style(BLACK.mix(0.3)).draw()?;
        area.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::Summary;

    #[test]
    fn a_table_takes_the_place_of_the_one_before() {
        let page = format!("# Title\n{BEGIN}old\n{END}after\n");
        assert_eq!(with_table(&page, "new\n").unwrap(), format!("# Title\n{BEGIN}new\n{END}after\n"));
        assert!(with_table("# Title\n", "new\n").is_none());
    }

    #[test]
    fn tables_have_a_row_for_each_number_of_gpus_and_for_each_recorded_graph() {
        let case = |name: &str, ms: f64| Case::new(name, Summary::of(&[ms / 1e3]));
        let choice = |name: &str, ms: f64| case(name, ms).with("is_choice", 1.0);
        let cases = [
            choice("reddit/1/1d", 4.0),
            choice("reddit/2/2d", 2.5),
            choice("papers100m/2/1d", 9.0),
            case("reddit/1/recorded/f32/once", 4.0).with("predicted_ms", 3.9).with("predicted_over_measured", 0.975),
        ];
        let points: Vec<Point<'_>> = cases.iter().filter_map(Point::of).collect();
        assert_eq!(
            chosen(&points),
            "| GPUs | reddit | papers100m |\n|--:|--:|--:|\n| 1 | 4.00, 1d |  |\n| 2 | 2.50, 2d | 9.00, 1d |\n"
        );
        assert_eq!(checked(&cases), "| graph | f32/once |\n|--:|--:|\n| reddit | 4.00, 3.90 |\n");
    }

    #[test]
    fn choices_are_points_of_a_line() {
        let case = |name: &str, ms: f64| Case::new(name, Summary::of(&[ms / 1e3])).with("is_choice", 1.0);
        let cases = [case("reddit/1/1d", 4.0), case("reddit/2/2d", 2.5), Case::new("reddit/2/1d", Summary::of(&[1.0]))];
        let points: Vec<Point<'_>> = cases.iter().filter_map(Point::of).collect();
        assert_eq!(points.iter().map(|point| (point.gpus, point.scheme)).collect::<Vec<_>>(), [(1, "1d"), (2, "2d")]);
        let drawn = plot(&points).unwrap();
        assert!(drawn.starts_with("<svg") && drawn.contains("reddit"));
    }
}
