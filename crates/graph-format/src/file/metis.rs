//! METIS `.graph`: an undirected graph as text, one line per node (METIS 5.1 manual, section 4.1.1).
//!
//! ```text
//! % comments start with %
//! 3 2 001            nodes, edges (each once), and which weights there are: vertex sizes, vertex weights, edge weights
//! 2 5 3 1            neighbors of node 1, counted from 1, each followed by the edge's weight
//! 1 5                an edge stands in the lines of both its ends
//! 1 1                an empty line is a node without edges
//! ```
//! Sizes and weights of vertices must be present, and are not used.

use std::path::Path;

use super::number::{float, integer};
use super::sniff::check_text;
use super::text::{
    EDGE_BYTES, Fields, Lines, Separator, Text, check_end, check_memory, concat, line_error, parse_lines, shown,
    without_mark, write_text,
};
use crate::coo::check_proportion;
use crate::{Csr, FormatError, MAX_NODES, NodeId, Notes};

/// Largest weight that is written: `f32` holds integers up to here exactly.
const MAX_EXACT_WEIGHT: f32 = 16_777_216.0;

/// Reads a graph and the notes on it, and unpacks the file when its name ends in `.gz`. Every edge is stored in both
/// directions.
///
/// # Errors
/// When the file cannot be read or is another kind of file. At the first wrong line, naming it. When the number of
/// nodes or edges differs from the declared one, or an edge is in the line of only one of its ends.
pub fn read_metis(path: &Path) -> Result<(Csr, Notes), FormatError> {
    let text = Text::read(path)?;
    parse_metis(&text).map_err(|e| e.at(path))
}

/// Reads a graph and the notes on it from text.
///
/// # Errors
/// As [`read_metis`].
pub fn parse_metis(text: &[u8]) -> Result<(Csr, Notes), FormatError> {
    check_text(text, "a METIS graph", None)?;
    check_memory(text, [b' ', b'\t', b'\n'], EDGE_BYTES)?;
    let text = without_mark(text);
    let mut notes = Notes::default();
    check_end(text, "the text", &mut notes);
    let mut lines = Lines::new(text);
    let header = Header::read(&mut lines)?;
    header.note_unused(&mut notes);
    let parse = |line: &[u8], nodes: &mut Nodes| nodes.push_line(line, &header);
    let chunks = parse_lines(lines.rest(), header.line, parse)?;
    let mut nodes = Nodes {
        degrees: concat(&chunks, |c| &c.degrees),
        neighbors: concat(&chunks, |c| &c.neighbors),
        weights: concat(&chunks, |c| &c.weights),
    };
    nodes.check_end(&header, &mut notes)?;
    Ok((nodes.into_csr(lines.rest(), &header)?, notes))
}

/// Contents of the first line.
#[derive(Debug)]
struct Header {
    n_nodes: usize,
    /// Number of edges, each counted once.
    n_edges: u64,
    has_sizes: bool,
    /// Number of weights of every vertex.
    n_vertex_weights: usize,
    has_edge_weights: bool,
    /// Number of the line.
    line: usize,
}

impl Header {
    fn read(lines: &mut Lines<'_>) -> Result<Self, FormatError> {
        while let Some(line) = lines.next() {
            if !is_comment(line) && !line.trim_ascii().is_empty() {
                let number = lines.n_read();
                return Self::parse(line, number).map_err(|problem| line_error(number, line, &problem));
            }
        }
        Err(FormatError::corrupt("no line says how many nodes and edges there are"))
    }

    fn parse(text: &[u8], line: usize) -> Result<Self, String> {
        let fields: Vec<&[u8]> = Fields::new(text, Separator::Blank).collect();
        let number = |at: usize| fields.get(at).and_then(|field| integer(field));
        let (Some(n_nodes), Some(n_edges), 2..=4) = (number(0), number(1), fields.len()) else {
            return Err(
                "expected the numbers of nodes and edges, and up to two that say which weights follow".to_owned()
            );
        };
        if n_nodes > MAX_NODES as u64 {
            return Err(format!("{n_nodes} nodes exceed the limit of {MAX_NODES}"));
        }
        let [has_sizes, has_weights, has_edge_weights] = parse_flags(fields.get(2).copied().unwrap_or(b"0"))?;
        let n_vertex_weights = match (has_weights, fields.get(3).map(|field| integer(field))) {
            (false, None | Some(Some(0))) => 0,
            (true, None) => 1,
            (true, Some(Some(n @ 1..=64))) => n as usize,
            _ => {
                return Err(
                    "the fourth number counts weights of a vertex: from 1, and only when there are any".to_owned()
                );
            }
        };
        Ok(Self { n_nodes: n_nodes as usize, n_edges, has_sizes, n_vertex_weights, has_edge_weights, line })
    }

