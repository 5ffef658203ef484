//! Edge lists: text, one edge a line, `source destination [weight]`.
//!
//! ```text
//! # comments start with #, % or //            the separator is the comma when the first line has one, else blanks
//! source,destination,weight                   a header is a first line without any number
//! 0,1,0.5                                     edge 0 → 1: row 1, column 0
//! ```
//! Chunks that end at line ends are parsed in parallel; the result and the error do not depend on how many.

use std::path::Path;

use super::number::{float, integer};
use super::text::{Fields, Lines, Separator, Text, concat, line_error, parse_lines, shown, without_mark, write_text};
use crate::{Coo, Csr, FormatError, MAX_NODES, NodeId};

/// How to read an edge list.
#[derive(Clone, Debug, Default)]
pub struct EdgeListOptions {
    /// Number of nodes; `None`: the largest id plus one, unless that is out of all proportion to the edges.
    pub n_nodes: Option<usize>,
}

/// Reads a list of edges from a text file, unpacking it when its name ends in `.gz`.
///
/// # Errors
/// When the file cannot be read, or at the first line that is no edge, naming the line.
pub fn read_edge_list(path: &Path, options: &EdgeListOptions) -> Result<Coo, FormatError> {
    let text = Text::read(path)?;
    parse_edge_list(&text, options).map_err(|e| e.at(path))
}

/// Reads a list of edges from text.
///
/// # Errors
/// At the first line that is no edge, naming the line.
pub fn parse_edge_list(text: &[u8], options: &EdgeListOptions) -> Result<Coo, FormatError> {
    let text = without_mark(text);
    if text.starts_with(b"%%MatrixMarket") {
        return Err(FormatError::invalid("a Matrix Market file, which counts nodes from 1; give it the ending .mtx"));
    }
    let limit = options.n_nodes.unwrap_or(MAX_NODES);
    if limit > MAX_NODES {
        return Err(FormatError::invalid(format!("{limit} nodes exceed the limit of {MAX_NODES}")));
    }
    let Some(layout) = Layout::detect(text, limit)? else {
        return Coo::from_edges(Vec::new(), Vec::new(), None, options.n_nodes);
    };
    let parse = |line: &[u8], edges: &mut Edges| layout.parse_line(line, edges);
    let edges = Edges::concat(&parse_lines(&text[layout.start..], layout.n_lines_before, parse)?);
    let weights = layout.weighted.then_some(edges.weights);
    Coo::from_edges(edges.sources, edges.destinations, weights, options.n_nodes)
}

/// How the lines of one file look.
#[derive(Debug)]
struct Layout {
    separator: Separator,
    weighted: bool,
    /// Ids must be below.
    limit: usize,
    /// Where the first edge's line starts.
    start: usize,
    n_lines_before: usize,
}

impl Layout {
    /// Looks at the lines up to the first edge; `None` when there are no edges.
    fn detect(text: &[u8], limit: usize) -> Result<Option<Self>, FormatError> {
        let mut lines = Lines::new(text);
        let mut header: Option<(usize, &[u8])> = None;
        let mut start = 0;
        while let Some(line) = lines.next() {
            let number = lines.n_read();
            if !is_skipped(line) {
                let separator = if line.contains(&b',') { Separator::Comma } else { Separator::Blank };
                let fields = Fields::new(line, separator);
                let n_fields = fields.clone().count();
                let is_header = !fields.clone().any(starts_like_number);
                if header.is_some() || !is_header {
                    if !(2..=3).contains(&n_fields) {
                        return Err(line_error(number, line, &format!("{n_fields} fields; expected {FIELDS}")));
                    }
                    return Ok(Some(Self {
                        separator,
                        weighted: n_fields == 3,
                        limit,
                        start,
                        n_lines_before: number - 1,
                    }));
                }
                header = Some((number, line));
            }
            start = text.len() - lines.rest().len();
        }
        match header {
            None => Ok(None),
            // Any text without a digit looks like a header; a file with nothing else is not a list of edges.
            Some((n, line)) => Err(line_error(n, line, "a header, but no edge follows it; is this a list of edges?")),
        }
    }

    /// Adds the edge of a line, if it holds one.
    fn parse_line(&self, line: &[u8], edges: &mut Edges) -> Result<(), String> {
        if is_skipped(line) {
            return Ok(());
        }
        let mut fields = Fields::new(line, self.separator);
        let source = self.parse_id(fields.next())?;
        let destination = self.parse_id(fields.next())?;
        match (self.weighted, fields.next()) {
            (true, Some(field)) => edges.weights.push(parse_weight(field)?),
            (false, None) => {}
            (true, None) => return Err("no weight, but earlier lines have one; all or none must".to_owned()),
            (false, Some(_)) => return Err("a third field, but earlier lines have two; all or none must".to_owned()),
        }
        if fields.next().is_some() {
            return Err(format!("more than three fields; expected {FIELDS}"));
        }
        edges.sources.push(source);
        edges.destinations.push(destination);
        Ok(())
    }

    fn parse_id(&self, field: Option<&[u8]>) -> Result<NodeId, String> {
        let field = field.ok_or_else(|| format!("one field; expected {FIELDS}"))?;
        let id =
            integer(field).ok_or_else(|| format!("{:?} is not a node id; expected an integer from 0", shown(field)))?;
        if id < self.limit as u64 {
            Ok(id as NodeId)
        } else {
            Err(format!("node {id} does not exist; there are at most {} nodes, numbered from 0", self.limit))
        }
    }
}

const FIELDS: &str = "source, destination and an optional weight";

/// The edges of a chunk, or of all of them.
#[derive(Debug, Default)]
struct Edges {
    sources: Vec<NodeId>,
    destinations: Vec<NodeId>,
    weights: Vec<f32>,
}

impl Edges {
    fn concat(chunks: &[Self]) -> Self {
        Self {
            sources: concat(chunks, |c| &c.sources),
            destinations: concat(chunks, |c| &c.destinations),
            weights: concat(chunks, |c| &c.weights),
        }
    }
}

/// Whether a line holds nothing or a comment.
fn is_skipped(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    matches!(line, [] | [b'#' | b'%', ..] | [b'/', b'/', ..])
}

fn starts_like_number(field: &[u8]) -> bool {
    field.first().is_some_and(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.'))
}

fn parse_weight(field: &[u8]) -> Result<f32, String> {
    let weight = float(field).filter(|weight| weight.is_finite());
    weight.ok_or_else(|| format!("{:?} is not a weight; expected a finite number", shown(field)))
}

/// Writes the edges of a graph, row by row: separated by commas when the name holds `.csv`, else by tabs; packed when
/// it ends in `.gz`. Isolated nodes with the largest ids leave no trace: give their number when reading.
///
/// # Errors
/// When the file cannot be written.
pub fn write_edge_list(path: &Path, csr: &Csr) -> Result<(), FormatError> {
    let name = path.file_name().map(|n| n.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let separator = if name.contains(".csv") { ',' } else { '\t' };
    write_text(path, |out| {
        for destination in 0..csr.n_rows() {
            for (source, weight) in csr.row_entries(destination) {
                write!(out, "{source}{separator}{destination}")?;
                if csr.values().is_some() {
                    // The shortest text that reads back as the same number.
                    write!(out, "{separator}{weight}")?;
                }
                writeln!(out)?;
            }
        }
        Ok(())
    })
}
