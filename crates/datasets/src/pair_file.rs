//! [`PairFile`]: a list of pairs of ids.

use std::path::PathBuf;

use girih_graph_format::{MAX_NODES, NodeId};

use crate::DatasetError;
use crate::text_lines::for_each_line;

/// Pairs of ids in a file.
pub(crate) struct PairFile {
    pub(crate) path: PathBuf,
    /// Ids of the first type, and of the second.
    pub(crate) ids: [Vec<NodeId>; 2],
    pub(crate) lines: Lines,
}

/// Separator of the two ids of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// Blanks or tabs, any number of them.
    Blanks,
    /// One comma.
    Comma,
}

/// Lines of pairs, where some lines are empty.
#[derive(Default)]
pub(crate) struct Lines {
    /// Number of pairs before each empty line.
    before_empty: Vec<usize>,
}

impl Lines {
    /// Line of a pair, counted from 1.
    pub(crate) fn of(&self, pair: usize) -> usize {
        pair + 1 + self.before_empty.partition_point(|&before| before <= pair)
    }
}

impl PairFile {
    /// Reads a list: two ids in each line. A file whose name ends in `.gz` is unpacked.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no pair, naming the line.
    pub(crate) fn read(path: PathBuf, separator: Separator) -> Result<Self, DatasetError> {
        let (mut ids, mut lines) = ([Vec::new(), Vec::new()], Lines::default());
        for_each_line(&path, "pairs of ids", |number, line| {
            let wrong = |what: String| DatasetError::invalid(format!("line {number}: {what}"));
            if line.trim().is_empty() {
                lines.before_empty.push(ids[0].len());
                return Ok(());
            }
            let fields = match separator {
                Separator::Blanks => two(line.split_whitespace()),
                Separator::Comma => two(line.split(',')),
            };
            let fields = fields.map_err(|found| wrong(format!("{found} fields; expected two ids")))?;
            for (ids, field) in ids.iter_mut().zip(fields) {
                ids.push(id_of(field.trim()).map_err(wrong)?);
            }
            Ok(())
        })?;
        Ok(Self { path, ids, lines })
    }
}

/// The only two fields of a line, or else the number of its fields.
fn two<'a>(mut fields: impl Iterator<Item = &'a str>) -> Result<[&'a str; 2], usize> {
    match (fields.next(), fields.next(), fields.count()) {
        (Some(source), Some(destination), 0) => Ok([source, destination]),
        (first, second, others) => Err(usize::from(first.is_some()) + usize::from(second.is_some()) + others),
    }
}

fn id_of(field: &str) -> Result<NodeId, String> {
    let id = field.parse::<NodeId>().ok().filter(|&id| (id as usize) < MAX_NODES);
    id.ok_or_else(|| format!("{field:?} is no id; expected an integer from 0 to {}", MAX_NODES - 1))
}
