//! Writing edge lists.

use std::path::Path;

use super::comments::OWN;
use super::layout::FIRST_TIME;
use crate::file::text::write_text;
use crate::{Csr, FormatError};

/// Writes the edges of a graph, row by row: separated by commas when the name contains `.csv`, else by tabs; packed
/// when it ends in `.gz`.
///
/// If the nodes with the largest ids are isolated, a first line `# girih: nodes 5` states the number of nodes.
///
/// # Errors
/// When the file cannot be written.
pub fn write_edge_list(path: &Path, csr: &Csr) -> Result<(), FormatError> {
    let name = path.file_name().map(|n| n.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let separator = if name.contains(".csv") { ',' } else { '\t' };
    let comment = comment(csr);
    write_text(path, |out| {
        if let Some(comment) = comment {
            writeln!(out, "{comment}")?;
        }
        for destination in 0..csr.n_rows() {
            for (source, weight) in csr.row_entries(destination) {
                write!(out, "{source}{separator}{destination}")?;
                if csr.values().is_some() {
                    // Shortest text that parses to an equal number.
                    write!(out, "{separator}{weight}")?;
                }
                writeln!(out)?;
            }
        }
        Ok(())
    })
}

/// Comment line with the facts that the edges do not show, if there are any.
fn comment(csr: &Csr) -> Option<String> {
    let last_row = (0..csr.n_rows()).rev().find(|&row| csr.degree(row) > 0);
    let last_col = csr.indices().iter().max().map(|&col| col as usize);
    let n_told = last_row.max(last_col).map_or(0, |id| id + 1);
    let is_told = csr.is_square() && csr.nnz() > 0 && n_told == csr.n_rows();
    let are_like_times = csr.nnz() > 0 && csr.values().is_some_and(|values| values.iter().all(|&w| w >= FIRST_TIME));
    let sizes = match csr.is_square() {
        true => format!("nodes {}", csr.n_rows()),
        false => format!("shape {} {}", csr.n_rows(), csr.n_cols()),
    };
    match (is_told, are_like_times) {
        (true, false) => None,
        (_, true) => Some(format!("# {OWN} {sizes}; columns source,target,weight")),
        (false, false) => Some(format!("# {OWN} {sizes}")),
    }
}
