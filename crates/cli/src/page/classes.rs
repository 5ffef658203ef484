//! Test scores of every class: confusion matrix, precision, recall and F1.

use std::fmt::Write as _;

use girih_trainer::{ClassScores, ConfusionMatrix, TestReport};

use super::{figures, note, section};
use crate::output::percent;

/// Maximum number of classes whose matrix is shown with numbers.
const SHOWN_MAX: usize = 16;
/// Number of wrong pairs that are listed of a larger matrix.
const LISTED: usize = 12;
/// Maximum number of classes or labels that are listed.
const ROWS_MAX: usize = 200;

/// Section of the test scores by class; empty without labelled test nodes.
pub fn html(test: &TestReport) -> String {
    let Some(f1) = test.f1 else { return String::new() };
    let absent = match f1.n_absent {
        0 => String::new(),
        n => format!("; {n} of them neither occur nor are predicted, and count zero in the macro average"),
    };
    let averages = figures(
        &["average", "F1"],
        [("micro, over all decisions", f1.micro), ("macro, over classes", f1.macro_)]
            .map(|(name, value)| vec![name.to_owned(), percent(value)]),
    );
    let n = test.confusion.of_each_class().len();
    let body = averages
        + &note(&format!("Test nodes of the last run at its best epoch, {n} classes{absent}."))
        + &format!(
            "<div class=\"columns\"><div>{}</div><div>{}</div></div>",
            test.matrix.as_ref().map_or(String::new(), matrix),
            each_class(test)
        );
    section("Classes", &body)
}

fn each_class(test: &TestReport) -> String {
    let scores = test.confusion.of_each_class();
    let what = if test.matrix.is_some() { "class" } else { "label" };
    let shown = |value: Option<f64>| value.map_or("–".to_owned(), percent);
    let row = |(class, scores): (usize, &ClassScores)| {
        vec![
            class.to_string(),
            scores.n_nodes.to_string(),
            shown(scores.precision),
            shown(scores.recall),
            shown(scores.f1),
        ]
    };
    let rows = scores.iter().enumerate().take(ROWS_MAX).map(row);
    let table = figures(&[what, "nodes", "precision", "recall", "F1"], rows);
    let rest = match scores.len().saturating_sub(ROWS_MAX) {
        0 => String::new(),
        n => note(&format!("{n} more are not listed.")),
    };
    if scores.len() <= SHOWN_MAX {
        format!("<h3>Each {what}</h3>{table}")
    } else {
        format!("<details><summary>Each {what}</summary>{table}{rest}</details>")
    }
}

fn matrix(matrix: &ConfusionMatrix) -> String {
    if matrix.n_classes() > SHOWN_MAX {
        return format!("<h3>Most frequent confusions</h3>{}", most_frequent(matrix));
    }
    let n = matrix.n_classes();
    let mut rows: String = (0..n).map(|class| format!("<th>{class}</th>")).collect();
    rows = format!("<tr><th></th>{rows}</tr>");
    for class in 0..n {
        let row = matrix.row(class);
        let all = row.iter().sum::<u64>().max(1);
        let _ = write!(rows, "<tr><th>{class}</th>");
        for &count in row {
            // Twenty steps of colour; the first is for more than nothing.
            let step = (20 * count).div_ceil(all);
            let _ = write!(rows, "<td class=\"s{step}\">{count}</td>");
        }
        rows.push_str("</tr>");
    }
    format!(
        "<h3>Confusion matrix</h3><div class=\"wide\"><table class=\"matrix\">{rows}</table></div>{}",
        note("A row for each class, a column for each predicted class; darker cells have more of their row.")
    )
}

fn most_frequent(matrix: &ConfusionMatrix) -> String {
    let n = matrix.n_classes();
    let of_row = |class: usize| matrix.row(class).iter().enumerate().map(move |(found, &count)| (count, class, found));
    let mut wrong: Vec<_> =
        (0..n).flat_map(of_row).filter(|&(count, class, found)| count > 0 && class != found).collect();
    wrong.sort_by_key(|&(count, class, found)| (std::cmp::Reverse(count), class, found));
    let share = |count: u64, class: usize| percent(count as f64 / matrix.row(class).iter().sum::<u64>() as f64);
    let rows = wrong.into_iter().take(LISTED).map(|(count, class, found)| {
        vec![class.to_string(), found.to_string(), count.to_string(), share(count, class)]
    });
    figures(&["class", "predicted", "nodes", "of the class"], rows)
}
