//! [`for_each_line`]: text of a file, line by line.

use std::path::Path;

use girih_graph_format::file::LineBlocks;

use crate::DatasetError;

/// Calls `work` with the number, from 1, and the text of each line of a file, without the line's end. A file whose name
/// ends in `.gz` is unpacked as it is read. `expected` is a noun phrase for the contents.
///
/// # Errors
/// When the file cannot be read or is no UTF-8 text, and those of `work`; each names the file.
pub(crate) fn for_each_line(
    path: &Path,
    expected: &str,
    mut work: impl FnMut(usize, &str) -> Result<(), DatasetError>,
) -> Result<(), DatasetError> {
    let (mut blocks, mut n_lines) = (LineBlocks::open(path, expected)?, 0);
    while let Some(block) = blocks.next_block()? {
        for line in block.split_inclusive(|&byte| byte == b'\n') {
            n_lines += 1;
            let text = std::str::from_utf8(line).map_err(|_| {
                let what = format!("line {n_lines}: no UTF-8 text; expected {expected}, saved as UTF-8");
                DatasetError::invalid(what).at(path)
            })?;
            work(n_lines, text.trim_end_matches(['\n', '\r'])).map_err(|error| error.at(path))?;
        }
    }
    Ok(())
}
