//! One rank of a dry run. [`SymbolicRank`] moves symbolic matrices and counts bytes and seconds. [`SymbolicGraph`]
//! has blocks of known size without entries. The training code itself runs on them, so that a plan for ranks
//! describes what they will do.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use girih_comm::{Collective, CommError, Counters, Parcel, Pending, Traffic};
use girih_compute::{BlockKind, ComputeError, Dtype, Shape, Symbolic, SymbolicClock, SymbolicMatrix, Transpose};
use girih_graph_format::Csr;
use girih_partition::{
    BlockPlan, Cuts, Exchange, Halo, ProcessGrid, Schedule, Stages, StepExchange, StepsTogether, evenly_touched, part,
    place_in,
};

use super::blocks::{BlockSource, Blocks, Chunks, PanelExchange, Panels, Pattern, StepGroup};
use super::network::{Network, Operation};
use super::ranks::Ranks;
use super::rows::{HaloExchange, HaloPlan};
use super::session::RankOptions;
use crate::TrainError;
use crate::config::TrainConfig;
use crate::plan::DataSizes;

/// Graph of a dry run on ranks. Either a real graph, whose blocks and rows are counted, or one of known size whose
/// edges are taken to be spread evenly.
#[derive(Clone)]
pub struct SymbolicGraph {
    self_loops: bool,
    /// Whether `Â` and its transpose have column factors.
    has_factors: [bool; 2],
    weighted: bool,
    entries: Entries,
}

#[derive(Clone)]
enum Entries {
    Counted(Arc<Counted>),
    /// Number of stored edges.
    Even(u64),
}

/// Real graph, whose blocks are counted.
struct Counted {
    /// Graph as it is stored; weighted cuts depend on it.
    stored: Csr,
    /// Graph with self loops, if the network adds them.
    looped: Csr,
    transposed: OnceLock<Csr>,
    symmetric: bool,
    /// Counts of the last cut. Partitions that differ only in stages and chunks have the same blocks, and are planned
    /// one after the other.
    last: Mutex<Option<(Cut, Arc<Counts>)>>,
}

/// Settings that decide which blocks ranks have, and which rows they send.
type Cut = (ProcessGrid, Cuts, Exchange);

/// Counts of a real graph for one cut.
#[derive(Default)]
struct Counts {
    /// For each direction: the entries of each rank's steps, and the exchanges of these steps.
    steps: [OnceLock<(Vec<Vec<u64>>, Schedule)>; 2],
    halo: OnceLock<Halo>,
}

impl Counted {
    /// Counts of a cut: those of the last cut if it is the same, else empty ones.
    fn counts(&self, cut: Cut) -> Arc<Counts> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, counts)) if *of == cut => Arc::clone(counts),
            _ => Arc::clone(&last.insert((cut, Arc::default())).1),
        }
    }

    /// Entries of `op(Â)`.
    fn directed(&self, transpose: Transpose) -> &Csr {
        match self.direction(transpose) {
            0 => &self.looped,
            _ => self.transposed.get_or_init(|| self.looped.transposed()),
        }
    }

    /// Index of a direction. A symmetric matrix has one set of counts for both directions.
    fn direction(&self, transpose: Transpose) -> usize {
        usize::from(transpose == Transpose::Yes && !self.symmetric)
    }
}

impl SymbolicGraph {
    /// Real graph, as the network of `config` reads it.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn of(graph: &Csr, config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        let (self_loops, has_factors) = loops_and_factors(config, data)?;
        let looped = if self_loops { graph.with_self_loops() } else { graph.clone() };
        let (stored, transposed) = (graph.clone(), OnceLock::new());
        let counted = Counted { stored, looped, transposed, symmetric: data.symmetric, last: Mutex::default() };
        let weighted = graph.values().is_some();
        Ok(Self { self_loops, has_factors, weighted, entries: Entries::Counted(Arc::new(counted)) })
    }

    /// Graph of the size in `data`, with evenly spread edges.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn even(config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        let (self_loops, has_factors) = loops_and_factors(config, data)?;
        let entries = Entries::Even(data.n_edges as u64);
        Ok(Self { self_loops, has_factors, weighted: data.weighted, entries })
    }

    /// Whether edges are spread evenly, so that all ranks do alike.
    pub(super) fn is_even(&self) -> bool {
        matches!(self.entries, Entries::Even(_))
    }

    /// Blocks of the ranks of a plan.
    ///
    /// # Errors
    /// When there are more ranks than nodes.
    pub(super) fn cut(&self, n_nodes: usize, ranks: &RankOptions) -> Result<SymbolicBlocks, TrainError> {
        let RankOptions { grid, cuts, exchange, wire, .. } = *ranks;
        let (plan, counts) = match &self.entries {
            Entries::Counted(counted) => {
                let plan = ranks.plan(n_nodes, || Ok(counted.stored.offsets().clone()))?;
                (plan, counted.counts((grid, cuts, exchange)))
            }
            // With evenly spread edges, panels of equal work have equal size.
            Entries::Even(_) => {
                let plan = BlockPlan::new(&grid, n_nodes)?.in_stages(ranks.stages).in_chunks(ranks.chunks);
                (plan, Arc::default())
            }
        };
        Ok(SymbolicBlocks { graph: self.clone(), plan: Arc::new(plan), exchange, wire, counts })
    }
}

