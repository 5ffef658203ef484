//! A rank that changes its messages. The others succeed, or end with an error that names it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use girih_collective_sampling::{CollectiveError, RankGraph, RankRows};
use girih_comm::{Collective, CommError, Parcel, Traffic, threads};
use girih_compute::Cpu;
use girih_graph_format::{Coo, Csr, Duplicates, NodeId};
use girih_partition::Patches;
use girih_sampling::{
    Bias, DrawKey, Draws, FanOut, MiniBatch, NeighborOptions, NeighborSampler, Neighbors, RandomWalks, WalkOptions,
};
use proptest::prelude::*;

type Matrix = <Cpu as girih_compute::Memory>::Matrix;

/// Change of a message.
#[derive(Clone, Debug)]
enum Change {
    Truncated(u16),
    Extended(Vec<u8>),
    /// The word at an index is replaced by this number.
    Word(u16, u32),
    Random(Vec<u8>),
    Nothing,
}

impl Change {
    fn apply(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        match self {
            Self::Truncated(n) => bytes.truncate(usize::from(*n) % (bytes.len() + 1)),
            Self::Extended(more) => bytes.extend(more),
            Self::Word(at, word) if bytes.len() >= 4 => {
                let at = usize::from(*at) % (bytes.len() / 4) * 4;
                bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
            }
            Self::Word(..) | Self::Nothing => {}
            Self::Random(other) => bytes.clone_from(other),
        }
        bytes
    }
}

/// Rank 1, whose messages are changed from the `at`-th on.
struct Hostile {
    inner: Box<dyn Collective<Cpu>>,
    change: Change,
    at: u64,
    n_messages: AtomicU64,
}

impl Hostile {
    fn changed(&self, bytes: &[u8]) -> Vec<u8> {
        let is_due = self.n_messages.fetch_add(1, Ordering::Relaxed) >= self.at;
        if is_due { self.change.apply(bytes.to_vec()) } else { bytes.to_vec() }
    }
}

impl Collective<Cpu> for Hostile {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn broadcast(&self, root: usize, matrix: &mut Matrix) -> Result<(), CommError> {
        self.inner.broadcast(root, matrix)
    }

    fn all_reduce(&self, matrix: &mut Matrix) -> Result<(), CommError> {
        self.inner.all_reduce(matrix)
    }

    fn reduce_scatter(&self, rows: &[usize], input: &Matrix, out: &mut Matrix) -> Result<(), CommError> {
        self.inner.reduce_scatter(rows, input, out)
    }

    fn all_gather(&self, rows: &[usize], input: &Matrix, out: &mut Matrix) -> Result<(), CommError> {
        self.inner.all_gather(rows, input, out)
    }

    fn gather_others(&self, rows: &[usize], input: &Matrix, out: &mut Matrix) -> Result<(), CommError> {
        self.inner.gather_others(rows, input, out)
    }

    fn all_to_all(&self, sent: &[usize], input: &Matrix, came: &[usize], out: &mut Matrix) -> Result<(), CommError> {
        self.inner.all_to_all(sent, input, came, out)
    }

    fn all_gather_bytes(&self, message: &[u8]) -> Result<Vec<Vec<u8>>, CommError> {
        self.inner.all_gather_bytes(&self.changed(message))
    }

    fn all_to_all_bytes(&self, mut messages: Vec<Parcel>) -> Result<Vec<Parcel>, CommError> {
        messages[0] = self.changed(&messages[0]).into();
        self.inner.all_to_all_bytes(messages)
    }

    fn split(&self, colour: usize, key: usize) -> Result<Box<dyn Collective<Cpu>>, CommError> {
        self.inner.split(colour, key)
    }

    fn barrier(&self) -> Result<(), CommError> {
        self.inner.barrier()
    }

    fn failure(&self) -> Option<CommError> {
        self.inner.failure()
    }

    fn traffic(&self) -> Traffic {
        self.inner.traffic()
    }
}

const N: u32 = 24;

