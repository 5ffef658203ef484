//! Rules of `docs/glossary.md`: words and names that are not used, and openings of doc comments.

use std::collections::BTreeMap;

use super::finding::Finding;
use crate::listing::{File, Listing};

/// Page with tables of the words and the names that are not used.
const GLOSSARY: &str = "docs/glossary.md";
/// Heading of the table of words.
const WORDS: &str = "## Words that are not used";
/// Heading of the table of names.
const TABLE: &str = "## Names that are not used";
/// Extensions of files without these words.
const TEXTS: [&str; 6] = ["rs", "c", "cu", "cuh", "md", "toml"];
/// Folder whose journal quotes what was said at the time.
const RECORDS: &str = "benches/record/";
/// Keywords before the name of an item.
const ITEMS: [&str; 8] = ["struct", "enum", "union", "trait", "type", "fn", "mod", "static"];
/// Words that may come before these keywords; `const` may also come before the name itself.
const MODIFIERS: [&str; 5] = ["const", "unsafe", "async", "extern", "default"];
/// Openings that make a relative clause the subject.
const OPENINGS: [&str; 9] =
    ["What ", "Those ", "That of ", "The same", "Of ", "Who ", "Whose ", "Whoever ", "Whatever "];

/// Checks that no text has a word that the glossary replaces, in the singular or the plural.
pub fn words(listing: &Listing) -> Vec<Finding> {
    let Some(page) = listing.files().find(|file| file.path == GLOSSARY).and_then(File::text) else {
        return Vec::new();
    };
    let table = page.split_once(WORDS).map_or("", |(_, rest)| rest.split("\n## ").next().unwrap_or(rest));
    let rows = table.lines().filter_map(|row| row.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    let replaced: Vec<(&str, &str)> = rows.filter(|(word, _)| *word != "not").collect();
    let is_checked = |file: &&File| file.path != GLOSSARY && !file.path.starts_with(RECORDS);
    let mut findings = Vec::new();
    for file in TEXTS.iter().flat_map(|extension| listing.with_extension(extension)).filter(is_checked) {
        for (at, line) in file.text().unwrap_or_default().lines().enumerate() {
            let line = line.to_lowercase();
            // Names of records have hyphens, and quote what was said at the time.
            let mut found = line.split(|c: char| !c.is_alphabetic() && c != '-');
            let is_word = |word: &str, of: &str| of.strip_prefix(word).is_some_and(|rest| ["", "s"].contains(&rest));
            let hit = found.find_map(|of| replaced.iter().find(|(word, _)| is_word(word, of)));
            if let Some((word, instead)) = hit {
                let what = format!("the word `{word}`");
                findings.push(Finding::new(&file.path, at + 1, what, format!("{GLOSSARY} says {instead}")));
            }
        }
    }
    findings
}

/// Checks that no item has a name that the glossary replaces.
pub fn names(listing: &Listing) -> Vec<Finding> {
    let Some(page) = listing.files().find(|file| file.path == GLOSSARY).and_then(File::text) else {
        return Vec::new();
    };
    let replaced = replaced_names(page);
    if replaced.is_empty() {
        return vec![Finding::new(GLOSSARY, 1, format!("has no table below `{TABLE}`"), "list the names there")];
    }
    let mut findings = Vec::new();
    for file in listing.with_extension("rs") {
        for (at, line) in file.text().unwrap_or_default().lines().enumerate() {
            if let Some((name, instead)) = item_name(line).and_then(|name| replaced.get_key_value(name)) {
                let what = format!("an item is named `{name}`");
                findings.push(Finding::new(&file.path, at + 1, what, format!("{GLOSSARY} says {instead}")));
            }
        }
    }
    findings
}

/// Names of the glossary's last table, with their replacements.
fn replaced_names(page: &str) -> BTreeMap<&str, &str> {
    let rows = page.split_once(TABLE).map_or("", |(_, table)| table).lines();
    rows.filter_map(|row| {
        let mut cells = row.trim().trim_matches('|').split('|').map(str::trim);
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        Some((name, cells.next()?))
    })
    .collect()
}

/// Name of the item that a line of code defines.
fn item_name(line: &str) -> Option<&str> {
    let is_modifier = |word: &str| word.starts_with("pub") || MODIFIERS.contains(&word);
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| !is_modifier(word))?;
    let name = match words[at] {
        item if ITEMS.contains(&item) => words.get(at + 1)?,
        name if at > 0 && words[at - 1] == "const" => name,
        _ => return None,
    };
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// Checks that no doc comment opens with a relative clause.
pub fn openings(listing: &Listing) -> Vec<Finding> {
    listing.with_extension("rs").flat_map(relative_openings).collect()
}

fn relative_openings(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut is_inside = false;
    for (at, line) in file.text().unwrap_or_default().lines().enumerate() {
        let comment = line.trim_start().strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let opening = comment.filter(|_| !is_inside).map_or("", str::trim_start);
        if let Some(words) = OPENINGS.iter().find(|words| opening.starts_with(**words)) {
            let what = format!("a doc comment opens with `{}`", words.trim_end());
            findings.push(Finding::new(&file.path, at + 1, what, "open with a noun phrase that names the thing"));
        }
        is_inside = comment.is_some();
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_names_are_found_where_items_are_defined() {
        let page = format!(
            "| `A` | `B` |\n{TABLE}\n\n| not | but |\n|---|---|\n| `Crew` | `WorkerPool` |\n| `put_off` | `defer` |\n"
        );
        let code = "//! A.\npub(crate) struct Crew<B> {\n    /// A struct Crew.\n    pub(super) fn put_off(&self) {}\nstruct A;\nlet crew = Crew::new();\n";
        let found = names(&Listing::of(&[(GLOSSARY, &page), ("a.rs", code)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(found[0].to_string(), "a.rs:2: an item is named `Crew`; docs/glossary.md says `WorkerPool`");
    }

    #[test]
    fn words_are_found_in_every_text() {
        let page = format!("{WORDS}\n\n| not | but |\n|---|---|\n| cod | fish |\n\n{TABLE}\n\n| `Rod` | `Reel` |\n");
        let text = "code and encode\nA cod.\nn_cods\nrecord-cod-1\nRod\nconst COD: u8\n";
        let found = words(&Listing::of(&[(GLOSSARY, &page), ("a.rs", text), ("benches/record/README.md", text)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [2, 3, 6]);
        assert_eq!(found[0].to_string(), "a.rs:2: the word `cod`; docs/glossary.md says fish");
    }

    #[test]
    fn items_are_told_from_uses() {
        let named = |line| item_name(line);
        assert_eq!(named("    pub(crate) const unsafe fn turn<'a>(&self)"), Some("turn"));
        assert_eq!(named("const NAP: Duration = X;"), Some("NAP"));
        assert_eq!(named("mod crew;"), Some("crew"));
        for line in ["let crew = struct_of();", "// struct Crew", "crew::Crew::new()", "", "pub use a::Crew;"] {
            assert_eq!(named(line), None, "{line}");
        }
    }

    #[test]
    fn a_glossary_without_its_table_is_found() {
        assert_eq!(names(&Listing::of(&[(GLOSSARY, "# Glossary\n")])).len(), 1);
    }

    #[test]
    fn relative_clauses_are_found_where_a_comment_opens() {
        let code = "//! What it is.\n\n/// A number.\n/// What follows is no opening.\nfn a() {}\n    /// Of two.\n";
        let found = openings(&Listing::of(&[("a.rs", code), ("a.md", code)]));
        assert_eq!(found.iter().map(|f| f.line).collect::<Vec<_>>(), [1, 6]);
        let said = "a.rs:1: a doc comment opens with `What`; open with a noun phrase that names the thing";
        assert_eq!(found[0].to_string(), said);
    }
}
