//! The rules of `docs/glossary.md`: names that are not used, and how doc comments open.

use std::collections::BTreeMap;

use super::Finding;
use crate::listing::{File, Listing};

/// Page whose last table lists the names that are not used.
const GLOSSARY: &str = "docs/glossary.md";
/// Heading of that table.
const TABLE: &str = "## Names that are not used";
/// Words before the name of an item.
const ITEMS: [&str; 9] = ["struct", "enum", "union", "trait", "type", "fn", "mod", "const", "static"];
/// Openings that make a relative clause the subject.
const OPENINGS: [&str; 9] =
    ["What ", "Those ", "That of ", "The same", "Of ", "Who ", "Whose ", "Whoever ", "Whatever "];
/// Doc comments of a package that open so, at most, of a hundred.
const OPENINGS_MAX: f64 = 3.0;
/// Packages whose doc comments are still being rewritten, with as many of a hundred as they may have now. A number only
/// becomes smaller, and goes when it reaches [`OPENINGS_MAX`].
const STILL_REWRITTEN: [(&str, f64); 0] = [];

/// No item has a name that the glossary replaces.
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

/// Names of the glossary's last table, with what is used instead.
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
    let line = line.trim_start();
    if line.starts_with("//") {
        return None;
    }
    let mut words = line.split_whitespace();
    words.find(|word| ITEMS.contains(word))?;
    let name = words.next()?;
    Some(name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(name))
}

/// Few doc comments of a package open with a relative clause.
pub fn openings(listing: &Listing) -> Vec<Finding> {
    let mut packages: BTreeMap<String, Openings<'_>> = BTreeMap::new();
    for file in listing.with_extension("rs") {
        packages.entry(package_of(&file.path)).or_default().add(file);
    }
    let mut findings = Vec::new();
    for (package, Openings { n, relative }) in packages {
        let most = STILL_REWRITTEN.iter().find(|(name, _)| *name == package).map_or(OPENINGS_MAX, |(_, most)| *most);
        let percent = 100.0 * relative.len() as f64 / n.max(1) as f64;
        if percent > most {
            findings.extend(relative.iter().map(|&(path, line)| {
                let what = format!("a doc comment opens with a relative clause ({percent:.1} % of {package}'s do)");
                Finding::new(path, line, what, format!("open with a noun phrase; {most} % may open otherwise"))
            }));
        }
    }
    findings
}

/// Doc comments of a package, and where those are that open with a relative clause.
#[derive(Default)]
struct Openings<'a> {
    n: usize,
    relative: Vec<(&'a str, usize)>,
}

impl<'a> Openings<'a> {
    fn add(&mut self, file: &'a File) {
        let mut is_inside = false;
        for (at, line) in file.text().unwrap_or_default().lines().enumerate() {
            let opening = line.trim_start().strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            if let (Some(opening), false) = (opening, is_inside) {
                self.n += 1;
                if OPENINGS.iter().any(|words| opening.trim_start().starts_with(words)) {
                    self.relative.push((&file.path, at + 1));
                }
            }
            is_inside = opening.is_some();
        }
    }
}

/// Package of a file: the folder below `crates/`, or the first one.
fn package_of(path: &str) -> String {
    let mut folders = path.split('/');
    match (folders.next(), folders.next()) {
        (Some("crates"), Some(name)) => format!("crates/{name}"),
        (Some(first), _) => first.to_owned(),
        (None, _) => String::new(),
    }
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
    fn a_glossary_without_its_table_is_found() {
        assert_eq!(names(&Listing::of(&[(GLOSSARY, "# Glossary\n")])).len(), 1);
    }

    #[test]
    fn openings_are_counted_by_package() {
        let many = "//! What it is.\n\n/// A number.\n/// What follows is no opening.\nfn a() {}\n    /// Of what was begun.\n";
        let few = format!("//! A.\n{}/// Those that stay.\nfn a() {{}}\n", "/// A.\nfn a() {}\n".repeat(40));
        let listing = Listing::of(&[("crates/a/src/lib.rs", many), ("crates/b/src/lib.rs", &few)]);
        let found = openings(&listing);
        assert_eq!(
            found.iter().map(|f| (f.path.as_str(), f.line)).collect::<Vec<_>>(),
            [("crates/a/src/lib.rs", 1), ("crates/a/src/lib.rs", 6)]
        );
    }
}
