//! Matrix Market `.mtx`: sparse or dense matrices as text (Boisvert, Pozo and Remington, "The Matrix Market Exchange
//! Formats: Initial Design", NIST 5935, 1996).
//!
//! ```text
//! %%MatrixMarket matrix coordinate real general     banner: layout, kind of values, symmetry
//! % comments, then one line of sizes
//! 3 3 2                                             rows, columns, entries (dense: rows, columns)
//! 2 1 0.5                                           row 2, column 1, counted from 1 (dense: a value a line, by columns)
//! 3 1 -1
//! ```
//! An entry keeps its row and column. `symmetric` and `skew-symmetric` files list one of two mirrored entries, the
//! lower one by the standard. Reading adds the other, negated for the latter.

use std::collections::HashSet;
use std::path::Path;

use super::number::{float, integer};
use super::sniff::{Sniffed, check_text};
use super::text::{
    EDGE_BYTES, Fields, Lines, Separator, Text, check_end, check_memory, concat, line_error, parse_lines, shown,
    without_mark, write_text,
};
use crate::coo::check_proportion;
use crate::{Coo, Csr, Duplicates, FormatError, MAX_NODES, NodeId, Notes};

const BANNER: &str = "%%MatrixMarket";

/// Reads a matrix and the notes on it, and unpacks the file when its name ends in `.gz`.
///
/// `SciPy` adds repeated entries, and counts those of patterns as ones: [`Duplicates::Sum`]. Weights are rounded to
/// `f32`, and dropped when all are one. The non-zero values of a dense matrix become entries.
///
/// # Errors
/// When the file cannot be read or is another kind of file. At the first wrong line, naming it. When the number of
/// entries differs from the declared one, or a symmetric file lists both of two mirrored entries. For complex values
/// and Hermitian matrices.
pub fn read_matrix_market(path: &Path, duplicates: Duplicates) -> Result<(Csr, Notes), FormatError> {
    let text = Text::read(path)?;
    parse_matrix_market(&text, duplicates).map_err(|e| e.at(path))
}

