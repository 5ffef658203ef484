//! One rank on paper: [`PaperRank`] moves matrices that are only shapes and counts bytes and seconds; [`PaperGraph`]
//! has blocks of which only the sizes are known. The code that trains runs on them as it is, so that a plan for ranks
//! says what they will do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use girih_comm::{Collective, CommError, Counters, Pending, Traffic};
use girih_compute::{ComputeError, Dtype, Meter, MeterClock, MeterMatrix, Shape, Transpose};
use girih_graph_format::Csr;
use girih_partition::{BlockPlan, Exchange, evenly_touched, place_in};

use super::blocks::{Block, Blocks, CutAdjacency, HostAdjacency, Pattern};
use super::network::{Network, Operation};
use super::ranks::Ranks;
use super::rows::{PeerRows, RowExchange};
use crate::TrainError;
use crate::config::TrainConfig;
use crate::inputs::Adjacency;
use crate::plan::DataSizes;

/// The graph of plans for ranks: one that is at hand, of which blocks and rows are counted; or one of which only the
/// size is known, whose edges are spread evenly.
pub struct PaperGraph(Source);

enum Source {
    Counted(Arc<HostAdjacency>),
    Even { n_edges: u64, weighted: bool, self_loops: bool },
}

impl PaperGraph {
    /// A graph that is at hand, as the network of `config` reads it.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn of(graph: &Csr, config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        // A network that reads no graph asks for no blocks either.
        let plain = Adjacency { self_loops: false, norm: girih_graph_format::Norm::None };
        let adjacency = data.needs(config)?.graph.unwrap_or(plain);
        Ok(Self(Source::Counted(Arc::new(HostAdjacency::new(graph, adjacency)))))
    }

    /// A graph of the size that `data` says.
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn even(config: &TrainConfig, data: &DataSizes) -> Result<Self, TrainError> {
        let self_loops = data.needs(config)?.graph.is_some_and(|adjacency| adjacency.self_loops);
        Ok(Self(Source::Even { n_edges: data.n_edges as u64, weighted: data.weighted, self_loops }))
    }

    /// Whether only its size is known, so that ranks do alike.
    pub(crate) fn is_even(&self) -> bool {
        matches!(self.0, Source::Even { .. })
    }

    /// Its blocks, as `plan` cuts them.
    pub(crate) fn cut(&self, plan: Arc<BlockPlan>, exchange: Exchange) -> PaperBlocks {
        match &self.0 {
            Source::Counted(host) => PaperBlocks::Counted {
                cut: CutAdjacency::new(Arc::clone(host), plan, exchange),
                nnz: Default::default(),
            },
            &Source::Even { n_edges, weighted, self_loops } => {
                PaperBlocks::Even { plan, exchange, n_edges, weighted, self_loops }
            }
        }
    }
}

/// The sizes of the blocks of all ranks.
pub(crate) enum PaperBlocks {
    Counted { cut: CutAdjacency, nnz: [OnceLock<Vec<Vec<u64>>>; 2] },
    Even { plan: Arc<BlockPlan>, exchange: Exchange, n_edges: u64, weighted: bool, self_loops: bool },
}

/// What a step multiplies and sends.
struct StepSizes {
    nnz: u64,
    /// Rows for each member of the group; `None` where the whole panel is sent.
    rows: Option<Vec<usize>>,
}

/// A rank's own rows of the adjacency.
struct PatternSizes {
    nnz: u64,
    /// Rows that come from each peer, and that go to each.
    received: Vec<usize>,
    sent: Vec<usize>,
}

impl PaperBlocks {
    fn plan(&self) -> &BlockPlan {
        match self {
            Self::Counted { cut, .. } => cut.plan(),
            Self::Even { plan, .. } => plan,
        }
    }

    fn weighted(&self) -> bool {
        match self {
            Self::Counted { cut, .. } => cut.entries(Transpose::No).values().is_some(),
            Self::Even { weighted, .. } => *weighted,
        }
    }

