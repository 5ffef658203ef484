//! [`LineBlocks`]: text of a file in blocks of whole lines, unpacked while it is read.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[cfg(feature = "gz")]
use flate2::read::MultiGzDecoder;
use memchr::memrchr;

use super::sniff::check_text;
#[cfg(feature = "gz")]
use super::sniff::{HEAD, misnamed_gzip};
use super::text::{is_gzip, without_mark};
use crate::FormatError;

/// Number of bytes of a block, unless a line is longer.
const BLOCK: usize = 1 << 20;
/// Largest number of bytes of a line.
const LINE_MAX: usize = 1 << 28;

/// Reader of a text file in blocks of whole lines, for formats whose text need not stay in memory. A file whose name
/// ends in `.gz` is unpacked as it is read. Memory is that of a block, or of the longest line.
pub struct LineBlocks {
    path: PathBuf,
    source: Box<dyn Read + Send>,
    is_packed: bool,
    buffer: Vec<u8>,
    /// Number of bytes of the block that was lent last.
    n_lent: usize,
    /// Number of bytes of text in `buffer`.
    n_read: usize,
    is_at_end: bool,
}

impl LineBlocks {
    /// Opens a file that should be `expected`, a noun phrase.
    ///
    /// # Errors
    /// When the file cannot be read or unpacked, or its first bytes are those of another kind of file.
    pub fn open(path: &Path, expected: &str) -> Result<Self, FormatError> {
        Self::start(path, expected).map_err(|error| error.at(path))
    }

    fn start(path: &Path, expected: &str) -> Result<Self, FormatError> {
        let file = File::open(path).map_err(FormatError::io)?;
        let is_packed = is_gzip(path);
        let source = if is_packed { unpacking(file)? } else { Box::new(file) };
        let buffer = vec![0; BLOCK];
        let path = path.to_owned();
        let mut blocks = Self { path, source, is_packed, buffer, n_lent: 0, n_read: 0, is_at_end: false };
        blocks.fill()?;
        let text = &blocks.buffer[..blocks.n_read];
        check_text(text, expected, None)?;
        blocks.n_lent = text.len() - without_mark(text).len();
        Ok(blocks)
    }

    /// Next block: whole lines with their ends; the last line may have none. `None` at the end of the text.
    ///
    /// # Errors
    /// When reading or unpacking fails, or a line is longer than 256 MiB.
    pub fn next_block(&mut self) -> Result<Option<&[u8]>, FormatError> {
        self.advance().map_err(|error| error.at(&self.path))?;
        Ok((self.n_lent > 0).then_some(&self.buffer[..self.n_lent]))
    }

    fn advance(&mut self) -> Result<(), FormatError> {
        self.buffer.copy_within(self.n_lent..self.n_read, 0);
        (self.n_lent, self.n_read) = (0, self.n_read - self.n_lent);
        loop {
            self.fill()?;
            let text = &self.buffer[..self.n_read];
            match memrchr(b'\n', text) {
                Some(at) => self.n_lent = at + 1,
                None if self.is_at_end => self.n_lent = text.len(),
                None => {
                    self.grow()?;
                    continue;
                }
            }
            return Ok(());
        }
    }

    /// Reads until the buffer is full, or the text ends.
    fn fill(&mut self) -> Result<(), FormatError> {
        while self.n_read < self.buffer.len() && !self.is_at_end {
            match self.source.read(&mut self.buffer[self.n_read..]) {
                Ok(0) => self.is_at_end = true,
                Ok(n) => self.n_read += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if self.is_packed => {
                    return Err(FormatError::corrupt(format!("it does not unpack: {error}")));
                }
                Err(error) => return Err(FormatError::io(error)),
            }
        }
        Ok(())
    }

    fn grow(&mut self) -> Result<(), FormatError> {
        let n = self.buffer.len();
        if n >= LINE_MAX || self.buffer.try_reserve_exact(n).is_err() {
            return Err(FormatError::invalid(format!("a line of more than {n} bytes; break the text into lines")));
        }
        self.buffer.resize(2 * n, 0);
        Ok(())
    }
}

#[cfg(feature = "gz")]
fn unpacking(mut file: File) -> Result<Box<dyn Read + Send>, FormatError> {
    let mut head = Vec::with_capacity(HEAD);
    file.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(FormatError::io)?;
    match misnamed_gzip(&head) {
        Some(error) => Err(error),
        None => Ok(Box::new(MultiGzDecoder::new(std::io::Cursor::new(head).chain(file)))),
    }
}

#[cfg(not(feature = "gz"))]
fn unpacking(_: File) -> Result<Box<dyn Read + Send>, FormatError> {
    Err(super::text::without_gz())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(path: &Path) -> Result<Vec<Vec<u8>>, FormatError> {
        let mut reader = LineBlocks::open(path, "a text")?;
        let mut all = Vec::new();
        while let Some(block) = reader.next_block()? {
            all.push(block.to_vec());
        }
        Ok(all)
    }

    #[test]
    fn blocks_are_whole_lines_and_together_the_text() {
        let home = tempfile::tempdir().unwrap();
        let long = "x".repeat(3 * BLOCK);
        let many = "a line of some length\n".repeat(200_000);
        for text in ["", "\n", "one", "one\ntwo", "one\r\ntwo\n", &long, &format!("{long}\nlast"), &many] {
            let path = home.path().join("text.txt");
            std::fs::write(&path, text).unwrap();
            let found = blocks(&path).unwrap();
            assert!(found.concat() == text.as_bytes() && found.iter().all(|block| !block.is_empty()));
            assert!(found.iter().rev().skip(1).all(|block| block.ends_with(b"\n")));
        }
        let marked = home.path().join("marked.txt");
        std::fs::write(&marked, "\u{feff}one\n").unwrap();
        assert_eq!(blocks(&marked).unwrap().concat(), b"one\n");
    }

    #[cfg(feature = "gz")]
    #[test]
    fn packed_text_is_unpacked_and_damage_is_named() {
        use std::io::Write as _;
        let (home, text) = (tempfile::tempdir().unwrap(), "0123456789\n".repeat(300_000));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(text.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        let path = home.path().join("text.gz");
        std::fs::write(&path, &packed).unwrap();
        assert!(blocks(&path).unwrap().concat() == text.as_bytes());
        std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        let cut = blocks(&path).unwrap_err().to_string();
        assert!(cut.contains("does not unpack") && cut.contains("text.gz"), "{cut}");
        std::fs::write(&path, "0\n").unwrap();
        assert!(blocks(&path).unwrap_err().to_string().contains("take .gz off the name"));
    }
}