fn graph() -> Csr {
    let (rows, cols) = (0..6 * N).map(|edge| (edge % N, (edge * 7 + edge / N) % N)).unzip();
    let values = (0..6 * N).map(|edge| edge as f32).collect();
    Coo::new(N as usize, N as usize, rows, cols, Some(values)).unwrap().to_csr(Duplicates::Sum).unwrap()
}

/// All exchanges of ranks: layouts, blocks by one kind of draw, walks, values of edges and rows.
fn work(world: &dyn Collective<Cpu>, draws: Draws) -> Result<(), CollectiveError> {
    let patches = Patches::new(vec![0, N / 2, N]).unwrap();
    let own = patches.range(world.rank());
    let rows = graph().row_slice(own.start as usize..own.end as usize);
    let values = vec![0.5; rows.nnz()];
    let bias = (draws != Draws::Labor).then(|| Bias::new(&rows, &values).unwrap());
    let mut graph = RankGraph::<Cpu>::new(world, &patches, &rows, bias.as_ref())?;
    let fan_out = FanOut::new(vec![Neighbors::Count(3), Neighbors::Count(5)]).unwrap();
    let options = NeighborOptions { draws, edge_ids: true, ..NeighborOptions::default() };
    let sampler = NeighborSampler::new(fan_out, options).unwrap();
    let mut batch = MiniBatch::default();
    let seeds: Vec<NodeId> = (0..N).step_by(3).collect();
    sampler.sample_from(&mut graph, &seeds, DrawKey::new(1, 2, 3), &mut batch)?;
    let walks = RandomWalks::new(WalkOptions { restart: 0.2, ..WalkOptions::new(6) }).unwrap();
    let walks = graph.walk_until(&walks, (0, &seeds), DrawKey::new(1, 2, 3), |_| false)?;
    assert!(walks.nodes.iter().all(|&node| node < N), "a node that does not exist");
    let edges: Vec<u64> = (0..6 * u64::from(N)).step_by(5).collect();
    assert_eq!(graph.values(&edges)?.len(), edges.len());
    let features: Vec<u8> = own.flat_map(|node| [node as u8; 8]).collect();
    let mut found = Vec::new();
    RankRows::<Cpu>::new(world, &patches, &features, 8)?.gather(&seeds, &mut found)?;
    Ok(())
}

fn changes() -> impl Strategy<Value = Change> {
    let word = prop_oneof![Just(u32::MAX), Just(1 << 31), Just(N), any::<u32>()];
    let bytes = || prop::collection::vec(any::<u8>(), 0..80);
    prop_oneof![
        any::<u16>().prop_map(Change::Truncated),
        bytes().prop_map(Change::Extended),
        (any::<u16>(), word).prop_map(|(at, word)| Change::Word(at, word)),
        bytes().prop_map(Change::Random),
        Just(Change::Nothing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn changed_messages_are_values_or_errors_that_name_the_rank(
        change in changes(),
        at in 0..30u64,
        draws in prop::sample::select(vec![Draws::PerNode, Draws::PerLayer, Draws::Labor]),
    ) {
        let outcome = threads::run(2, Duration::from_secs(20), |rank| {
            let inner: Box<dyn Collective<Cpu>> = Box::new(rank);
            match inner.rank() {
                0 => work(&*inner, draws),
                _ => work(&Hostile { inner, change: change.clone(), at, n_messages: AtomicU64::new(0) }, draws),
            }
        });
        match outcome {
            Ok(_) => {}
            Err(failure) => {
                prop_assert!(!matches!(change, Change::Nothing), "{}", failure.message);
                prop_assert!(failure.error.is_some(), "{}", failure.message);
                // Ranks with contradictory data cannot tell which of them is wrong. A rank that asks for too little
                // finds the fault itself, in a short answer.
                let named = ["rank 1", "0 and 1", "1 and 0"];
                let is_named = failure.rank == 1 || named.iter().any(|name| failure.message.contains(name));
                prop_assert!(is_named, "{}", failure.message);
            }
        }
    }
}
