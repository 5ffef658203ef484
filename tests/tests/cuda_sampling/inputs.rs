//! Graphs, seeds and options, and a sampler on both devices.

use std::sync::Arc;

use girih_features::{CacheShares, Placement};
use girih_graph_format::{Csr, NodeId};
use girih_kernels::{Cuda, DeviceSampler, DeviceTopology};
use girih_random::{Key, Stream};
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::{Bias, Columns, DrawKey, Expand, MiniBatch, NeighborOptions, NeighborSampler, Sampler};

/// Graph with the given rows, sorted and without duplicates.
pub fn graph_of(n: usize, mut row: impl FnMut(usize) -> Vec<NodeId>) -> Csr {
    let (mut indptr, mut indices) = (vec![0u64], Vec::new());
    for v in 0..n {
        let mut columns = row(v);
        columns.sort_unstable();
        columns.dedup();
        indices.extend(columns);
        indptr.push(indices.len() as u64);
    }
    Csr::new(n, n, indptr, indices, None).expect("a graph")
}

/// Graph in which every fifth node is isolated, every hundredth is a hub, and the others have few neighbors.
pub fn graph(n: usize, seed: u64) -> Csr {
    let mut stream = Key::new(seed, 77).stream(0, 0);
    graph_of(n, |v| {
        let degree = match v % 100 {
            3 => (n as u64 * 9 / 10).min(3000),
            v if v % 5 == 0 => 0,
            _ => {
                let most = 1 + stream.below(40);
                stream.below(most)
            }
        };
        (0..degree).map(|_| stream.below(n as u64) as NodeId).collect()
    })
}

/// Edge weights of all magnitudes, many of them zero; some rows have only zeros.
pub fn weights(graph: &Csr) -> Bias {
    let mut stream = Key::new(5, 78).stream(0, 0);
    let weight = |row: usize| {
        let size = stream.below(12) as i32;
        if row % 7 == 2 || stream.below(3) == 0 { 0.0 } else { stream.unit_f32() * 2f32.powi(2 * size - 12) }
    };
    let weights: Vec<f32> = (0..graph.n_rows()).flat_map(|row| vec![row; graph.degree(row)]).map(weight).collect();
    Bias::new(graph, &weights).expect("weights")
}

/// Distinct nodes in random order.
pub fn seeds(n_nodes: usize, n: usize, stream: &mut Stream) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = (0..n_nodes as NodeId).collect();
    stream.shuffle(&mut nodes);
    nodes.truncate(n);
    nodes
}

/// Samplers of a batch on both sides.
pub struct Pair<'g> {
    pub graph: &'g Csr,
    pub host: NeighborSampler,
    pub device: DeviceSampler,
}

