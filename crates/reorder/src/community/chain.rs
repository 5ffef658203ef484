//! Chains: an order of communities in which neighbors are close.

use std::collections::BTreeMap;

use girih_graph_format::NodeId;

use super::network::Network;

/// Factor by which the pull of communities decays with each community that is appended.
const MEMORY: f64 = 0.5;
/// Pulls below this value are set to 0.
const NEXT_TO_NOTHING: f64 = 1e-6;

/// Orders `communities` greedily by the pull of those before them. The pull is the number of shared edges, which
/// decays with distance, over the root of the community's own edge ends. If no community is pulled, the first of
/// `communities` that is left comes next. Communities without edges come last, since nothing ever pulls them.
pub(super) fn chained(network: &Network<'_>, communities: &[NodeId]) -> Vec<NodeId> {
    let (linked, alone): (Vec<NodeId>, Vec<NodeId>) = communities.iter().partition(|&&c| network.ends[c as usize] > 0);
    let mut chain = chained_by_edges(network, &linked);
    chain.extend(alone);
    chain
}

fn chained_by_edges(network: &Network<'_>, communities: &[NodeId]) -> Vec<NodeId> {
    let mut waiting: BTreeMap<NodeId, f64> = communities.iter().map(|&c| (c, 0.0)).collect();
    let mut pulled: Vec<NodeId> = Vec::new();
    let mut chain = Vec::with_capacity(communities.len());
    let mut rest = communities.iter();
    while chain.len() < communities.len() {
        let pull = |c: &NodeId| waiting[c];
        let strongest = pulled.iter().max_by(|a, b| pull(a).total_cmp(&pull(b)).then(b.cmp(a))).copied();
        let next = strongest.or_else(|| rest.find(|c| waiting.contains_key(c)).copied());
        let next = next.expect("as many are left as the chain lacks");
        waiting.remove(&next);
        chain.push(next);
        pulled.retain(|c| {
            let Some(pull) = waiting.get_mut(c) else { return false };
            *pull *= MEMORY;
            let is_felt = *pull > NEXT_TO_NOTHING;
            *pull = if is_felt { *pull } else { 0.0 };
            is_felt
        });
        for (c, edges) in network.neighbors(next as usize) {
            if let Some(pull) = waiting.get_mut(&c) {
                if *pull == 0.0 {
                    pulled.push(c);
                }
                *pull += f64::from(edges) / (network.ends[c as usize] as f64).sqrt();
            }
        }
    }
    chain
}
