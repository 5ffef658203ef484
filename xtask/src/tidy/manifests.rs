//! Manifests of the members: inherited fields, and allowed dependencies.

use toml::{Table, Value};

use super::architecture::{self, code_map};
use super::finding::{Finding, line_of};
use crate::listing::{File, Listing};

/// Fields of `[package]` with one value in the whole workspace.
const INHERITED: [&str; 4] = ["version", "edition", "rust-version", "license"];
/// Field that the libraries inherit, too; programs of this repository alone set it to false.
const PUBLISH: &str = "publish";
/// Folder of the libraries.
const LIBRARIES: &str = "crates/";

/// Start of a unit test.
const UNIT_TEST: &str = concat!("#[te", "st]");

/// Tables of dependencies.
const DEPENDENCY_TABLES: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// The binding to CUDA, and the manifests that may depend on it: one crate, and the benchmarks, which also run
/// NVIDIA's libraries.
const CUDA: (&str, [&str; 2]) = ("cudarc", ["crates/kernels/Cargo.toml", "benches/Cargo.toml"]);

/// Checks that members share package fields and lints, and depend only on lower layers.
pub fn check(listing: &Listing) -> Vec<Finding> {
    let layers = listing.text(architecture::PAGE).map(code_map).unwrap_or_default();
    let is_member = |file: &&File| file.path.ends_with("/Cargo.toml");
    let members = listing.files().filter(is_member);
    members.flat_map(|file| check_member(listing, file, &layers)).collect()
}

fn check_member(listing: &Listing, file: &File, layers: &[String]) -> Vec<Finding> {
    let text = file.text().unwrap_or_default();
    match text.parse::<Table>() {
        Err(e) => vec![Finding::new(&file.path, 1, format!("not a manifest: {}", e.message()), "correct the syntax")],
        Ok(manifest) => {
            let member = Member { path: &file.path, text, manifest: &manifest };
            let mut findings = member.inherited_fields();
            findings.extend(member.shared_lints());
            findings.extend(member.layering(layers));
            findings.extend(member.cuda());
            findings.extend(member.unit_tests(listing));
            findings
        }
    }
}

/// Manifest below the root.
struct Member<'a> {
    path: &'a str,
    text: &'a str,
    manifest: &'a Table,
}

impl Member<'_> {
    fn finding(&self, needle: &str, what: String, remedy: impl Into<String>) -> Finding {
        Finding::new(self.path, line_of(self.text, needle), what, remedy)
    }

    fn inherited_fields(&self) -> Vec<Finding> {
        let package = self.manifest.get("package").and_then(Value::as_table);
        let own = |field: &&&str| !package.is_some_and(|package| is_inherited(package, field));
        let found = |field: &&str| {
            self.finding(
                "[package]",
                format!("`{field}` is not inherited"),
                format!("write `{field}.workspace = true`"),
            )
        };
        let of_libraries = self.path.starts_with(LIBRARIES).then_some(&PUBLISH);
        INHERITED.iter().chain(of_libraries).filter(own).map(found).collect()
    }

    fn shared_lints(&self) -> Option<Finding> {
        let shared = self.manifest.get("lints").and_then(|lints| lints.get("workspace")) == Some(&Value::Boolean(true));
        let found = || {
            self.finding(
                "[lints]",
                "the workspace's lints do not apply".to_owned(),
                "add `[lints]` with `workspace = true`",
            )
        };
        (!shared).then(found)
    }

    /// Checks that a crate depends only on crates below itself, or on itself with other features, as tests do. Members
    /// outside `crates` may use all crates.
    fn layering(&self, layers: &[String]) -> Vec<Finding> {
        let layer = |name: &str| layers.iter().position(|layer| layer == name);
        let Some(name) = self.path.strip_prefix("crates/").and_then(|path| path.strip_suffix("/Cargo.toml")) else {
            return Vec::new();
        };
        let Some(own) = layer(name) else { return Vec::new() };
        let above = |dependency: &str| layer(dependency.strip_prefix("girih-")?).filter(|other| *other > own);
        let found = |dependency: &str| {
            let what = format!("{name} depends on {dependency}, which does not lie below it");
            self.finding(
                dependency,
                what,
                format!("turn the dependency round, or change the order in {}", architecture::PAGE),
            )
        };
        self.dependencies().filter(|dependency| above(dependency).is_some()).map(found).collect()
    }

    fn cuda(&self) -> Option<Finding> {
        let (package, homes) = CUDA;
        let seen = !homes.contains(&self.path) && self.dependencies().any(|dependency| dependency == package);
        let remedy = format!("only {} may; put what needs it there", homes[0]);
        seen.then(|| self.finding(package, format!("depends on {package}"), remedy))
    }

    /// Checks that a library without `test = false` has unit tests, for which it is compiled a second time, and that one
    /// with it has none, which nobody would run.
    fn unit_tests(&self, listing: &Listing) -> Option<Finding> {
        let folder = self.path.strip_suffix("Cargo.toml").filter(|at| listing.exists(&format!("{at}src/lib.rs")))?;
        let is_left_out = self.manifest.get("lib").and_then(|lib| lib.get("test")) == Some(&Value::Boolean(false));
        let is_source = |file: &&File| file.path.starts_with(&format!("{folder}src/")) && file.extension() == "rs";
        let has_tests = |file: &&File| file.text().is_some_and(|text| text.contains(UNIT_TEST));
        match (is_left_out, listing.files().filter(is_source).find(has_tests)) {
            (true, Some(file)) => {
                let line = line_of(file.text().unwrap_or_default(), UNIT_TEST);
                let what = "a unit test of a library with `test = false`, which nobody runs".to_owned();
                Some(Finding::new(&file.path, line, what, format!("move it to {folder}tests")))
            }
            (false, None) => {
                let what = "a library without unit tests is compiled a second time for them".to_owned();
                Some(Finding::new(self.path, 1, what, "write `test = false` below `[lib]`"))
            }
            _ => None,
        }
    }

    fn dependencies(&self) -> impl Iterator<Item = &str> {
        let table = |name: &&str| self.manifest.get(*name).and_then(Value::as_table);
        DEPENDENCY_TABLES.iter().filter_map(table).flat_map(Table::keys).map(String::as_str)
    }
}

