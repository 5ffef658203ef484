//! [`PatchDraws`]: the draws of a hop where every rank has the rows of a patch. This is the collective sampling
//! primitive (Cai et al., DSP, PPoPP 2023, section 5) on GPUs, `cuda/sampling_patches.cu`.
//!
//! ```text
//! ask        frontier nodes by their owners, and the number of edges each draws   GPU; the host reads the numbers
//! tell       these, and the positions of the edges                                host to host
//! shuffle    the nodes, to their owners                                           GPU to GPU
//! draw       for each rank, from the patch, with the kernels of whole graphs      GPU
//! reshuffle  offsets and edges, straight to their destination                     GPU to GPU
//! merge      rows in the order of the frontier, as if all neighbors were taken
//!            of a graph whose rows are the answers                                GPU
//! ```
//! The degree of a node determines the number of edges that it draws, and every GPU has the degrees of all nodes. So
//! the host waits for the device once for each hop, and lists are allocated with their exact sizes.

use std::sync::Arc;

use cudarc::driver::{CudaFunction, DeviceRepr, PushKernelArg};
use girih_comm::CommError;
use girih_compute::ComputeError;
use girih_graph_format::NodeId;
use girih_sampling::Neighbors;

use super::OPERATION;
use super::batch::{DRAW_TILE_MIN, HopTiles};
use super::launch::{DrawKernel, Launches, lanes_of};
use crate::Cuda;
use crate::abi::BLOCK;
use crate::abi::sampling::{self as arguments, RequestArguments};
use crate::buffer::Buffer;
use crate::compile::{Defines, Source};
use crate::device::blocks;
use crate::nccl::{ListExchange, ReceivedList};

/// Most ranks: kernels have a thread of a block for each.
const RANKS_MAX: usize = BLOCK as usize;
const WORD: u64 = size_of::<u32>() as u64;
const OFFSET: u64 = size_of::<u64>() as u64;

/// Owners of nodes by rank, and the exchange with them.
pub(crate) struct OwnerMap {
    pub(crate) lists: ListExchange,
    bounds: Buffer<NodeId>,
}

/// Requests to ranks, on the device.
pub(crate) struct Requests {
    /// Requested nodes, by rank; the lists of ranks are `stride` apart.
    nodes: Buffer<NodeId>,
    pub(crate) stride: u64,
    /// Number of nodes requested from each rank; then number of edges that these draw.
    counts: Buffer<u64>,
}

impl OwnerMap {
    /// Map of owners by the bounds of patches, one patch for each rank.
    pub(crate) fn new(cuda: &Cuda, lists: ListExchange, bounds: &[NodeId]) -> Result<Self, ComputeError> {
        check_bounds(bounds, lists.size)?;
        Ok(Self { lists, bounds: cuda.upload_list(OPERATION, bounds)? })
    }

    /// Allocates requests for at most `n_nodes` nodes.
    pub(crate) fn questions(&self, cuda: &Cuda, n_nodes: u64) -> Result<Requests, ComputeError> {
        // An answer has one more offset than nodes.
        let (n, stride) = (self.lists.size, n_nodes + 1);
        let len = n_questions(n, n_nodes)?;
        let mut counts = cuda.scratch(OPERATION, 2 * n)?;
        cuda.device.stream.memset_zeros(&mut counts).map_err(Cuda::failed(OPERATION))?;
        Ok(Requests { nodes: cuda.scratch(OPERATION, len)?, stride, counts })
    }

    /// Argument of kernels that write requests. `slots` and `places` are addresses of lists, zero for unwanted ones.
    pub(crate) fn asking(&self, cuda: &Cuda, questions: &Requests, (slots, places): (u64, u64)) -> RequestArguments {
        RequestArguments {
            bounds: cuda.pointer(Some(&self.bounds)),
            n_ranks: self.lists.size as u64,
            stride: questions.stride,
            counts: cuda.pointer(Some(&questions.counts)),
            nodes: cuda.pointer(Some(&questions.nodes)),
            slots,
            places,
        }
    }
}

/// Fails if bounds are not those of one patch for each rank.
fn check_bounds(bounds: &[NodeId], n_ranks: usize) -> Result<(), ComputeError> {
    if bounds.len() == n_ranks + 1 && bounds.is_sorted() && n_ranks <= RANKS_MAX {
        return Ok(());
    }
    let what = format!("{} bounds of parts for {n_ranks} ranks; at most {RANKS_MAX} ranks are supported", bounds.len());
    Err(ComputeError::argument(OPERATION, what))
}

