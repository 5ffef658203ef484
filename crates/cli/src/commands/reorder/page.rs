//! Report of `girih reorder`: one self-contained page.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use girih_graph_format::{Csr, Permutation};
use girih_partition::{BlockPlan, ProcessGrid, Scheme, block_nnz, imbalance};
use girih_reorder::quality::Quality;

use super::{Found, percent, shown_gap};
use crate::error::CliError;
use crate::plots::heat::{self, Panel};
use crate::plots::spy;
use crate::report::{escape, opening};

/// Blocks a side of the partition whose balance is shown.
pub const BLOCKS: usize = 4;

/// Page with the measures of all orders, the adjacency before and after the `best` one, and its blocks. Blocks are
/// shown before, after and, for orders with a name, after ordering inside each block.
pub fn of(
    (title, graph): (&str, &Csr),
    before: &Quality,
    (found, best): (&[Found], &Found),
    inside_blocks: Option<&Permutation>,
) -> Result<String, CliError> {
    let after = graph.permuted(&best.ordered.order);
    let mut page = format!(
        "{0}{1}\
         <h2>Non-zeros, before and after: {2}</h2><img alt=\"spy plots\" src=\"data:image/png;base64,{3}\">\
         <p>Left as it is, right after {2}. A pixel stands for a block of the adjacency, rows downwards; darker ones hold \
         more, on a logarithmic scale.</p>",
        opening(title, "img{width:100%}th,td{white-space:nowrap}"),
        table(before, found, before.rows_held >= graph.n_rows()),
        escape(&best.ordered.name),
        BASE64_STANDARD.encode(spy::draw([graph, &after])?)
    );
    if let Some(panels) = panels(graph, &after, best, inside_blocks)? {
        let _ = write!(
            page,
            "<h2>{BLOCKS} × {BLOCKS} blocks of a 1D partition over {BLOCKS} ranks</h2><div class=\"wide\">{}</div><p>{}</p>",
            heat::draw(&panels),
            balance(&panels)
        );
    }
    page.push_str("</body></html>\n");
    Ok(page)
}

/// Table of every order; `holds_all` says whether the simulated cache holds all rows.
fn table(before: &Quality, found: &[Found], holds_all: bool) -> String {
    let mut rows = String::new();
    let mut add = |name: &str, seconds: String, quality: &Quality| {
        let _ = write!(
            rows,
            "<tr><th>{}</th><td>{seconds}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            quality.gaps.bandwidth,
            shown_gap(quality.gaps.mean_log2),
            percent(quality.dense_tile_share),
            percent(quality.coverage_256),
            percent(quality.lru_hit_rate)
        );
    };
    add("as it is", String::new(), before);
    found.iter().for_each(|found| add(&found.ordered.name, format!("{:.3}", found.ordered.seconds), &found.quality));
    format!(
        "<div class=\"wide\"><table><tr><th>order</th><th>seconds</th><th>bandwidth</th><th>log₂ gap</th><th>tiles</th>\
         <th>blocks</th><th>hits</th></tr>{rows}</table></div><p>Bandwidth: the largest distance of an entry from the \
         diagonal; log₂ gap: the mean bits of the distance between neighboring entries of a row; tiles: entries in tiles of \
         32 × 32 filled to 5 % and more; blocks: those in blocks of 256 × 64 filled to 2 % and more; hits: reads of rows that a \
         cache of {} rows would hit{}.</p>",
        before.rows_held,
        if holds_all { ", which holds all of them" } else { "" }
    )
}

/// Panels of the blocks; none for graphs with fewer nodes than blocks.
fn panels(
    graph: &Csr,
    after: &Csr,
    best: &Found,
    inside_blocks: Option<&Permutation>,
) -> Result<Option<Vec<Panel>>, CliError> {
    if graph.n_rows() < BLOCKS {
        return Ok(None);
    }
    let plan = BlockPlan::new(&ProcessGrid::new(Scheme::OneD, BLOCKS, 1)?, graph.n_rows())?;
    let panel = |title: &str, graph: &Csr| Panel { title: escape(title), blocks: block_nnz(graph, &plan.panels) };
    let mut panels = vec![panel("as it is", graph), panel(&best.ordered.name, after)];
    panels.extend(inside_blocks.map(|order| panel("inside each block", &graph.permuted(order))));
    Ok(Some(panels))
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
