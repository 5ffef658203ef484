//! Random walks over patches: the state of a walk travels to the owner of its next node.

use girih_comm::{CommError, Payload};
use girih_compute::Backend;
use girih_sampling::{DrawKey, NodeId, RandomWalks, SampleError, Walker, Walks};

use crate::exchange::{exchange, messages};
use crate::wire::put;
use crate::{CollectiveError, RankGraph};

/// Numbers of a walk that travels.
const STATE: usize = 6;
/// Most steps and draws of a walk that travels.
const LONGEST_WALK: u32 = u32::MAX / 2;
/// Numbers of a step that a walk took.
const STEP: usize = 3;

impl<B: Backend> RankGraph<'_, B> {
    /// A walk from each of `starts`, as [`RandomWalks::walk_until`] takes it on the whole graph. Walk `i` of this rank
    /// is walk `first + i` of the batch, whose walks all ranks take together, with the same key and the same ends.
    ///
    /// A rank goes on with a walk as long as it stays in its patch. Nodes that a walk came to are told to who began it
    /// once, at the end.
    ///
    /// # Errors
    /// When a start does not exist, walks are of second order or have weights of their own, or a rank fails.
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
        // Walks that are to travel, to each rank; and steps that were taken here, of walks of each rank.
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
            // Every rank counts the same, and so all end together.
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

/// Walks that travel to one rank, and how many travel to any.
fn state_bytes(n_travelling: u32, walkers: &[(Walker, usize)]) -> Vec<u8> {
    let mut message = Vec::with_capacity(4 * (1 + STATE * walkers.len()));
    put(&mut message, &[n_travelling]);
    for &(Walker { number, start, node, n_steps, n_drawn, .. }, origin) in walkers {
        put(&mut message, &[number, start, node, n_steps, n_drawn, origin as u32]);
    }
    message
}

/// The walks of a message, and who began them.
///
/// # Errors
/// When the message holds none, or those of ranks or nodes that do not exist.
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

/// Walks from their starts and all their steps, in order: walk, step, node.
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