fn is_inherited(package: &Table, field: &str) -> bool {
    package.get(field).and_then(|value| value.get("workspace")) == Some(&Value::Boolean(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: (&str, &str) = (architecture::PAGE, "- `crates/low`\n- `crates/high`\n");
    const GOOD: &str = "[package]\nname = \"x\"\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\npublish.workspace = true\n\
        [lints]\nworkspace = true\n[dependencies]\n";

    fn check_text(path: &str, text: &str) -> Vec<String> {
        check(&Listing::of(&[MAP, (path, text)])).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn an_inheriting_manifest_passes() {
        assert!(check_text("crates/high/Cargo.toml", &format!("{GOOD}girih-low.workspace = true\n")).is_empty());
    }

    #[test]
    fn own_fields_and_missing_lints_are_found() {
        let found = check_text("xtask/Cargo.toml", "[package]\nname = \"x\"\nversion = \"1.0.0\"\n");
        assert_eq!(found.len(), INHERITED.len() + 1);
        assert!(found[0].contains("`version` is not inherited"));
    }

    #[test]
    fn a_dependency_that_points_up_is_found_at_its_line() {
        for table in ["", "[dev-dependencies]\n"] {
            let text = format!("{GOOD}{table}girih-high.workspace = true\n");
            let line = text.lines().count();
            let found = check_text("crates/low/Cargo.toml", &text);
            assert_eq!(found.len(), 1);
            assert!(
                found[0].starts_with(&format!("crates/low/Cargo.toml:{line}: low depends on girih-high")),
                "{}",
                found[0]
            );
        }
    }

    #[test]
    fn unit_tests_run_and_are_worth_a_build() {
        let check = |manifest: &str, source: &str| {
            let files = [("crates/low/Cargo.toml", manifest), ("crates/low/src/lib.rs", source)];
            let found = check(&Listing::of(&[&[MAP][..], &files].concat()));
            found.iter().map(Finding::to_string).collect::<Vec<_>>()
        };
        let (left_out, test) =
            (format!("{GOOD}[lib]\ntest = false\n"), format!("fn f() {{}}\n{UNIT_TEST}\nfn t() {{}}\n"));
        assert!(check(GOOD, &test).is_empty() && check(&left_out, "fn f() {}\n").is_empty());
        let dead = check(&left_out, &test);
        assert!(dead.len() == 1 && dead[0].starts_with("crates/low/src/lib.rs:2: a unit test"), "{dead:?}");
        let empty = check(GOOD, "fn f() {}\n");
        assert!(empty.len() == 1 && empty[0].starts_with("crates/low/Cargo.toml:1: a library without"), "{empty:?}");
    }

    #[test]
    fn members_outside_crates_may_use_all_crates() {
        assert!(check_text("benches/Cargo.toml", &format!("{GOOD}girih-high.workspace = true\n")).is_empty());
    }

    #[test]
    fn only_one_crate_may_see_cuda() {
        let text = format!("{GOOD}cudarc.workspace = true\n");
        assert!(check_text("crates/kernels/Cargo.toml", &text).is_empty());
        assert!(check_text("benches/Cargo.toml", &text).is_empty());
        assert_eq!(check_text("crates/low/Cargo.toml", &text).len(), 1);
    }

    #[test]
    fn a_broken_manifest_is_found() {
        assert_eq!(check_text("xtask/Cargo.toml", "[package\n").len(), 1);
    }
}
