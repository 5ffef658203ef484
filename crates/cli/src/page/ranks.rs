//! [`RankLoads`]: division of an adjacency over ranks, as pictures and bars.

use std::fmt::Write as _;

use girih_graph_format::Csr;
use girih_partition::{BlockPlan, imbalance};
use girih_reorder::spy::{self, PAGE_SIDE, Spy};
use girih_trainer::distributed::RankOptions;

use super::{escape, note, picture, section};
use crate::error::CliError;
use crate::plots::heat::{self, Panel, short};

/// Maximum number of ranks whose loads are listed.
const LISTED_MAX: usize = 64;

/// Division of an adjacency over ranks.
pub struct RankLoads {
    /// Spy plot of the adjacency in the order of training, as PNG.
    spy: Vec<u8>,
    /// Non-zeros of the blocks, by rows.
    blocks: Vec<Vec<u64>>,
    /// Non-zeros that each rank multiplies.
    of_rank: Vec<u64>,
    /// Partition in words.
    partition: String,
}

impl RankLoads {
    /// Division of a graph as ranks with these options divide it.
    ///
    /// # Errors
    /// When there are fewer nodes than ranks.
    pub fn new(graph: &Csr, ranks: &RankOptions) -> Result<Self, CliError> {
        let plan = BlockPlan::of_graph(&ranks.grid, graph.indptr(), ranks.cuts)?.in_stages(ranks.stages);
        let of_rank = plan.step_nnz(graph).iter().map(|steps| steps.iter().sum()).collect();
        Ok(Self {
            spy: spy::each(&[Spy::of(graph, PAGE_SIDE)]).remove(0),
            blocks: girih_partition::block_nnz(graph, &plan.panels),
            of_rank,
            partition: ranks.grid.to_string(),
        })
    }

    /// Section of the page.
    pub fn html(&self) -> String {
        let panel = Panel { title: escape(&self.partition), blocks: self.blocks.clone() };
        let heat = heat::draw_each(std::slice::from_ref(&panel)).concat();
        let spy = picture(&self.spy, "spy plot of the adjacency");
        let body = format!(
            "<div class=\"panels\"><figure>{spy}<figcaption>non-zeros of the adjacency, as trained</figcaption></figure>\
             <div class=\"heat\">{heat}</div><div>{}</div></div>{}",
            self.bars(),
            note(
                "A rank multiplies the non-zeros of its blocks, once a product. Even loads are as long as each other."
            )
        );
        section("Ranks", &body)
    }

    fn bars(&self) -> String {
        let most = self.of_rank.iter().copied().max().unwrap_or(0).max(1);
        let mut rows = String::new();
        for (rank, &nnz) in self.of_rank.iter().enumerate().take(LISTED_MAX) {
            let width = 100.0 * nnz as f64 / most as f64;
            let _ = write!(
                rows,
                "<tr><th>rank {rank}</th><td class=\"load-cell\"><span class=\"load\" style=\"width:{width:.1}%\"></span></td>\
                 <td>{}</td></tr>",
                short(nnz)
            );
        }
        let rest = match self.of_rank.len().saturating_sub(LISTED_MAX) {
            0 => String::new(),
            n => note(&format!("{n} more ranks are not listed.")),
        };
        let imbalance = note(&format!("Load imbalance (max/mean): {:.3}", imbalance(&self.of_rank)));
        format!("<table class=\"loads\">{rows}</table>{rest}{imbalance}")
    }
}