/// Capacity of the requests of a batch to all ranks, for at most `n_nodes` nodes each and a word more.
fn n_questions(n_ranks: usize, n_nodes: u64) -> Result<usize, ComputeError> {
    let len = n_nodes.checked_add(1).and_then(|stride| stride.checked_mul(n_ranks as u64));
    len.filter(|&len| len <= u64::from(u32::MAX)).map(|len| len as usize).ok_or_else(|| {
        let what = format!(
            "a batch may ask each of {n_ranks} ranks for {n_nodes} nodes, too many for one exchange: give a smaller --batch-size"
        );
        ComputeError::argument(OPERATION, what)
    })
}

impl Requests {
    /// Downloads the numbers of nodes requested from each rank, and of the edges that these draw; waits for the
    /// device.
    pub(crate) fn counts(&self, cuda: &Cuda) -> Result<Vec<[u64; 2]>, ComputeError> {
        let counts = cuda.read(OPERATION, &self.counts.as_view())?;
        let (nodes, edges) = counts.split_at(counts.len() / 2);
        Ok(nodes.iter().zip(edges).map(|(&nodes, &edges)| [nodes, edges]).collect())
    }

    /// Capacity of the requests in nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Device address of the requests to a rank.
    pub(crate) fn at(&self, cuda: &Cuda, rank: usize) -> u64 {
        cuda.pointer(Some(&self.nodes)) + rank as u64 * self.stride * WORD
    }
}

/// Request of one rank to another for a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    nodes: u64,
    edges: u64,
    /// Position of the first edge among all edges that the requesting rank gets.
    first_edge: u64,
}

impl Share {
    /// Shares of all ranks, from their numbers of nodes and edges.
    fn of_counts(counts: &[[u64; 2]]) -> Vec<Self> {
        let mut end = 0;
        let share = |&[nodes, edges]: &[u64; 2]| {
            let first_edge = end;
            end += edges;
            Self { nodes, edges, first_edge }
        };
        counts.iter().map(share).collect()
    }

    /// Number of offsets of its rows, including the end of the last.
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

/// Collective draws of all ranks.
pub(super) struct PatchDraws {
    owners: Arc<OwnerMap>,
    ask: CudaFunction,
    /// Kernel that merges answers, for each hop.
    merges: Vec<DrawKernel>,
}

/// List on the device, with consecutive ranges for all ranks.
pub(crate) struct Pieces<T> {
    list: Buffer<T>,
    /// First element of each range, and the end of the last.
    starts: Vec<u64>,
}

impl<T: DeviceRepr> Pieces<T> {
    /// Allocates ranges of these lengths, by rank.
    pub(crate) fn new(cuda: &Cuda, lens: impl Iterator<Item = u64>) -> Result<Self, ComputeError> {
        let starts = starts(lens);
        let end = starts.last().copied().unwrap_or(0);
        Ok(Self { list: cuda.scratch(OPERATION, end as usize)?, starts })
    }

    /// As [`new`](Self::new), but without a range for `rank`, whose own elements are not sent.
    pub(crate) fn of_others(cuda: &Cuda, lens: impl Iterator<Item = u64>, rank: usize) -> Result<Self, ComputeError> {
        Self::new(cuda, lens.enumerate().map(|(other, len)| if other == rank { 0 } else { len }))
    }

    /// Device address of a rank's range.
    pub(crate) fn at(&self, cuda: &Cuda, rank: usize) -> u64 {
        cuda.pointer(Some(&self.list)) + self.starts[rank] * size_of::<T>() as u64
    }

    /// Number of elements of all ranges.
    pub(crate) fn len(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }
}

/// Offsets of consecutive lists of these lengths, with the end of the last.
fn starts(lens: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut starts = vec![0];
    starts.extend(lens.scan(0, |end, len| {
        *end += len;
        Some(*end)
    }));
    starts
}

/// Requests of a hop, and their sizes.
struct HopRequests {
    questions: Requests,
    /// Slot of the request of each row of the hop.
    slots: Buffer<u32>,
    /// Requests of this rank to each.
    mine: Vec<Share>,
    /// Requests of each rank to this one.
    theirs: Vec<Share>,
}

/// Draws on the device: for each rank offsets of rows, and edges.
struct Drawn {
    offsets: Pieces<u64>,
    edges: Pieces<NodeId>,
}

impl PatchDraws {
    pub(super) fn new(cuda: &Cuda, owners: Arc<OwnerMap>, hops: &[Neighbors]) -> Result<Self, ComputeError> {
        let merge = |&neighbors: &Neighbors| DrawKernel::many(cuda, lanes_of(neighbors));
        Ok(Self {
            owners,
            ask: cuda.variant(OPERATION, Source::SAMPLING_PATCHES, "ask_of_hop", &Defines::new())?,
            merges: hops.iter().map(merge).collect::<Result<_, _>>()?,
        })
    }

