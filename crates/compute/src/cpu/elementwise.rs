//! Operations that treat every element alike.

use super::chunks::{for_chunks, zip_chunks};
use super::element::Element;
use super::mask;
use crate::Dropout;

/// Elements masked at a time, in a buffer on the stack: whole groups of the mask.
const MASKED: usize = 1024;

/// `out = x`, rounded to the storage of `out`.
///
/// # Panics
/// When lengths differ.
pub(crate) fn convert<X: Element, Y: Element>(x: &[X], out: &mut [Y]) {
    assert_eq!(x.len(), out.len(), "as many elements in as out");
    zip_chunks(
        x,
        out,
        #[inline(always)]
        |_, x, out| copy(x, out),
    );
}

/// `out += factor · x`.
pub(crate) fn add_scaled<X: Element, Y: Element>(factor: f32, x: &[X], out: &mut [Y]) {
    zip_chunks(
        x,
        out,
        #[inline(always)]
        |_, x, out| {
            for (out, x) in out.iter_mut().zip(x) {
                *out = Y::from_f32(out.to_f32() + factor * x.to_f32());
            }
        },
    );
}

/// `out = mask ⊙ x`.
pub(crate) fn dropout<X: Element, Y: Element>(dropout: Dropout, x: &[X], out: &mut [Y]) {
    zip_chunks(
        x,
        out,
        #[inline(always)]
        |first, x, out| {
            for (block, (x, out)) in x.chunks(MASKED).zip(out.chunks_mut(MASKED)).enumerate() {
                let values = &mut [0.0; MASKED][..x.len()];
                copy(x, values);
                mask::apply(dropout, first + block * MASKED, values);
                copy(values, out);
            }
        },
    );
}

/// `x ⊙= mask`.
pub(crate) fn dropout_in_place<X: Element>(dropout: Dropout, x: &mut [X]) {
    for_chunks(
        x,
        #[inline(always)]
        |first, x| {
            for (block, x) in x.chunks_mut(MASKED).enumerate() {
                let values = &mut [0.0; MASKED][..x.len()];
                copy(x, values);
                mask::apply(dropout, first + block * MASKED, values);
                copy(values, x);
            }
        },
    );
}

#[inline(always)]
fn copy<X: Element, Y: Element>(x: &[X], out: &mut [Y]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out = Y::from_f32(x.to_f32());
    }
}
