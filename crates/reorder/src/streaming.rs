//! [`streaming_clusters`]: a partition in a few passes over the nodes, for graphs with more edges than METIS can
//! count.

use girih_graph_format::Csr;

/// Number of passes over all nodes; later passes move nodes to where their neighbors went since.
const N_PASSES: usize = 5;
/// Capacity of a cluster, relative to an even share of the nodes.
const SLACK: f64 = 1.05;

/// Cluster of every node of an undirected graph. Each node goes to the cluster of most of its neighbors, weighted by
/// the free share of the cluster (linear deterministic greedy: Stanton and Kliot, KDD 2012). Further passes repeat
/// this (restreaming: Nishimura and Ugander, KDD 2013). Memory is one number per node and per cluster.
///
/// # Panics
/// When `n_clusters` is 0.
#[must_use]
pub fn streaming_clusters(graph: &Csr, n_clusters: usize) -> Vec<u32> {
    assert!(n_clusters > 0, "a graph is cut into at least one cluster");
    let n = graph.n_rows();
    let capacity = (SLACK * n as f64 / n_clusters as f64).ceil().max(1.0);
    let mut cluster_of = vec![u32::MAX; n];
    let mut sizes = vec![0usize; n_clusters];
    let (mut shares, mut touched) = (vec![0u32; n_clusters], Vec::new());
    for _ in 0..N_PASSES {
        // Cluster for a node that has no neighbor in any cluster yet.
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
