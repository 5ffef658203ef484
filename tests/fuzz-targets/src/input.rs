//! [`Input`]: files that a target reads.

use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use zip::ZipArchive;

/// Form of an input, on disk and as a byte string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// One file of this name; its bytes are the input.
    One(&'static str),
    /// One file of any name, which decides how it is parsed.
    Any,
    /// Folder of files.
    Folder,
    /// Bytes in memory, which the parser gets under this name.
    Memory(&'static str),
}

/// File of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path below the folder of the input.
    pub name: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

/// Files that a target reads: one, or all of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// Files in the order of the seed.
    pub files: Vec<File>,
}

/// Maximum length of the name of a file or folder.
const NAME_MAX: usize = 64;
/// Maximum number of folders above a file.
const DEPTH_MAX: usize = 3;
/// Limit up to which unpacked bytes are counted.
const UNPACKED_MAX: u64 = 1 << 32;

impl Input {
    /// Input of one file.
    #[must_use]
    pub fn one(name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { files: vec![File { name: name.to_owned(), bytes: bytes.into() }] }
    }

    /// Input of several files.
    #[must_use]
    pub fn folder(files: &[(&str, &[u8])]) -> Self {
        let file = |&(name, bytes): &(&str, &[u8])| File { name: name.to_owned(), bytes: bytes.to_vec() };
        Self { files: files.iter().map(file).collect() }
    }

    /// Input of the files below a folder, sorted by name.
    ///
    /// # Panics
    /// When the folder cannot be read.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let mut files = Vec::new();
        collect(folder, "", &mut files);
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Self { files }
    }

    /// Encodes the input as one byte string. For a single file that is its contents. For a folder, each file has a
    /// header: length of its name, name, and length of its contents.
    #[must_use]
    pub fn encode(&self, form: Form) -> Vec<u8> {
        if let (Form::One(_) | Form::Memory(_), [file]) = (form, &self.files[..]) {
            return file.bytes.clone();
        }
        let mut all = Vec::new();
        for File { name, bytes } in &self.files {
            all.push(name.len() as u8);
            all.extend(name.as_bytes());
            all.extend((bytes.len() as u32).to_le_bytes());
            all.extend(bytes);
        }
        all
    }

    /// Decodes any byte string. Lengths beyond the end are reduced; names are made harmless.
    #[must_use]
    pub fn decode(mut all: &[u8], form: Form) -> Self {
        if let Form::One(name) | Form::Memory(name) = form {
            return Self::one(name, all);
        }
        let mut input = Self::default();
        while let Some((&name_len, rest)) = all.split_first() {
            let (name, rest) = rest.split_at(usize::from(name_len).min(rest.len()));
            let (len, rest) = rest.split_at(rest.len().min(4));
            let mut word = [0; 4];
            word[..len.len()].copy_from_slice(len);
            let (bytes, rest) = rest.split_at((u32::from_le_bytes(word) as usize).min(rest.len()));
            input.files.push(File { name: harmless(name), bytes: bytes.to_vec() });
            all = rest;
        }
        input
    }

    /// Writes the files below `folder`, which is emptied first. Returns the path of the single file, or the folder.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path, form: Form) -> std::io::Result<PathBuf> {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::create_dir_all(folder)?;
        for File { name, bytes } in &self.files {
            let path = folder.join(name);
            // A name that is already a folder, or lies below a file, is left out.
            let is_place = std::fs::create_dir_all(path.parent().unwrap_or(folder)).is_ok() && !path.is_dir();
            if is_place {
                std::fs::write(path, bytes)?;
            }
        }
        Ok(match (form, &self.files[..]) {
            (Form::One(_) | Form::Any, [file]) => folder.join(&file.name),
            _ => folder.to_owned(),
        })
    }

    /// Number of bytes of all files, and of the unpacked contents of packed ones.
    #[must_use]
    pub fn unpacked_bytes(&self) -> u64 {
        self.files.iter().map(|file| unpacked(&file.name, &file.bytes)).sum()
    }
}

fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    for entry in std::fs::read_dir(folder).expect("a folder of seeds") {
        let path = entry.expect("an entry of a folder of seeds").path();
        let name = format!("{prefix}{}", path.file_name().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            collect(&path, &format!("{name}/"), files);
        } else {
            files.push(File { name, bytes: std::fs::read(&path).expect("a seed") });
        }
    }
}

/// Relative path that cannot leave its folder.
fn harmless(name: &[u8]) -> String {
    let text: String = name
        .iter()
        .map(|&b| if b.is_ascii_alphanumeric() || b"._-/".contains(&b) { char::from(b) } else { '_' })
        .collect();
    let kept = text.split('/').filter(|part| !part.is_empty() && !part.starts_with(".."));
    let kept: Vec<&str> = kept.map(|part| if part == "." { "_" } else { &part[..part.len().min(NAME_MAX)] }).collect();
    match kept.len() {
        0 => "_".to_owned(),
        n => kept[n.saturating_sub(DEPTH_MAX)..].join("/"),
    }
}

/// Number of bytes of a file, and of its unpacked contents.
fn unpacked(name: &str, bytes: &[u8]) -> u64 {
    let own = bytes.len() as u64;
    let count = |reader: &mut dyn Read| std::io::copy(&mut reader.take(UNPACKED_MAX), &mut Counted(0)).map_or(0, |n| n);
    if name.ends_with(".gz") {
        let mut sink = Counted(0);
        // An error in the middle does not change the count of bytes unpacked before.
        let _ = std::io::copy(&mut MultiGzDecoder::new(bytes).take(UNPACKED_MAX), &mut sink);
        return own + sink.0;
    }
    if !bytes.starts_with(b"PK") {
        return own;
    }
    let Ok(mut archive) = ZipArchive::new(std::io::Cursor::new(bytes)) else { return own };
    let members = 0..archive.len();
    own + members.map(|i| archive.by_index(i).map_or(0, |mut member| count(&mut member))).sum::<u64>()
}

/// Writer that counts bytes.
struct Counted(u64);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_decoded_as_they_were_encoded_and_nothing_leaves_its_folder() {
        let input = Input::folder(&[("raw/a.csv", b"0 1\n"), ("b", b"")]);
        assert_eq!(Input::decode(&input.encode(Form::Folder), Form::Folder), input);
        for name in ["../../x", "/x/y", "a/../../b", "", ".", "..", "a//b"] {
            let name = harmless(name.as_bytes());
            assert!(!name.starts_with('/') && name.split('/').all(|part| !part.is_empty() && part != ".."), "{name}");
        }
        // A name below a file, and a name that is too long, must not cause a failure.
        let odd = Input::folder(&[("a", b"x"), ("a/b", b"y"), (&harmless(&[b'z'; 999]), b"z")]);
        let folder = tempfile::tempdir().unwrap();
        odd.write(&folder.path().join("x"), Form::Folder).unwrap();
        for len in 0..input.encode(Form::Folder).len() {
            let _ = Input::decode(&input.encode(Form::Folder)[..len], Form::Folder);
        }
    }
}
