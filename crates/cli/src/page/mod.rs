//! Self-contained pages: their frame, tables and [`Chart`]s. Nothing is fetched from a network, and colours follow the
//! light or dark setting of the reader.

mod chart;
mod classes;
pub mod ranks;
pub mod report;

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

pub use self::chart::{Chart, Series};

/// Style of all pages.
const STYLE: &str = include_str!("page.css");
/// Values of charts under the pointer.
const SCRIPT: &str = include_str!("chart.js");

/// Page with a title, which is also its heading.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    let script = if body.contains("class=\"plot\"") { format!("<script>{SCRIPT}</script>") } else { String::new() };
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>{title}</title>\n\
         <style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{body}{script}</body></html>\n"
    )
}

/// Section with a heading; empty without a body.
pub fn section(heading: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("<section><h2>{}</h2>{body}</section>\n", escape(heading)) }
}

/// Table of names and values; rows without a value are left out, and so is a table without rows.
pub fn facts<'t>(rows: impl IntoIterator<Item = (&'t str, String)>) -> String {
    let mut table = String::new();
    for (name, value) in rows.into_iter().filter(|(_, value)| !value.is_empty()) {
        let _ = write!(table, "<tr><th>{}</th><td>{}</td></tr>", escape(name), escape(&value));
    }
    if table.is_empty() { table } else { format!("<table class=\"facts\">{table}</table>") }
}

/// Table of figures under column names. The first cell of a row is its name. Cells are text.
pub fn figures(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect()
    };
    let mut table = String::new();
    for row in rows {
        let (name, values) = row.split_first().expect("a row has a name");
        let _ = write!(table, "<tr><th>{}</th>{}</tr>", escape(name), cells("td", values));
    }
    let columns: Vec<String> = columns.iter().map(|&column| column.to_owned()).collect();
    format!("<div class=\"wide\"><table class=\"figures\"><tr>{}</tr>{table}</table></div>", cells("th", &columns))
}

/// Picture inside of the page.
pub fn picture(png: &[u8], alt: &str) -> String {
    format!("<img alt=\"{}\" src=\"data:image/png;base64,{}\">", escape(alt), BASE64_STANDARD.encode(png))
}

/// Paragraph in a small font.
pub fn note(text: &str) -> String {
    format!("<p class=\"note\">{}</p>", escape(text))
}

/// Text escaped for HTML, also inside of quotes.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