    fn step(&self, rank: usize, i: usize, transpose: Transpose) -> StepSizes {
        match self {
            Self::Counted { cut, nnz } => {
                let nnz = nnz[cut.direction(transpose)].get_or_init(|| cut.plan().step_nnz(cut.entries(transpose)));
                let rows = cut.schedule(transpose).steps(rank)[i].n_rows();
                StepSizes { nnz: nnz[rank][i], rows }
            }
            Self::Even { plan, exchange, n_edges, self_loops, .. } => {
                let (mine, nnz) = (&plan.ranks[rank], plan.even_nnz(rank, i, *n_edges));
                let step = mine.steps[i];
                let columns = plan.panels[step.panel].len();
                let touched = evenly_touched(columns, nnz);
                let others = mine.group.len() - 1;
                let sends_rows = match exchange {
                    Exchange::Dense => false,
                    Exchange::Rows => true,
                    Exchange::Auto => touched * others < columns * others,
                };
                let loops = if *self_loops && mine.rows.contains(&step.panel) { columns as u64 } else { 0 };
                StepSizes { nnz: nnz + loops, rows: sends_rows.then(|| vec![touched; mine.group.len()]) }
            }
        }
    }

    fn pattern_sizes(&self, rank: usize) -> PatternSizes {
        match self {
            Self::Counted { cut, .. } => {
                let (own, halo) = (&cut.plan().ranks[rank].own, cut.halo().of(rank));
                let indptr = cut.entries(Transpose::No).indptr();
                PatternSizes {
                    nnz: indptr[own.end] - indptr[own.start],
                    received: halo.received.clone(),
                    sent: halo.sent.iter().map(Vec::len).collect(),
                }
            }
            Self::Even { plan, n_edges, self_loops, .. } => {
                let (n, own) = (plan.n_nodes as f64, plan.ranks[rank].own.len());
                let touched = |peer: usize| match plan.ranks[peer].own.len() {
                    rows if peer == rank && *self_loops => rows,
                    rows => evenly_touched(rows, (*n_edges as f64 * (own as f64 / n) * (rows as f64 / n)) as u64),
                };
                let received: Vec<usize> = plan.peers(plan.ranks[rank].replica).map(touched).collect();
                let nnz = (*n_edges as f64 * own as f64 / n) as u64 + if *self_loops { own as u64 } else { 0 };
                PatternSizes { nnz, sent: received.clone(), received }
            }
        }
    }
}

/// Lists of rows of which only the lengths are known.
fn exchange_of(meter: &Meter, sent: Vec<usize>, received: Vec<usize>) -> RowExchange<Meter> {
    RowExchange::of_ids(meter.matrix(Shape::new(sent.iter().sum(), 1), Dtype::F32), sent, received)
}

impl Blocks<Meter> for PaperBlocks {
    fn blocks(&self, meter: &Meter, rank: usize, transpose: Transpose) -> Result<Vec<Block<Meter>>, ComputeError> {
        let (plan, n_rows) = (self.plan(), self.plan().n_product_rows(rank));
        let mine = &plan.ranks[rank];
        let steps = mine.steps.iter().enumerate().map(|(i, step)| {
            let (sizes, columns) = (self.step(rank, i, transpose), plan.panels[step.panel].len());
            let (place, root) = (place_in(&mine.group, rank), place_in(&mine.group, step.root));
            let nobody = vec![0; mine.group.len()];
            let (columns, rows) = match sizes.rows {
                None => (columns, None),
                Some(mut sent) if root == place => {
                    sent[place] = 0;
                    (columns, Some(exchange_of(meter, sent, nobody)))
                }
                Some(rows) => {
                    let mut received = nobody.clone();
                    received[root] = rows[place];
                    (rows[place], Some(exchange_of(meter, nobody, received)))
                }
            };
            let shape = Shape::new(n_rows, columns);
            Block { matrix: meter.sparse(shape, sizes.nnz as usize, self.weighted(), false), rows }
        });
        Ok(steps.collect())
    }