/// Whether the network adds self loops, and whether columns have factors in either direction. A network that reads no
/// adjacency needs no blocks.
fn loops_and_factors(config: &TrainConfig, data: &DataSizes) -> Result<(bool, [bool; 2]), TrainError> {
    let Some(adjacency) = data.input_spec(config)?.graph else { return Ok((false, [false; 2])) };
    let [left, right] = adjacency.norm.powers().map(|power| power.is_some());
    Ok((adjacency.self_loops, [right, left]))
}

/// Sizes of the blocks of all ranks.
pub(super) struct SymbolicBlocks {
    graph: SymbolicGraph,
    pub(super) plan: Arc<BlockPlan>,
    exchange: Exchange,
    wire: Dtype,
    counts: Arc<Counts>,
}

/// Sizes of a rank's own rows of the adjacency.
struct PatternSizes {
    nnz: u64,
    /// Rows received from each peer, and sent to each.
    received: Vec<usize>,
    sent: Vec<usize>,
}

impl SymbolicBlocks {
    fn counted(&self, counted: &Counted, transpose: Transpose) -> &(Vec<Vec<u64>>, Schedule) {
        self.counts.steps[counted.direction(transpose)].get_or_init(|| {
            let entries = counted.directed(transpose);
            (self.plan.step_nnz(entries), Schedule::new(&self.plan, entries, self.exchange))
        })
    }

    /// Number of entries of a step's block.
    fn nnz(&self, rank: usize, i: usize, transpose: Transpose) -> usize {
        match &self.graph.entries {
            Entries::Counted(counted) => self.counted(counted, transpose).0[rank][i] as usize,
            &Entries::Even(n_edges) => {
                let (mine, panel) = (&self.plan.ranks[rank], self.plan.ranks[rank].steps[i].panel);
                let has_loops = self.graph.self_loops && mine.rows.contains(&panel);
                let loops = if has_loops { self.plan.panels[panel].len() } else { 0 };
                self.plan.even_nnz(rank, i, n_edges) as usize + loops
            }
        }
    }

    /// Number of rows of a step's panel for each member of the group; `None` where whole panels are sent.
    fn rows(&self, rank: usize, i: usize, transpose: Transpose) -> Option<Vec<usize>> {
        match &self.graph.entries {
            Entries::Counted(counted) => match &self.counted(counted, transpose).1.steps(rank)[i] {
                StepExchange::Dense => None,
                StepExchange::Rows { lists } => Some(lists.iter().map(Vec::len).collect()),
            },
            &Entries::Even(n_edges) => {
                let rows = self.even_rows(rank, i, n_edges)?;
                Some(vec![rows; self.plan.ranks[rank].group.len()])
            }
        }
    }

    /// Number of rows of a step's panel for each member of the group, if edges are spread evenly.
    fn even_rows(&self, rank: usize, i: usize, n_edges: u64) -> Option<usize> {
        let mine = &self.plan.ranks[rank];
        let columns = self.plan.panels[mine.steps[i].panel].len();
        let touched = evenly_touched(columns, self.plan.even_nnz(rank, i, n_edges));
        let others = mine.group.len() - 1;
        self.exchange.sends_rows(touched * others, columns * others).then_some(touched)
    }

    fn pattern_sizes(&self, rank: usize) -> PatternSizes {
        match &self.graph.entries {
            Entries::Counted(counted) => {
                let own = &self.plan.ranks[rank].own;
                let halo = self.counts.halo.get_or_init(|| Halo::new(&self.plan, &counted.looped)).of(rank);
                let indptr = counted.looped.indptr();
                PatternSizes {
                    nnz: indptr[own.end] - indptr[own.start],
                    received: halo.received.clone(),
                    sent: halo.sent.iter().map(Vec::len).collect(),
                }
            }
            &Entries::Even(n_edges) => self.even_pattern(rank, n_edges as f64),
        }
    }

