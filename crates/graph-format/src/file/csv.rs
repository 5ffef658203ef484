//! Rows of numbers as text, separated by commas: features, labels and lists of ids.

use std::path::Path;

use super::number::{float, integer};
use super::sniff::check_text;
use super::text::{Fields, Lines, Separator, Text, check_end, check_memory, concat, parse_lines, shown, without_mark};
use crate::{FormatError, Matrix, Notes};

/// Bytes that end a value between commas.
const COMMA_ENDS: [u8; 3] = [b',', b'\n', b'\n'];
/// Bytes that end a value between blanks.
const BLANK_ENDS: [u8; 3] = [b' ', b'\t', b'\n'];
/// Bytes of memory per value while a table is read: in a vector that doubles, and in the matrix.
const VALUE_BYTES: u64 = 12;

/// Treatment of a field without a number: an empty one, or `nan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The field is an error.
    Refuse,
    /// The value is unknown, and becomes NaN.
    Nan,
}

/// Table of numbers under the names of its columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Names of the columns, if the first line has names.
    pub header: Option<Vec<String>>,
    /// Numbers, a row per line.
    pub rows: Matrix,
}

/// Reads a matrix, one row per line, and unpacks the file when its name ends in `.gz`. `notes` gets a warning if the
/// last line has no line end.
///
/// # Errors
/// When the file cannot be read. At the first wrong line, naming it: a field that is not a finite number, or another
/// number of fields than in the first line.
pub fn read_csv(path: &Path, missing: Missing, notes: &mut Notes) -> Result<Matrix, FormatError> {
    let text = read_whole(path, notes)?;
    parse_csv(&text, missing).map_err(|e| e.at(path))
}

/// Reads the text of a file, with a warning if its last line has no line end.
fn read_whole(path: &Path, notes: &mut Notes) -> Result<Text, FormatError> {
    let text = Text::read(path)?;
    check_end(&text, &path.display().to_string(), notes);
    Ok(text)
}

/// Reads a matrix from text.
///
/// # Errors
/// As [`read_csv`].
pub fn parse_csv(text: &[u8], missing: Missing) -> Result<Matrix, FormatError> {
    check_text(text, "rows of numbers", None)?;
    check_memory(text, COMMA_ENDS, VALUE_BYTES)?;
    let text = without_mark(text);
    parse_rows(text, 0, &Row { width: width(text, Separator::Comma), separator: Separator::Comma, missing })
}

/// Reads a table whose first line may be a header: a line with a field that is neither empty nor a number. Fields are
/// separated by commas if the first line has one, else by blanks and tabs. Warns as [`read_csv`] does.
///
/// # Errors
/// As [`read_csv`], and when the header has another number of names than the lines have fields.
pub fn read_table(path: &Path, missing: Missing, notes: &mut Notes) -> Result<Table, FormatError> {
    let text = read_whole(path, notes)?;
    parse_table(&text, missing).map_err(|e| e.at(path))
}

/// Number of rows of the table that [`read_table`] reads, found without parsing them.
///
/// # Errors
/// When the file cannot be read, or is not text.
pub fn count_table_rows(path: &Path) -> Result<usize, FormatError> {
    let text = Text::read(path)?;
    let TableText { rows, .. } = TableText::new(&text).map_err(|e| e.at(path))?;
    let count = |_: &[u8], n: &mut usize| {
        *n += 1;
        Ok(())
    };
    Ok(parse_lines(rows, 0, count)?.iter().sum())
}

/// Table before its numbers are parsed.
struct TableText<'a> {
    separator: Separator,
    header: Option<Vec<String>>,
    /// Lines below the header.
    rows: &'a [u8],
}

impl<'a> TableText<'a> {
    fn new(text: &'a [u8]) -> Result<Self, FormatError> {
        check_text(text, "a table of numbers", None)?;
        let text = without_mark(text);
        let mut lines = Lines::new(text);
        let first = lines.next().unwrap_or_default();
        let separator = if first.contains(&b',') { Separator::Comma } else { Separator::Blank };
        let ends = if separator == Separator::Comma { COMMA_ENDS } else { BLANK_ENDS };
        check_memory(text, ends, VALUE_BYTES)?;
        let is_name = |field: &[u8]| !field.is_empty() && float(field).is_none();
        let has_header = Fields::new(first, separator).any(is_name);
        let header = has_header.then(|| Fields::new(first, separator).map(shown).collect());
        Ok(Self { separator, header, rows: if has_header { lines.rest() } else { text } })
    }
}

fn parse_table(text: &[u8], missing: Missing) -> Result<Table, FormatError> {
    let TableText { separator, header, rows } = TableText::new(text)?;
    let n_lines_before = usize::from(header.is_some());
    let width = header.as_ref().map_or_else(|| width(rows, separator), Vec::len);
    Ok(Table { rows: parse_rows(rows, n_lines_before, &Row { width, separator, missing })?, header })
}

