//! [`TextTable`]: a table of text under the names of its columns.

use std::path::{Path, PathBuf};

use crate::file_kind::ending;
use crate::text_lines::for_each_line;
use crate::{DatasetError, NameList};

/// Table whose first line names its columns. Fields are separated by tabs, or by commas in a `.csv` and where the first
/// line has no tab; they may be in double quotes.
pub(crate) struct TextTable {
    path: PathBuf,
    header: Vec<String>,
    /// Fields, row by row.
    cells: NameList,
    /// Line of each row, counted from 1.
    lines: Vec<usize>,
}

impl TextTable {
    /// Reads a table, and unpacks the file when its name ends in `.gz`. `expected` is a noun phrase for the table, and
    /// `row` one for its rows.
    ///
    /// # Errors
    /// When the file cannot be read, has no row below its header, or a line has another number of fields.
    pub(crate) fn read(path: &Path, expected: &str, row: &str) -> Result<Self, DatasetError> {
        let (cells, lines) = (NameList::default(), Vec::new());
        let mut table = Self { path: path.to_owned(), header: Vec::new(), cells, lines };
        let mut separator = '\t';
        for_each_line(path, expected, |number, line| {
            let wrong = |what: String| DatasetError::invalid(format!("line {number}: {what}"));
            if line.trim().is_empty() {
                return Ok(());
            }
            if table.header.is_empty() {
                let is_by_tabs = ending(path) != "csv" && line.contains('\t');
                separator = if is_by_tabs { '\t' } else { ',' };
                table.header = fields(line, separator).map_err(wrong)?;
                return Ok(());
            }
            table.add(&fields(line, separator).map_err(wrong)?, number)
        })?;
        if table.lines.is_empty() {
            let found = if table.header.is_empty() { "the file is empty" } else { "a header without a row" };
            return Err(DatasetError::invalid(format!("{found}; expected names of columns, then {row}")).at(path));
        }
        Ok(table)
    }

    fn add(&mut self, fields: &[String], line: usize) -> Result<(), DatasetError> {
        let (found, expected) = (fields.len(), self.header.len());
        if found != expected {
            let what = format!("line {line}: {found} fields under {expected} names of columns");
            return Err(DatasetError::invalid(format!("{what}; put fields with separators into double quotes")));
        }
        fields.iter().for_each(|field| self.cells.push(field));
        self.lines.push(line);
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Names of the columns.
    pub(crate) fn header(&self) -> &[String] {
        &self.header
    }

    pub(crate) fn n_rows(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn cell(&self, row: usize, column: usize) -> &str {
        self.cells.get(row * self.header.len() + column)
    }

    /// All fields, row by row.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &str> {
        self.cells.iter()
    }

    /// Line of a row, counted from 1.
    pub(crate) fn line(&self, row: usize) -> usize {
        self.lines[row]
    }

    /// Error about a row, which names the file and the line.
    pub(crate) fn error(&self, row: usize, what: &str) -> DatasetError {
        DatasetError::invalid(format!("line {}: {what}", self.line(row))).at(&self.path)
    }
}

/// Fields of a line, without surrounding blanks. In double quotes, two quotes stand for one.
///
/// # Errors
/// When quotes are not closed.
pub(crate) fn fields(line: &str, separator: char) -> Result<Vec<String>, String> {
    let (mut fields, mut rest) = (Vec::new(), Some(line));
    while let Some(text) = rest {
        let (field, after) = match text.trim_start_matches(' ').strip_prefix('"') {
            Some(quoted) => quoted_field(quoted, separator)?,
            None => match text.split_once(separator) {
                Some((field, after)) => (field.trim().to_owned(), Some(after)),
                None => (text.trim().to_owned(), None),
            },
        };
        fields.push(field);
        rest = after;
    }
    Ok(fields)
}

/// Field that begins behind a quote, and the text behind the separator that follows.
fn quoted_field(text: &str, separator: char) -> Result<(String, Option<&str>), String> {
    let (mut field, mut rest) = (String::new(), text);
    loop {
        let (part, after) = rest.split_once('"').ok_or("a field in double quotes has no end; close it on its line")?;
        field.push_str(part);
        if let Some(more) = after.strip_prefix('"') {
            field.push('"');
            rest = more;
            continue;
        }
        let after = after.trim_start_matches(' ');
        return match after.strip_prefix(separator) {
            Some(after) => Ok((field, Some(after))),
            None if after.is_empty() => Ok((field, None)),
            None => Err(format!("text behind the quotes of {field:?}; write quotes inside a field twice")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_with_and_without_quotes() {
        assert_eq!(fields("a\t b c \t", '\t').unwrap(), ["a", "b c", ""]);
        assert_eq!(fields(r#""a,b","say ""x""",c"d"#, ',').unwrap(), ["a,b", "say \"x\"", "c\"d"]);
        assert!(fields(r#"a,"b"#, ',').unwrap_err().contains("has no end"));
        assert!(fields(r#""a"b,c"#, ',').unwrap_err().contains("text behind the quotes"));
    }
}
