//! [`Listing`]: files of the working tree, as the checks see them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// File of the tree.
#[derive(Debug)]
pub struct File {
    /// Path from the root, with `/` as separator.
    pub path: String,
    /// Contents.
    pub bytes: Vec<u8>,
}

impl File {
    /// Contents as text; `None` if they are not UTF-8.
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.bytes).ok()
    }

    /// Part of the name after the last dot; empty without a dot.
    pub fn extension(&self) -> &str {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or("", |(_, extension)| extension)
    }
}

/// All files of the tree that git does not ignore, by path.
#[derive(Debug, Default)]
pub struct Listing {
    files: BTreeMap<String, File>,
}

impl Listing {
    /// Reads the tree below `root`, without `.git` and files that the root's `.gitignore` matches.
    ///
    /// # Errors
    /// When a file cannot be read, or `.gitignore` has a pattern that [`Ignore`] does not support.
    pub fn read(root: &Path) -> Result<Self, String> {
        let ignore = Ignore::parse(&fs::read_to_string(root.join(".gitignore")).unwrap_or_default())?;
        let mut listing = Self::default();
        listing.read_folder(root, "", &ignore)?;
        Ok(listing)
    }

    /// Listing of the given paths and contents.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut listing = Self::default();
        for (path, text) in files {
            listing.insert((*path).to_owned(), text.as_bytes().to_vec());
        }
        listing
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str, ignore: &Ignore) -> Result<(), String> {
        let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if ignore.covers(&path) {
                continue;
            }
            if entry.file_type().map_err(failed)?.is_dir() {
                self.read_folder(&entry.path(), &format!("{path}/"), ignore)?;
            } else {
                let bytes = fs::read(entry.path()).map_err(|e| format!("{path}: {e}"))?;
                self.insert(path, bytes);
            }
        }
        Ok(())
    }

    fn insert(&mut self, path: String, bytes: Vec<u8>) {
        self.files.insert(path.clone(), File { path, bytes });
    }

    /// All files, ascending by path.
    pub fn files(&self) -> impl Iterator<Item = &File> {
        self.files.values()
    }

    /// All files whose name ends in `.extension`.
    pub fn with_extension<'a>(&'a self, extension: &'a str) -> impl Iterator<Item = &'a File> {
        self.files().filter(move |file| file.extension() == extension)
    }

    /// Text of the file at `path`, if it exists.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).and_then(File::text)
    }

    /// Whether `path` is a file, or a folder that contains files. The empty path is the root.
    pub fn exists(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.range(folder.clone()..).next().is_some_and(|(p, _)| p.starts_with(&folder))
    }
}

/// Patterns of `.gitignore`. This project uses two kinds: `/name` at the root, and `*.extension` anywhere.
///
/// Parsing them here lets the checks run on a tree without git.
struct Ignore {
    names: Vec<String>,
    suffixes: Vec<String>,
}

impl Ignore {
    fn parse(text: &str) -> Result<Self, String> {
        let mut ignore = Self { names: vec![".git".to_owned()], suffixes: Vec::new() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match (line.strip_prefix('/'), line.strip_prefix('*')) {
                (Some(name), _) => ignore.names.push(name.trim_end_matches('/').to_owned()),
                (_, Some(suffix)) if suffix.starts_with('.') => ignore.suffixes.push(suffix.to_owned()),
                _ => {
                    return Err(format!(".gitignore: '{line}' is neither '/name' nor '*.extension'; use one of these"));
                }
            }
        }
        Ok(ignore)
    }

    fn covers(&self, path: &str) -> bool {
        self.names.iter().any(|name| name == path) || self.suffixes.iter().any(|suffix| path.ends_with(suffix.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_exist_through_their_files() {
        let listing = Listing::of(&[("docs/a.md", ""), ("docs-old", "")]);
        assert!(listing.exists("docs") && listing.exists("docs/a.md") && listing.exists(""));
        assert!(!listing.exists("doc") && !listing.exists("docs/b.md"));
    }

    #[test]
    fn ignored_names_and_suffixes_are_left_out() {
        let ignore = Ignore::parse("# build\n/target\n*.tmp\n").unwrap();
        assert!(ignore.covers("target") && ignore.covers("docs/x.tmp") && ignore.covers(".git"));
        assert!(!ignore.covers("crates/target") && !ignore.covers("tmp"));
        assert!(Ignore::parse("a/**/b").is_err());
    }
}
