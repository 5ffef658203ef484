//! Report of `girih reorder`: one self-contained page.

use std::fmt::Write as _;

use girih_graph_format::{Csr, Permutation};
use girih_partition::{BlockPlan, ProcessGrid, Scheme, block_nnz, imbalance};
use girih_reorder::quality::Quality;
use girih_reorder::spy::{self, PAGE_SIDE, Spy};

use super::{Found, percent, shown_gap};
use crate::error::CliError;
use crate::page::{escape, figures, note, page, picture, section};
use crate::plots::heat::{self, Panel};

/// Blocks a side of the partition whose balance is shown.
pub const BLOCKS: usize = 4;

/// Page with the measures of all orders, and the adjacency and its blocks in each of them. For orders with a name,
/// blocks are also shown after the `best` one was applied inside each block.
pub fn of(
    (title, graph): (&str, &Csr),
    before: &Quality,
    (found, best): (&[Found], &Found),
    inside_blocks: Option<&Permutation>,
) -> Result<String, CliError> {
    let pictures = Pictures::of(graph, found, inside_blocks)?;
    let mut body = section("Orders", &table(before, found, before.rows_held >= graph.n_rows()))
        + &section("Non-zeros in each order", &(pictures.spies(best)? + &note(ABOUT_SPIES)));
    if !pictures.blocks.is_empty() {
        let heats = heat::draw_each(&pictures.blocks).concat();
        body += &section(
            &format!("{BLOCKS} × {BLOCKS} blocks of a 1D partition over {BLOCKS} ranks"),
            &format!("<div class=\"panels heat\">{heats}</div>{}", note(&balance(&pictures.blocks))),
        );
    }
    Ok(page(title, &body))
}

/// Legend of the spy plots.
const ABOUT_SPIES: &str = "A pixel stands for a block of the adjacency, rows downwards; darker ones hold more, on one \
                           logarithmic scale for all pictures.";

/// Pictures of the adjacency as it is and in every order.
struct Pictures {
    names: Vec<String>,
    spies: Vec<Spy>,
    /// Blocks of a partition; empty for graphs with fewer nodes than blocks.
    blocks: Vec<Panel>,
}

impl Pictures {
    fn of(graph: &Csr, found: &[Found], inside_blocks: Option<&Permutation>) -> Result<Self, CliError> {
        let plan = match graph.n_rows() {
            0..BLOCKS => None,
            n => Some(BlockPlan::new(&ProcessGrid::new(Scheme::OneD, BLOCKS, 1)?, n)?),
        };
        let mut pictures = Self { names: Vec::new(), spies: Vec::new(), blocks: Vec::new() };
        let blocks = |title: &str, graph: &Csr| {
            plan.as_ref().map(|plan| Panel { title: escape(title), blocks: block_nnz(graph, &plan.panels) })
        };
        let mut add = |name: &str, graph: &Csr| {
            pictures.names.push(name.to_owned());
            pictures.spies.push(Spy::of(graph, PAGE_SIDE));
            pictures.blocks.extend(blocks(name, graph));
        };
        add("as it is", graph);
        // One ordered graph at a time is in memory.
        found.iter().for_each(|found| add(&found.ordered.name, &graph.permuted(&found.ordered.order)));
        let inside = inside_blocks.and_then(|order| blocks("inside each block", &graph.permuted(order)));
        pictures.blocks.extend(inside);
        Ok(pictures)
    }

    /// Spy plots with their names.
    fn spies(&self, best: &Found) -> Result<String, CliError> {
        let mut panels = String::new();
        for (name, png) in self.names.iter().zip(spy::each(&self.spies)) {
            let mark = if *name == best.ordered.name { ", the best" } else { "" };
            let _ = write!(
                panels,
                "<figure>{}<figcaption>{}{mark}</figcaption></figure>",
                picture(&png, &format!("spy plot, {name}")),
                escape(name)
            );
        }
        Ok(format!("<div class=\"panels\">{panels}</div>"))
    }
}

/// Table of every order; `holds_all` says whether the simulated cache holds all rows.
fn table(before: &Quality, found: &[Found], holds_all: bool) -> String {
    let row = |name: &str, seconds: String, quality: &Quality| {
        vec![
            name.to_owned(),
            seconds,
            quality.gaps.bandwidth.to_string(),
            shown_gap(quality.gaps.mean_log2),
            percent(quality.dense_tile_share),
            percent(quality.coverage_256),
            percent(quality.lru_hit_rate),
        ]
    };
    let first = row("as it is", String::new(), before);
    let each =
        found.iter().map(|found| row(&found.ordered.name, format!("{:.3}", found.ordered.seconds), &found.quality));
    let columns = ["order", "seconds", "bandwidth", "log₂ gap", "tiles", "blocks", "hits"];
    let all = if holds_all { ", which holds all of them" } else { "" };
    figures(&columns, std::iter::once(first).chain(each))
        + &note(&format!(
            "Bandwidth: the largest distance of an entry from the diagonal; log₂ gap: the mean bits of the distance between \
             neighboring entries of a row; tiles: entries in tiles of 32 × 32 filled to 5 % and more; blocks: those in blocks of \
             256 × 64 filled to 2 % and more; hits: reads of rows that a cache of {} rows would hit{all}.",
            before.rows_held
        ))
}

/// Load imbalance of the ranks of each panel; a rank holds one row of blocks.
fn balance(panels: &[Panel]) -> String {
    let of_panel = |panel: &Panel| {
        let ranks: Vec<u64> = panel.blocks.iter().map(|row| row.iter().sum()).collect();
        format!("{} {:.3}", panel.title, imbalance(&ranks))
    };
    let all: Vec<String> = panels.iter().map(of_panel).collect();
    format!("A rank multiplies a row of blocks. Load imbalance (max/mean): {}.", all.join(", "))
}
