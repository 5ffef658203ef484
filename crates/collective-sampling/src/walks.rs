//! Random walks over patches: the state of a walk is sent to the owner of its next node.

use girih_comm::{CommError, Payload};
use girih_compute::Backend;
use girih_sampling::{DrawKey, NodeId, RandomWalks, SampleError, Walker, Walks};

use crate::exchange::{exchange, messages};
use crate::wire::put;
use crate::{CollectiveError, RankGraph};

/// Number of u32 values of a walk in a message.
const STATE: usize = 6;
/// Largest number of steps and of draws of a walk in a message.
const LONGEST_WALK: u32 = u32::MAX / 2;
/// Number of u32 values of a step in a message.
const STEP: usize = 3;

impl<B: Backend> RankGraph<'_, B> {
    /// Walks from each of `starts`, with the same result as [`RandomWalks::walk_until`] on the whole graph. Walk `i`
    /// of this rank is walk `first + i` of the batch. All ranks take the walks of a batch together, with the same key
    /// and ends.
    ///
    /// A rank continues a walk as long as it stays in its patch. The visited nodes are sent once, at the end, to the
    /// rank that began the walk.
    ///
    /// # Errors
    /// When a start does not exist, walks are of second order or have their own weights, or a rank fails.
    pub fn walk_until(
        &mut self,
        walks: &RandomWalks,
        (first, starts): (u32, &[NodeId]),
        key: DrawKey,
        is_end: impl Fn(NodeId) -> bool,
    ) -> Result<Walks, CollectiveError> {
        if let Some(at) = starts.iter().position(|&start| start as usize >= self.patches.n_nodes()) {
            let (start, n_nodes) = (starts[at], self.patches.n_nodes());
            let message =
                format!("walk {at} starts at node {start}, but the graph has {n_nodes} nodes, counted from 0");
            return Err(SampleError::invalid(message).into());
        }
        let me = self.world.rank();
        // Walks to send to each rank, and steps taken here, by the rank that began the walk.
        let mut travelling: Vec<Vec<(Walker, usize)>> = vec![Vec::new(); self.world.size()];
        let mut steps = messages(self.world);
        for (&start, number) in starts.iter().zip(first..) {
            travelling[self.patches.owner(start)].push((Walker::new(number, start), me));
        }
        loop {
            let n_travelling = travelling.iter().map(Vec::len).sum::<usize>() as u32;
            let message = |walkers: Vec<(Walker, usize)>| state_bytes(n_travelling, &walkers);
            let sent = travelling.iter_mut().map(|walkers| message(std::mem::take(walkers))).collect();
            let received = exchange(self.world, &mut self.tally.walks, sent)?;
            let mut n_anywhere = 0;
            for (rank, message) in received.iter().enumerate() {
                let mut message = Payload::new(message, rank, "walks");
                n_anywhere += u64::from(message.number::<u32>()?);
                for (mut walker, origin) in walkers(&message, (self.world.size(), self.patches.n_nodes()))? {
                    if !self.patches.range(me).contains(&walker.node) {
                        let what = format!("a walk at node {}, which is not of this rank", walker.node);
                        return Err(message.malformed(what).into());
                    }
                    let mut n_steps = walker.n_steps;
                    let number = walker.number;
                    let visit = |node| {
                        n_steps = n_steps.saturating_add(1);
                        put(&mut steps[origin], &[number, n_steps, node]);
                    };
                    if walks.go_on(self.patch, self.bias, &mut walker, key, &is_end, visit)? {
                        travelling[self.patches.owner(walker.node)].push((walker, origin));
                    }
                }
            }
            // Every rank computes the same sum, so all leave the loop together.
            if n_anywhere == 0 {
                break;
            }
        }
        let received = exchange(self.world, &mut self.tally.walks, steps)?;
        let mut taken = Vec::new();
        for (rank, message) in received.iter().enumerate() {
            let message = Payload::new(message, rank, "steps of walks");
            let numbers = message.clone().rest::<u32>()?;
            let (steps, []) = numbers.as_chunks::<STEP>() else {
                return Err(message.malformed(format!("{} numbers", numbers.len())).into());
            };
            for &[walk, step, node] in steps {
                let walk = walk.checked_sub(first).filter(|&walk| (walk as usize) < starts.len());
                let walk = walk.filter(|_| (node as usize) < self.patches.n_nodes());
                let what = || message.malformed(format!("step {step} to node {node} of a walk of another rank"));
                taken.push((walk.ok_or_else(what)?, step, node));
            }
        }
        taken.sort_unstable();
        Ok(joined(starts, &taken))
    }
}

/// Message with the walks for one rank, preceded by the number of walks that this rank sends to all.
fn state_bytes(n_travelling: u32, walkers: &[(Walker, usize)]) -> Vec<u8> {
    let mut message = Vec::with_capacity(4 * (1 + STATE * walkers.len()));
    put(&mut message, &[n_travelling]);
    for &(Walker { number, start, node, n_steps, n_drawn, .. }, origin) in walkers {
        put(&mut message, &[number, start, node, n_steps, n_drawn, origin as u32]);
    }
    message
}

/// Walks of a message, with the ranks that began them.
///
/// # Errors
/// When the message is malformed, or names ranks or nodes that do not exist.
fn walkers(message: &Payload<'_>, (n_ranks, n_nodes): (usize, usize)) -> Result<Vec<(Walker, usize)>, CommError> {
    let numbers = message.clone().rest::<u32>()?;
    let (states, []) = numbers.as_chunks::<STATE>() else {
        return Err(message.malformed(format!("{} numbers, {STATE} a walk", numbers.len())));
    };
    if let Some([.., origin]) = states.iter().find(|state| state[STATE - 1] as usize >= n_ranks) {
        return Err(message.malformed(format!("a walk of rank {origin} where there are {n_ranks}")));
    }
    let exists = |&[_, start, node, n_steps, n_drawn, _]: &[u32; STATE]| {
        start.max(node) as usize <= n_nodes.saturating_sub(1) && n_steps.max(n_drawn) <= LONGEST_WALK
    };
    if let Some(state) = states.iter().find(|state| !exists(state)) {
        return Err(message.malformed(format!("a walk {state:?} where there are {n_nodes} nodes")));
    }
    let walker = |&[number, start, node, n_steps, n_drawn, origin]: &[u32; STATE]| {
        let mut walker = Walker::new(number, start);
        (walker.node, walker.n_steps, walker.n_drawn) = (node, n_steps, n_drawn);
        (walker, origin as usize)
    };
    Ok(states.iter().map(walker).collect())
}

/// Joins the starts with all steps, which are sorted triples of walk, step and node.
fn joined(starts: &[NodeId], taken: &[(u32, u32, NodeId)]) -> Walks {
    let mut walks = Walks { indptr: vec![0], nodes: Vec::with_capacity(starts.len() + taken.len()) };
    let mut rest = taken;
    for (walk, &start) in (0..).zip(starts) {
        let (mine, others) = rest.split_at(rest.partition_point(|&(of, ..)| of == walk));
        walks.nodes.push(start);
        walks.nodes.extend(mine.iter().map(|&(_, _, node)| node));
        walks.indptr.push(walks.nodes.len() as u64);
        rest = others;
    }
    walks
}
