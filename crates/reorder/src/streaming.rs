//! [`streaming_clusters`]: a partition in a few passes over the nodes, for graphs that METIS cannot count.

use girih_graph_format::Csr;

/// Passes over all nodes; later ones move nodes to where their neighbours have gone since.
const N_PASSES: usize = 5;
/// Nodes that a cluster may hold beyond an even share.
const SLACK: f64 = 1.05;

/// The cluster of every node of an undirected graph: each node goes where most of its neighbours are, less where a
/// cluster is filling up (linear deterministic greedy: Stanton and Kliot, KDD 2012), and again in further passes
/// (restreaming: Nishimura and Ugander, KDD 2013). Memory is one number a node and a cluster.
///
/// # Panics
/// When there are no clusters.
#[must_use]
pub fn streaming_clusters(graph: &Csr, n_clusters: usize) -> Vec<u32> {
    assert!(n_clusters > 0, "a graph is cut into at least one cluster");
    let n = graph.n_rows();
    let capacity = (SLACK * n as f64 / n_clusters as f64).ceil().max(1.0);
    let mut cluster_of = vec![u32::MAX; n];
    let mut sizes = vec![0usize; n_clusters];
    let (mut shares, mut touched) = (vec![0u32; n_clusters], Vec::new());
    for _ in 0..N_PASSES {
        // Where a node goes that has no neighbour in any cluster yet.
        let mut emptiest = 0;
        for v in 0..n {
            if let Some(size) = sizes.get_mut(cluster_of[v] as usize) {
                *size -= 1;
            }
            for &u in graph.row(v) {
                if let Some(share) = shares.get_mut(cluster_of[u as usize] as usize) {
                    if *share == 0 {
                        touched.push(cluster_of[u as usize]);
                    }
                    *share += 1;
                }
            }
            let score = |&cluster: &u32| {
                let cluster = cluster as usize;
                f64::from(shares[cluster]) * (1.0 - sizes[cluster] as f64 / capacity)
            };
            let better = |a: &&u32, b: &&u32| score(a).total_cmp(&score(b)).then(b.cmp(a));
            let best = touched.iter().max_by(better).copied().filter(|best| score(best) > 0.0);
            let chosen = best.unwrap_or_else(|| {
                while sizes[emptiest] as f64 >= capacity.floor() {
                    emptiest = (emptiest + 1) % n_clusters;
                }
                emptiest as u32
            });
            touched.drain(..).for_each(|cluster| shares[cluster as usize] = 0);
            cluster_of[v] = chosen;
            sizes[chosen as usize] += 1;
        }
    }
    cluster_of
}
