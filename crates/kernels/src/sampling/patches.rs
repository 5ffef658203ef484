//! [`PatchDraws`]: the draws of a hop where every rank has the rows of a patch: the collective sampling primitive (Cai et al., DSP, PPoPP
//! 2023, section 5) on cards, `kernels/sampling_patches.cu`.
//!
//! ```text
//! ask     the nodes of the frontier by their owners, how many edges each owner draws      card; the host reads the numbers
//! tell    these, and where the edges will be                                              host to host
//! shuffle                                                                                 card to card
//! draw    for each rank, from the patch, with the kernels of whole graphs                 card
//! reshuffle  offsets and edges, straight to where they belong                             card to card
//! merge   rows in the order of the frontier, as if all neighbours of a graph were taken
//!         whose rows are the answers                                                      card
//! ```
//! How many edges a node draws follows from its degree, which every card has of all nodes: so the host waits for the device once for each
//! hop, and no list has to be larger than what it holds.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, CudaSlice, DeviceRepr, PushKernelArg};
use girih_comm::CommError;
use girih_compute::ComputeError;
use girih_graph_format::NodeId;
use girih_sampling::Neighbors;

use super::batch::{DRAW_TILE_MIN, HopTiles};
use super::launch::{DrawKernel, Launches, blocks, lanes_of};
use super::{OPERATION, arguments};
use crate::Cuda;
use crate::compile::{Defines, Source};
use crate::device::BLOCK;
use crate::nccl::{Lists, Swapped};

/// The most ranks; `kernels/sampling_patches.cu` says the same.
const RANKS_MAX: usize = BLOCK as usize;
const WORD: u64 = size_of::<u32>() as u64;
const OFFSET: u64 = size_of::<u64>() as u64;

/// Which rank has which nodes, and the way there.
pub(crate) struct Owners {
    pub(crate) lists: Lists,
    bounds: CudaSlice<NodeId>,
}

/// What ranks are asked for, on the device.
pub(crate) struct Questions {
    /// Nodes, from one rank's to the next one's `stride` apart.
    pub(crate) nodes: CudaSlice<NodeId>,
    pub(crate) stride: u64,
    /// Nodes asked of each rank; then edges that these draw.
    counts: CudaSlice<u64>,
}

impl Owners {
    /// Of patches with these bounds, one for each rank.
    pub(crate) fn new(cuda: &Cuda, lists: Lists, bounds: &[NodeId]) -> Result<Self, ComputeError> {
        let n = lists.size();
        if bounds.len() != n + 1 || !bounds.is_sorted() || n > RANKS_MAX {
            let what = format!("{} bounds of patches for {n} ranks; there may be {RANKS_MAX} ranks", bounds.len());
            return Err(ComputeError::argument(OPERATION, what));
        }
        Ok(Self { lists, bounds: cuda.upload_list(OPERATION, bounds)? })
    }

    /// Room for questions about so many nodes at most.
    pub(crate) fn questions(&self, cuda: &Cuda, n_nodes: u64) -> Result<Questions, ComputeError> {
        // An answer has an offset more than nodes.
        let (n, stride) = (self.lists.size(), n_nodes + 1);
        let len = stride.checked_mul(n as u64).filter(|&len| len <= u64::from(u32::MAX)).ok_or_else(|| {
            ComputeError::argument(
                OPERATION,
                format!("{n_nodes} nodes asked of each of {n} ranks; take smaller batches"),
            )
        })?;
        let mut counts = cuda.scratch(OPERATION, 2 * n)?;
        cuda.device.stream.memset_zeros(&mut counts).map_err(Cuda::failed(OPERATION))?;
        Ok(Questions { nodes: cuda.scratch(OPERATION, len as usize)?, stride, counts })
    }

    /// What kernels are handed that ask; the other two are addresses of lists, zero where nobody wants them.
    pub(crate) fn asking(&self, cuda: &Cuda, questions: &Questions, (slots, places): (u64, u64)) -> Asking {
        Asking {
            bounds: cuda.pointer(Some(&self.bounds)),
            n_ranks: self.lists.size() as u64,
            stride: questions.stride,
            counts: cuda.pointer(Some(&questions.counts)),
            nodes: cuda.pointer(Some(&questions.nodes)),
            slots,
            places,
        }
    }
}