    /// Notes the sizes and weights of vertices.
    fn note_unused(&self, notes: &mut Notes) {
        if self.has_sizes {
            notes.leave_out("vertex sizes", "one a node");
        }
        if self.n_vertex_weights > 0 {
            notes.leave_out("vertex weights", format!("{} a node", self.n_vertex_weights));
        }
    }

    /// Number of values before a node's neighbors.
    fn n_in_front(&self) -> usize {
        usize::from(self.has_sizes) + self.n_vertex_weights
    }
}

/// Parses up to three digits, 0 or 1: vertex sizes, vertex weights, edge weights; missing leading ones are 0.
fn parse_flags(field: &[u8]) -> Result<[bool; 3], String> {
    if field.is_empty() || field.len() > 3 || field.iter().any(|digit| !matches!(digit, b'0' | b'1')) {
        return Err(format!("{:?} does not say which weights follow; expected 000 to 111", shown(field)));
    }
    let mut flags = [false; 3];
    let first = flags.len() - field.len();
    flags[first..].iter_mut().zip(field).for_each(|(flag, &digit)| *flag = digit == b'1');
    Ok(flags)
}

/// Lines of consecutive nodes; neighbors ascend in each.
#[derive(Debug, Default)]
struct Nodes {
    degrees: Vec<u64>,
    neighbors: Vec<NodeId>,
    /// Empty when edges have no weights.
    weights: Vec<f32>,
}

impl Nodes {
    fn push_line(&mut self, line: &[u8], header: &Header) -> Result<(), String> {
        if is_comment(line) {
            return Ok(());
        }
        let mut fields = Fields::new(line, Separator::Blank);
        let start = self.neighbors.len();
        let mut is_ascending = true;
        // A blank line of an isolated node may omit its weights as well.
        if let Some(first) = fields.clone().next() {
            let skipped = (0..header.n_in_front()).map(|_| fields.next().and_then(integer));
            if skipped.collect::<Option<Vec<u64>>>().is_none() {
                return Err(format!(
                    "the line starts with {:?}; expected {} sizes and weights of the vertex",
                    shown(first),
                    header.n_in_front()
                ));
            }
        }
        while let Some(field) = fields.next() {
            let neighbor = parse_neighbor(field, header.n_nodes)?;
            is_ascending &= self.neighbors[start..].last().is_none_or(|&last| last < neighbor);
            self.neighbors.push(neighbor);
            if header.has_edge_weights {
                self.weights.push(parse_weight(fields.next())?);
            }
        }
        self.degrees.push((self.neighbors.len() - start) as u64);
        if is_ascending { Ok(()) } else { self.sort_from(start) }
    }

    /// Sorts the neighbors of the last line.
    fn sort_from(&mut self, start: usize) -> Result<(), String> {
        if self.weights.is_empty() {
            self.neighbors[start..].sort_unstable();
        } else {
            let pairs = self.neighbors[start..].iter().copied().zip(self.weights[start..].iter().copied());
            let mut pairs: Vec<(NodeId, f32)> = pairs.collect();
            pairs.sort_unstable_by_key(|&(neighbor, _)| neighbor);
            for (at, (neighbor, weight)) in pairs.into_iter().enumerate() {
                (self.neighbors[start + at], self.weights[start + at]) = (neighbor, weight);
            }
        }
        match self.neighbors[start..].windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(format!("neighbor {} is listed twice; each may be listed once", pair[0] + 1)),
        }
    }

    /// Builds the graph, and checks the header's counts and the mirror image of every edge; `text` are the lines
    /// after the header.
    fn into_csr(self, text: &[u8], header: &Header) -> Result<Csr, FormatError> {
        let wrong_count = |what: &str, declared: u64, found: u64| {
            FormatError::corrupt(format!(
                "line {}: {declared} {what} are declared, but the file lists {found}",
                header.line
            ))
        };
        if self.degrees.len() != header.n_nodes {
            return Err(wrong_count("nodes", header.n_nodes as u64, self.degrees.len() as u64));
        }
        let mut indptr = vec![0; header.n_nodes + 1];
        for (v, degree) in self.degrees.iter().enumerate() {
            indptr[v + 1] = indptr[v] + degree;
            let row = &self.neighbors[indptr[v] as usize..indptr[v + 1] as usize];
            if row.binary_search(&(v as NodeId)).is_ok() {
                return Err(node_error(text, header, v, "an edge from the node to itself; METIS has none, remove it"));
            }
        }
        let weights = header.has_edge_weights.then(|| self.weights.into());
        let csr = Csr::new(header.n_nodes, header.n_nodes, indptr, self.neighbors, weights)?;
        if !csr.is_symmetric() {
            return Err(unmirrored(&csr, text, header));
        }
        if csr.nnz() as u64 != header.n_edges.saturating_mul(2) {
            return Err(wrong_count("edges", header.n_edges, csr.nnz() as u64 / 2));
        }
        Ok(csr.without_unit_weights())
    }

    /// Drops empty lines after the last node, and adds the last nodes whose empty lines an editor removed. A later
    /// check of the graph finds missing edges.
    fn check_end(&mut self, header: &Header, notes: &mut Notes) -> Result<(), FormatError> {
        while self.degrees.len() > header.n_nodes && self.degrees.last() == Some(&0) {
            self.degrees.pop();
        }
        let n_listed = self.degrees.len();
        let n_edges = self.neighbors.len() as u64;
        if n_listed < header.n_nodes && n_edges == header.n_edges.saturating_mul(2) {
            let found = format!("line {}: {} nodes are declared", header.line, header.n_nodes);
            check_proportion(header.n_nodes, self.neighbors.len(), &found)?;
            self.degrees.resize(header.n_nodes, 0);
            let n_added = header.n_nodes - n_listed;
            notes.make_up(
                "added_nodes",
                format!("the last {n_added} of {} nodes have no line; they are nodes without edges", header.n_nodes),
                &[("added", n_added as u64)],
            );
        }
        Ok(())
    }
}

