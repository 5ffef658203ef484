//! Arrangement of device and ranks, in words.

use girih_trainer::distributed::{GraphPlacement, RankOptions};
use girih_trainer::{Arrangement, ExecutionPlan};

use crate::args::{OutputArgs, TrainArgs};
use crate::context::device::Chosen;
use crate::context::world::World;

/// Engine that runs a session, and the options of its ranks.
#[derive(Clone, Copy)]
pub struct Execution<'a> {
    /// Engine.
    pub engine: ExecutionPlan,
    /// Options of the ranks; `None` without ranks.
    pub ranks: Option<&'a RankOptions>,
}

/// Form of the results of a rank. Rank 0 alone prints for people; the others print as for programs.
pub fn output_of(args: &TrainArgs, world: &World) -> OutputArgs {
    OutputArgs { json: args.output.json || !world.is_primary() }
}

/// Arrangement of device and ranks, on which the bits of a run depend.
pub fn arrangement(backend: &Chosen, ranks: Option<&RankOptions>, engine: ExecutionPlan) -> Arrangement {
    let one = Arrangement::of_one(matches!(backend, Chosen::Cuda(_)));
    let Some(ranks @ RankOptions { grid, cuts, stages, chunks, wire, .. }) = ranks else { return one };
    let division = if engine == ExecutionPlan::Replicas {
        "each with all of the graph".to_owned()
    } else {
        let wire = wire.name();
        format!(
            "{grid}, cuts {cuts}, stages {stages}, chunks {chunks}, wire {wire}{}{}",
            carrier(ranks),
            layout_of(ranks.layout, engine)
        )
    };
    Arrangement { ranks: grid.ranks(), division, ..one }
}

/// Transport between ranks in words, if it was given or measured; empty on CPUs.
pub fn carrier(ranks: &RankOptions) -> String {
    ranks.transport.map_or(String::new(), |transport| format!(" by {transport}"))
}

/// Placement of graph and features for mini-batches in words; empty for full batches.
pub fn layout_of(layout: GraphPlacement, engine: ExecutionPlan) -> String {
    if engine == ExecutionPlan::Partitioned { String::new() } else { format!(", layout {}", layout.name()) }
}
