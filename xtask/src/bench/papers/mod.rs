//! Tables and figures of the four papers, with the figures of girih's records beside them.
//!
//! - [`table`]: the form of the data.
//! - `a`, `b`, `c`, `d`: the data, one module a paper.
//! - [`Filled`]: a table with the figures of the newest records.
//! - [`run`]: `cargo xtask bench paper`.

mod a;
mod b;
mod c;
mod d;
mod table;

use std::collections::BTreeMap;

use crate::listing::Listing;
use crate::results::fits;
use crate::results::record::Record;
use table::{Column, Row, Table};

/// All tables, by paper.
pub fn tables() -> impl Iterator<Item = &'static Table> {
    [a::TABLES, b::TABLES, c::TABLES, d::TABLES].into_iter().flatten()
}

/// Figure of a record.
pub struct Found<'a> {
    /// The figure.
    pub value: f64,
    /// Its record.
    pub record: &'a Record,
    /// Name of its case.
    pub case: &'a str,
}

/// Table with the figures of records.
pub struct Filled<'a> {
    /// The table.
    pub table: &'static Table,
    /// Figure of girih for each row and column.
    pub ours: Vec<Vec<Option<Found<'a>>>>,
}

impl<'a> Filled<'a> {
    /// Table with the figures of the newest records that have them.
    pub fn new(table: &'static Table, records: &'a [Record]) -> Self {
        let of_row = |row: &'static Row| -> Vec<Option<Found<'a>>> {
            table.columns.iter().zip(row.cases).map(|(column, case)| newest(column, row.graph, case, records)).collect()
        };
        Self { table, ours: table.rows.iter().map(of_row).collect() }
    }

    /// Number of figures of girih.
    pub fn n_found(&self) -> usize {
        self.ours.iter().flatten().flatten().count()
    }

    /// Lines about the records, sorted: name, graph with its sizes, device and date.
    pub fn sources(&self) -> Vec<String> {
        let found = self.ours.iter().flatten().flatten();
        let lines: BTreeMap<&str, String> =
            found.map(|found| (found.record.name.as_str(), found.record.describe(found.case))).collect();
        lines.into_values().collect()
    }
}

/// Figure of the newest record whose suite, graph and case fit; of several cases the fastest.
fn newest<'a>(column: &Column, graph: &str, pattern: &str, records: &'a [Record]) -> Option<Found<'a>> {
    let mut best: Option<Found<'a>> = None;
    for record in records.iter().filter(|record| column.suites.contains(&record.suite.as_str())) {
        for (_, cases) in record.cases_by_graph().into_iter().filter(|(spec, _)| fits(graph, spec)) {
            let fitting = cases.iter().filter(|(name, _)| fits(pattern, name));
            let fastest = fitting.min_by(|a, b| a.1.time.median_s.total_cmp(&b.1.time.median_s));
            let value = fastest.and_then(|(_, case)| Some((column.value.of(case)?, case.name.as_str())));
            let Some((value, case)) = value else { continue };
            if best.as_ref().is_none_or(|best| record.date >= best.record.date) {
                best = Some(Found { value, record, case });
            }
        }
    }
    best
}

/// Lists the tables, or prints the one with an id.
///
/// # Errors
/// When records cannot be read, or no table has the id.
pub fn run(listing: &Listing, id: Option<&str>) -> Result<(), String> {
    let records = Record::all(listing)?;
    let Some(id) = id else {
        print!("{}", list(&records));
        return Ok(());
    };
    let table = tables().find(|table| table.id.eq_ignore_ascii_case(id)).ok_or_else(|| {
        let ids: Vec<&str> = tables().map(|table| table.id).collect();
        format!("no table is called '{id}'; there are {}", ids.join(", "))
    })?;
    print!("{}", text(&Filled::new(table, &records)));
    Ok(())
}

fn list(records: &[Record]) -> String {
    let mut text = String::new();
    let mut paper = "";
    for table in tables() {
        if paper != table.paper.letter {
            text += &format!("{}: {}; {}\n", table.paper.letter, table.paper.about, table.paper.gpu);
            paper = table.paper.letter;
        }
        let n_cells = table.rows.len() * table.columns.len();
        let n_found = Filled::new(table, records).n_found();
        text += &format!("  {:<10} {} ({n_found} of {n_cells} figures recorded)\n", table.id, table.title);
    }
    text + "\n`cargo xtask bench paper ID` prints one\n"
}