fn parse_neighbor(field: &[u8], n_nodes: usize) -> Result<NodeId, String> {
    match integer(field) {
        Some(id) if (1..=n_nodes as u64).contains(&id) => Ok((id - 1) as NodeId),
        Some(id) => Err(format!("neighbor {id} does not exist; there are {n_nodes} nodes, numbered from 1")),
        None => Err(format!("{:?} is not a neighbor; expected an integer from 1", shown(field))),
    }
}

fn parse_weight(field: Option<&[u8]>) -> Result<f32, String> {
    let field = field.ok_or("the last neighbor has no weight; the header says that edges have one")?;
    let weight = float(field).filter(|weight| weight.is_finite() && *weight > 0.0);
    weight.ok_or_else(|| format!("{:?} is not the weight of an edge; expected a positive number", shown(field)))
}

/// Error of an edge that is in one line only, or has two weights.
fn unmirrored(csr: &Csr, text: &[u8], header: &Header) -> FormatError {
    let lone = (0..csr.n_rows()).find_map(|v| {
        let is_lone = |&(u, weight): &(NodeId, f32)| !csr.row_entries(u as usize).any(|e| e == (v as NodeId, weight));
        csr.row_entries(v).find(is_lone).map(|(u, _)| (v, u))
    });
    match lone {
        Some((v, u)) => {
            let problem = format!("the line of node {} does not list node {} with the same weight", u + 1, v + 1);
            node_error(text, header, v, &problem)
        }
        None => FormatError::invalid("the graph is not symmetric"),
    }
}

/// Error about the line of node `v`, counted from 0.
fn node_error(text: &[u8], header: &Header, v: usize, problem: &str) -> FormatError {
    let mut nodes = Lines::new(text).enumerate().filter(|(_, line)| !is_comment(line));
    match nodes.nth(v) {
        Some((at, line)) => line_error(header.line + at + 1, line, problem),
        None => FormatError::invalid(format!("node {}: {problem}", v + 1)),
    }
}

fn is_comment(line: &[u8]) -> bool {
    line.first() == Some(&b'%')
}

/// Writes a symmetric graph without self loops, packed when the name ends in `.gz`.
///
/// # Errors
/// When the graph is not symmetric, has self loops, or has weights other than the integers from 1 to 2²⁴ that METIS
/// accepts. When the file cannot be written.
pub fn write_metis(path: &Path, csr: &Csr) -> Result<(), FormatError> {
    check_writable(csr).map_err(|e| e.at(path))?;
    write_text(path, |out| {
        let flags = if csr.values().is_some() { " 001" } else { "" };
        writeln!(out, "{} {}{flags}", csr.n_rows(), csr.nnz() / 2)?;
        for v in 0..csr.n_rows() {
            for (at, (neighbor, weight)) in csr.row_entries(v).enumerate() {
                let space = if at == 0 { "" } else { " " };
                write!(out, "{space}{}", u64::from(neighbor) + 1)?;
                if csr.values().is_some() {
                    write!(out, " {weight}")?;
                }
            }
            writeln!(out)?;
        }
        Ok(())
    })
}

fn check_writable(csr: &Csr) -> Result<(), FormatError> {
    if !csr.is_symmetric() {
        return Err(FormatError::invalid(
            "a METIS file holds undirected graphs, and this one has edges in one direction only; symmetrise it first",
        ));
    }
    if let Some(v) = (0..csr.n_rows()).find(|&v| csr.row(v).binary_search(&(v as NodeId)).is_ok()) {
        return Err(FormatError::invalid(format!(
            "a METIS file has no self loops, and node {v} has one; remove them or choose another format"
        )));
    }
    let is_exact = |w: f32| (1.0..=MAX_EXACT_WEIGHT).contains(&w) && w.fract() == 0.0;
    match csr.values().and_then(|values| values.iter().find(|&&w| !is_exact(w))) {
        None => Ok(()),
        Some(w) => Err(FormatError::invalid(format!(
            "a METIS file has weights that are positive integers, and one is {w}; choose another format"
        ))),
    }
}
