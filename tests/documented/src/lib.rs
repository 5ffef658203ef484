//! Commands that the pages of this repository show, each with its file and line. Tests of the programs parse and run
//! them.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// Languages of blocks whose lines may be commands.
const LANGUAGES: [&str; 5] = ["", "text", "console", "sh", "bash"];
/// Programs that start another program.
const LAUNCHERS: [&str; 3] = ["mpirun", "srun", "torchrun"];

/// Line of a block, or code within a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Path of the page from the root.
    pub page: String,
    /// Line, from one.
    pub line: usize,
    /// Line where the block starts; `None` within a sentence.
    pub block: Option<usize>,
    /// Words without prompt and comment; of `a|b` the first, of `[a]` the inner one.
    pub words: Vec<String>,
}

/// Command: its program and arguments, and words before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call<'s> {
    /// Variables and a launcher before the program, such as `mpirun -n 4`.
    pub before: &'s [String],
    /// Program and its arguments.
    pub words: &'s [String],
}

impl fmt::Display for Shown {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.page, self.line, self.words.join(" "))
    }
}

impl Shown {
    /// Call of a program, given by name or by a path that ends in it; `None` if the words are none.
    #[must_use]
    pub fn call(&self, program: &str) -> Option<Call<'_>> {
        let is_program = |word: &String| word.rsplit('/').next() == Some(program);
        let is_variable = |word: &String| word.split_once('=').is_some_and(|(name, _)| is_upper(name));
        let n_variables = self.words.iter().take_while(|word| is_variable(word)).count();
        let is_launched = self.words.get(n_variables).is_some_and(|word| LAUNCHERS.contains(&word.as_str()));
        let rest = &self.words[n_variables..];
        let at = if is_launched { rest.iter().position(is_program)? } else { 0 };
        rest.get(at).filter(|word| is_program(word))?;
        let (before, words) = self.words.split_at(n_variables + at);
        Some(Call { before, words })
    }

    /// Arguments of `cargo NAME`, or of the program `NAME` by its path.
    #[must_use]
    pub fn cargo(&self, name: &str) -> Option<&[String]> {
        match self.call("cargo") {
            Some(Call { words, .. }) => words.get(1).filter(|word| *word == name).map(|_| &words[2..]),
            None => self.call(name).filter(|call| call.words[0].contains('/')).map(|call| &call.words[1..]),
        }
    }
}

fn is_upper(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Lines and code of all pages for users and contributors, in order of the pages. The journal is history, and left
/// out.
///
/// # Panics
/// When a page cannot be read.
#[must_use]
pub fn shown() -> Vec<Shown> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("this package lies in tests/");
    let mut pages = in_folder(root);
    pages.extend(in_folder(&root.join("docs")));
    for folder in ["crates", "examples"] {
        pages.extend(entries(&root.join(folder)).iter().flat_map(|package| in_folder(package)));
    }
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        of_page(&name, &text)
    };
    pages.iter().flat_map(read).collect()
}

/// Sorted paths in a folder; none if it is a file.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths
}

fn in_folder(folder: &Path) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect()
}

/// Lines and code of a page.
#[must_use]
pub fn of_page(page: &str, text: &str) -> Vec<Shown> {
    let line_at = |offset: usize| 1 + text[..offset].matches('\n').count();
    let mut found = Vec::new();
    let mut add = |line: usize, block: Option<usize>, code: &str| {
        let words = words(code);
        if !words.is_empty() {
            found.push(Shown { page: page.to_owned(), line, block, words });
        }
    };
    // Whether the lines of the block count, and where it starts.
    let mut block = (false, 0);
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language))) => {
                block = (LANGUAGES.contains(&&*language), line_at(range.start));
            }
            Event::End(TagEnd::CodeBlock) => block = (false, 0),
            Event::Text(lines) if block.0 => {
                let first = line_at(range.start);
                lines.lines().enumerate().for_each(|(at, line)| add(first + at, Some(block.1), line));
            }
            Event::Code(code) => add(line_at(range.start), None, &code),
            _ => {}
        }
    }
    found
}

/// Words of a line up to its comment, which `#` or two spaces start.
fn words(line: &str) -> Vec<String> {
    let line = line.trim();
    let line = line.strip_prefix("$ ").unwrap_or(line);
    let end = [" #", "  "].iter().filter_map(|mark| line.find(mark)).min().unwrap_or(line.len());
    line[..end].split_whitespace().map(plain).collect()
}

/// Word without the marks of optional words and alternatives.
fn plain(word: &str) -> String {
    let word = word.strip_prefix('[').unwrap_or(word);
    let word = word.strip_suffix(']').unwrap_or(word);
    let first = word.split_once('|').map(|(first, rest)| if rest.is_empty() { word } else { first });
    first.filter(|first| !first.is_empty()).unwrap_or(word).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Title\n\n```text\n$ girih train   # comment\nA=1 mpirun -n 2 girih train x\nDIR/xtask tidy  all\n\
                        the girih train\n```\nUse `cargo xtask\nbench all [--quick] [--device cpu|cuda]`.\n\
                        ```toml\ngirih train\n```\n| `girih stats` |\n";

    #[test]
    fn lines_and_code_are_found_with_their_places() {
        let found = of_page("a.md", PAGE);
        let told: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "a.md:4: girih train",
                "a.md:5: A=1 mpirun -n 2 girih train x",
                "a.md:6: DIR/xtask tidy",
                "a.md:7: the girih train",
                "a.md:9: cargo xtask bench all --quick --device cpu",
                "a.md:14: girih stats",
            ]
        );
        assert_eq!(found.iter().map(|shown| shown.block).collect::<Vec<_>>()[3..], [Some(3), None, None]);
    }

    #[test]
    fn calls_are_told_from_prose() {
        let found = of_page("a.md", PAGE);
        let girih = |at: usize| found[at].call("girih").map(|call| (call.before.len(), call.words.len()));
        assert_eq!([girih(0), girih(1), girih(2), girih(3)], [Some((0, 2)), Some((4, 3)), None, None]);
        let xtask = |at: usize| found[at].cargo("xtask").map(<[String]>::len);
        assert_eq!([xtask(0), xtask(2), xtask(4)], [None, Some(1), Some(5)]);
    }

    #[test]
    fn pages_show_commands() {
        let n_calls = shown().iter().filter(|shown| shown.call("girih").is_some()).count();
        assert!(n_calls > 80, "{n_calls} commands: the pages are not where they were");
    }
}