    fn even_pattern(&self, rank: usize, n_edges: f64) -> PatternSizes {
        let (plan, self_loops) = (&self.plan, self.graph.self_loops);
        let (n, own) = (plan.n_nodes as f64, plan.ranks[rank].own.len());
        let touched = |peer: usize| match plan.ranks[peer].own.len() {
            rows if peer == rank && self_loops => rows,
            rows => evenly_touched(rows, (n_edges * (own as f64 / n) * (rows as f64 / n)) as u64),
        };
        let received: Vec<usize> = plan.peers(plan.ranks[rank].replica).map(touched).collect();
        let nnz = (n_edges * own as f64 / n) as u64 + if self_loops { own as u64 } else { 0 };
        PatternSizes { nnz, sent: received.clone(), received }
    }

    fn sparse(&self, symbolic: &Symbolic, shape: Shape, nnz: usize) -> <Symbolic as girih_compute::Backend>::Sparse {
        symbolic.sparse(shape, nnz, self.graph.weighted, false)
    }

    /// Row chunks of a block with `n_columns` columns, over which `nnz` entries are spread evenly.
    fn chunks(
        &self,
        symbolic: &Symbolic,
        rank: usize,
        kind: BlockKind,
        (n_columns, nnz): (usize, usize),
    ) -> Chunks<Symbolic> {
        let n_chunks = self.plan.n_chunks;
        let shape = |chunk| Shape::new(self.plan.n_chunk_rows(rank, chunk), n_columns);
        let chunk = |chunk| self.sparse(symbolic, shape(chunk), even_part(nnz, chunk, n_chunks)).of_kind(kind);
        (0..n_chunks).map(chunk).collect()
    }

    /// Blocks of some steps side by side, as `HostBlocks` has them.
    fn together(
        &self,
        symbolic: &Symbolic,
        ranks: &Ranks<Symbolic>,
        together: &StepsTogether,
        transpose: Transpose,
    ) -> StepGroup<Symbolic> {
        let (plan, rank, steps) = (&self.plan, ranks.rank(), &ranks.mine().steps);
        let lists: BTreeMap<usize, Vec<usize>> =
            together.steps.iter().filter_map(|&i| Some((i, self.rows(rank, i, transpose)?))).collect();
        let rows_for = |i: usize, member: usize| {
            lists.get(&i).map_or_else(|| plan.panels[steps[i].panel].len(), |rows| rows[member])
        };
        let (sent, received) = plan.sent_and_received(rank, together, rows_for);
        let n_columns = received.iter().sum();
        let exchange = match lists.is_empty() {
            true => PanelExchange::Panels(Panels::of(plan, rank, together)),
            false => PanelExchange::Rows(exchange_of(symbolic, sent, received)),
        };
        let nnz: Vec<usize> = plan.from_others(rank, together).map(|(i, _)| self.nnz(rank, i, transpose)).collect();
        let kind = if nnz.len() == 1 && steps.len() > 2 { BlockKind::Single } else { BlockKind::Others };
        let chunks = || self.chunks(symbolic, rank, kind, (n_columns, nnz.iter().sum()));
        StepGroup { matrix: (!nnz.is_empty()).then(chunks), exchange }
    }
}

/// Size of part `i` of `n` items that are spread evenly over parts.
fn even_part(n: usize, i: usize, n_parts: usize) -> usize {
    part(&(0..n), i, n_parts).len()
}

/// Halo plan of which only the numbers of rows are known.
fn exchange_of(symbolic: &Symbolic, sent: Vec<usize>, received: Vec<usize>) -> HaloPlan<Symbolic> {
    HaloPlan::of_ids(symbolic.matrix(Shape::new(sent.iter().sum(), 1), Dtype::F32), sent, received)
}

impl BlockSource<Symbolic> for SymbolicBlocks {
    fn wire(&self) -> Dtype {
        self.wire
    }

    fn blocks(
        &self,
        symbolic: &Symbolic,
        ranks: &Ranks<Symbolic>,
        transpose: Transpose,
    ) -> Result<Blocks<Symbolic>, ComputeError> {
        let rank = ranks.rank();
        let own = ranks.mine().steps.iter().enumerate().find(|(_, step)| step.root == rank);
        let own = own.map(|(i, step)| {
            let size = (self.plan.panels[step.panel].len(), self.nnz(rank, i, transpose));
            self.chunks(symbolic, rank, BlockKind::Own, size)
        });
        let together = self.plan.together(rank).into_iter();
        let together = together.map(|some| self.together(symbolic, ranks, &some, transpose)).collect();
        let has_factors = self.graph.has_factors[usize::from(transpose == Transpose::Yes)];
        let factors = has_factors.then(|| symbolic.matrix(Shape::new(ranks.own().len(), 1), Dtype::F32));
        Ok(Blocks { factors, own, together })
    }

