//! The laws of `girih_sampling::testing`: samplers of girih keep them, and broken samplers are found.

use std::panic::{AssertUnwindSafe, catch_unwind};

use girih_graph_format::{Csr, NodeId};
use girih_sampling::relabel::{NewNodes, Relabel};
use girih_sampling::testing::{check_sampler, check_subgraph_sampler, check_uniform, hubs};
use girih_sampling::{
    ClusterSampler, Columns, DrawKey, Draws, Expand, MiniBatch, NeighborOptions, NeighborSampler, SampleError, Sampler,
};

fn sampler(fan_out: &str, options: NeighborOptions) -> NeighborSampler {
    NeighborSampler::new(fan_out.parse().unwrap(), options).unwrap()
}

#[test]
fn samplers_of_girih_keep_the_laws() {
    let usual = NeighborOptions { edge_ids: true, ..NeighborOptions::default() };
    for relabel in Relabel::ALL {
        check_sampler(&sampler("3,2", NeighborOptions { relabel, ..usual }));
    }
    for options in [
        NeighborOptions { replace: true, ..usual },
        NeighborOptions { expand: Expand::Once, ..usual },
        NeighborOptions { inputs: Columns::Global, ..usual },
        NeighborOptions { new_nodes: NewNodes::FirstSeen, relabel: Relabel::ALL[0], ..usual },
        NeighborOptions { draws: Draws::PerLayer, ..usual },
        NeighborOptions { draws: Draws::Labor, ..usual },
    ] {
        if let Ok(sampler) = NeighborSampler::new("4,3,-1".parse().unwrap(), options) {
            check_sampler(&sampler);
        }
    }
    check_uniform(&sampler("3,2", usual), 3);
    check_uniform(&sampler("17", usual), 17);
    let graph = hubs(200);
    let cluster_of: Vec<u32> = (0..200).map(|v| v * v % 11).collect();
    let clusters = ClusterSampler::new(&cluster_of, 11, 3).unwrap();
    check_subgraph_sampler(&clusters, &graph, clusters.n_batches() as u32);
}

/// Sampler with a fault.
struct Faulty {
    inner: NeighborSampler,
    /// Key that is drawn by, from the given one.
    key: fn(DrawKey) -> DrawKey,
    /// Change of a batch.
    fault: fn(&mut MiniBatch),
}

impl Sampler for Faulty {
    fn sample_into(
        &self,
        graph: &Csr,
        seeds: &[NodeId],
        key: DrawKey,
        batch: &mut MiniBatch,
    ) -> Result<(), SampleError> {
        self.inner.sample_into(graph, seeds, (self.key)(key), batch)?;
        (self.fault)(batch);
        Ok(())
    }
}

fn message(check: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(check)).expect_err("the fault is found");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn faults_are_found() {
    /// Change of a batch, and a word of its message.
    type Fault<'f> = (fn(&mut MiniBatch), &'f str);
    let faults: [Fault<'_>; 5] = [
        (|batch| drop(batch.blocks.pop()), "blocks"),
        (|batch| batch.blocks[0].n_columns += 1, "number of columns"),
        (|batch| batch.blocks[0].nodes.iter_mut().for_each(|node| *node = 0), "twice"),
        (|batch| batch.blocks[1].indices.iter_mut().for_each(|column| *column = 0), "no edge"),
        (|batch| batch.blocks[1].weights.push(1.0), "weights"),
    ];
    for (fault, expected) in faults {
        let inner = sampler("3,2", NeighborOptions::default());
        let found = message(|| check_sampler(&Faulty { inner, key: |key| key, fault }));
        let is_named = found.contains(expected) || found.contains("computes");
        assert!(is_named, "{expected}: {found}");
    }
    let few = message(|| check_uniform(&sampler("2", NeighborOptions::default()), 3));
    assert!(few.contains("neighbors that batch 0 draws"), "{few}");
}

#[test]
fn unfair_draws_are_found() {
    // One batch in 32 draws by the key of the first.
    let key = |key: DrawKey| if key.batch.is_multiple_of(32) { DrawKey::new(1, 0, 0) } else { key };
    let unfair = Faulty { inner: sampler("3", NeighborOptions::default()), key, fault: |_| () };
    assert!(message(|| check_uniform(&unfair, 3)).contains("chi-square"));
}