/// Table for a terminal: each column has the paper's figures, then girih's.
fn text(filled: &Filled<'_>) -> String {
    let table = filled.table;
    let mut rows = vec![vec![String::new()]];
    for column in table.columns {
        rows[0].extend([column.name.to_owned(), "girih".to_owned()]);
    }
    for (row, ours) in table.rows.iter().zip(&filled.ours) {
        let mut cells = vec![row.name.to_owned()];
        for (theirs, ours) in row.theirs.iter().zip(ours) {
            cells.extend([or_dash(theirs), ours.as_ref().map_or("–".to_owned(), |found| figure(found.value))]);
        }
        rows.push(cells);
    }
    let mut text = format!(
        "{}\n{}; its GPU: {}\n{}\n\n{}\n",
        table.title,
        table.paper.about,
        table.paper.gpu,
        table.note,
        align(&rows)
    );
    let sources = filled.sources();
    if sources.is_empty() {
        text += "No record has figures of girih.\n";
    }
    for source in sources {
        text += &format!("record   {source}\n");
    }
    for command in table.commands {
        text += &format!("renew    {command}\n");
    }
    if table.commands.iter().any(|command| command.contains("GRAPH")) {
        text += "GRAPH    reddit, proteins, archaea, products or papers100m\n";
    }
    text
}

/// Number with three significant digits, without an exponent.
pub fn figure(value: f64) -> String {
    let magnitude = if value == 0.0 { 0.0 } else { value.abs().log10().floor() };
    let decimals = (2.0 - magnitude).clamp(0.0, 6.0) as usize;
    format!("{value:.decimals$}")
}

fn or_dash(figure: &str) -> String {
    if figure.is_empty() { "–".to_owned() } else { figure.to_owned() }
}

/// Columns as wide as their widest cell; all but the first aligned right.
fn align(rows: &[Vec<String>]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(at, (cell, &width))| if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_a_figure_and_a_case_for_each_column() {
        let mut ids = std::collections::BTreeSet::new();
        for table in tables() {
            assert!(ids.insert(table.id), "{} twice", table.id);
            assert!(table.id.starts_with(table.paper.letter) && !table.commands.is_empty(), "{}", table.id);
            for row in table.rows {
                let n = table.columns.len();
                assert!(row.theirs.len() == n && row.cases.len() == n, "{}: {}", table.id, row.name);
            }
        }
    }

    #[test]
    fn the_newest_record_counts_and_says_where_it_is_from() {
        let record = |date: &str, seconds: f64| {
            format!(
                r#"{{"suite": "gpu-ablation", "graph": "sreddit: 9 nodes, 4 edges", "date": "{date}", "commit": null,
                "machine": {{"cpu": "Any", "cores": 2}}, "device": {{"name": "NVIDIA H200"}},
                "cases": [{{"name": "community/f32/0.05", "time": {{"median_s": {seconds}}}, "metrics": {{}}}}]}}"#
            )
        };
        let (old, new) = (record("2026-01-01", 0.5), record("2026-01-02", 0.25));
        let listing = Listing::of(&[
            ("benches/record/gpu-ablation-a-abc.json", &new),
            ("benches/record/gpu-ablation-b-abd.json", &old),
        ]);
        let records = Record::all(&listing).unwrap();
        let table = tables().find(|table| table.id == "A5").unwrap();
        let text = text(&Filled::new(table, &records));
        assert!(text.contains("0.102  0.250"), "{text}");
        assert!(
            text.contains("record   gpu-ablation-a-abc: sreddit: 9 nodes, 4 edges; 1 × H200; 2026-01-02\n"),
            "{text}"
        );
        assert!(text.contains("renew    cargo xtask bench gpu-ablation"), "{text}");
        let empty = Filled::new(table, &[]);
        assert!(super::text(&empty).contains("No record has figures of girih."));
        assert!(run(&listing, Some("Z9")).unwrap_err().contains("A4, A5"));
    }

    #[test]
    fn figures_have_three_digits() {
        assert_eq!([0.0029, 0.1, 12.345, 1234.5, 0.0].map(figure), ["0.00290", "0.100", "12.3", "1234", "0.00"]);
    }

    #[test]
    fn most_tables_of_this_tree_have_figures() {
        let records = Record::all(&Listing::read(&crate::workspace_root()).unwrap()).unwrap();
        let without: Vec<&str> =
            tables().filter(|table| Filled::new(table, &records).n_found() == 0).map(|table| table.id).collect();
        assert_eq!(without, ["C5"]);
    }
}