impl Questions {
    /// How many nodes each rank is asked for, and how many edges these draw; waits for the device.
    pub(crate) fn counts(&self, cuda: &Cuda) -> Result<Vec<[u64; 2]>, ComputeError> {
        let counts = cuda.read(OPERATION, &self.counts.as_view())?;
        let (nodes, edges) = counts.split_at(counts.len() / 2);
        Ok(nodes.iter().zip(edges).map(|(&nodes, &edges)| [nodes, edges]).collect())
    }

    /// How many questions there is room for.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Where the questions to a rank begin.
    pub(crate) fn at(&self, cuda: &Cuda, rank: usize) -> u64 {
        cuda.pointer(Some(&self.nodes)) + rank as u64 * self.stride * WORD
    }
}

/// `Asking` of `kernels/sampling_patches.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Asking {
    bounds: u64,
    n_ranks: u64,
    stride: u64,
    counts: u64,
    nodes: u64,
    slots: u64,
    places: u64,
}

// SAFETY: plain words in the order and layout of the kernels' struct.
unsafe impl DeviceRepr for Asking {}

/// What one rank asks of another one for a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    nodes: u64,
    edges: u64,
    /// Where the edges will be among all that the rank gets.
    first_edge: u64,
}

impl Share {
    /// For each rank, from how much is asked of it.
    fn of_counts(counts: &[[u64; 2]]) -> Vec<Self> {
        let mut end = 0;
        let share = |&[nodes, edges]: &[u64; 2]| {
            let first_edge = end;
            end += edges;
            Self { nodes, edges, first_edge }
        };
        counts.iter().map(share).collect()
    }

    /// Offsets of its rows, and of their end.
    fn n_offsets(self) -> u64 {
        if self.nodes == 0 { 0 } else { self.nodes + 1 }
    }

    fn to_words(self) -> [u64; 3] {
        [self.nodes, self.edges, self.first_edge]
    }

    fn of_words([nodes, edges, first_edge]: [u64; 3]) -> Self {
        Self { nodes, edges, first_edge }
    }
}

/// Draws by all ranks together.
pub(super) struct PatchDraws {
    owners: Arc<Owners>,
    ask: CudaFunction,
    /// For each hop.
    merges: Vec<DrawKernel>,
}

/// What came from the owners, in the memory of the device.
struct Answers {
    /// Offsets of rows, for each rank as far apart as questions are.
    offsets: CudaSlice<u64>,
    edges: CudaSlice<NodeId>,
}

/// What this rank draws for the others, in the memory of the device: one rank's behind the other's.
struct Work {
    nodes: CudaSlice<NodeId>,
    offsets: CudaSlice<u64>,
    edges: CudaSlice<NodeId>,
}

/// Where lists begin that follow each other, of so many elements each; and where they end.
fn starts(lens: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut starts = vec![0];
    starts.extend(lens.scan(0, |end, len| {
        *end += len;
        Some(*end)
    }));
    starts
}

impl PatchDraws {
    pub(super) fn new(cuda: &Cuda, owners: Arc<Owners>, hops: &[Neighbors]) -> Result<Self, ComputeError> {
        let merge = |&neighbors: &Neighbors| DrawKernel::many(cuda, lanes_of(neighbors));
        Ok(Self {
            owners,
            ask: cuda.variant(OPERATION, Source::SAMPLING_PATCHES, "ask_of_hop", &Defines::new())?,
            merges: hops.iter().map(merge).collect::<Result<_, _>>()?,
        })
    }

