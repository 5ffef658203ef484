//! The report of `girih reorder`: one self-contained page.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use girih_graph_format::{Csr, Permutation, file};
use girih_partition::{BlockPlan, ProcessGrid, Scheme, block_nnz};
use girih_reorder::quality::Quality;

use super::{Found, percent};
use crate::error::CliError;
use crate::plots::heat::{self, Panel};
use crate::plots::spy;
use crate::report::{STYLE, escape};

/// Blocks a side of the partition whose balance is shown.
pub const BLOCKS: usize = 4;

/// Writes the page: the figures of all orders, the adjacency before and after the `best` one, and its blocks before, after
/// and, for orders that have a name, after ordering inside each block.
pub fn write(
    path: &Path,
    (title, graph): (&str, &Csr),
    before: &Quality,
    (found, best): (&[Found], &Found),
    inside_blocks: Option<&Permutation>,
) -> Result<(), CliError> {
    let after = graph.permuted(&best.ordered.order);
    let picture = tempfile::Builder::new().suffix(".png").tempfile().map_err(|error| CliError::io(path, error))?;
    spy::draw(picture.path(), [("before", graph), (&best.ordered.name, &after)])?;
    let picture = std::fs::read(picture.path()).map_err(|error| CliError::io(path, error))?;
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{STYLE}\
         img{{width:100%}}</style></head><body><h1>{0}</h1>{1}\
         <h2>Non-zeros, before and after: {2}</h2><img alt=\"spy plots\" src=\"data:image/png;base64,{3}\">\
         <p>A pixel stands for a block of the adjacency, rows downwards; darker ones hold more, on a logarithmic scale.</p>",
        escape(title),
        table(before, found),
        escape(&best.ordered.name),
        BASE64_STANDARD.encode(picture)
    );
    if let Some(blocks) = blocks(graph, &after, best, inside_blocks)? {
        let _ = write!(
            page,
            "<h2>Non-zeros of the blocks of a partition over {BLOCKS} ranks</h2>{blocks}\
             <p>An order of the whole graph gathers work in few blocks; inside each block's ids it leaves the balance alone.</p>"
        );
    }
    page.push_str("</body></html>\n");
    Ok(file::write_file(path, |out| Ok(out.write_all(page.as_bytes())?))?)
}

/// The figures of every order.
fn table(before: &Quality, found: &[Found]) -> String {
    let mut rows = String::new();
    let mut add = |name: &str, seconds: String, quality: &Quality| {
        let _ = write!(
            rows,
            "<tr><th>{}</th><td>{seconds}</td><td>{}</td><td>{:.2}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(name),
            quality.gaps.bandwidth,
            quality.gaps.mean_log2,
            percent(quality.dense_tile_share),
            percent(quality.coverage_256),
            percent(quality.lru_hit_rate)
        );
    };
    add("as it is", String::new(), before);
    found.iter().for_each(|found| add(&found.ordered.name, format!("{:.3}", found.ordered.seconds), &found.quality));
    format!(
        "<table><tr><th>order</th><th>seconds</th><th>bandwidth</th><th>mean log₂ gap</th><th>in 32×32 tiles from 5 %</th>\
         <th>in 256×64 blocks from 2 %</th><th>hits of a cache of {} rows</th></tr>{rows}</table>",
        before.rows_held
    )
}

/// The heat maps; nothing for graphs with fewer nodes than blocks.
fn blocks(
    graph: &Csr,
    after: &Csr,
    best: &Found,
    inside_blocks: Option<&Permutation>,
) -> Result<Option<String>, CliError> {
    if graph.n_rows() < BLOCKS {
        return Ok(None);
    }
    let plan = BlockPlan::new(&ProcessGrid::new(Scheme::OneD, BLOCKS, 1)?, graph.n_rows())?;
    let panel = |title: &str, graph: &Csr| Panel { title: escape(title), blocks: block_nnz(graph, &plan.panels) };
    let mut panels = vec![panel("as it is", graph), panel(&best.ordered.name, after)];
    panels.extend(inside_blocks.map(|order| panel("inside each block", &graph.permuted(order))));
    Ok(Some(heat::draw(&panels)))
}
