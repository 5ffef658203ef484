//! [`Spare`]: memory of the CPU for what layers compute on the way, which later calls use again.
//!
//! Fresh memory has to be zeroed or mapped, which takes about a tenth of a full-batch step.

use std::sync::Mutex;

/// 64 bytes, with the alignment of a cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; FLOATS]);

const FLOATS: usize = 16;
/// Most bytes that are kept while nobody uses them.
const KEPT_MAX: usize = 2 << 30;

/// Buffers that nobody uses, in the order in which they came back.
static KEPT: Mutex<Vec<Vec<Line>>> = Mutex::new(Vec::new());

fn n_bytes(lines: &[Line]) -> usize {
    size_of_val(lines)
}

/// Floats with any values; their memory is kept for later when they are dropped.
pub struct Spare {
    lines: Vec<Line>,
    len: usize,
}

impl Spare {
    /// So many floats, of the smallest kept buffer that suffices and is not much larger, or of a new one.
    pub fn of(len: usize) -> Self {
        let n_lines = len.div_ceil(FLOATS);
        Self { lines: taken(n_lines).unwrap_or_else(|| vec![Line([0.0; FLOATS]); n_lines]), len }
    }
}

fn taken(n_lines: usize) -> Option<Vec<Line>> {
    // A lock that is held makes a new buffer: after a fork, nobody may be left who releases it.
    let mut kept = KEPT.try_lock().ok()?;
    let suits = |lines: &&Vec<Line>| (n_lines..=2 * n_lines).contains(&lines.len());
    let best = kept.iter().filter(suits).map(Vec::len).min()?;
    let at = kept.iter().position(|lines| lines.len() == best)?;
    Some(kept.remove(at))
}

impl Drop for Spare {
    fn drop(&mut self) {
        let lines = std::mem::take(&mut self.lines);
        let Ok(mut kept) = KEPT.try_lock() else { return };
        kept.push(lines);
        let mut total: usize = kept.iter().map(|lines| n_bytes(lines)).sum();
        while total > KEPT_MAX {
            total -= n_bytes(&kept.remove(0));
        }
    }
}

impl AsRef<[f32]> for Spare {
    fn as_ref(&self) -> &[f32] {
        // SAFETY: lines are floats without gaps, and there are at least `len` of them.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.len) }
    }
}

impl AsMut<[f32]> for Spare {
    fn as_mut(&mut self) -> &mut [f32] {
        // SAFETY: as in `as_ref`.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.len) }
    }
}
