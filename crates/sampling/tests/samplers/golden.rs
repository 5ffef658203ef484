//! Golden digests of samplers: draws are part of the format, and a seed gives equal results in all versions.

use girih_graph_format::NodeId;
use girih_sampling::testing::hubs;
use girih_sampling::{
    ClusterSampler, DrawKey, Draws, LayerSampler, NeighborOptions, NeighborSampler, Node2Vec, RandomWalks,
    SaintSampler, Sampler, SubgraphSampler, WalkOptions,
};

const KEY: DrawKey = DrawKey { seed: 5, epoch: 1, batch: 2 };

#[test]
fn blocks_stay_as_they_are() {
    let graph = hubs(1000);
    let seeds: Vec<NodeId> = (0..50).map(|i| i * 17 % 1000).collect();
    let neighbors = |draws| {
        let options = NeighborOptions { draws, edge_ids: true, ..NeighborOptions::default() };
        NeighborSampler::new("15,200".parse().unwrap(), options).unwrap()
    };
    let layers = || "60,90".parse().unwrap();
    let samplers: [(Box<dyn Sampler>, u64); 7] = [
        (Box::new(neighbors(Draws::PerNode)), 15_927_448_518_127_467_686),
        (Box::new(neighbors(Draws::PerLayer)), 4_071_978_257_430_741_585),
        (Box::new(neighbors(Draws::Labor)), 4_946_619_615_725_599_041),
        (Box::new(LayerSampler::fast_gcn(&graph, layers(), true).unwrap()), 4_803_242_103_497_601_072),
        (Box::new(LayerSampler::fast_gcn(&graph, layers(), false).unwrap()), 11_275_331_046_625_158_764),
        (Box::new(LayerSampler::ladies(layers(), true)), 6_011_619_491_756_633_934),
        (Box::new(LayerSampler::ladies(layers(), false)), 15_547_070_200_154_741_580),
    ];
    let (found, expected): (Vec<u64>, Vec<u64>) = samplers
        .iter()
        .map(|(sampler, digest)| (sampler.sample(&graph, &seeds, KEY).unwrap().digest(), *digest))
        .unzip();
    assert_eq!(found, expected);
}

#[test]
fn subgraphs_stay_as_they_are() {
    let graph = hubs(1000);
    let cluster_of: Vec<u32> = (0..1000).map(|v| v / 30).collect();
    let samplers: [(Box<dyn SubgraphSampler>, u64); 4] = [
        (Box::new(ClusterSampler::new(&cluster_of, 34, 4).unwrap()), 2_714_859_073_998_270_795),
        (Box::new(SaintSampler::nodes(&graph, 100).unwrap()), 15_735_364_885_890_184_246),
        (Box::new(SaintSampler::edges(&graph, 50).unwrap()), 10_169_371_669_000_583_813),
        (Box::new(SaintSampler::walks(&graph, 20, 4, 100, 3).unwrap()), 14_531_988_202_244_702_132),
    ];
    let (found, expected): (Vec<u64>, Vec<u64>) =
        samplers.iter().map(|(sampler, digest)| (sampler.sample(&graph, KEY).unwrap().digest(), *digest)).unzip();
    assert_eq!(found, expected);
}

#[test]
fn walks_stay_as_they_are() {
    let graph = hubs(1000);
    let node2vec = Some(Node2Vec { p: 0.5, q: 4.0 });
    let options = WalkOptions { stop: 0.05, restart: 0.1, node2vec, ..WalkOptions::new(12) };
    let walks = RandomWalks::new(options).unwrap().walk(&graph, &[7, 500, 7], KEY).unwrap();
    assert_eq!(walks.walk(0), [7, 429, 3, 713, 993, 951, 7, 821, 749, 7, 129, 409, 869]);
    assert_eq!(walks.walk(1), [500, 512, 626, 424, 10, 970]);
    assert_eq!(walks.walk(2), [7, 29, 459, 255, 967, 771, 7, 701, 909, 365, 7, 769, 389]);
}