    fn pattern(&self, meter: &Meter, ranks: &Arc<Ranks<Meter>>) -> Result<Pattern<Meter>, ComputeError> {
        let PatternSizes { nnz, received, sent } = self.pattern_sizes(ranks.rank());
        let shape = Shape::new(ranks.own().len(), received.iter().sum());
        let matrix = meter.sparse(shape, nnz as usize, self.weighted(), false);
        Ok(Pattern { matrix, rows: PeerRows::of(ranks, exchange_of(meter, sent, received)) })
    }
}

/// One rank among others that are not there: what it exchanges takes time and is counted.
///
/// Others are taken to be as far as this rank: nobody is waited for. Ranks are planned one by one, and an epoch takes
/// what the slowest of them takes.
pub(crate) struct PaperRank {
    members: Vec<usize>,
    place: usize,
    shared: Arc<Shared>,
}

/// What the groups of a rank share.
struct Shared {
    network: Network,
    clock: MeterClock,
    /// When the links are free again.
    free_at: Mutex<f64>,
    /// Whether calls are being begun.
    is_beginning: AtomicBool,
    counters: Counters,
}

impl PaperRank {
    /// The ranks of `plan` as `rank` sees them.
    pub(crate) fn ranks(plan: &Arc<BlockPlan>, rank: usize, network: Network, meter: &Meter) -> Arc<Ranks<Meter>> {
        let shared = Arc::new(Shared {
            network,
            clock: meter.clock(),
            free_at: Mutex::new(0.0),
            is_beginning: AtomicBool::new(false),
            counters: Counters::default(),
        });
        let group = |members: &[usize]| -> Box<dyn Collective<Meter>> {
            let (members, place) = (members.to_vec(), place_in(members, rank));
            Box::new(Self { members, place, shared: Arc::clone(&shared) })
        };
        let world = group(&(0..plan.ranks.len()).collect::<Vec<_>>());
        let ranks = Ranks::of(Arc::clone(plan), world, |_, members| Ok(group(members)));
        Arc::new(ranks.expect("nothing fails on paper"))
    }

    /// Lets an exchange take its time: beside what the device computes, if it is being begun.
    fn exchange(&self, operation: Operation, bytes: f64, traffic: Traffic) {
        if self.members.len() == 1 {
            return;
        }
        let Shared { network, clock, free_at, is_beginning, counters } = &*self.shared;
        let seconds = network.seconds(operation, &self.members, bytes);
        counters.add(traffic);
        clock.count_exchange(seconds);
        let mut free_at = free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = free_at.max(clock.now()) + seconds;
        if !(network.overlaps && is_beginning.load(Ordering::Relaxed)) {
            clock.wait_until(*free_at);
        }
    }

    /// Bytes that leave and enter this rank in an all-reduce of so many elements.
    fn all_reduce_traffic(&self, n: usize, element: usize) -> Traffic {
        let (size, place) = (self.members.len(), self.place);
        let slice = n * (place + 1) / size - n * place / size;
        let moved = ((n - slice + (size - 1) * slice) * element) as u64;
        Traffic { sent: moved, received: moved }
    }

    /// The share of all rows that others have.
    fn share_of_others(&self) -> f64 {
        (self.members.len() - 1) as f64 / self.members.len() as f64
    }
}

impl Collective<Meter> for PaperRank {
    fn rank(&self) -> usize {
        self.place
    }

    fn size(&self) -> usize {
        self.members.len()
    }

    fn broadcast(&self, root: usize, matrix: &mut MeterMatrix) -> Result<(), CommError> {
        let bytes = bytes_of(matrix, matrix.shape().rows);
        let traffic = match root == self.place {
            true => Traffic { sent: (self.members.len() as u64 - 1) * bytes, received: 0 },
            false => Traffic { sent: 0, received: bytes },
        };
        self.exchange(Operation::Broadcast, bytes as f64, traffic);
        Ok(())
    }

