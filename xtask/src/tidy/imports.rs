//! Imports among the files of a crate, followed through re-exports to the file that defines the item.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, Macro, Path, UseTree, Visibility};

use crate::listing::Listing;

/// Longest chain of re-exports that is followed.
const RE_EXPORTS_MAX: usize = 8;

/// Path of a module from the crate's root; empty for the root.
pub type Module = Vec<String>;

/// Import of one file by another: the files' modules, and the path as written.
#[derive(Debug)]
pub struct Import {
    /// Module that imports.
    pub from: Module,
    /// Module that defines the item.
    pub to: Module,
    /// Path as written, renames resolved.
    pub path: String,
}

/// Files of a crate by module, without tests.
pub struct Modules {
    /// Path of each module's file.
    pub files: BTreeMap<Module, String>,
    contents: BTreeMap<Module, Contents>,
}

/// Name that a `use` brings into a file.
struct Use {
    is_public: bool,
    path: Vec<String>,
    name: String,
}

/// Uses, definitions and paths of a file.
#[derive(Default)]
struct Contents {
    uses: Vec<Use>,
    defined: BTreeSet<String>,
    paths: BTreeSet<Vec<String>>,
    test_modules: BTreeSet<String>,
    /// Number of inline modules around the visited item.
    depth: usize,
}

impl Modules {
    /// Reads the files below `folder/src`.
    pub fn read(listing: &Listing, folder: &str) -> Self {
        let src = format!("{folder}/src/");
        let has_library = listing.exists(&format!("{src}lib.rs"));
        let mut modules = Self { files: BTreeMap::new(), contents: BTreeMap::new() };
        for file in listing.with_extension("rs") {
            let Some(path) = file.path.strip_prefix(&src).and_then(|path| path.strip_suffix(".rs")) else { continue };
            if path == "main" && has_library || path.starts_with("bin/") {
                continue;
            }
            let is_name = |part: &&str| !["mod", "lib", "main"].contains(part);
            let module: Module = path.split('/').filter(is_name).map(str::to_owned).collect();
            if module.iter().any(|part| part == "tests") || module.last().is_some_and(|last| last.ends_with("tests")) {
                continue;
            }
            let Ok(parsed) = syn::parse_file(file.text().unwrap_or_default()) else { continue };
            let mut contents = Contents::default();
            contents.visit_file(&parsed);
            modules.files.insert(module.clone(), file.path.clone());
            modules.contents.insert(module, contents);
        }
        modules.remove_test_files();
        modules
    }

    /// Removes files whose module is declared with `#[cfg(test)]`, and files below them.
    fn remove_test_files(&mut self) {
        let tests: Vec<Module> = (self.contents.iter())
            .flat_map(|(module, contents)| contents.test_modules.iter().map(|name| child(module, name)))
            .collect();
        self.files.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        self.contents.retain(|module, _| self.files.contains_key(module));
    }

    /// Imports between different files; of equal ends, the first by path.
    pub fn imports(&self) -> Vec<Import> {
        let mut found: BTreeMap<(Module, Module), String> = BTreeMap::new();
        for (from, contents) in &self.contents {
            for path in self.paths_of(from, contents) {
                let Some(to) = self.resolve(from, &path, 0).filter(|to| to != from) else { continue };
                let path = path.join("::");
                let first = found.entry((from.clone(), to)).or_insert_with(|| path.clone());
                if path < *first {
                    *first = path;
                }
            }
        }
        found.into_iter().map(|((from, to), path)| Import { from, to, path }).collect()
    }

    /// Paths that a file uses itself: its private imports, and paths in its code.
    fn paths_of(&self, module: &Module, contents: &Contents) -> Vec<Vec<String>> {
        let mut paths: Vec<Vec<String>> =
            contents.uses.iter().filter(|used| !used.is_public).map(|used| used.path.clone()).collect();
        for path in &contents.paths {
            let imported = contents.uses.iter().find(|used| used.name == path[0]);
            if ["crate", "super", "self"].contains(&path[0].as_str()) {
                paths.push(path.clone());
            } else if let Some(used) = imported {
                paths.push(used.path.iter().chain(&path[1..]).cloned().collect());
            } else if self.files.contains_key(&child(module, &path[0])) {
                paths.push(["self".to_owned()].iter().chain(path).cloned().collect());
            }
        }
        paths
    }

