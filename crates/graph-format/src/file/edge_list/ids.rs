//! Meaning of the ids of a list: one set of nodes, or two sides with separate ids.

use rayon::prelude::*;

use super::edges::Edges;
use crate::coo::check_proportion;
use crate::{Coo, FormatError, MAX_NODES, NodeId, Notes};

/// Sizes that are known before the edges are read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sizes {
    /// Numbers of rows (targets) and columns (sources) of one set of ids.
    One(Option<(usize, usize)>),
    /// Two sets of ids.
    Sides(Sides),
}

/// Numbers of nodes of two sets of ids.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    /// Numbers of nodes on the left and on the right.
    pub(super) known: Option<(usize, usize)>,
    /// Number of all nodes.
    pub(super) total: Option<usize>,
}

/// Edges of one set of ids; the ids in the file start at `first_id`.
///
/// # Errors
/// When the largest id is implausibly large for the number of edges.
pub(super) fn one_set(
    edges: Edges,
    sizes: Option<(usize, usize)>,
    first_id: u64,
    notes: &mut Notes,
) -> Result<Coo, FormatError> {
    let (rows, cols) = match sizes {
        Some(sizes) => sizes,
        None => {
            let ids = || edges.sources.par_iter().chain(&edges.targets).copied();
            let (least, most) =
                ids().map(|id| (id, id)).reduce(|| (NodeId::MAX, 0), |a, b| (a.0.min(b.0), a.1.max(b.1)));
            let n_nodes = most as usize + 1;
            check_proportion(
                n_nodes,
                edges.sources.len(),
                &format!("the largest id is {}", u64::from(most) + first_id),
            )?;
            match count_missing(edges.sources.iter().chain(&edges.targets), n_nodes) {
                Some(n_missing) => {
                    let end = n_nodes as u64 + first_id;
                    notes.warn(format!("{n_missing} of the ids below {end} never occur; each is a node without edges"));
                }
                None if least == 1 => notes.warn(format!("ids count from {}; node 0 has no edges", first_id + 1)),
                None => {}
            }
            (n_nodes, n_nodes)
        }
    };
    let weights = (!edges.weights.is_empty()).then_some(edges.weights);
    Coo::new(rows, cols, edges.targets, edges.sources, weights)
}

/// Number of nodes without an edge, if most have none; `None` as soon as half of them have occurred.
fn count_missing<'a>(ids: impl Iterator<Item = &'a NodeId>, n_nodes: usize) -> Option<usize> {
    let mut occurs = vec![false; n_nodes];
    let mut n_met = 0;
    for &id in ids {
        if !std::mem::replace(&mut occurs[id as usize], true) {
            n_met += 1;
            if 2 * n_met >= n_nodes {
                return None;
            }
        }
    }
    Some(n_nodes - n_met)
}

/// Edges between two sets of ids, which both start at `first_id` in the file: target `first_id + i` becomes node `n + i`,
/// where `n` is the number of sources.
///
/// # Errors
/// When the sizes contradict each other or exceed the range of ids.
pub(super) fn two_sets(
    mut edges: Edges,
    sides: &Sides,
    first_id: u64,
    notes: &mut Notes,
) -> Result<(Coo, (usize, usize)), FormatError> {
    let size = |ids: &[NodeId], side: &str| {
        let most = ids.par_iter().max().map_or(0, |&id| id as usize);
        let what = format!("the largest id {side} is {}", most as u64 + first_id);
        check_proportion(most + 1, ids.len(), &what)?;
        Ok::<usize, FormatError>(most + 1)
    };
    let (left, right) = match sides.known {
        Some(sizes) => sizes,
        None => (size(&edges.sources, "of a source")?, size(&edges.targets, "of a target")?),
    };
    let n_nodes = left.saturating_add(right);
    if let Some(total) = sides.total.filter(|&total| total != n_nodes) {
        return Err(FormatError::invalid(format!(
            "{left} and {right} nodes on two sides are {n_nodes}, but {total} nodes are asked for; state both sides in the \
             list (KONECT: `% bip unweighted`, then `% EDGES LEFT RIGHT`)"
        )));
    }
    if n_nodes > MAX_NODES {
        return Err(FormatError::invalid(format!("{n_nodes} nodes exceed the limit of {MAX_NODES}")));
    }
    let starts_late = |ids: &[NodeId]| ids.par_iter().min() == Some(&1);
    let start_late = starts_late(&edges.sources) && starts_late(&edges.targets);
    edges.targets.par_iter_mut().for_each(|target| *target += left as NodeId);
    if sides.known.is_none() {
        match count_missing(edges.sources.iter().chain(&edges.targets), n_nodes) {
            Some(n_missing) => notes.warn(format!(
                "{n_missing} of the {n_nodes} ids up to the largest ones of both sides never occur; each is a node without \
                 edges"
            )),
            None if start_late => notes.warn(format!(
                "ids count from {} on both sides; the nodes 0 and {left} have no edges",
                first_id + 1
            )),
            None => {}
        }
    }
    notes.make_up(
        "sides",
        format!(
            "the two columns have ids of their own: node i of the second ({right}) is node {left} + i, behind those of \
             the first ({left})"
        ),
        &[("left", left as u64), ("right", right as u64)],
    );
    let weights = (!edges.weights.is_empty()).then_some(edges.weights);
    Ok((Coo::new(n_nodes, n_nodes, edges.targets, edges.sources, weights)?, (left, right)))
}
