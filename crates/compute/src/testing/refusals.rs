//! Calls that a backend itself refuses: those whose check reads data, or depends on its memory. Operands of wrong shape
//! are refused before any backend.

use crate::prelude::*;
use crate::{Dtype, Reference, Shape};

pub(super) fn check<B: Backend>(backend: &B) {
    let too_large = backend.zeros(Shape::new(1 << 62, 1 << 62), Dtype::F32).err().map(|error| error.to_string());
    assert!(too_large.is_some_and(|message| message.starts_with("out of memory: a matrix of")), "allocated");
    assert_eq!(classes(backend), classes(&Reference));
}

/// Messages of losses whose class of a row is no column: of new rows, and of rows whose earlier classes were columns.
/// No loss is written.
fn classes<B: Backend>(backend: &B) -> [String; 2] {
    let ids = |ids: &[u32]| backend.upload_ids(ids).expect("upload");
    let logits = backend.zeros(Shape::new(4, 3), Dtype::F32).expect("zeros");
    let (good, other) = (ids(&[0, 1, 2, u32::MAX]), ids(&[0, 1, 3, u32::MAX]));
    let loss = |classes: &B::Ids, rows: &B::Ids| {
        let mut loss = backend.zeros(Shape::new(1, 1), Dtype::F32).expect("zeros");
        let result = backend.softmax_cross_entropy(&logits, classes, rows, None, &mut loss);
        let written = backend.download(&loss).expect("download").data() != [0.0];
        assert_eq!(written, result.is_ok());
        result.map_err(|error| error.to_string())
    };
    let known = ids(&[0, 2]);
    loss(&good, &known).expect("classes among the columns");
    [ids(&[0, 2]), known].map(|rows| loss(&other, &rows).expect_err("class 3 of three columns"))
}
