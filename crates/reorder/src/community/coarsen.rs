//! Coarsening: communities become the nodes of the next network.

use std::borrow::Cow;

use girih_graph_format::NodeId;
use rayon::prelude::*;

use super::network::Network;

/// Member lists of communities (CSR).
pub(super) struct Members {
    pub(super) indptr: Vec<usize>,
    pub(super) nodes: Vec<NodeId>,
}

impl Members {
    /// Renumbers communities by their first node, in place, and lists the members of each in ascending order.
    pub(super) fn number(community: &mut [NodeId]) -> Self {
        let n = community.len();
        let (mut number, mut sizes) = (vec![NodeId::MAX; n], Vec::new());
        for slot in community.iter_mut() {
            let new = &mut number[*slot as usize];
            if *new == NodeId::MAX {
                *new = sizes.len() as NodeId;
                sizes.push(0);
            }
            *slot = *new;
            sizes[*new as usize] += 1;
        }
        let mut indptr = vec![0];
        indptr.extend(sizes.iter().scan(0, |end, size: &usize| {
            *end += size;
            Some(*end)
        }));
        let mut next = indptr.clone();
        let mut nodes = vec![0; n];
        for (v, &c) in community.iter().enumerate() {
            nodes[next[c as usize]] = v as NodeId;
            next[c as usize] += 1;
        }
        Self { indptr, nodes }
    }

    pub(super) fn n_communities(&self) -> usize {
        self.indptr.len() - 1
    }

    pub(super) fn of(&self, community: usize) -> &[NodeId] {
        &self.nodes[self.indptr[community]..self.indptr[community + 1]]
    }
}

/// Network whose nodes are the communities.
pub(super) fn coarsen(network: &Network<'_>, community: &[NodeId], members: &Members) -> Network<'static> {
    let n = members.n_communities();
    let row = |edges: &mut Vec<u32>, c: usize| -> Vec<(NodeId, u32)> {
        edges.resize(n, 0);
        let mut touched = Vec::new();
        for &v in members.of(c) {
            for (u, weight) in network.neighbors(v as usize) {
                let to = community[u as usize];
                if to as usize != c {
                    if edges[to as usize] == 0 {
                        touched.push(to);
                    }
                    edges[to as usize] += weight;
                }
            }
        }
        touched.sort_unstable();
        touched.into_iter().map(|to| (to, std::mem::take(&mut edges[to as usize]))).collect()
    };
    let rows: Vec<Vec<(NodeId, u32)>> = (0..n).into_par_iter().with_min_len(64).map_init(Vec::new, row).collect();
    let mut indptr = vec![0];
    indptr.extend(rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let (targets, weights): (Vec<NodeId>, Vec<u32>) = rows.into_iter().flatten().unzip();
    let ends = (0..n).map(|c| members.of(c).iter().map(|&v| network.ends[v as usize]).sum()).collect();
    Network { indptr: Cow::Owned(indptr), targets: Cow::Owned(targets), weights: Some(weights), ends }
}
