//! Checks that relative links in Markdown files lead to files of the tree.

use super::finding::Finding;
use crate::listing::{File, Listing};

/// Checks relative links; web addresses and links within a page are not checked.
pub fn check(listing: &Listing) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in listing.with_extension("md") {
        for (line, target) in links(file) {
            let resolved = resolve(&file.path, target);
            if !resolved.is_some_and(|path| listing.exists(&path)) {
                let what = format!("the link to `{target}` leads nowhere");
                findings.push(Finding::new(&file.path, line, what, "correct the path, which is relative to this page"));
            }
        }
    }
    findings
}

/// Relative link targets with their lines, outside code.
fn links(file: &File) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut in_fence = false;
    for (at, line) in file.text().unwrap_or_default().lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        in_fence ^= is_fence;
        if !is_fence && !in_fence {
            found.extend(targets(line).map(|target| (at + 1, target)));
        }
    }
    found
}

/// Relative targets of `](target)` and `](target#anchor "title")` in a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split([')', ' ', '#']).next()?;
        let is_relative = !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:");
        is_relative.then_some(target)
    })
}

/// Path of `target` from the root, for a link on `page`; `None` if it leaves the tree.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(text: &str) -> Vec<usize> {
        let listing = Listing::of(&[("docs/a.md", text), ("README.md", ""), ("docs/b/c.md", "")]);
        check(&listing).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        assert!(
            broken("[r](../README.md) [c](b/c.md#x \"t\") [b](./b/) [up](..)\n[w](https://a.b/c) [h](#here)\n")
                .is_empty()
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(broken("ok\n[x](c.md) and ![y](../../out.png)\n"), [2, 2]);
    }

    #[test]
    fn code_is_no_link() {
        assert!(broken("```text\n[x](nowhere)\n```\n").is_empty());
    }
}
