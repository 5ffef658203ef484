//! Lengths of files and functions, and numbers of parameters.

use syn::visit::{self, Visit};
use syn::{Block, FnArg, ImplItemFn, ItemFn, Signature, TraitItemFn, Type};

use super::finding::Finding;
use crate::listing::{File, Listing};

/// Most lines of a Rust file.
const FILE_LINES_MAX: usize = 500;
/// Most lines of a function, from `fn` to its last brace.
const FUNCTION_LINES_MAX: usize = 80;
/// Most values that a function takes. A tuple counts as its elements; `self` and a [`PROOF`] do not count.
const VALUES_MAX: usize = 7;
/// Type without content, which proves that operands were checked.
const PROOF: &str = "Fits";
/// Checks the length of each Rust file.
pub fn files(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in listing.with_extension("rs") {
        let n_lines = file.text().unwrap_or_default().lines().count();
        if n_lines > FILE_LINES_MAX {
            let what = format!("{n_lines} lines, more than {FILE_LINES_MAX}");
            findings.push(Finding::new(&file.path, 1, what, "move a topic to a module of its own"));
        }
    }
    findings
}

/// Checks the length and the parameters of each function.
pub fn functions(listing: &Listing) -> Vec<Finding> {
    listing.with_extension("rs").flat_map(functions_of).collect()
}

fn functions_of(file: &File) -> Vec<Finding> {
    let mut functions = Functions { path: &file.path, findings: Vec::new() };
    match syn::parse_file(file.text().unwrap_or_default()) {
        Ok(parsed) => functions.visit_file(&parsed),
        Err(error) => {
            let line = error.span().start().line;
            functions.findings.push(Finding::new(&file.path, line, error.to_string(), "fix the syntax"));
        }
    }
    functions.findings
}

/// Visitor that collects findings of the functions in a file.
struct Functions<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl Functions<'_> {
    fn check(&mut self, signature: &Signature, body: Option<&Block>) {
        let first = signature.fn_token.span.start().line;
        let n_lines = body.map_or(0, |body| body.brace_token.span.close().end().line + 1 - first);
        let mut add = |what, remedy| self.findings.push(Finding::new(self.path, first, what, remedy));
        if n_lines > FUNCTION_LINES_MAX {
            let what = format!("`{}` has {n_lines} lines, more than {FUNCTION_LINES_MAX}", signature.ident);
            add(what, "extract its steps");
        }
        let n_values: usize = signature.inputs.iter().map(values_of).sum();
        if n_values > VALUES_MAX {
            let what = format!("`{}` takes {n_values} values, more than {VALUES_MAX}", signature.ident);
            add(what, "group those that belong together in a struct");
        }
    }
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.check(&function.sig, Some(&function.block));
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.check(&function.sig, Some(&function.block));
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast TraitItemFn) {
        self.check(&function.sig, function.default.as_ref());
        visit::visit_trait_item_fn(self, function);
    }
}

fn values_of(argument: &FnArg) -> usize {
    match argument {
        FnArg::Receiver(_) => 0,
        FnArg::Typed(argument) => values_in(&argument.ty),
    }
}

fn values_in(ty: &Type) -> usize {
    match ty {
        Type::Tuple(tuple) => tuple.elems.iter().map(values_in).sum(),
        Type::Reference(reference) => values_in(&reference.elem),
        Type::Paren(inner) => values_in(&inner.elem),
        Type::Path(named) if named.path.is_ident(PROOF) => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        functions(&Listing::of(&[("a.rs", text)])).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_tuple_counts_as_its_elements_and_self_does_not_count() {
        let takes = |arguments: &str| found(&format!("//! A.\nfn f({arguments}) {{}}\n"));
        assert_eq!(takes("a: u8, b: &mut ((u8, u8), [u8; 9]), c: impl Fn(u8, u8) -> u8, d: (u8, u8)"), [""; 0]);
        let eight = "a.rs:2: `f` takes 8 values, more than 7; group those that belong together in a struct";
        assert_eq!(takes("a: u8, b: &mut ((u8, u8), [u8; 9]), c: impl Fn(u8) -> u8, d: (u8, (u8, u8))"), [eight]);
        let method = "//! A.\ntrait T {\n    fn f(&self, a: (u8, u8, u8), b: (u8, u8, u8), c: u8);\n}\n";
        assert_eq!(found(method), [""; 0]);
        assert_eq!(takes("a: (u8, u8, u8), b: (u8, u8, u8), c: u8, d: Fits"), [""; 0]);
    }

    #[test]
    fn long_functions_and_files_are_found() {
        let body = "    g();\n".repeat(FUNCTION_LINES_MAX - 2);
        assert_eq!(found(&format!("fn f() {{\n{body}}}\n")), [""; 0]);
        let long = format!("struct S;\nimpl S {{\nfn f() {{\n{body}    g();\n}}\n}}\n");
        assert_eq!(found(&long), ["a.rs:3: `f` has 81 lines, more than 80; extract its steps"]);
        let text = "//! A.\n".repeat(FILE_LINES_MAX + 1);
        let lines = |path, text: &str| files(&Listing::of(&[(path, text)])).len();
        assert_eq!((lines("a.rs", &text), lines("a.rs", "//! A.\n"), lines("a.md", &text)), (1, 0, 0));
    }
}
