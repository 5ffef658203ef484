//! Edge lists: text, one edge a line, `source destination [weight]`.
//!
//! ```text
//! # comments start with #, % or //            the separator is the comma when the first line has one, else blanks
//! source,destination,weight                   a header is a first line without any number
//! 0,1,0.5                                     edge 0 → 1: row 1, column 0
//! ```
//! Chunks that end at line ends are parsed in parallel; the result and the error do not depend on how many.

use std::io::{BufWriter, Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use rayon::prelude::*;

use super::npy::map_file;
use super::write_file;
use crate::{Coo, Csr, FormatError, MAX_NODES, NodeId};

/// Bytes that one task parses.
const CHUNK: usize = 1 << 20;
/// Ids up to here are taken as they are, whatever their number: a graph of so many nodes is small.
const MAX_SMALL_GRAPH: usize = 1 << 24;
/// Nodes per edge above which a larger graph is rather one whose ids were never numbered from 0.
const MAX_NODES_PER_EDGE: usize = 100;

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
    let map = map_file(path)?;
    let parsed = if is_gzip(path) {
        let mut text = Vec::new();
        match MultiGzDecoder::new(&map[..]).read_to_end(&mut text) {
            Ok(_) => parse_edge_list(&text, options),
            Err(error) => Err(FormatError::corrupt(format!("not a readable gzip file: {error}"))),
        }
    } else {
        parse_edge_list(&map, options)
    };
    parsed.map_err(|e| e.at(path))
}

/// Reads a list of edges from text.
///
/// # Errors
/// At the first line that is no edge, naming the line.
pub fn parse_edge_list(text: &[u8], options: &EdgeListOptions) -> Result<Coo, FormatError> {
    if text.starts_with(b"%%MatrixMarket") {
        let message = "a Matrix Market file counts nodes from 1 and has a line of sizes; convert it to .npz first, \
                       as with scipy.io.mmread and scipy.sparse.save_npz";
        return Err(FormatError::invalid(message));
    }
    let limit = options.n_nodes.unwrap_or(MAX_NODES);
    if limit > MAX_NODES {
        return Err(FormatError::invalid(format!("{limit} nodes exceed the limit of {MAX_NODES}")));
    }
    let Some(layout) = Layout::detect(text, limit)? else {
        return Coo::new(options.n_nodes.unwrap_or(0), options.n_nodes.unwrap_or(0), Vec::new(), Vec::new(), None);
    };
    let chunks: Vec<Edges> = split_lines(&text[layout.start..]).into_par_iter().map(|c| layout.parse(c)).collect();
    let edges = Edges::concat(chunks, layout.n_lines_before)?;
    let n_nodes = options.n_nodes.map_or_else(|| edges.count_nodes(), Ok)?;
    let weights = layout.weighted.then_some(edges.weights);
    Coo::new(n_nodes, n_nodes, edges.destinations, edges.sources, weights)
}

/// How the lines of one file look.
#[derive(Debug)]
struct Layout {
    comma: bool,
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
        let mut start = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let mut header: Option<(usize, &[u8])> = None;
        for n_lines_before in 0.. {
            if start == text.len() {
                break;
            }
            let (line, rest) = next_line(&text[start..]);
            if !is_blank(line) {
                let comma = line.contains(&b',');
                let n_fields = fields(line, comma).count();
                let is_header = !fields(line, comma).any(starts_like_number);
                if header.is_some() || !is_header {
                    if !(2..=3).contains(&n_fields) {
                        return Err(line_error(n_lines_before, line, &format!("{n_fields} fields; expected {FIELDS}")));
                    }
                    return Ok(Some(Self { comma, weighted: n_fields == 3, limit, start, n_lines_before }));
                }
                header = Some((n_lines_before, line));
            }
            start = text.len() - rest.len();
        }
        match header {
            None => Ok(None),
            // Any text without a digit looks like a header; a file with nothing else is not a list of edges.
            Some((n, line)) => Err(line_error(n, line, "a header, but no edge follows it; is this a list of edges?")),
        }
    }

    /// The edges of whole lines; on an error, those before it.
    fn parse(&self, mut text: &[u8]) -> Edges {
        let mut edges = Edges::default();
        while !text.is_empty() {
            let (line, rest) = next_line(text);
            if !is_blank(line)
                && let Err(problem) = self.parse_line(line, &mut edges)
            {
                edges.problem = Some(Problem { line: line[..line.len().min(EXCERPT)].to_vec(), problem });
                return edges;
            }
            edges.n_lines += 1;
            text = rest;
        }
        edges
    }

    fn parse_line(&self, line: &[u8], edges: &mut Edges) -> Result<(), String> {
        let mut fields = fields(line, self.comma);
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
        let id = parse_integer(field).ok_or_else(|| {
            format!("{:?} is not a node id; expected an integer from 0", String::from_utf8_lossy(field))
        })?;
        if id < self.limit as u64 {
            Ok(id as NodeId)
        } else {
            Err(format!("node {id} does not exist; there are at most {} nodes, numbered from 0", self.limit))
        }
    }
}

const FIELDS: &str = "source, destination and an optional weight";
/// Bytes of a line that an error shows.
const EXCERPT: usize = 80;