    fn all_reduce(&self, matrix: &mut MeterMatrix) -> Result<(), CommError> {
        self.all_reduce_each(&mut [matrix])
    }

    fn all_reduce_each(&self, matrices: &mut [&mut MeterMatrix]) -> Result<(), CommError> {
        let (mut bytes, mut traffic) = (0, Traffic::default());
        for matrix in matrices {
            let Traffic { sent, received } = self.all_reduce_traffic(matrix.shape().len(), matrix.element_bytes());
            traffic = Traffic { sent: traffic.sent + sent, received: traffic.received + received };
            bytes += bytes_of(matrix, matrix.shape().rows);
        }
        self.exchange(Operation::AllReduce, 2.0 * bytes as f64 * self.share_of_others(), traffic);
        Ok(())
    }

    fn begin(&self, calls: &mut dyn FnMut() -> Result<(), CommError>) -> Result<Pending, CommError> {
        self.shared.is_beginning.store(true, Ordering::Relaxed);
        let called = calls();
        self.shared.is_beginning.store(false, Ordering::Relaxed);
        called?;
        Ok(Pending::until(*self.shared.free_at.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    fn finish(&self, pending: Pending) -> Result<(), CommError> {
        if let Some(moment) = pending.mark::<f64>() {
            self.shared.clock.wait_until(moment);
        }
        Ok(())
    }

    fn reduce_scatter(&self, rows: &[usize], input: &MeterMatrix, _out: &mut MeterMatrix) -> Result<(), CommError> {
        let (all, own) = (bytes_of(input, input.shape().rows), bytes_of(input, rows[self.place]));
        let traffic = Traffic { sent: all - own, received: (self.members.len() as u64 - 1) * own };
        self.exchange(Operation::ReduceScatter, all as f64 * self.share_of_others(), traffic);
        Ok(())
    }

    fn all_gather(&self, rows: &[usize], _input: &MeterMatrix, out: &mut MeterMatrix) -> Result<(), CommError> {
        let (all, own) = (bytes_of(out, out.shape().rows), bytes_of(out, rows[self.place]));
        let traffic = Traffic { sent: (self.members.len() as u64 - 1) * own, received: all - own };
        self.exchange(Operation::AllGather, all as f64 * self.share_of_others(), traffic);
        Ok(())
    }

    /// Who only gets rows, and from one rank alone, waits until that has sent to all: about as many rows to each.
    fn all_to_all(
        &self,
        send_rows: &[usize],
        input: &MeterMatrix,
        receive_rows: &[usize],
        out: &mut MeterMatrix,
    ) -> Result<(), CommError> {
        let others = |rows: &[usize]| -> Vec<usize> {
            rows.iter().enumerate().filter(|(i, n)| *i != self.place && **n > 0).map(|(_, n)| *n).collect()
        };
        let (sent, received) = (others(send_rows), others(receive_rows));
        let traffic =
            Traffic { sent: bytes_of(input, sent.iter().sum()), received: bytes_of(out, received.iter().sum()) };
        let bytes = match (&sent[..], &received[..]) {
            ([], [_]) => traffic.received * (self.members.len() as u64 - 1),
            _ => traffic.sent.max(traffic.received),
        };
        self.exchange(Operation::AllToAll, bytes as f64, traffic);
        Ok(())
    }

    /// The message of this rank from everyone.
    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        Ok(vec![message.to_vec(); self.members.len()])
    }

    fn split(&self, _colour: usize, _key: usize) -> Result<Box<dyn Collective<Meter>>, CommError> {
        let message = "who is in a group is not known on paper; take the groups of the plan".to_owned();
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

/// Bytes of so many rows of a matrix.
fn bytes_of(matrix: &MeterMatrix, rows: usize) -> u64 {
    (rows * matrix.shape().cols * matrix.element_bytes()) as u64
}
