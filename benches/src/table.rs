//! Report as a table on the terminal.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::{Case, Goal, Report};

/// Table of a report with one row per case; with `baseline`, the last column is the speedup.
#[must_use]
pub fn render(report: &Report, baseline: Option<&Report>) -> String {
    let metrics: BTreeSet<&str> =
        report.cases.iter().flat_map(|case| case.metrics.keys()).map(String::as_str).collect();
    let mut rows = vec![header(&metrics, baseline)];
    let speedups = baseline.map(|baseline| report.speedups(baseline));
    for (at, case) in report.cases.iter().enumerate() {
        let time = &case.time;
        let mut row = vec![name(case), millis(time.median_s), millis(time.min_s), millis(time.iqr_s)];
        row.extend(metrics.iter().map(|metric| case.metrics.get(*metric).map_or(String::new(), |v| significant(*v))));
        row.extend(speedups.as_ref().map(|s| s[at].map_or(String::new(), |ratio| format!("{ratio:.2}×"))));
        rows.push(row);
    }
    let goals: String = report.goals.iter().map(describe).collect();
    preamble(report) + &align(&rows) + if goals.is_empty() { "" } else { "\n" } + &goals
}

/// Description of a goal, one line.
fn describe(goal: &Goal) -> String {
    let verdict = if goal.is_met { "met" } else { "missed" };
    format!("goal     {}: {} of at most {}, {verdict}\n", goal.what, significant(goal.found), significant(goal.at_most))
}

/// Name, with the variant.
fn name(case: &Case) -> String {
    case.variant.as_ref().map_or_else(|| case.name.clone(), |variant| format!("{} ({variant})", case.name))
}

fn header(metrics: &BTreeSet<&str>, baseline: Option<&Report>) -> Vec<String> {
    let mut row = ["case", "median ms", "min ms", "iqr ms"].map(str::to_owned).to_vec();
    row.extend(metrics.iter().map(|metric| (*metric).to_owned()));
    row.extend(baseline.map(|earlier| match &earlier.commit {
        Some(commit) => format!("× {commit}"),
        None => format!("× {}", earlier.date),
    }));
    row
}

fn preamble(report: &Report) -> String {
    let commit = report.commit.as_ref().map_or("no commit".to_owned(), ToString::to_string);
    let graph = report.graph.as_ref().map_or(String::new(), |graph| format!("graph    {graph}\n"));
    let device = report
        .device
        .as_ref()
        .map_or(String::new(), |device| format!("device   {}, copies {:.0} GB/s\n", device.name, device.copy_gb_s));
    format!(
        "suite    {} ({commit}, {})\nmachine  {}\nceiling  {}\n{device}{graph}\n",
        report.suite,
        report.date,
        report.machine.describe(),
        report.ceilings.describe()
    )
}

fn millis(seconds: f64) -> String {
    significant(seconds * 1e3)
}

/// Number with about four significant digits, without an exponent.
pub(crate) fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => format!("{value:.1}"),
        size if size >= 10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Columns as wide as their widest cell: the first aligned left, the others right.
pub(crate) fn align(rows: &[Vec<String>]) -> String {
    let n_columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..n_columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "  {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bb"], ["ccc", "d"]].map(|row| row.map(str::to_owned).to_vec());
        assert_eq!(align(&rows), "a    bb\nccc   d\n");
    }

    #[test]
    fn goals_say_what_was_found() {
        let lines = [Goal::at_most("loss, millionths", 12.0, 100.0), Goal::at_most("bf16, points", 0.31, 0.3)];
        assert_eq!(describe(&lines[0]), "goal     loss, millionths: 12.00 of at most 100.0, met\n");
        assert_eq!(describe(&lines[1]), "goal     bf16, points: 0.310 of at most 0.300, missed\n");
    }

    #[test]
    fn numbers_keep_about_four_digits() {
        assert_eq!([0.5, 12.345, 123.45, 12345.6].map(significant), ["0.500", "12.35", "123.5", "12346"]);
    }
}
