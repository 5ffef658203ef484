//! Rows of numbers as text, separated by commas, without a header: features, labels and lists of ids.

use std::path::Path;

use super::number::{float, integer};
use super::sniff::check_text;
use super::text::{Fields, Separator, Text, concat, parse_lines, shown, without_mark};
use crate::{FormatError, Matrix};

/// What a field without a number means: an empty one, or `nan`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// The file is wrong.
    Refuse,
    /// The value is not known; it becomes NaN.
    Nan,
}

/// Reads a matrix, one row a line, unpacking the file when its name ends in `.gz`.
///
/// # Errors
/// When the file cannot be read, or at the first line that is wrong, naming it: a field that is no finite number, or
/// another number of fields than in the first line.
pub fn read_csv(path: &Path, missing: Missing) -> Result<Matrix, FormatError> {
    let text = Text::read(path)?;
    parse_csv(&text, missing).map_err(|e| e.at(path))
}

/// Reads a matrix from text.
///
/// # Errors
/// As [`read_csv`].
pub fn parse_csv(text: &[u8], missing: Missing) -> Result<Matrix, FormatError> {
    check_text(text, "rows of numbers", None)?;
    let text = without_mark(text);
    let first = text.split(|&b| b == b'\n').next().unwrap_or_default();
    let width = if text.is_empty() { 0 } else { Fields::new(first, Separator::Comma).count() };
    let chunks = parse_lines(text, 0, |line, rows: &mut Rows| rows.push_line(line, width, missing))?;
    let n_rows = chunks.iter().map(|c| c.n_rows).sum();
    Matrix::new(n_rows, width, concat(&chunks, |c| &c.values))
}

#[derive(Debug, Default)]
struct Rows {
    n_rows: usize,
    values: Vec<f32>,
}

impl Rows {
    fn push_line(&mut self, line: &[u8], width: usize, missing: Missing) -> Result<(), String> {
        let start = self.values.len();
        for field in Fields::new(line, Separator::Comma) {
            self.values.push(parse_value(field, missing)?);
        }
        self.n_rows += 1;
        let n_fields = self.values.len() - start;
        if n_fields == width { Ok(()) } else { Err(format!("{n_fields} fields; the first line has {width}")) }
    }
}

fn parse_value(field: &[u8], missing: Missing) -> Result<f32, String> {
    match float(field) {
        Some(value) if value.is_finite() => Ok(value),
        Some(value) if value.is_nan() && missing == Missing::Nan => Ok(f32::NAN),
        None if field.is_empty() && missing == Missing::Nan => Ok(f32::NAN),
        _ => Err(format!("{:?} is not a finite number", shown(field))),
    }
}

/// Reads integers from 0, one a line, unpacking the file when its name ends in `.gz`.
///
/// # Errors
/// When the file cannot be read, or at the first line that is no integer, naming it.
pub fn read_integers(path: &Path) -> Result<Vec<u64>, FormatError> {
    let text = Text::read(path)?;
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