/// Number of fields of the first line.
fn width(text: &[u8], separator: Separator) -> usize {
    let first = Lines::new(text).next();
    first.map_or(0, |line| Fields::new(line, separator).count())
}

fn parse_rows(text: &[u8], n_lines_before: usize, row: &Row) -> Result<Matrix, FormatError> {
    let chunks = parse_lines(text, n_lines_before, |line, rows: &mut Rows| rows.push_line(line, row))?;
    let n_rows = chunks.iter().map(|c| c.n_rows).sum();
    Matrix::new(n_rows, row.width, concat(&chunks, |c| &c.values))
}

/// Form of a line.
#[derive(Clone, Copy, Debug)]
struct Row {
    width: usize,
    separator: Separator,
    missing: Missing,
}

#[derive(Debug, Default)]
struct Rows {
    n_rows: usize,
    values: Vec<f32>,
}

impl Rows {
    fn push_line(&mut self, line: &[u8], row: &Row) -> Result<(), String> {
        let start = self.values.len();
        // A constant separator halves the time to find fields.
        match row.separator {
            Separator::Comma => self.push_fields(Fields::new(line, Separator::Comma), row.missing)?,
            other => self.push_fields(Fields::new(line, other), row.missing)?,
        }
        // Blanks do not produce empty fields, so an empty line of a one-column table is handled here.
        if self.values.len() == start && row.width == 1 {
            self.values.push(parse_value(b"", row.missing)?);
        }
        self.n_rows += 1;
        let (n_fields, width) = (self.values.len() - start, row.width);
        if n_fields == width { Ok(()) } else { Err(format!("{n_fields} fields; the first line has {width}")) }
    }
}

impl Rows {
    #[inline(always)]
    fn push_fields(&mut self, fields: Fields<'_>, missing: Missing) -> Result<(), String> {
        for field in fields {
            self.values.push(parse_value(field, missing)?);
        }
        Ok(())
    }
}

#[inline(always)]
fn parse_value(field: &[u8], missing: Missing) -> Result<f32, String> {
    match float(field) {
        Some(value) if value.is_finite() => Ok(value),
        Some(value) if value.is_nan() && missing == Missing::Nan => Ok(f32::NAN),
        None if field.is_empty() && missing == Missing::Nan => Ok(f32::NAN),
        _ => Err(format!("{:?} is not a finite number", shown(field))),
    }
}

/// Reads non-negative integers, one per line, and unpacks the file when its name ends in `.gz`. Warns as [`read_csv`]
/// does.
///
/// # Errors
/// When the file cannot be read, or at the first line that is not an integer, naming it.
pub fn read_integers(path: &Path, notes: &mut Notes) -> Result<Vec<u64>, FormatError> {
    let text = read_whole(path, notes)?;
    let parse = |line: &[u8], values: &mut Vec<u64>| {
        let mut fields = Fields::new(line, Separator::Comma);
        match (fields.next().and_then(integer), fields.next()) {
            (Some(value), None) => values.push(value),
            _ => return Err("expected one integer from 0".to_owned()),
        }
        Ok(())
    };
    let numbers =
        check_text(&text, "a list of integers", None).and_then(|()| parse_lines(without_mark(&text), 0, parse));
    Ok(numbers.map_err(|e| e.at(path))?.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_header_where_its_first_line_has_a_name() {
        let table = |text: &str| parse_table(text.as_bytes(), Missing::Nan).unwrap();
        let named = table("node,label\n0,2\n1,\n");
        assert_eq!(named.header, Some(vec!["node".to_owned(), "label".to_owned()]));
        assert_eq!((named.rows.n_rows(), named.rows.data()[..3].to_vec()), (2, vec![0.0, 2.0, 1.0]));
        assert!(named.rows.data()[3].is_nan());
        assert_eq!(table("1\t2\n3\t4\n").rows.data(), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(table("nan\n1\n").header, None);
        assert_eq!(table("").rows.n_rows(), 0);
        for (text, n_rows) in [("node,label\n0,2\n1,", 2), ("1\t2\n3\t4\n", 2), ("", 0)] {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("table.csv");
            std::fs::write(&path, text).unwrap();
            assert_eq!(count_table_rows(&path).unwrap(), n_rows, "{text:?}");
            let mut notes = Notes::default();
            assert_eq!(read_table(&path, Missing::Nan, &mut notes).unwrap().rows.n_rows(), n_rows, "{text:?}");
            assert_eq!(notes.warnings.len(), usize::from(!text.is_empty() && !text.ends_with('\n')), "{text:?}");
        }
        let error = parse_table(b"label\n0\nAI\n", Missing::Nan).unwrap_err().to_string();
        assert!(error.contains("line 3: \"AI\""), "{error}");
    }
}