/// Reads a matrix and the notes on it from text.
///
/// # Errors
/// As [`read_matrix_market`].
pub fn parse_matrix_market(text: &[u8], duplicates: Duplicates) -> Result<(Csr, Notes), FormatError> {
    check_text(text, "a Matrix Market file", Some(Sniffed::MatrixMarket))?;
    check_memory(text, [b'\n'; 3], EDGE_BYTES)?;
    let text = without_mark(text);
    let mut notes = Notes::default();
    check_end(text, "the text", &mut notes);
    let mut lines = Lines::new(text);
    let first = lines.next().unwrap_or_default();
    let banner = Banner::parse(first).map_err(|problem| line_error(1, first, &problem))?;
    let sizes = Sizes::read(&mut lines, &banner)?;
    let entries = match banner.layout {
        Layout::Coordinate => read_coordinates(lines.rest(), &banner, &sizes)?,
        Layout::Array => read_values(lines.rest(), &banner, &sizes)?,
    };
    if banner.symmetry != Symmetry::General {
        entries.check_one_triangle(sizes.line)?;
    }
    let entries = entries.mirrored(banner.symmetry).into_coo(&sizes)?;
    let csr = entries.to_csr(duplicates)?;
    duplicates.note(entries.len() - csr.nnz(), entries.values().is_some(), &mut notes);
    Ok((csr.without_unit_weights(), notes))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Coordinate,
    Array,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Symmetry {
    General,
    Symmetric,
    Skew,
}

/// Contents of the first line.
#[derive(Debug)]
struct Banner {
    layout: Layout,
    /// Whether entries have a value; without, the matrix is a pattern.
    weighted: bool,
    symmetry: Symmetry,
}

impl Banner {
    fn parse(line: &[u8]) -> Result<Self, String> {
        let line = shown(line).to_ascii_lowercase();
        let mut words = line.split_ascii_whitespace();
        let banner = BANNER.to_ascii_lowercase();
        // Some programs write only one %, and SciPy accepts that as well.
        if !words.next().is_some_and(|word| word == banner || word == &banner[1..]) {
            return Err(format!(
                "a Matrix Market file starts with `{BANNER} matrix coordinate real general` or the like"
            ));
        }
        let mut word = || words.next().unwrap_or("nothing");
        match word() {
            "matrix" => {}
            object => return Err(format!("the object is {object}; only a matrix can be read")),
        }
        let layout = match word() {
            "coordinate" => Layout::Coordinate,
            "array" => Layout::Array,
            other => return Err(format!("the layout is {other}; expected coordinate or array")),
        };
        let weighted = match word() {
            "real" | "double" | "integer" | "unsigned-integer" => true,
            "pattern" if layout == Layout::Coordinate => false,
            "complex" => return Err("the values are complex; weights are real, write the real part alone".to_owned()),
            other => {
                return Err(format!("the values are {other}; expected real, integer or (coordinate only) pattern"));
            }
        };
        let symmetry = match word() {
            "general" => Symmetry::General,
            "symmetric" => Symmetry::Symmetric,
            "skew-symmetric" if weighted => Symmetry::Skew,
            "hermitian" => {
                return Err("the matrix is hermitian, so its values are complex; weights are real".to_owned());
            }
            other => return Err(format!("the symmetry is {other}; expected general, symmetric or skew-symmetric")),
        };
        Ok(Self { layout, weighted, symmetry })
    }
}

/// Contents of the line of sizes.
#[derive(Debug)]
struct Sizes {
    n_rows: usize,
    n_cols: usize,
    /// Number of entries that the file has to list.
    n_listed: usize,
    /// Number of the line.
    line: usize,
}

impl Sizes {
    /// Reads up to the line of sizes.
    fn read(lines: &mut Lines<'_>, banner: &Banner) -> Result<Self, FormatError> {
        while let Some(line) = lines.next() {
            if !is_skipped(line) {
                let number = lines.n_read();
                return Self::parse(line, number, banner).map_err(|problem| line_error(number, line, &problem));
            }
        }
        Err(FormatError::corrupt(format!("the file ends after line {}, before its line of sizes", lines.n_read())))
    }

    fn parse(text: &[u8], line: usize, banner: &Banner) -> Result<Self, String> {
        let sizes: Option<Vec<u64>> = Fields::new(text, Separator::Blank).map(integer).collect();
        let (n_rows, n_cols, n_entries) = match (banner.layout, sizes.as_deref()) {
            (Layout::Coordinate, Some(&[n_rows, n_cols, n_entries])) => (n_rows, n_cols, n_entries),
            (Layout::Array, Some(&[n_rows, n_cols])) => (n_rows, n_cols, 0),
            (Layout::Coordinate, _) => return Err("expected three sizes: rows, columns and entries".to_owned()),
            (Layout::Array, _) => return Err("expected two sizes: rows and columns".to_owned()),
        };
        if n_rows.max(n_cols) > MAX_NODES as u64 {
            return Err(format!("{n_rows} × {n_cols} exceeds the limit of {MAX_NODES} nodes"));
        }
        if banner.symmetry != Symmetry::General && n_rows != n_cols {
            return Err(format!("a symmetric matrix of {n_rows} rows and {n_cols} columns; expected as many of both"));
        }
        let n_listed = match (banner.layout, banner.symmetry) {
            (Layout::Coordinate, _) => n_entries,
            (Layout::Array, Symmetry::General) => n_rows * n_cols,
            (Layout::Array, Symmetry::Symmetric) => n_rows * (n_rows + 1) / 2,
            (Layout::Array, Symmetry::Skew) => n_rows * n_rows.saturating_sub(1) / 2,
        };
        Ok(Self { n_rows: n_rows as usize, n_cols: n_cols as usize, n_listed: n_listed as usize, line })
    }

    fn check_count(&self, n_found: usize) -> Result<(), FormatError> {
        if n_found == self.n_listed {
            return Ok(());
        }
        Err(FormatError::corrupt(format!(
            "line {}: the sizes ask for {} entries, but the file lists {n_found}",
            self.line, self.n_listed
        )))
    }
}

/// Entries of the matrix; `weights` is empty for a pattern.
#[derive(Debug, Default)]
struct Entries {
    weighted: bool,
    rows: Vec<NodeId>,
    cols: Vec<NodeId>,
    weights: Vec<f32>,
}

impl Entries {
    /// Refuses entries of which some mirror others: they may be the whole matrix, or meant to add up.
    fn check_one_triangle(&self, line: usize) -> Result<(), FormatError> {
        let is_above = |&e: &usize| self.rows[e] < self.cols[e];
        let mut above = (0..self.rows.len()).filter(is_above).peekable();
        if above.peek().is_none() {
            return Ok(());
        }
        let below: HashSet<(NodeId, NodeId)> =
            self.rows.iter().zip(&self.cols).map(|(&row, &col)| (row, col)).filter(|(row, col)| row > col).collect();
        match above.find(|&e| below.contains(&(self.cols[e], self.rows[e]))) {
            None => Ok(()),
            Some(e) => Err(FormatError::invalid(format!(
                "line {line}: a symmetric file lists row {0}, column {1} as well as row {1}, column {0}; if it lists all \
                 entries, write general in its first line; else list one of the two",
                u64::from(self.rows[e]) + 1,
                u64::from(self.cols[e]) + 1
            ))),
        }
    }

    /// Adds the mirror images of entries if the file lists one triangle.
    fn mirrored(mut self, symmetry: Symmetry) -> Self {
        if symmetry == Symmetry::General {
            return self;
        }
        let below: Vec<usize> = (0..self.rows.len()).filter(|&e| self.rows[e] != self.cols[e]).collect();
        let sign = if symmetry == Symmetry::Skew { -1.0 } else { 1.0 };
        for e in below {
            self.rows.push(self.cols[e]);
            self.cols.push(self.rows[e]);
            if self.weighted {
                self.weights.push(sign * self.weights[e]);
            }
        }
        self
    }

    fn into_coo(self, sizes: &Sizes) -> Result<Coo, FormatError> {
        let n_nodes = sizes.n_rows.max(sizes.n_cols);
        check_proportion(n_nodes, self.rows.len(), &format!("line {}: {n_nodes} rows or columns", sizes.line))?;
        let weights = self.weighted.then_some(self.weights);
        Coo::new(sizes.n_rows, sizes.n_cols, self.rows, self.cols, weights)
    }
}

/// Entries of a file that lists them by row and column.
fn read_coordinates(text: &[u8], banner: &Banner, sizes: &Sizes) -> Result<Entries, FormatError> {
    let parse = |line: &[u8], entries: &mut Entries| parse_entry(line, banner, sizes, entries);
    let chunks = parse_lines(text, sizes.line, parse)?;
    let entries = Entries {
        weighted: banner.weighted,
        rows: concat(&chunks, |c| &c.rows),
        cols: concat(&chunks, |c| &c.cols),
        weights: concat(&chunks, |c| &c.weights),
    };
    sizes.check_count(entries.rows.len())?;
    Ok(entries)
}

fn parse_entry(line: &[u8], banner: &Banner, sizes: &Sizes, entries: &mut Entries) -> Result<(), String> {
    let mut fields = Fields::new(line, Separator::Blank);
    let Some(first) = fields.next().filter(|_| !is_skipped(line)) else { return Ok(()) };
    let row = position("row", Some(first), sizes.n_rows)?;
    let col = position("column", fields.next(), sizes.n_cols)?;
    if banner.symmetry == Symmetry::Skew && row == col {
        return Err("an entry on the diagonal, which a skew-symmetric matrix has none on".to_owned());
    }
    if banner.weighted {
        entries.weights.push(weight(fields.next().ok_or("no value; expected row, column and value")?)?);
    }
    match fields.next() {
        Some(_) if banner.weighted => return Err("more than three fields; expected row, column and value".to_owned()),
        Some(_) => return Err("more than two fields; an entry of a pattern is a row and a column".to_owned()),
        None => {}
    }
    entries.rows.push(row);
    entries.cols.push(col);
    Ok(())
}

/// Row or column, counted from 1 in the file and from 0 here.
fn position(what: &str, field: Option<&[u8]>, limit: usize) -> Result<NodeId, String> {
    let field = field.ok_or_else(|| format!("no {what}; expected row and column"))?;
    match integer(field) {
        Some(id) if (1..=limit as u64).contains(&id) => Ok((id - 1) as NodeId),
        Some(id) => Err(format!("{what} {id} does not exist; there are {limit}, numbered from 1")),
        None => Err(format!("{:?} is not a {what}; expected an integer from 1", shown(field))),
    }
}

fn weight(field: &[u8]) -> Result<f32, String> {
    let weight = float(field).filter(|weight| weight.is_finite());
    weight.ok_or_else(|| format!("{:?} is not a value; expected a finite number", shown(field)))
}

/// Entries of a file that lists every value, column by column.
fn read_values(text: &[u8], banner: &Banner, sizes: &Sizes) -> Result<Entries, FormatError> {
    let parse = |line: &[u8], values: &mut Vec<f32>| {
        let fields = Fields::new(line, Separator::Blank).take_while(|_| !is_skipped(line));
        fields.map(weight).try_for_each(|value| value.map(|value| values.push(value)))
    };
    let values = parse_lines(text, sizes.line, parse)?.concat();
    sizes.check_count(values.len())?;
    let mut entries = Entries { weighted: true, ..Entries::default() };
    let mut values = values.into_iter();
    for col in 0..sizes.n_cols {
        let first = match banner.symmetry {
            Symmetry::General => 0,
            Symmetry::Symmetric => col,
            Symmetry::Skew => col + 1,
        };
        for (row, value) in (first..sizes.n_rows).zip(&mut values).filter(|&(_, value)| value != 0.0) {
            entries.rows.push(row as NodeId);
            entries.cols.push(col as NodeId);
            entries.weights.push(value);
        }
    }
    Ok(entries)
}

/// Whether a line is empty or a comment.
fn is_skipped(line: &[u8]) -> bool {
    matches!(line.trim_ascii_start(), [] | [b'%', ..])
}

/// Writes a matrix: `coordinate pattern general` without weights, `coordinate real general` with them; packed when the
/// name ends in `.gz`.
///
/// # Errors
/// When the file cannot be written.
pub fn write_matrix_market(path: &Path, csr: &Csr) -> Result<(), FormatError> {
    write_text(path, |out| {
        let kind = if csr.values().is_some() { "real" } else { "pattern" };
        writeln!(out, "{BANNER} matrix coordinate {kind} general")?;
        writeln!(out, "{} {} {}", csr.n_rows(), csr.n_cols(), csr.nnz())?;
        for row in 0..csr.n_rows() {
            for (col, weight) in csr.row_entries(row) {
                write!(out, "{} {}", row + 1, u64::from(col) + 1)?;
                if csr.values().is_some() {
                    // Shortest text that parses to an equal number.
                    write!(out, " {weight}")?;
                }
                writeln!(out)?;
            }
        }
        Ok(())
    })
}
