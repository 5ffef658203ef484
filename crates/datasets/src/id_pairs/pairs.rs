//! [`PairFile`]: a list of pairs of ids.

use std::path::PathBuf;

use girih_graph_format::file::LineBlocks;
use girih_graph_format::{MAX_NODES, NodeId};

use crate::DatasetError;

/// Pairs of ids in a file.
pub(super) struct PairFile {
    pub(super) path: PathBuf,
    /// Name of the file without its ending, which is that of the relation.
    pub(super) stem: String,
    /// Ids of the first type, and of the second.
    pub(super) ids: [Vec<NodeId>; 2],
    pub(super) lines: Lines,
}

/// Lines of pairs, where some lines are empty.
#[derive(Default)]
pub(super) struct Lines {
    /// Number of pairs before each empty line.
    before_empty: Vec<usize>,
}

impl Lines {
    /// Line of a pair, counted from 1.
    pub(super) fn of(&self, pair: usize) -> usize {
        pair + 1 + self.before_empty.partition_point(|&before| before <= pair)
    }
}

impl PairFile {
    /// Reads a list: two ids in each line, with blanks or tabs between them.
    ///
    /// # Errors
    /// When the file cannot be read, or a line is no pair, naming the line.
    pub(super) fn read(path: PathBuf, stem: String) -> Result<Self, DatasetError> {
        let mut file = Self { path, stem, ids: [Vec::new(), Vec::new()], lines: Lines::default() };
        file.fill().map_err(|error| error.at(&file.path))?;
        Ok(file)
    }

    fn fill(&mut self) -> Result<(), DatasetError> {
        let (mut blocks, mut n_lines) = (LineBlocks::open(&self.path, "pairs of ids")?, 0);
        while let Some(block) = blocks.next_block()? {
            for line in block.split_inclusive(|&byte| byte == b'\n') {
                n_lines += 1;
                let wrong = |what: String| DatasetError::invalid(format!("line {n_lines}: {what}"));
                let line = std::str::from_utf8(line).map_err(|_| wrong("no text; expected two ids".to_owned()))?;
                let fields: Vec<&str> = line.split_whitespace().collect();
                match fields[..] {
                    [] => self.lines.before_empty.push(self.ids[0].len()),
                    [source, destination] => {
                        for (end, field) in [source, destination].into_iter().enumerate() {
                            self.ids[end].push(id_of(field).map_err(wrong)?);
                        }
                    }
                    _ => return Err(wrong(format!("{} fields; expected two ids", fields.len()))),
                }
            }
        }
        Ok(())
    }
}

fn id_of(field: &str) -> Result<NodeId, String> {
    let id = field.parse::<NodeId>().ok().filter(|&id| (id as usize) < MAX_NODES);
    id.ok_or_else(|| format!("{field:?} is no id; expected an integer from 0 to {}", MAX_NODES - 1))
}