    fn pattern(&self, symbolic: &Symbolic, ranks: &Arc<Ranks<Symbolic>>) -> Result<Pattern<Symbolic>, ComputeError> {
        let PatternSizes { nnz, received, sent } = self.pattern_sizes(ranks.rank());
        let shape = Shape::new(ranks.own().len(), received.iter().sum());
        let (matrix, rows) = (self.sparse(symbolic, shape, nnz as usize), exchange_of(symbolic, sent, received));
        Ok(Pattern { matrix, rows: HaloExchange::of(ranks, rows) })
    }
}

/// One rank of a dry run. The other ranks do not exist, and its exchanges only take time and are counted.
///
/// The other ranks are taken to arrive at each exchange at the same time, so that nobody waits. Ranks are planned one
/// by one, and an epoch takes as long as the slowest of them.
pub(crate) struct SymbolicRank {
    members: Vec<usize>,
    place: usize,
    shared: Arc<Shared>,
}

/// State that all groups of a rank share.
struct Shared {
    network: Network,
    /// Whether a rank sends to one other rank at a time.
    is_in_turns: bool,
    clock: SymbolicClock,
    /// Time at which the links are free again.
    free_at: Mutex<f64>,
    /// Set while calls belong to an exchange that is being started.
    is_beginning: AtomicBool,
    counters: Counters,
}