    /// Draws the edges of a hop as [`DeviceSampler::launch`](super::DeviceSampler::launch) expects them; all ranks call this
    /// together.
    ///
    /// # Safety
    /// As [`DeviceSampler::launch`](super::DeviceSampler::launch).
    pub(super) unsafe fn draw(
        &self,
        launches: &Launches<'_>,
        hop: usize,
        tiles: HopTiles,
        is_local: bool,
    ) -> Result<(), ComputeError> {
        let (cuda, rank) = (launches.cuda, self.owners.lists.rank);
        let (argument, most_rows) = (launches.hop(hop, tiles, is_local), launches.batch.capacities.nodes[hop]);
        // SAFETY: the caller vouches for rows and nodes.
        let asked = unsafe { self.ask(launches, &argument, most_rows) }?;
        // Requests of a rank to itself are answered in place.
        let nodes = Pieces::of_others(cuda, asked.theirs.iter().map(|share| share.nodes), rank)?;
        let drawn = Drawn {
            offsets: Pieces::of_others(cuda, asked.theirs.iter().map(|share| share.n_offsets()), rank)?,
            edges: Pieces::of_others(cuda, asked.theirs.iter().map(|share| share.edges), rank)?,
        };
        let answers = Drawn {
            offsets: Pieces::new(cuda, asked.mine.iter().map(|_| asked.questions.stride))?,
            edges: Pieces::new(cuda, asked.mine.iter().map(|share| share.edges))?,
        };
        let order = |(other, &share): (usize, &Share)| match other == rank {
            true => Order::new(cuda, share, asked.questions.at(cuda, rank), (&answers, rank)),
            false => Order::new(cuda, share, nodes.at(cuda, other), (&drawn, other)),
        };
        let orders: Vec<Order> = asked.theirs.iter().enumerate().map(order).collect();
        // SAFETY: both sides of each swap were told the lengths, and lists are freed in the order of the stream;
        // nodes are those of the patch, since others requested them from their owner, and there is space for their
        // draws; each row of the hop has a slot, which is a row of the answers.
        unsafe {
            self.shuffle(cuda, &asked, &nodes)?;
            self.carry_out(launches, &argument, &orders)?;
            self.reshuffle(cuda, &asked, (&drawn, &answers))?;
            self.merge(cuda, &argument, (&asked.slots, &answers), most_rows)
        }
    }

    /// Groups the nodes of a hop, at most `most_rows`, by their owners, and tells the owners their numbers.
    ///
    /// # Safety
    /// Rows of the hop are nodes.
    unsafe fn ask(
        &self,
        launches: &Launches<'_>,
        hop: &arguments::Hop,
        most_rows: u64,
    ) -> Result<HopRequests, ComputeError> {
        let cuda = launches.cuda;
        let slots: Buffer<u32> = cuda.scratch(OPERATION, most_rows as usize)?;
        let questions = self.owners.questions(cuda, most_rows)?;
        let asking = self.owners.asking(cuda, &questions, (cuda.pointer(Some(&slots)), 0));
        let mut launch = cuda.device.stream.launch_builder(&self.ask);
        launch.arg(&launches.graph.indptr).arg(hop).arg(&asking);
        // SAFETY: there is a thread, a question and a slot for each row.
        unsafe { launch.launch(blocks(most_rows.div_ceil(u64::from(BLOCK)), BLOCK)) }
            .map_err(Cuda::failed(OPERATION))?;
        let mine = Share::of_counts(&questions.counts(cuda)?);
        let words: Vec<[u64; 3]> = mine.iter().map(|share| share.to_words()).collect();
        let told = self.owners.lists.tell(OPERATION, &words).map_err(|error| failed(&error))?;
        Ok(HopRequests { questions, slots, mine, theirs: told.into_iter().map(Share::of_words).collect() })
    }

    /// Sends nodes to their owners.
    ///
    /// # Safety
    /// There is space for the requests of others.
    unsafe fn shuffle(&self, cuda: &Cuda, asked: &HopRequests, nodes: &Pieces<NodeId>) -> Result<(), ComputeError> {
        let list = |rank, address, share: Share| ReceivedList { rank, address, n_bytes: share.nodes * WORD };
        let lists = &self.owners.lists;
        let sent = lists
            .of_others(|other| list(other, asked.questions.at(cuda, other), asked.mine[other]))
            .collect::<Vec<_>>();
        let received =
            lists.of_others(|other| list(other, nodes.at(cuda, other), asked.theirs[other])).collect::<Vec<_>>();
        // SAFETY: the caller vouches.
        unsafe { lists.swap(OPERATION, &cuda.device.stream, &sent, &received) }.map_err(|error| failed(&error))
    }