    /// Draws the edges of a hop as [`Launches::run`] wants them; all ranks call it together.
    ///
    /// # Safety
    /// As [`Launches::run`].
    pub(super) unsafe fn draw(
        &self,
        launches: &Launches<'_>,
        hop: usize,
        tiles: HopTiles,
        is_local: bool,
    ) -> Result<(), ComputeError> {
        let (cuda, rank) = (launches.cuda, self.owners.lists.rank());
        let argument = launches.hop(hop, tiles, is_local);
        let most_rows = launches.batch.capacities.nodes[hop];
        let slots: CudaSlice<u32> = cuda.scratch(OPERATION, most_rows as usize)?;
        let questions = self.owners.questions(cuda, most_rows)?;
        let asking = self.owners.asking(cuda, &questions, (cuda.pointer(Some(&slots)), 0));
        let mut launch = cuda.device.stream.launch_builder(&self.ask);
        launch.arg(&launches.graph.indptr).arg(&argument).arg(&asking);
        // SAFETY: rows of the hop are nodes, no more than there is a thread, a question and a slot for; the caller vouches for the rest.
        unsafe { launch.launch(blocks(most_rows.div_ceil(u64::from(BLOCK)), BLOCK)) }
            .map_err(Cuda::failed(OPERATION))?;
        let mine = Share::of_counts(&questions.counts(cuda)?);
        let told = self.owners.lists.tell(OPERATION, &mine.iter().map(|share| share.to_words()).collect::<Vec<_>>());
        let theirs: Vec<Share> = told.map_err(failed)?.into_iter().map(Share::of_words).collect();

        let answers = Answers {
            offsets: cuda.scratch(OPERATION, mine.len() * questions.stride as usize)?,
            edges: cuda.scratch(OPERATION, mine.iter().map(|share| share.edges).sum::<u64>() as usize)?,
        };
        let of_others = |of: fn(Share) -> u64| {
            starts(theirs.iter().enumerate().map(|(other, &share)| if other == rank { 0 } else { of(share) }))
        };
        let [nodes_at, offsets_at, edges_at] =
            [of_others(|share| share.nodes), of_others(Share::n_offsets), of_others(|share| share.edges)];
        let len = |starts: &[u64]| starts.last().map_or(0, |&end| end as usize);
        let work = Work {
            nodes: cuda.scratch(OPERATION, len(&nodes_at))?,
            offsets: cuda.scratch(OPERATION, len(&offsets_at))?,
            edges: cuda.scratch(OPERATION, len(&edges_at))?,
        };
        let others = || (0..mine.len()).filter(|&other| other != rank);
        let swapped = |rank, address, n_words| Swapped { rank, address, n_bytes: n_words * WORD };
        let at_work = |other: usize| {
            [
                cuda.pointer(Some(&work.nodes)) + nodes_at[other] * WORD,
                cuda.pointer(Some(&work.offsets)) + offsets_at[other] * OFFSET,
                cuda.pointer(Some(&work.edges)) + edges_at[other] * WORD,
            ]
        };
        let at_answers = |other: usize| {
            [
                cuda.pointer(Some(&answers.offsets)) + other as u64 * questions.stride * OFFSET,
                cuda.pointer(Some(&answers.edges)) + mine[other].first_edge * WORD,
            ]
        };

        let sent: Vec<Swapped> =
            others().map(|other| swapped(other, questions.at(cuda, other), mine[other].nodes)).collect();
        let received: Vec<Swapped> =
            others().map(|other| swapped(other, at_work(other)[0], theirs[other].nodes)).collect();
        // SAFETY: both sides were told the lengths; lists are freed in the order of the stream.
        unsafe { self.swap(cuda, &sent, &received) }?;

        let orders: Vec<Order> = (0..theirs.len())
            .map(|other| {
                // What a rank asks of itself is answered in place.
                let ([nodes, offsets, edges], share) = (at_work(other), theirs[other]);
                let [own_offsets, own_edges] = at_answers(rank);
                match other == rank {
                    true => Order { share, nodes: questions.at(cuda, rank), offsets: own_offsets, edges: own_edges },
                    false => Order { share, nodes, offsets, edges },
                }
            })
            .collect();
        // SAFETY: nodes are those of the patch, since others asked for them as their owner's; there is room for what they draw.
        unsafe { self.carry_out(launches, &argument, &orders) }?;

        let pairs = |other: usize, [offsets, edges]: [u64; 2], share: Share| {
            [swapped(other, offsets, 2 * share.n_offsets()), swapped(other, edges, share.edges)]
        };
        let drawn = |other: usize| [at_work(other)[1], at_work(other)[2]];
        let sent: Vec<Swapped> = others().flat_map(|other| pairs(other, drawn(other), theirs[other])).collect();
        let received: Vec<Swapped> = others().flat_map(|other| pairs(other, at_answers(other), mine[other])).collect();
        // SAFETY: as above.
        unsafe { self.swap(cuda, &sent, &received) }?;

        let graph = arguments::Topology {
            indptr: cuda.pointer(Some(&answers.offsets)),
            indices: cuda.pointer(Some(&answers.edges)),
            rows: 0,
        };
        let nodes = cuda.pointer(Some(&slots));
        let merged = arguments::Hop { nodes, fan_out: arguments::ALL, replace: 0, ..argument };
        // SAFETY: each row of the hop has a slot, which is a row of the answers, and all neighbours that it has there are taken.
        unsafe { self.merges[hop].launch(cuda, (&graph, &arguments::Weights::default()), &merged, most_rows) }
    }

