//! `docs/bench.html`: one self-contained page made of the records of benchmarks.
//!
//! - [`tables`]: tables of the papers, and of kernels that were measured beside girih.
//! - [`plots`]: peers, ceilings and scaling.
//! - [`deficits`]: everything that is not better.
//! - [`svg`], [`html`]: charts and elements. `style.css` has light and dark colors.
//!
//! Every number comes from `benches/record` or `benches/peers/gpu-kernels.json`.

mod deficits;
mod html;
mod plots;
mod svg;
mod tables;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;

use crate::listing::Listing;
use crate::results::record::Record;

/// The page.
pub const PAGE: &str = "docs/bench.html";
/// Command that writes it.
pub const COMMAND: &str = "cargo xtask bench page";

const STYLE: &str = include_str!("style.css");

/// Writes the page, or only compares it with the records.
///
/// # Errors
/// When the page cannot be made or written; with `is_check`, also when it differs from the records.
pub fn run(root: &Path, is_check: bool) -> Result<(), String> {
    let listing = Listing::read(root)?;
    if is_check {
        return check(&listing).map_err(|what| format!("{PAGE}: {what}; run `{COMMAND}`"));
    }
    fs::write(root.join(PAGE), page(&listing)?).map_err(|e| format!("{PAGE}: {e}"))?;
    println!("{PAGE} written");
    Ok(())
}

/// Compares the page with the records.
///
/// # Errors
/// When the page cannot be made, or differs.
pub fn check(listing: &Listing) -> Result<(), String> {
    match listing.text(PAGE) {
        Some(text) if text == page(listing)? => Ok(()),
        Some(_) => Err("the page differs from the records".to_owned()),
        None => Err("there is no page".to_owned()),
    }
}

/// Section of the page.
struct Section {
    id: &'static str,
    title: &'static str,
    about: &'static str,
    body: String,
}

fn page(listing: &Listing) -> Result<String, String> {
    let records = Record::all(listing)?;
    let sections = [
        Section {
            id: "papers",
            title: "Tables and figures of the papers",
            about: "Above the paper's figure on its GPU, below in bold that of girih's newest record. A dash: no record has \
                    one. GPUs differ by generations: compare ratios, not times.",
            body: tables::papers(&records),
        },
        Section {
            id: "peers",
            title: "Beside other libraries",
            about: "Speedup of girih over another library in the same run, on a logarithmic scale. Bars to the left are \
                    slower.",
            body: plots::peers(&records),
        },
        Section {
            id: "kernels",
            title: "Beside kernels and pipelines that girih does not ship",
            about: "",
            body: tables::kernels(listing)?,
        },
        Section {
            id: "ceilings",
            title: "Ceilings",
            about: "Rate of each sparse product over the operations that it does for each byte that it must move: operand, \
                    matrix and result once each on GPUs, gathered rows on CPUs. Dashed lines are ceilings measured in the \
                    same run. Distances from them are shares of the ceiling; rows of neighbors that are read again take \
                    most of the rest.",
            body: plots::ceilings(&records),
        },
        Section {
            id: "scaling",
            title: "Scaling",
            about: "Speedup over one GPU: the fastest way of each number of GPUs. The dashed line is the number of GPUs.",
            body: plots::scaling(&records),
        },
        Section {
            id: "deficits",
            title: "What is not better",
            about: "Goals that a suite sets itself and that its record missed, cases that are slower than another library, \
                    and partitions that leave GPUs idle.",
            body: deficits::lists(&records),
        },
    ];
    let links: String =
        sections.iter().map(|section| format!("<a href=\"#{}\">{}</a>", section.id, section.title)).collect();
    let body: String = sections.iter().map(Section::html).collect();
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>girih: benchmarks</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>girih: benchmarks</h1>\n\
         <p>Made by <code>{COMMAND}</code> from {} records of <code>cargo xtask bench</code>; each is one run on one \
         machine. <a href=\"results.md\">Results</a> has tables of all suites, \
         <a href=\"benchmarks.md\">benchmarks</a> the method.</p>\n<nav>{links}</nav>\n{body}</body>\n</html>\n",
        records.len()
    ))
}

impl Section {
    fn html(&self) -> String {
        let Self { id, title, about, body } = self;
        let about = if about.is_empty() { String::new() } else { format!("<p class=\"soft\">{about}</p>\n") };
        format!("<section id=\"{id}\">\n<h2>{title}</h2>\n{about}{body}</section>\n")
    }
}