    /// Sends draws to the ranks that asked for them.
    ///
    /// # Safety
    /// There is space for the answers.
    unsafe fn reshuffle(
        &self,
        cuda: &Cuda,
        asked: &HopRequests,
        (drawn, answers): (&Drawn, &Drawn),
    ) -> Result<(), ComputeError> {
        let lists = |rank, Drawn { offsets, edges }: &Drawn, share: Share| {
            [(offsets.at(cuda, rank), share.n_offsets() * OFFSET), (edges.at(cuda, rank), share.edges * WORD)]
                .map(|(address, n_bytes)| ReceivedList { rank, address, n_bytes })
        };
        let of_others = |draws: &Drawn, shares: &[Share]| -> Vec<ReceivedList> {
            self.owners.lists.of_others(|other| lists(other, draws, shares[other])).flatten().collect()
        };
        let (sent, received) = (of_others(drawn, &asked.theirs), of_others(answers, &asked.mine));
        // SAFETY: the caller vouches.
        unsafe { self.owners.lists.swap(OPERATION, &cuda.device.stream, &sent, &received) }
            .map_err(|error| failed(&error))
    }

    /// Puts answers in the order of the rows of a hop: takes all neighbors of a graph whose rows are the answers.
    ///
    /// # Safety
    /// Slots of rows are rows of the answers.
    unsafe fn merge(
        &self,
        cuda: &Cuda,
        hop: &arguments::Hop,
        (slots, answers): (&Buffer<u32>, &Drawn),
        most_rows: u64,
    ) -> Result<(), ComputeError> {
        let [indptr, indices] = [answers.offsets.at(cuda, 0), answers.edges.at(cuda, 0)];
        let graph = arguments::Topology { indptr, indices, rows: 0 };
        let nodes = cuda.pointer(Some(slots));
        let merged = arguments::Hop { nodes, fan_out: arguments::ALL, replace: 0, ..*hop };
        let weights = arguments::Weights::default();
        // SAFETY: the caller vouches.
        unsafe { self.merges[hop.hop as usize].launch(cuda, (&graph, &weights), &merged, most_rows) }
    }

    /// Draws the requests of ranks from this rank's patch.
    ///
    /// # Safety
    /// Nodes are those of the patch, and there is space at the destinations of the orders.
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
        let n_tiles = orders.iter().map(|order| order.share.nodes.div_ceil(DRAW_TILE_MIN));
        let mut tiles: Pieces<u64> = Pieces::new(cuda, n_tiles)?;
        cuda.device.stream.memset_zeros(&mut tiles.list).map_err(Cuda::failed(OPERATION))?;
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
                tiles: tiles.at(cuda, at),
                max_edges: share.first_edge + share.edges,
                once: 0,
                ..*asked
            };
            // SAFETY: the caller vouches; the page gives the number of nodes, and there are tiles for them.
            unsafe {
                launches.kernels.draws[hop].launch(cuda, (&launches.graph, &launches.weights), &argument, share.nodes)
            }?;
        }
        Ok(())
    }
}

/// Request of a rank to this one, and the destination of its answer.
struct Order {
    share: Share,
    nodes: u64,
    offsets: u64,
    edges: u64,
}

impl Order {
    fn new(cuda: &Cuda, share: Share, nodes: u64, (to, rank): (&Drawn, usize)) -> Self {
        Self { share, nodes, offsets: to.offsets.at(cuda, rank), edges: to.edges.at(cuda, rank) }
    }
}

/// Converts an error of a collective to one of the device.
pub(crate) fn failed(error: &CommError) -> ComputeError {
    ComputeError::device(OPERATION, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_those_of_a_part_for_each_rank() {
        assert!(check_bounds(&[0, 4, 9], 2).is_ok());
        for (bounds, n) in [(vec![0, 9], 2), (vec![0, 9, 4], 2), (vec![0; RANKS_MAX + 2], RANKS_MAX + 1)] {
            let expected = format!(
                "sampling on the device: {} bounds of parts for {n} ranks; at most 256 ranks are supported",
                bounds.len()
            );
            assert_eq!(check_bounds(&bounds, n).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn questions_that_a_word_does_not_number_are_refused() {
        assert_eq!(n_questions(4, 9).unwrap(), 40);
        for n_nodes in [1 << 30, u64::MAX] {
            let expected = format!(
                "sampling on the device: a batch may ask each of 4 ranks for {n_nodes} nodes, too many for one exchange: give a \
                 smaller --batch-size"
            );
            assert_eq!(n_questions(4, n_nodes).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn edges_of_owners_follow_each_other() {
        let shares = Share::of_counts(&[[3, 10], [0, 0], [2, 7]]);
        assert_eq!(shares.iter().map(|share| share.first_edge).collect::<Vec<_>>(), [0, 10, 10]);
        assert_eq!(shares.iter().map(|share| share.n_offsets()).collect::<Vec<_>>(), [4, 0, 3]);
        assert!(shares.iter().all(|&share| Share::of_words(share.to_words()) == share));
        assert_eq!(starts([4, 0, 3].into_iter()), [0, 4, 4, 7]);
    }
}
