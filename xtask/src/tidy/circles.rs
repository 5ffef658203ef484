//! Import circles of files inside a crate, and layers of its modules.

use std::collections::{BTreeMap, BTreeSet};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

use super::finding::Finding;
use super::imports::{Import, Module, Modules};
use crate::listing::Listing;

/// Most files of an import circle.
const CIRCLE_MAX: usize = 3;
/// Top-level modules of a crate, lowest layer first: `("crates/NAME", &["error", "graph"])`.
const LAYERS: [(&str, &[&str]); 1] = [(
    "crates/trainer",
    &[
        "error",
        "config",
        "tape",
        "layers",
        "models",
        "data",
        "engine",
        "weights",
        "tasks",
        "minibatch",
        "train",
        "similarity",
        "predictor",
        "distributed",
        "estimate",
        "instances",
        "testing",
    ],
)];

/// Checks that no circle of imports has more than [`CIRCLE_MAX`] files.
pub fn circles(listing: &Listing) -> Vec<Finding> {
    crates(listing).iter().flat_map(|folder| circles_of(listing, folder)).collect()
}

/// Checks that modules of crates in [`LAYERS`] import only from their own and earlier ones.
pub fn layers(listing: &Listing) -> Vec<Finding> {
    layers_of(listing, &LAYERS)
}

/// Folders with a manifest and a `src`.
fn crates(listing: &Listing) -> Vec<String> {
    let folders = listing.files().filter_map(|file| file.path.strip_suffix("/Cargo.toml"));
    folders.filter(|folder| listing.exists(&format!("{folder}/src"))).map(str::to_owned).collect()
}

fn circles_of(listing: &Listing, folder: &str) -> Vec<Finding> {
    let modules = Modules::read(listing, folder);
    let imports = modules.imports();
    let circles = circles_in(&imports);
    let large = circles.iter().filter(|circle| circle.len() > CIRCLE_MAX);
    large.map(|circle| finding(&modules, &imports, circle)).collect()
}

/// Sets of modules that import each other, directly or by way of others.
fn circles_in(imports: &[Import]) -> Vec<BTreeSet<&Module>> {
    let mut graph = DiGraph::new();
    let mut nodes = BTreeMap::new();
    for import in imports {
        let [from, to] = [&import.from, &import.to].map(|end| *nodes.entry(end).or_insert_with(|| graph.add_node(end)));
        graph.add_edge(from, to, ());
    }
    let sets = tarjan_scc(&graph).into_iter().map(|set| set.into_iter().map(|node| graph[node]).collect());
    sets.filter(|set: &BTreeSet<_>| set.len() > 1).collect()
}

/// Describes a circle: each of its files, with one import that makes it.
fn finding(modules: &Modules, imports: &[Import], circle: &BTreeSet<&Module>) -> Finding {
    let in_circle = |import: &&Import| circle.contains(&import.from) && circle.contains(&import.to);
    let import_of = |module: &Module| imports.iter().filter(in_circle).find(|import| import.from == *module);
    let mut members = Vec::new();
    for module in circle {
        let import = import_of(module).map_or("", |import| import.path.as_str());
        members.push(format!("{} imports {import}", modules.files[*module]));
    }
    let first = circle.first().map_or("", |module| modules.files[*module].as_str());
    let what = format!("an import circle of {} files, more than {CIRCLE_MAX}: {}", circle.len(), members.join(", "));
    Finding::new(first, 1, what, "move the definitions that both sides use to a file that imports neither")
}

fn layers_of(listing: &Listing, table: &[(&str, &[&str])]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, layers) in table {
        let modules = Modules::read(listing, folder);
        let place = |module: &Module| layers.iter().position(|layer| module.first().is_some_and(|name| name == layer));
        for (module, file) in modules.files.iter().filter(|(module, _)| module.len() == 1) {
            if place(module).is_none() {
                let what = format!("`{}` is in no layer", module[0]);
                findings.push(Finding::new(file, 1, what, "add it to LAYERS in xtask/src/tidy/circles.rs"));
            }
        }
        for import in modules.imports() {
            if let (Some(from), Some(to)) = (place(&import.from), place(&import.to))
                && to > from
            {
                let what = format!("imports {} of `{}`, a layer above `{}`", import.path, layers[to], layers[from]);
                let remedy = "move the definition down, or change LAYERS in xtask/src/tidy/circles.rs";
                findings.push(Finding::new(&modules.files[&import.from], 1, what, remedy));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings of a crate `c` with these files below `src`.
    fn found(files: &[(&str, &str)]) -> Vec<String> {
        circles(&tree(files)).iter().map(ToString::to_string).collect()
    }

    fn tree(files: &[(&str, &str)]) -> Listing {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("c/src/{path}")).collect();
        let mut all = vec![("c/Cargo.toml", "")];
        all.extend(paths.iter().map(String::as_str).zip(files.iter().map(|(_, text)| *text)));
        Listing::of(&all)
    }

    /// Files `a` to `d`, of which each imports the next; `last` is the import of `d`.
    fn chain<'a>(root: &'a str, last: &'a str) -> [(&'a str, &'a str); 5] {
        let b = "use crate::c::C;\npub struct B;";
        let c = "fn f() { println!(\"{}\", crate::d::D); }\npub struct C;";
        [
            ("lib.rs", root),
            ("a.rs", "use super::b as z;\nfn f(_: z::B) {}\npub struct A;"),
            ("b.rs", b),
            ("c.rs", c),
            ("d.rs", last),
        ]
    }

    #[test]
    fn re_exports_are_followed_through_names_renames_and_globs() {
        for root in ["pub use a::A;", "pub use self::a::{A as X, A};", "pub use a::*;", "pub(crate) use crate::a::*;"] {
            let one = found(&chain(root, "use crate::A;\npub struct D;"));
            assert_eq!(one.len(), 1, "{root}");
            assert!(one[0].starts_with("c/src/a.rs:1: an import circle of 4 files"), "{}", one[0]);
            assert!(one[0].contains("c/src/c.rs imports crate::d::D, c/src/d.rs imports crate::A;"), "{}", one[0]);
        }
        assert_eq!(found(&chain("pub use a::A as X;", "use crate::X;\npub struct D;")).len(), 1);
    }

    #[test]
    fn tests_do_not_count() {
        let module = "pub struct D;\n#[cfg(test)]\nmod checks { use crate::a::A; }";
        assert_eq!(found(&chain("", module)), [""; 0]);
        let mut files = chain("", "pub struct D;\n#[cfg(test)]\nmod checks;").to_vec();
        files.push(("d/checks.rs", "use crate::a::A;\nuse super::D;"));
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn inline_modules_belong_to_their_file() {
        assert_eq!(found(&chain("", "pub mod e { pub fn f(_: super::super::a::A) {} }\npub struct D;")).len(), 1);
        assert_eq!(found(&chain("", "pub mod e { pub fn f(_: super::D) {} }\npub struct D;")), [""; 0]);
    }

    #[test]
    fn imports_from_a_later_layer_and_modules_in_none_are_found() {
        let listing = tree(&[("lib.rs", ""), ("a.rs", "use crate::b::B;\npub struct A;"), ("b.rs", "pub struct B;")]);
        assert!(layers_of(&listing, &[("c", &["b", "a"])]).is_empty());
        let upward = layers_of(&listing, &[("c", &["a", "b"])]);
        assert!(upward[0].to_string().starts_with("c/src/a.rs:1: imports crate::b::B of `b`, a layer above `a`"));
        assert_eq!(layers_of(&listing, &[("c", &["a"])]).len(), 1);
    }
}
