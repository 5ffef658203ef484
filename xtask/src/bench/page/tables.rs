//! Tables of the papers, and of kernels that were measured beside girih.

use serde::Deserialize;

use super::html::{details, element, escape, table};
use crate::bench::papers::{Filled, figure, tables};
use crate::listing::Listing;
use crate::results::record::Record;

/// File with figures of kernels and pipelines whose sources are not part of girih.
const KERNELS: &str = "benches/peers/gpu-kernels.json";

/// Every table of the papers, with girih's figures.
pub fn papers(records: &[Record]) -> String {
    let mut body = String::new();
    for paper_table in tables() {
        let filled = Filled::new(paper_table, records);
        body += "<article>\n";
        body += &format!("<h3 id=\"{0}\">{0} · {1}</h3>\n", paper_table.id, escape(paper_table.title));
        body += &format!(
            "<p class=\"soft\">{}. GPU of the paper: {}. {}</p>\n",
            escape(paper_table.paper.about),
            escape(paper_table.paper.gpu),
            escape(paper_table.note)
        );
        body += &of_paper(&filled);
        body += &sources(&filled);
        body += "</article>\n";
    }
    format!("<div class=\"pairs\">\n{body}</div>\n")
}

fn of_paper(filled: &Filled<'_>) -> String {
    let columns = filled.table.columns;
    let headings: Vec<String> =
        std::iter::once(String::new()).chain(columns.iter().map(|column| escape(column.name))).collect();
    let rows: Vec<Vec<String>> = filled
        .table
        .rows
        .iter()
        .zip(&filled.ours)
        .map(|(row, ours)| {
            let cells = row.theirs.iter().zip(ours).map(|(theirs, ours)| {
                let ours = ours.as_ref().map_or("–".to_owned(), |found| figure(found.value));
                let ours = format!("<span class=\"ours\">{ours}</span>");
                if theirs.is_empty() { ours } else { format!("<span class=\"theirs\">{}</span>{ours}", escape(theirs)) }
            });
            std::iter::once(escape(row.name)).chain(cells).collect()
        })
        .collect();
    table(&headings, &rows)
}

/// Records of a table, and the commands that renew them.
fn sources(filled: &Filled<'_>) -> String {
    let described = filled.sources();
    let n = described.len();
    let records = described.iter().map(|source| escape(source));
    let commands = filled.table.commands.iter().map(|command| format!("<code>{}</code>", escape(command)));
    let summary = match n {
        0 => "No record has figures of girih; commands".to_owned(),
        1 => "1 record, and commands that renew it".to_owned(),
        _ => format!("{n} records, and commands that renew them"),
    };
    details(&summary, &records.chain(commands).collect::<Vec<_>>())
}

/// Contents of [`KERNELS`].
#[derive(Deserialize)]
struct Kernels {
    device: String,
    date: String,
    commit: String,
    about: String,
    tables: Vec<Measured>,
}

/// Figures of one kind of work.
#[derive(Deserialize)]
struct Measured {
    title: String,
    unit: String,
    /// `less` or `more`: the better direction.
    better: String,
    columns: Vec<String>,
    rows: Vec<(String, Vec<f64>)>,
    note: String,
}

/// Tables of the data file.
///
/// # Errors
/// When the file is missing or has another form.
pub fn kernels(listing: &Listing) -> Result<String, String> {
    let text = listing.text(KERNELS).ok_or_else(|| format!("{KERNELS}: no such file; the page needs it"))?;
    let kernels: Kernels = serde_json::from_str(text).map_err(|e| format!("{KERNELS}: {e}"))?;
    let mut body = format!(
        "<p class=\"soft\">{} {}, {}, girih at {}. Figures are from <a href=\"../{KERNELS}\">a data file</a>.</p>\n",
        escape(&kernels.about),
        escape(&kernels.device),
        escape(&kernels.date),
        escape(&kernels.commit)
    );
    for measured in &kernels.tables {
        body += &measured.html()?;
    }
    Ok(body)
}

impl Measured {
    fn html(&self) -> Result<String, String> {
        let Self { title, unit, better, columns, rows, note } = self;
        if !["less", "more"].contains(&better.as_str()) {
            return Err(format!("{KERNELS}: {title}: 'better' is '{better}'; it is 'less' or 'more'"));
        }
        if let Some((name, figures)) = rows.iter().find(|(_, figures)| figures.len() != columns.len()) {
            let (found, expected) = (figures.len(), columns.len());
            return Err(format!("{KERNELS}: {title}: row '{name}' has {found} figures for {expected} columns"));
        }
        let headings: Vec<String> =
            std::iter::once(String::new()).chain(columns.iter().map(|name| escape(name))).collect();
        let cells = |(name, figures): &(String, Vec<f64>)| -> Vec<String> {
            let figures = figures.iter().zip(columns).map(|(value, column)| {
                let class = if column.starts_with("girih") { "ours" } else { "theirs" };
                format!("<span class=\"{class}\">{}</span>", figure(*value))
            });
            std::iter::once(escape(name)).chain(figures).collect()
        };
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        let heading = element("h3", &format!("{title}; {unit}, {better} is better"));
        Ok(heading + &table(&headings, &rows) + &format!("<p class=\"soft\">{}</p>\n", escape(note)))
    }
}
