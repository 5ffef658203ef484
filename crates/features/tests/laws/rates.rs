//! Rates of memories, beside a study of kernels.

use girih_features::{Rate, Rates};

fn sectors() -> Rate {
    Rate { bytes_per_second: 1.0, granule: 32, latency: 0.0 }
}

#[test]
fn whole_granules_are_touched() {
    let touched = |bytes| sectors().touched(bytes);
    assert_eq!([0, 4, 32, 64].map(touched), [0.0, 32.0, 32.0, 64.0]);
    // Reads of 48 bytes begin at 0 or 16 of a sector: two sectors either way.
    assert_eq!(touched(48), 64.0);
    // Reads of 40 bytes begin at 0, 8, 16 or 24: two sectors each.
    assert_eq!(touched(40), 64.0);
    // Reads of 24 bytes begin at 0, 24, 16 or 8.
    assert_eq!(touched(24), (32.0 + 64.0 + 64.0 + 32.0) / 4.0);
}

#[test]
fn the_study_of_kernels_is_met() {
    // Reads of 516 k rows from pinned memory in place by an H200 take 4.8 ms for 400 bytes, 2.7 for 200, 0.80 for
    // 48. Draws of 865 k neighbors of a block with indices in pinned memory take 0.54 ms more than with indices
    // on the GPU.
    let host = Rates::h200().host;
    for (n, bytes, ms) in [(516e3, 400, 4.8), (516e3, 200, 2.7), (516e3, 48, 0.80), (865e3, 4, 0.54)] {
        let planned = 1e3 * host.seconds(n, bytes);
        assert!((planned / ms - 1.0).abs() < 0.15, "{bytes} bytes: {planned} for {ms}");
    }
}
