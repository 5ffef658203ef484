//! Types that a layer of relations reads and computes.

use girih_graph_format::{RelationSize, RelationSizes};
use girih_trainer::LayerTypes;

fn relation(source: usize, destination: usize) -> RelationSize {
    RelationSize { source, destination, n_edges: 5, n_sources: 2, n_destinations: 3 }
}

/// Papers (0) are written by authors (1), who work at institutes (2); topics (3) are read by no paper.
fn sizes() -> RelationSizes {
    let relations = vec![relation(1, 0), relation(0, 1), relation(2, 1), relation(0, 3)];
    RelationSizes { node_types: vec![10, 20, 30, 40], relations }
}

#[test]
fn layers_have_the_types_that_reach_the_target() {
    let layers = LayerTypes::of(&sizes(), Some(0), 2);
    assert_eq!(
        layers[1],
        LayerTypes { sources: vec![0, 1], destinations: vec![0], relations: vec![0], transformed: vec![] }
    );
    let first =
        LayerTypes { sources: vec![0, 1, 2], destinations: vec![0, 1], relations: vec![0, 1, 2], transformed: vec![] };
    assert_eq!(layers[0], first);
    assert_eq!(first.source_runs(&sizes()), [0, 10, 30, 60]);
    assert_eq!((first.pair_runs(&sizes()), first.stacked_runs(&sizes())), (vec![0, 2, 4, 6], vec![0, 3, 6, 9]));
    assert_eq!((first.n_edges(&sizes()), first.keeps_rows(), layers[1].keeps_rows()), (15, false, false));
}

#[test]
fn relations_are_transformed_first_where_that_is_cheaper() {
    let relation = |n_sources, n_destinations| RelationSize { n_sources, n_destinations, ..relation(0, 0) };
    let sizes = RelationSizes { node_types: vec![90], relations: vec![relation(80, 5), relation(5, 80)] };
    let types = LayerTypes::of(&sizes, None, 1).swap_remove(0).in_cheaper_order(&sizes, (16, 16));
    assert_eq!(types.transformed, [1]);
    assert_eq!((types.stacked_runs(&sizes), types.transformed_runs(&sizes)), (vec![0, 5, 5], vec![0, 0, 5]));
    let narrow = types.in_cheaper_order(&sizes, (1, 300));
    assert_eq!(narrow.transformed, [1]);
}

#[test]
fn without_a_target_all_layers_have_all_types() {
    let layers = LayerTypes::of(&sizes(), None, 2);
    assert_eq!(layers[0], layers[1]);
    assert!(layers[0].keeps_rows() && layers[0].relations.len() == 4);
}
