//! [`Estimate`]: what a plan will take, before a rank runs.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{BlockPlan, Schedule, Stages, StepsTogether, Volume};

/// How fast ranks exchange bytes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkRates {
    /// Seconds that an exchange takes before its first byte.
    pub latency: f64,
    /// Bytes a second that leave or enter a rank.
    pub bytes_per_second: f64,
}

/// What a rank computes with.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Sums a second of a sparse product: non-zeros times columns of the operand.
    pub sums_per_second: f64,
    /// Exchanges with other ranks.
    pub link: LinkRates,
    /// Whether the exchange of a stage runs under the products of the one before: its panels are buffered twice.
    pub overlap: bool,
}

/// Time and memory of one product `Â·H`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Seconds of each rank in its products.
    pub compute_seconds: Vec<f64>,
    /// Seconds of each rank in its exchanges.
    pub exchange_seconds: Vec<f64>,
    /// Seconds from start to end, the slowest rank's.
    pub seconds: f64,
    /// Bytes of each rank: blocks of the adjacency, own rows, panels under way and sums.
    pub memory: Vec<u64>,
}

impl BlockPlan {
    /// What one product with an operand of `cols` columns of `f32` takes, given the non-zeros of each rank and step
    /// ([`step_nnz`](Self::step_nnz)).
    #[must_use]
    pub fn estimate(
        &self,
        machine: &Machine,
        step_nnz: &[Vec<u64>],
        schedule: Option<&Schedule>,
        cols: usize,
    ) -> Estimate {
        let volumes = self.volumes(schedule, cols, size_of::<f32>());
        let ranks = || volumes.iter().zip(step_nnz).enumerate();
        let times: Vec<(f64, f64)> =
            ranks().map(|(rank, (volume, nnz))| self.rank_seconds(machine, rank, *volume, nnz, cols)).collect();
        let total = |(rank, (compute, exchange)): (usize, &(f64, f64))| {
            // What comes last is multiplied when nothing else travels.
            if machine.overlap {
                compute.max(*exchange) + compute.min(*exchange) * self.last_share(rank, cols)
            } else {
                compute + exchange
            }
        };
        Estimate {
            seconds: times.iter().enumerate().map(total).fold(0.0, f64::max),
            compute_seconds: times.iter().map(|time| time.0).collect(),
            exchange_seconds: times.iter().map(|time| time.1).collect(),
            memory: ranks().map(|(rank, (_, nnz))| self.rank_memory(machine, rank, nnz, cols)).collect(),
        }
    }

    /// The columns of each part in which the panels of a rank's steps come.
    fn parts(&self, rank: usize, cols: usize) -> Vec<Range<usize>> {
        self.stages.columns(self.ranks[rank].width(cols), size_of::<f32>())
    }

    /// The part of what a rank gets that comes in the last stage.
    fn last_share(&self, rank: usize, cols: usize) -> f64 {
        let last = self.parts(rank, cols).pop().map_or(0, |part| part.len());
        let of_columns = last.max(1) as f64 / self.ranks[rank].width(cols).max(1) as f64;
        of_columns / self.together(rank).len().max(1) as f64
    }

    /// Exchanges in which the panels of a rank's steps come.
    fn n_stages(&self, rank: usize, cols: usize) -> usize {
        self.together(rank).len() * self.parts(rank, cols).len()
    }

    /// Seconds of a rank in products and in exchanges.
    fn rank_seconds(&self, machine: &Machine, rank: usize, volume: Volume, nnz: &[u64], cols: usize) -> (f64, f64) {
        let plan = &self.ranks[rank];
        let width = plan.width(cols);
        let compute = nnz.iter().sum::<u64>() as f64 * width as f64 / machine.sums_per_second;
        // A rank that is alone in a group exchanges nothing there.
        let among = |group: &[usize], exchanges: usize| if group.len() > 1 { exchanges } else { 0 };
        let n_exchanges = among(&plan.group, self.n_stages(rank, cols))
            + plan.slice.as_ref().map_or(0, |slicing| among(&slicing.group, 1 + self.n_chunks))
            + among(plan.reduce.group(), 2 * self.n_chunks);
        let bytes = volume.sent.max(volume.received) as f64;
        (compute, n_exchanges as f64 * machine.link.latency + bytes / machine.link.bytes_per_second)
    }

    fn rank_memory(&self, machine: &Machine, rank: usize, nnz: &[u64], cols: usize) -> u64 {
        let plan = &self.ranks[rank];
        let width = plan.width(cols);
        let (ids, offsets) =
            (4 * nnz.iter().sum::<u64>(), 8 * ((self.n_product_rows(rank) + 1) * plan.steps.len()) as u64);
        let together = self.together(rank);
        let rows_of = |some: &StepsTogether| -> usize {
            let coming = some.steps.iter().map(|&i| plan.steps[i]).filter(|step| step.root != rank);
            coming.map(|step| self.panels[step.panel].len()).sum()
        };
        let largest = together.iter().map(rows_of).max().unwrap_or(0);
        // Columns that are under way: of two panels where they come step by step, else all parts.
        let under_way = match self.stages {
            Stages::Steps | Stages::Turns if machine.overlap => together.len().min(2) * width,
            Stages::Parts(_) if machine.overlap => width,
            _ => self.parts(rank, cols).first().map_or(0, |widest| widest.len()),
        };
        let elements = 2 * plan.own.len() * cols + largest * under_way + self.n_product_rows(rank) * width;
        ids + offsets + (elements * size_of::<f32>()) as u64
    }
}
