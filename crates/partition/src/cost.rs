//! [`Estimate`]: predicted time and memory of a plan.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{BlockPlan, Schedule, Stages, StepsTogether, Volume};

/// Rates of exchanges between ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkRates {
    /// Seconds that an exchange takes before its first byte.
    pub latency: f64,
    /// Bytes per second that leave or enter a rank.
    pub bytes_per_second: f64,
}

/// Rates of a rank's operations and exchanges.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Multiply-adds per second of a sparse product: non-zeros times columns of the operand.
    pub sums_per_second: f64,
    /// Rates of exchanges with other ranks.
    pub link: LinkRates,
    /// Whether the exchange of a stage overlaps with the products of the stage before; its panels are buffered twice.
    pub overlap: bool,
}

/// Time and memory of one product `Â·H`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Seconds of products, by rank.
    pub compute_seconds: Vec<f64>,
    /// Seconds of exchanges, by rank.
    pub exchange_seconds: Vec<f64>,
    /// Seconds from start to end, of the slowest rank.
    pub seconds: f64,
    /// Bytes by rank: blocks of the adjacency, own rows, panels in flight and sums.
    pub memory: Vec<u64>,
}

impl BlockPlan {
    /// Estimates one product with an operand of `cols` columns of `f32`, from the non-zeros of each rank and step
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
            // The last panels are multiplied when nothing else is in flight.
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

    /// Column range of each part in which the panels of a rank's steps arrive.
    fn parts(&self, rank: usize, cols: usize) -> Vec<Range<usize>> {
        self.stages.columns(self.ranks[rank].width(cols), size_of::<f32>())
    }

    /// Share of a rank's received elements that arrives in the last stage, in `0.0..=1.0`.
    fn last_share(&self, rank: usize, cols: usize) -> f64 {
        let last = self.parts(rank, cols).pop().map_or(0, |part| part.len());
        let of_columns = last.max(1) as f64 / self.ranks[rank].width(cols).max(1) as f64;
        of_columns / self.together(rank).len().max(1) as f64
    }

    /// Number of exchanges in which the panels of a rank's steps arrive.
    fn n_stages(&self, rank: usize, cols: usize) -> usize {
        self.together(rank).len() * self.parts(rank, cols).len()
    }

    /// Seconds of a rank in products, and in exchanges.
    fn rank_seconds(&self, machine: &Machine, rank: usize, volume: Volume, nnz: &[u64], cols: usize) -> (f64, f64) {
        let plan = &self.ranks[rank];
        let width = plan.width(cols);
        let compute = nnz.iter().sum::<u64>() as f64 * width as f64 / machine.sums_per_second;
        // A rank that is alone in its group exchanges nothing there.
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
        // Columns in flight: of two panels if they arrive step by step, else all parts.
        let under_way = match self.stages {
            Stages::Steps | Stages::Turns if machine.overlap => together.len().min(2) * width,
            Stages::Parts(_) if machine.overlap => width,
            _ => self.parts(rank, cols).first().map_or(0, |widest| widest.len()),
        };
        let elements = 2 * plan.own.len() * cols + largest * under_way + self.n_product_rows(rank) * width;
        ids + offsets + (elements * size_of::<f32>()) as u64
    }
}
