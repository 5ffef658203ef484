//! Cache hints: prefetches of data to be read, and streaming stores of data not read soon.

pub(crate) use girih_machine::prefetch;

/// Bytes of a cache line.
pub(crate) const CACHE_LINE: usize = 64;
/// Bytes that [`stream`] writes at a time.
#[cfg(target_arch = "x86_64")]
const VECTOR: usize = 16;

/// Writes `values` to `out` past the caches, without reading `out` first. It is a plain copy on CPUs without such an
/// instruction, and for data outside whole aligned vectors.
///
/// Other threads may see streamed writes late: call [`stream_end`] before `out` is passed on.
#[inline(always)]
pub(crate) fn stream<T: bytemuck::Pod>(values: &[T], out: &mut [T]) {
    assert_eq!(values.len(), out.len(), "as many values as places");
    #[cfg(target_arch = "x86_64")]
    if size_of_val(values).is_multiple_of(VECTOR) && out.as_ptr().addr().is_multiple_of(VECTOR) {
        let (from, to) = (values.as_ptr().cast::<f32>(), out.as_mut_ptr().cast::<f32>());
        for word in (0..size_of_val(values) / size_of::<f32>()).step_by(VECTOR / size_of::<f32>()) {
            // SAFETY: both slices have this vector, `out` at a multiple of its size as asked above; SSE is part of
            // every x86-64.
            unsafe {
                use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
                _mm_stream_ps(to.add(word), _mm_loadu_ps(from.add(word)));
            }
        }
        return;
    }
    out.copy_from_slice(values);
}

/// Makes all [streamed](stream) writes of this thread visible to others.
#[inline(always)]
pub(crate) fn stream_end() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of every x86-64, and a fence touches nothing.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}