/// The edges of a chunk, or of all of them.
#[derive(Debug, Default)]
struct Edges {
    sources: Vec<NodeId>,
    destinations: Vec<NodeId>,
    weights: Vec<f32>,
    n_lines: usize,
    problem: Option<Problem>,
}

/// Why a chunk ends early.
#[derive(Debug)]
struct Problem {
    line: Vec<u8>,
    problem: String,
}

impl Edges {
    /// The largest id plus one.
    fn count_nodes(&self) -> Result<usize, FormatError> {
        let max = self.sources.par_iter().chain(&self.destinations).max();
        let n_nodes = max.map_or(0, |&id| id as usize + 1);
        if n_nodes <= MAX_SMALL_GRAPH || n_nodes / MAX_NODES_PER_EDGE <= self.sources.len() {
            return Ok(n_nodes);
        }
        Err(FormatError::invalid(format!(
            "the largest id is {}, but there are only {} edges; number the nodes from 0, or give their number",
            n_nodes - 1,
            self.sources.len()
        )))
    }

    fn concat(chunks: Vec<Self>, n_lines_before: usize) -> Result<Self, FormatError> {
        let n_edges = chunks.iter().map(|c| c.sources.len()).sum();
        let n_weights = chunks.iter().map(|c| c.weights.len()).sum();
        let mut all = Self {
            sources: Vec::with_capacity(n_edges),
            destinations: Vec::with_capacity(n_edges),
            weights: Vec::with_capacity(n_weights),
            n_lines: n_lines_before,
            problem: None,
        };
        for chunk in chunks {
            all.n_lines += chunk.n_lines;
            if let Some(Problem { line, problem }) = chunk.problem {
                return Err(line_error(all.n_lines, &line, &problem));
            }
            all.sources.extend_from_slice(&chunk.sources);
            all.destinations.extend_from_slice(&chunk.destinations);
            all.weights.extend_from_slice(&chunk.weights);
        }
        Ok(all)
    }
}

fn line_error(n_lines_before: usize, line: &[u8], problem: &str) -> FormatError {
    let line = String::from_utf8_lossy(&line[..line.len().min(EXCERPT)]).into_owned();
    FormatError::invalid(format!("line {}: {problem}; the line is {line:?}", n_lines_before + 1))
}

/// Cuts text into chunks of about [`CHUNK`] bytes that end at line ends.
fn split_lines(mut text: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::with_capacity(text.len() / CHUNK + 1);
    while text.len() > CHUNK {
        let end = text[CHUNK..].iter().position(|&b| b == b'\n').map_or(text.len(), |at| CHUNK + at + 1);
        let (chunk, rest) = text.split_at(end);
        chunks.push(chunk);
        text = rest;
    }
    chunks.push(text);
    chunks
}

/// The first line without its end, and what follows it.
fn next_line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|&b| b == b'\n') {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, &text[text.len()..]),
    };
    (line.strip_suffix(b"\r").unwrap_or(line), rest)
}

/// Whether a line holds nothing or a comment.
fn is_blank(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    matches!(line, [] | [b'#' | b'%', ..] | [b'/', b'/', ..])
}

/// The fields of a line, without blanks around them.
fn fields(line: &[u8], comma: bool) -> impl Iterator<Item = &[u8]> {
    line.split(move |&b| if comma { b == b',' } else { b == b' ' || b == b'\t' })
        .map(move |field| if comma { field.trim_ascii() } else { field })
        .filter(move |field| comma || !field.is_empty())
}

fn starts_like_number(field: &[u8]) -> bool {
    field.first().is_some_and(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.'))
}

fn parse_integer(field: &[u8]) -> Option<u64> {
    let digit = |b: u8| b.is_ascii_digit().then(|| u64::from(b - b'0'));
    let (&first, rest) = field.split_first()?;
    rest.iter().try_fold(digit(first)?, |n, &b| n.checked_mul(10)?.checked_add(digit(b)?))
}

fn parse_weight(field: &[u8]) -> Result<f32, String> {
    let text = String::from_utf8_lossy(field);
    match text.parse::<f32>() {
        Ok(weight) if weight.is_finite() => Ok(weight),
        _ => Err(format!("{text:?} is not a weight; expected a finite number")),
    }
}

fn is_gzip(path: &Path) -> bool {
    path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz"))
}

/// Writes the edges of a graph, row by row: separated by commas when the name holds `.csv`, else by tabs; packed when
/// it ends in `.gz`. Isolated nodes with the largest ids leave no trace: give their number when reading.
///
/// # Errors
/// When the file cannot be written.
pub fn write_edge_list(path: &Path, csr: &Csr) -> Result<(), FormatError> {
    let name = path.file_name().map(|n| n.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let separator = if name.contains(".csv") { ',' } else { '\t' };
    write_file(path, |out| {
        if is_gzip(path) {
            let mut packed = BufWriter::new(GzEncoder::new(out, flate2::Compression::default()));
            write_lines(&mut packed, csr, separator)?;
            packed.into_inner().map_err(|e| e.into_error())?.finish()?;
            Ok(())
        } else {
            Ok(write_lines(out, csr, separator)?)
        }
    })
}

fn write_lines(out: &mut impl Write, csr: &Csr, separator: char) -> std::io::Result<()> {
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
}
