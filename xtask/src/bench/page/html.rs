//! Parts of HTML: escaped text, tables that scroll within themselves.

/// Text with the characters escaped that HTML gives a meaning.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Element with escaped text.
pub fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>\n", escape(text))
}

/// Table with headings and rows of HTML cells. The first cell of a row is its heading.
pub fn table(headings: &[String], rows: &[Vec<String>]) -> String {
    let heads: String = headings.iter().map(|heading| format!("<th scope=\"col\">{heading}</th>")).collect();
    let body: String = rows.iter().map(|row| body_row(row)).collect();
    format!("<div class=\"scroll\"><table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{body}</tbody>\n</table></div>\n")
}

fn body_row(cells: &[String]) -> String {
    let Some((first, rest)) = cells.split_first() else { return String::new() };
    let rest: String = rest.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    format!("<tr><th scope=\"row\">{first}</th>{rest}</tr>\n")
}

/// Summary that opens a list of lines.
pub fn details(summary: &str, lines: &[String]) -> String {
    let items: String = lines.iter().map(|line| format!("<li>{line}</li>\n")).collect();
    format!("<details><summary>{}</summary><ul>\n{items}</ul></details>\n", escape(summary))
}

/// Link to a record, from a page in `docs`.
pub fn record_link(name: &str) -> String {
    format!("<a href=\"../benches/record/{0}.json\">{0}</a>", escape(name))
}