impl<'g> Pair<'g> {
    pub fn new(
        cuda: &Cuda,
        (graph, topology): (&'g Csr, &Arc<DeviceTopology>),
        fan_out: &str,
        options: NeighborOptions,
        batch_size: usize,
    ) -> Self {
        let host = NeighborSampler::new(fan_out.parse().expect("a fan-out"), options).expect("a sampler");
        Self::of(cuda, (graph, topology), host, batch_size)
    }

    pub fn of(
        cuda: &Cuda,
        (graph, topology): (&'g Csr, &Arc<DeviceTopology>),
        host: NeighborSampler,
        batch_size: usize,
    ) -> Self {
        let device = DeviceSampler::new(cuda, Arc::clone(topology), graph, &host, batch_size).expect("a sampler");
        Self { graph, host, device }
    }

    pub fn expected(&self, seeds: &[NodeId], key: DrawKey) -> MiniBatch {
        self.host.sample(self.graph, seeds, key).expect("a batch")
    }

    /// Samples several batches in the same memory, the last one smaller, and compares them.
    pub fn check(&mut self, cuda: &Cuda, batch_sizes: &[usize], what: &str) {
        let mut batch = self.device.batch(cuda).expect("memory");
        let mut stream = Key::new(9, 79).stream(batch_sizes.len() as u64, 0);
        for (number, &size) in batch_sizes.iter().enumerate() {
            let seeds = seeds(self.graph.n_rows(), size, &mut stream);
            let key = DrawKey::new(stream.below(1 << 40), number as u32, 1000 * number as u32);
            self.device.sample_into(cuda, &seeds, key, &mut batch).expect("a batch");
            let found = batch.to_host(cuda).expect("a batch");
            assert_same(&self.expected(&seeds, key), &found, &format!("{what}, batch {number}"));
        }
    }
}

pub fn assert_same(expected: &MiniBatch, found: &MiniBatch, what: &str) {
    assert_eq!(expected.blocks.len(), found.blocks.len(), "{what}");
    for (layer, (a, b)) in expected.blocks.iter().zip(&found.blocks).enumerate() {
        let sizes = |block: &girih_sampling::Block| {
            (
                block.columns,
                block.n_columns,
                block.n_destinations,
                block.nodes.len(),
                block.n_edges(),
                block.edge_ids.len(),
            )
        };
        assert_eq!(sizes(a), sizes(b), "{what}, layer {layer}");
        for (name, a, b) in [("nodes", &a.nodes, &b.nodes), ("indices", &a.indices, &b.indices)] {
            let first = a.iter().zip(b).position(|(a, b)| a != b);
            assert_eq!(first, None, "{what}, layer {layer}: {name}");
        }
        for (name, a, b) in [("indptr", &a.indptr, &b.indptr), ("edge_ids", &a.edge_ids, &b.edge_ids)] {
            assert!(a == b, "{what}, layer {layer}: {name}");
        }
    }
    assert_eq!(expected.digest(), found.digest(), "{what}");
}

pub fn on_device(cuda: &Cuda, graph: &Csr) -> Arc<DeviceTopology> {
    Arc::new(DeviceTopology::on_device(cuda, graph).expect("memory"))
}

/// Topology with the rows of a share of the nodes on the device, and the others on the host.
pub fn placed(cuda: &Cuda, graph: &Csr, every_gpu: f64) -> Arc<DeviceTopology> {
    let order: Vec<NodeId> = (0..graph.n_rows() as NodeId).rev().collect();
    let placement = Placement::of_shares(&order, CacheShares { every_gpu, one_gpu: 0.0 }, 1);
    Arc::new(DeviceTopology::placed(cuda, graph, &placement).expect("pinned memory"))
}

/// All options that change the form of blocks.
pub fn all_options() -> Vec<NeighborOptions> {
    let mut all = Vec::new();
    for replace in [false, true] {
        for expand in [Expand::PerLayer, Expand::Once] {
            for inputs in [Columns::Local, Columns::Global] {
                for edge_ids in [false, true] {
                    all.push(NeighborOptions { replace, expand, inputs, edge_ids, ..NeighborOptions::default() });
                }
                let hashed = NeighborOptions {
                    relabel: Relabel::Fused,
                    new_nodes: NewNodes::FirstSeen,
                    ..NeighborOptions::default()
                };
                all.push(NeighborOptions { replace, expand, inputs, edge_ids: replace, ..hashed });
            }
        }
    }
    all
}

/// Random element of a slice.
pub fn one_of<T: Copy>(things: &[T], stream: &mut Stream) -> T {
    things[stream.below(things.len() as u64) as usize]
}

/// Graph with rows of random lengths, most of them short, some full.
pub fn random_graph(stream: &mut Stream) -> Csr {
    let n = 1 + one_of(&[3, 40, 400, 9000], stream) * stream.below(1000) as usize / 1000;
    let longest = one_of(&[0, 2, 17, 70, 300], stream);
    graph_of(n, |_| {
        let longest = if stream.below(50) == 0 { n.min(700) as u64 } else { longest };
        let degree = stream.below(longest + 1);
        (0..degree).map(|_| stream.below(n as u64) as NodeId).collect()
    })
}

pub fn random_fan_out(stream: &mut Stream) -> String {
    let mut hop = || match stream.below(6) {
        0 => "-1".to_owned(),
        1 => (1 + stream.below(200)).to_string(),
        2 => (1 + stream.below(40)).to_string(),
        _ => (1 + stream.below(6)).to_string(),
    };
    let first = hop();
    let rest: Vec<String> = (0..3).map(|_| hop()).collect();
    let n_hops = 1 + stream.below(4) as usize;
    std::iter::once(first).chain(rest).take(n_hops).collect::<Vec<_>>().join(",")
}