    unsafe fn swap(&self, cuda: &Cuda, sent: &[Swapped], received: &[Swapped]) -> Result<(), ComputeError> {
        // SAFETY: the caller vouches.
        unsafe { self.owners.lists.swap(OPERATION, &cuda.device.stream, sent, received) }.map_err(failed)
    }

    /// Draws what ranks ask of this one's patch.
    ///
    /// # Safety
    /// Nodes are those of the patch, and there is room where orders say.
    unsafe fn carry_out(
        &self,
        launches: &Launches<'_>,
        asked: &arguments::Hop,
        orders: &[Order],
    ) -> Result<(), ComputeError> {
        let (cuda, hop, words) = (launches.cuda, asked.hop as usize, launches.batch.words);
        let (key, batch) = (launches.batch.key.of_neighbors(), launches.batch.key.batch);
        let pages: Vec<u64> = orders
            .iter()
            .flat_map(|Order { share, .. }| words.of_draws((hop, share.nodes, share.first_edge), key, batch))
            .collect();
        let pages = cuda.upload_list(OPERATION, &pages)?;
        let tiles_at = starts(orders.iter().map(|order| order.share.nodes.div_ceil(DRAW_TILE_MIN)));
        let mut tiles: CudaSlice<u64> = cuda.scratch(OPERATION, tiles_at[orders.len()] as usize)?;
        cuda.device.stream.memset_zeros(&mut tiles).map_err(Cuda::failed(OPERATION))?;
        for (at, &Order { share, nodes, offsets, edges }) in
            orders.iter().enumerate().filter(|(_, order)| order.share.nodes > 0)
        {
            let page = cuda.pointer(Some(&pages)) + (at * words.len()) as u64 * OFFSET;
            let argument = arguments::Hop {
                control: arguments::Control { words: page, ..asked.control },
                nodes,
                indptr: offsets,
                // Edges are counted from the first that the other rank gets of any.
                sources: edges.wrapping_sub(share.first_edge * WORD),
                marked: 0,
                tiles: cuda.pointer(Some(&tiles)) + tiles_at[at] * OFFSET,
                max_edges: share.first_edge + share.edges,
                once: 0,
                ..*asked
            };
            // SAFETY: the caller vouches; the page says how many nodes there are, and there are tiles for them.
            unsafe {
                launches.kernels.draws[hop].launch(cuda, (&launches.graph, &launches.weights), &argument, share.nodes)
            }?;
        }
        Ok(())
    }
}

/// What a rank asks of this one, and where the answer goes.
struct Order {
    share: Share,
    nodes: u64,
    offsets: u64,
    edges: u64,
}

/// As an error of the device's.
pub(crate) fn failed(error: CommError) -> ComputeError {
    ComputeError::device(OPERATION, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_of_owners_follow_each_other() {
        let shares = Share::of_counts(&[[3, 10], [0, 0], [2, 7]]);
        assert_eq!(shares.iter().map(|share| share.first_edge).collect::<Vec<_>>(), [0, 10, 10]);
        assert_eq!(shares.iter().map(|share| share.n_offsets()).collect::<Vec<_>>(), [4, 0, 3]);
        assert!(shares.iter().all(|&share| Share::of_words(share.to_words()) == share));
        assert_eq!(starts([4, 0, 3].into_iter()), [0, 4, 4, 7]);
    }
}
