//! [`Schedule`]: payload of each step, for a given adjacency.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use girih_graph_format::{Csr, NodeId};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{BlockPlan, PartitionError};

/// Form in which the operand of a step travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exchange {
    /// The whole panel to every member of the group, as in the papers.
    Dense,
    /// To each member only the rows that its block reads: static lists.
    Rows,
    /// For each step the cheaper form: rows if they are fewer by more than a sixth.
    #[default]
    Auto,
}

impl Exchange {
    /// Whether a step sends lists of rows instead of whole panels. `n_rows` is the number of listed rows over all
    /// members, `n_whole` that of whole panels. Listed rows are packed before they travel, which takes about a fifth
    /// of the time of the transfer between GPUs.
    #[must_use]
    pub fn sends_rows(self, n_rows: usize, n_whole: usize) -> bool {
        match self {
            Self::Dense => false,
            Self::Rows => true,
            Self::Auto => 6 * n_rows < 5 * n_whole,
        }
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dense => "dense",
            Self::Rows => "rows",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Exchange {
    type Err = PartitionError;

    fn from_str(text: &str) -> Result<Self, PartitionError> {
        match text {
            "dense" => Ok(Self::Dense),
            "rows" => Ok(Self::Rows),
            "auto" => Ok(Self::Auto),
            _ => Err(PartitionError::invalid(format!("{text:?} is no exchange; choose one of dense, rows, auto"))),
        }
    }
}

/// Payload of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepExchange {
    /// The whole panel.
    Dense,
    /// Rows of the panel, as ascending indices from its first row; one list per member of the group. The root's own
    /// list is not sent.
    Rows {
        /// Row lists, by place in the group.
        lists: Vec<Vec<NodeId>>,
    },
}

impl StepExchange {
    /// Number of rows that each member of the group receives; `None` if all receive the whole panel.
    #[must_use]
    pub fn n_rows(&self) -> Option<Vec<usize>> {
        match self {
            Self::Dense => None,
            Self::Rows { lists } => Some(lists.iter().map(Vec::len).collect()),
        }
    }
}

/// Payload of every step of every group, for one adjacency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Payloads of the steps, by group of ranks; members of a group share an element.
    groups: Vec<Vec<StepExchange>>,
    /// Index into `groups`, by rank.
    group_of: Vec<usize>,
}

impl Schedule {
    /// Payloads of the steps of `plan` for products with `adjacency`.
    ///
    /// # Panics
    /// When the adjacency has another size than the plan.
    #[must_use]
    pub fn new(plan: &BlockPlan, adjacency: &Csr, exchange: Exchange) -> Self {
        assert_eq!((adjacency.n_rows(), adjacency.n_cols()), (plan.n_nodes, plan.n_nodes), "a plan for this adjacency");
        let mut schedule = Self { groups: Vec::new(), group_of: vec![usize::MAX; plan.ranks.len()] };
        for rank in 0..plan.ranks.len() {
            if schedule.group_of[rank] != usize::MAX {
                continue;
            }
            let group = &plan.ranks[rank].group;
            let steps = 0..plan.ranks[rank].steps.len();
            let of_step = |i| of_step(plan, adjacency, group, plan.ranks[rank].steps[i], exchange);
            group.iter().for_each(|&member| schedule.group_of[member] = schedule.groups.len());
            schedule.groups.push(steps.into_par_iter().map(of_step).collect());
        }
        schedule
    }

    /// Payloads that a rank sends or receives, one per step.
    #[must_use]
    pub fn steps(&self, rank: usize) -> &[StepExchange] {
        &self.groups[self.group_of[rank]]
    }
}

fn of_step(plan: &BlockPlan, adjacency: &Csr, group: &[usize], step: crate::Step, exchange: Exchange) -> StepExchange {
    if exchange == Exchange::Dense {
        return StepExchange::Dense;
    }
    let columns = &plan.panels[step.panel];
    let rows_of = |member: usize| plan.ranks[member].rows.iter().flat_map(|&panel| plan.panels[panel].clone());
    let lists: Vec<Vec<NodeId>> =
        group.par_iter().map(|&member| touched(adjacency, rows_of(member), columns)).collect();
    let others = group.iter().zip(&lists).filter(|(member, _)| **member != step.root);
    let sent: usize = others.map(|(_, list)| list.len()).sum();
    let whole = plan.panels[step.panel].len() * (group.len() - 1);
    match exchange.sends_rows(sent, whole) {
        true => StepExchange::Rows { lists },
        false => StepExchange::Dense,
    }
}

/// Columns within `columns` that the given rows read, ascending, as indices from `columns.start`.
pub(crate) fn touched(adjacency: &Csr, rows: impl Iterator<Item = usize>, columns: &Range<usize>) -> Vec<NodeId> {
    let mut seen = vec![false; columns.len()];
    for row in rows {
        let ids = &adjacency.indices()[adjacency.row_range_within(row, columns)];
        ids.iter().for_each(|&id| seen[id as usize - columns.start] = true);
    }
    (0..columns.len() as NodeId).filter(|&i| seen[i as usize]).collect()
}