    /// Module of the file that defines `path`, as written in `module`; `None` outside the crate.
    fn resolve(&self, module: &Module, path: &[String], depth: usize) -> Option<Module> {
        if depth > RE_EXPORTS_MAX {
            return None;
        }
        let (mut at, mut rest) = self.base(module, path)?;
        while let Some(next) = rest.first().map(|name| child(&at, name)).filter(|next| self.files.contains_key(next)) {
            at = next;
            rest = &rest[1..];
        }
        let contents = self.contents.get(&at)?;
        let Some(name) = rest.first().filter(|name| *name != "*" && !contents.defined.contains(*name)) else {
            return Some(at);
        };
        for used in contents.uses.iter().filter(|used| used.name == *name) {
            let path: Vec<String> = used.path.iter().chain(&rest[1..]).cloned().collect();
            if let Some(found) = self.resolve(&at, &path, depth + 1) {
                return Some(found);
            }
        }
        for glob in contents.uses.iter().filter(|used| used.name == "*") {
            let mut path = glob.path.clone();
            *path.last_mut()? = name.clone();
            let found = self.resolve(&at, &path, depth + 1);
            if let Some(found) = found.filter(|found| self.contents[found].defined.contains(name)) {
                return Some(found);
            }
        }
        Some(at)
    }

    /// Module at which `path` starts, and the part of it below that module.
    fn base<'a>(&self, module: &Module, path: &'a [String]) -> Option<(Module, &'a [String])> {
        let n_up = path.iter().take_while(|part| *part == "super").count();
        match path.first()?.as_str() {
            "crate" => Some((Vec::new(), &path[1..])),
            "self" => Some((module.clone(), &path[1..])),
            "super" => Some((module[..module.len().checked_sub(n_up)?].to_vec(), &path[n_up..])),
            name => self.files.contains_key(&child(module, name)).then(|| (module.clone(), path)),
        }
    }
}

impl Contents {
    /// Adds a path of code, relative to the file's module.
    fn add_path(&mut self, path: Vec<String>) {
        if path.len() > 1 {
            let path = self.relative_to_file(path);
            self.paths.insert(path);
        }
    }

    /// Path without the `super`s that only leave inline modules of the file.
    fn relative_to_file(&self, path: Vec<String>) -> Vec<String> {
        let n_up = path.iter().take_while(|part| *part == "super").count().min(self.depth);
        if n_up == 0 {
            return path;
        }
        let rest = path[n_up..].to_vec();
        if rest.first().is_some_and(|first| first == "super") { rest } else { [vec!["self".to_owned()], rest].concat() }
    }

    /// Adds the names of a `use`, with `prefix` before them.
    fn add_uses(&mut self, is_public: bool, prefix: &[String], tree: &UseTree) {
        let with = |name: String| [prefix, &[name]].concat();
        let (path, name) = match tree {
            UseTree::Path(path) => return self.add_uses(is_public, &with(path.ident.to_string()), &path.tree),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|item| self.add_uses(is_public, prefix, item));
            }
            UseTree::Glob(_) => (with("*".to_owned()), "*".to_owned()),
            UseTree::Name(name) if name.ident == "self" => {
                (prefix.to_vec(), prefix.last().cloned().unwrap_or_default())
            }
            UseTree::Name(name) => (with(name.ident.to_string()), name.ident.to_string()),
            UseTree::Rename(rename) if rename.ident == "self" => (prefix.to_vec(), rename.rename.to_string()),
            UseTree::Rename(rename) => (with(rename.ident.to_string()), rename.rename.to_string()),
        };
        let path = self.relative_to_file(path);
        self.uses.push(Use { is_public, path, name });
    }

    /// Adds the paths among the tokens of a macro's call.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut n_colons) = (Vec::new(), 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => n_colons += 1,
                TokenTree::Ident(ident) => {
                    if n_colons != 2 {
                        self.add_path(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    n_colons = 0;
                }
                other => {
                    self.add_path(std::mem::take(&mut path));
                    n_colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add_path(path);
    }
}

impl<'ast> Visit<'ast> for Contents {
    fn visit_item(&mut self, item: &'ast Item) {
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            Item::Mod(item) => {
                if is_test(&item.attrs) {
                    self.test_modules.insert(item.ident.to_string());
                    return;
                }
                (&item.attrs, item.content.as_ref().map(|_| &item.ident))
            }
            _ => return visit::visit_item(self, item),
        };
        if is_test(attributes) {
            return;
        }
        self.defined.extend(name.map(ToString::to_string));
        visit::visit_item(self, item);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, module);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.add_uses(!matches!(item.vis, Visibility::Inherited), &[], &item.tree);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        self.add_path(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.add_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }
}

fn child(module: &Module, name: &str) -> Module {
    [module.as_slice(), &[name.to_owned()]].concat()
}

/// Whether an item exists only in tests.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && attribute.parse_args::<Path>().is_ok_and(|path| path.is_ident("test"))
    })
}
