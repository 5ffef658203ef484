//! Components of graphs.

use girih_datasets::Components;
use girih_graph_format::{Coo, Csr, Duplicates};

#[test]
fn directions_do_not_count() {
    let edges = Coo::new(6, 6, vec![1, 1, 4], vec![0, 2, 3], None).unwrap();
    let components = Components::of(&edges.to_csr(Duplicates::Refuse).unwrap());
    assert_eq!((components.count(), components.largest()), (3, 3));
    assert_eq!((0..6).map(|v| components.in_largest(v)).collect::<Vec<_>>(), [true, true, true, false, false, false]);
}

#[test]
fn a_graph_without_nodes_has_no_component() {
    let components = Components::of(&Csr::empty(0, 0).unwrap());
    assert_eq!((components.count(), components.largest()), (0, 0));
}
