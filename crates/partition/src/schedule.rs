//! [`Schedule`]: what each step sends, for a given adjacency.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use girih_graph_format::{Csr, NodeId};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::{BlockPlan, PartitionError};

/// How the operand of a step travels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exchange {
    /// The whole panel to every member of the group (the paper).
    Dense,
    /// To each member only the rows that its block touches: static lists.
    Rows,
    /// For each step, whichever is less work: rows where these are fewer by a sixth.
    #[default]
    Auto,
}

impl Exchange {
    /// Whether lists of rows are sent, `n_rows` to all members of a group, in the place of whole panels, of `n_whole`
    /// rows. Those that are listed are copied before they travel, which takes about a fifth of their way between cards.
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

/// What a step sends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepExchange {
    /// The whole panel.
    Dense,
    /// Rows of the panel, counted from its first and ascending; one list for each member of the group. The root's own
    /// is not sent.
    Rows {
        /// The lists.
        lists: Vec<Vec<NodeId>>,
    },
}

impl StepExchange {
    /// How many rows each member of the group is sent; `None` where all get the whole panel.
    #[must_use]
    pub fn n_rows(&self) -> Option<Vec<usize>> {
        match self {
            Self::Dense => None,
            Self::Rows { lists } => Some(lists.iter().map(Vec::len).collect()),
        }
    }
}

/// What every step of every group sends, for one adjacency.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// For each group of ranks, what its steps send; members of a group share an entry.
    groups: Vec<Vec<StepExchange>>,
    /// The entry of each rank.
    group_of: Vec<usize>,
}

impl Schedule {
    /// What the steps of `plan` send for products with `adjacency`.
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

    /// What the steps of a rank send or receive, one entry for each.
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

/// Which of `columns` some rows name, ascending, counted from the first of them.
pub(crate) fn touched(adjacency: &Csr, rows: impl Iterator<Item = usize>, columns: &Range<usize>) -> Vec<NodeId> {
    let mut seen = vec![false; columns.len()];
    for row in rows {
        let ids = &adjacency.indices()[adjacency.row_range_within(row, columns)];
        ids.iter().for_each(|&id| seen[id as usize - columns.start] = true);
    }
    (0..columns.len() as NodeId).filter(|&i| seen[i as usize]).collect()
}
