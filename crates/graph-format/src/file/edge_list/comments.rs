//! Informative comments above the edges: girih's own, KONECT's, and names of columns as SNAP has them.

use super::columns::Columns;
use super::header::{self, Header};
use super::konect::Konect;
use crate::file::number::integer;
use crate::file::text::{Fields, Separator, line_error, shown};
use crate::{FormatError, Notes};

/// Start of girih's own comment, after the `#`.
pub(super) const OWN: &str = "girih:";

/// Information from the comments above the first edge.
#[derive(Debug, Default)]
pub(super) struct Comments {
    pub(super) konect: Option<Konect>,
    pub(super) own: Own,
    /// Number of edges that SNAP states, and the number of that line.
    pub(super) snap_edges: Option<(u64, usize)>,
    /// The last comment, without its mark.
    last: Vec<u8>,
}

/// Information from girih's own comment: `# girih: nodes 5; columns source,target,weight`.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Numbers of rows and columns, and the number of the line that states them.
    pub(super) sizes: Option<(usize, usize, usize)>,
    pub(super) columns: Option<Columns>,
}

impl Comments {
    /// Reads a line above the first edge for which [`is_skipped`] holds.
    ///
    /// # Errors
    /// When a comment of girih or KONECT cannot be parsed.
    pub(super) fn take(&mut self, line: &[u8], number: usize, notes: &mut Notes) -> Result<(), FormatError> {
        let line = line.trim_ascii();
        let wrong = |problem: String| line_error(number, line, &problem);
        if number == 1 {
            self.konect = Konect::parse(line).map_err(wrong)?;
        } else if let Some(konect) = self.konect.as_mut().filter(|_| number == 2) {
            konect.take_counts(line, number);
        }
        let text = without_mark(line);
        if let Some(own) = text.strip_prefix(OWN.as_bytes()) {
            self.own.take(own, number, notes).map_err(wrong)?;
        } else if !text.is_empty() {
            self.snap_edges = snap_edges(text).map(|n| (n, number)).or(self.snap_edges);
            text.clone_into(&mut self.last);
        }
        Ok(())
    }

    /// Names of columns in the last comment, such as `# FromNodeId  ToNodeId`, if they name source and target and
    /// their number is `n_fields`.
    pub(super) fn header(&self, n_fields: usize) -> Option<(Vec<String>, Header)> {
        let names = header::names_of(&self.last);
        let header = header::read(&names, n_fields).ok()?;
        Some((names, header))
    }
}

impl Own {
    fn take(&mut self, text: &[u8], line: usize, notes: &mut Notes) -> Result<(), String> {
        for item in text.split(|&b| b == b';') {
            let words: Vec<&[u8]> = Fields::new(item, Separator::Blank).collect();
            let size = |at: usize| words.get(at).and_then(|word| integer(word)).map(|n| n as usize);
            match (words.first().copied().unwrap_or_default(), words.len()) {
                (b"nodes", 2) => self.sizes = Some(size(1).map(|n| (n, n, line)).ok_or("nodes: expected a number")?),
                (b"shape", 3) => {
                    let sizes = size(1).zip(size(2)).map(|(rows, cols)| (rows, cols, line));
                    self.sizes = Some(sizes.ok_or("shape: expected two numbers")?);
                }
                (b"columns", 2) => {
                    self.columns = Some(shown(words[1]).parse().map_err(|error: FormatError| error.to_string())?);
                }
                _ => notes.leave_out(format!("line {line}: {}", shown(item.trim_ascii())), "unknown to this girih"),
            }
        }
        Ok(())
    }
}

/// Whether a line is empty or a comment.
pub(super) fn is_skipped(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    matches!(line, [] | [b'#' | b'%', ..] | [b'/', b'/', ..])
}

/// Number of edges in a text such as `Nodes: 7115 Edges: 103689`.
fn snap_edges(text: &[u8]) -> Option<u64> {
    let words: Vec<&[u8]> = Fields::new(text, Separator::Blank).collect();
    let at = words.windows(2).position(|pair| pair[0] == b"Edges:")?;
    words.iter().any(|word| *word == b"Nodes:").then(|| integer(words[at + 1])).flatten()
}

/// Text of a comment without its mark.
fn without_mark(line: &[u8]) -> &[u8] {
    let start = line.iter().position(|b| !matches!(b, b'#' | b'%' | b'/')).unwrap_or(line.len());
    line[start..].trim_ascii_start()
}
