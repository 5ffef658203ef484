//! Typed data without its types.

use crate::common::load_default;
use crate::random_types::random;
use crate::typed_folder::library;
use girih_datasets::{Dataset, Features, TypeFeatures, TypedData};
use girih_graph_format::{Csr, Matrix};
use proptest::prelude::*;

/// The library with other features of its two types.
fn with(features: &[TypeFeatures; 2]) -> Dataset {
    let library = library();
    let typed = TypedData { features: features.to_vec(), ..(*library.typed.unwrap()).clone() };
    Dataset { typed: Some(typed.into()), ..library }
}

fn rows(of: usize, width: usize) -> Matrix {
    let n_nodes = library().typed.unwrap().graph.schema().node_types()[of].n_nodes;
    Matrix::new(n_nodes, width, (0..n_nodes * width).map(|value| value as f32).collect::<Vec<_>>()).unwrap()
}

proptest! {
    #[test]
    fn the_union_of_relations_is_the_graph(seed in any::<u64>()) {
        let data = random(seed);
        if let Ok(plain) = data.clone().homogeneous() {
            plain.validate().unwrap();
            prop_assert!(plain.typed.is_none() && plain.names.is_none());
            prop_assert_eq!((plain.graph, plain.labels, plain.splits), (data.graph, data.labels, data.splits));
        }
    }
}

#[test]
fn features_of_one_width_are_stacked_and_others_refused() {
    let dense = |of, width| TypeFeatures::Given(Features::Dense(rows(of, width)));
    let sparse = |of, width| TypeFeatures::Given(Features::Sparse(Csr::of_nonzeros(&rows(of, width)).unwrap()));
    let values = [rows(0, 2).data(), rows(1, 2).data()].concat();
    let expected = Matrix::new(values.len() / 2, 2, values).unwrap();
    for (first, second) in [(dense(0, 2), sparse(1, 2)), (dense(0, 2), dense(1, 2))] {
        let plain = with(&[first, second]).homogeneous().unwrap();
        assert_eq!(plain.features, Some(Features::Dense(expected.clone())));
        assert!(plain.notes.made_up.iter().any(|made| made.kind == "homogeneous"));
        let home = tempfile::tempdir().unwrap();
        plain.save(&home.path().join("plain")).unwrap();
        assert_eq!(load_default(&home.path().join("plain")), plain);
    }
    let both = with(&[sparse(0, 2), sparse(1, 2)]).homogeneous().unwrap();
    assert_eq!(both.features, Some(Features::Sparse(Csr::of_nonzeros(&expected).unwrap())));
    let refused = |features: [TypeFeatures; 2]| with(&features).homogeneous().unwrap_err().to_string();
    let widths = refused([dense(0, 2), dense(1, 3)]);
    assert!(widths.contains("has 3 columns, and another type has features of 2 columns"), "{widths}");
    let some = refused([TypeFeatures::Learned(None), dense(1, 3)]);
    assert!(some.contains("has no features, and another type has features of 3 columns"), "{some}");
    assert_eq!(with(&[TypeFeatures::None, TypeFeatures::Learned(None)]).homogeneous().unwrap().features, None);
}