impl Shared {
    fn free_at(&self) -> f64 {
        *self.free_at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SymbolicRank {
    /// Ranks of `plan`, as seen by `rank`.
    pub(crate) fn ranks(
        plan: &Arc<BlockPlan>,
        rank: usize,
        network: Network,
        symbolic: &Symbolic,
    ) -> Arc<Ranks<Symbolic>> {
        let shared = Arc::new(Shared {
            network,
            is_in_turns: plan.stages == Stages::Turns,
            clock: symbolic.clock(),
            free_at: Mutex::new(0.0),
            is_beginning: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let group = |members: &[usize]| -> Box<dyn Collective<Symbolic>> {
            let (members, place) = (members.to_vec(), place_in(members, rank));
            Box::new(Self { members, place, shared: Arc::clone(&shared) })
        };
        let world = group(&(0..plan.ranks.len()).collect::<Vec<_>>());
        let ranks = Ranks::of(Arc::clone(plan), world, |_, members| Ok(group(members)));
        Arc::new(ranks.expect("nothing fails in a dry run"))
    }

    /// Advances the clock by an exchange. An exchange that was started asynchronously overlaps with computation.
    fn exchange(&self, operation: Operation, bytes: f64, traffic: Traffic) {
        if self.members.len() == 1 {
            return;
        }
        let Shared { network, clock, free_at, is_beginning, counters, .. } = &*self.shared;
        let seconds = network.seconds(operation, &self.members, bytes);
        counters.add(traffic);
        clock.count_exchange(seconds);
        let mut free_at = free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = free_at.max(clock.now()) + seconds;
        if !(network.overlaps && is_beginning.load(Ordering::Relaxed)) {
            clock.wait_until(*free_at);
        }
    }

    fn n_others(&self) -> f64 {
        (self.members.len() - 1) as f64
    }

    /// Fraction of all rows that other ranks have.
    fn share_of_others(&self) -> f64 {
        self.n_others() / self.members.len() as f64
    }
}

impl Collective<Symbolic> for SymbolicRank {
    fn rank(&self) -> usize {
        self.place
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn broadcast(&self, root: usize, matrix: &mut SymbolicMatrix) -> Result<(), CommError> {
        let bytes = bytes_of(matrix, matrix.shape().rows);
        let traffic = Traffic::of_broadcast(bytes, self.members.len(), root == self.place);
        self.exchange(Operation::Broadcast, bytes as f64, traffic);
        Ok(())
    }

    fn all_reduce(&self, matrix: &mut SymbolicMatrix) -> Result<(), CommError> {
        self.all_reduce_each(&mut [matrix])
    }

    fn all_reduce_each(&self, matrices: &mut [&mut SymbolicMatrix]) -> Result<(), CommError> {
        let (mut bytes, mut traffic) = (0, Traffic::default());
        for matrix in matrices {
            let (n, n_ranks) = (matrix.shape().len(), self.members.len());
            let Traffic { sent, received } = Traffic::of_all_reduce(n, matrix.element_bytes(), self.place, n_ranks);
            traffic = Traffic { sent: traffic.sent + sent, received: traffic.received + received };
            bytes += bytes_of(matrix, matrix.shape().rows);
        }
        self.exchange(Operation::AllReduce, 2.0 * bytes as f64 * self.share_of_others(), traffic);
        Ok(())
    }

    fn overlaps(&self) -> bool {
        self.shared.network.overlaps
    }

    fn begin(&self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pending, CommError> {
        let begun = self.shared.free_at().max(self.shared.clock.now());
        self.shared.is_beginning.store(true, Ordering::Relaxed);
        let called = calls();
        self.shared.is_beginning.store(false, Ordering::Relaxed);
        called?;
        Ok(Pending::until(begun..self.shared.free_at()))
    }

    fn finish(&self, pending: Pending) -> Result<(), CommError> {
        if let Some(Range { start, end }) = pending.mark::<Range<f64>>() {
            let Shared { network, clock, .. } = &*self.shared;
            clock.delay(network.seconds_lost((clock.now() - start).max(0.0), (end - start).max(0.0)));
            clock.wait_until(end);
        }
        Ok(())
    }

    fn reduce_scatter(
        &self,
        rows: &[usize],
        input: &SymbolicMatrix,
        _out: &mut SymbolicMatrix,
    ) -> Result<(), CommError> {
        let (all, own) = (bytes_of(input, input.shape().rows), bytes_of(input, rows[self.place]));
        let traffic = Traffic::of_reduce_scatter(own, all, self.members.len());
        self.exchange(Operation::ReduceScatter, all as f64 * self.share_of_others(), traffic);
        Ok(())
    }

    fn all_gather(&self, rows: &[usize], input: &SymbolicMatrix, out: &mut SymbolicMatrix) -> Result<(), CommError> {
        self.gather_others(rows, input, out)
    }

    /// Each rank sends its rows to every other, and all wait for the rank with most rows.
    fn gather_others(
        &self,
        rows: &[usize],
        _input: &SymbolicMatrix,
        out: &mut SymbolicMatrix,
    ) -> Result<(), CommError> {
        let most = bytes_of(out, rows.iter().copied().max().unwrap_or(0));
        let (all, own) = (bytes_of(out, rows.iter().sum()), bytes_of(out, rows[self.place]));
        let traffic = Traffic::of_all_gather(own, all, self.members.len());
        self.exchange(Operation::AllGather, most as f64 * self.n_others(), traffic);
        Ok(())
    }

    /// A rank that only receives, and from one rank alone, waits until that one has sent to all its receivers. Each
    /// of them gets about as many rows.
    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &SymbolicMatrix,
        receive_rows: &[usize],
        out: &mut SymbolicMatrix,
    ) -> Result<(), CommError> {
        let others = |rows: &[usize]| -> Vec<usize> {
            rows.iter().enumerate().filter(|(i, n)| *i != self.place && **n > 0).map(|(_, n)| *n).collect()
        };
        let (sent, received) = (others(send_rows), others(receive_rows));
        let traffic =
            Traffic { sent: bytes_of(input, sent.iter().sum()), received: bytes_of(out, received.iter().sum()) };
        let most = traffic.sent.max(traffic.received);
        // Two ranks have all channels between them.
        let has_others = self.members.len() > 2;
        let (operation, bytes) = match (&sent[..], &received[..]) {
            ([_], [_]) if has_others => (Operation::OneToOne, most),
            ([_], []) | ([], [_]) if has_others && self.shared.is_in_turns => (Operation::OneToOne, most),
            ([], [_]) => (Operation::AllToAll, traffic.received * (self.members.len() as u64 - 1)),
            _ => (Operation::AllToAll, most),
        };
        self.exchange(operation, bytes as f64, traffic);
        Ok(())
    }

    /// This rank's own message, once for each rank.
    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        Ok(vec![message.to_vec(); self.members.len()])
    }

    /// This rank's own messages, as if the others had sent them.
    fn all_to_all_bytes(&self, messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        Ok(messages)
    }

    fn split(&self, _colour: usize, _key: usize) -> Result<Box<dyn Collective<Symbolic>>, CommError> {
        let message = "a dry run does not know the ranks of a group; take the groups of the plan".to_owned();
        Err(CommError::Library { operation: "split", message })
    }

    fn barrier(&self) -> Result<(), CommError> {
        Ok(())
    }

    fn failure(&self) -> Option<CommError> {
        None
    }

    fn traffic(&self) -> Traffic {
        self.shared.counters.traffic()
    }
}

/// Bytes of `rows` rows of a matrix.
fn bytes_of(matrix: &SymbolicMatrix, rows: usize) -> u64 {
    (rows * matrix.shape().cols * matrix.element_bytes()) as u64
}
