//! Structure-aware damage, chosen by file extension: packed files are damaged inside, headers keep their lengths, and
//! checksums are repaired.

mod arrays;
mod bytes;
pub(crate) mod packed;

use girih_random::Stream;

use crate::{File, Input, repair};

/// Damaged copy of an input; `words` belong to its formats. All randomness comes from `stream`.
#[must_use]
pub fn mutate(input: &Input, words: &[&str], stream: &mut Stream) -> Input {
    let mut damaged = input.clone();
    if damaged.files.is_empty() {
        return damaged;
    }
    // Most inputs are damaged in one place: a parser stops at the first damage.
    for _ in 0..=[0, 0, 0, 1, 2, 3][bytes::below(stream, 6)] {
        let at = bytes::below(stream, damaged.files.len());
        match (damaged.files.len(), stream.below(24)) {
            (2.., 0) => drop(damaged.files.remove(at)),
            (2.., 1) => {
                let other = bytes::below(stream, damaged.files.len());
                damaged.files[at].bytes = damaged.files[other].bytes.clone();
            }
            _ => {
                let File { name, bytes } = &mut damaged.files[at];
                file(name, bytes, words, stream);
            }
        }
    }
    if stream.below(5) > 0 {
        repair(&mut damaged);
    }
    damaged
}

/// Damages a file in a way that suits its name.
fn file(name: &str, bytes: &mut Vec<u8>, words: &[&str], stream: &mut Stream) {
    // A quarter of the damage ignores formats.
    let blind = stream.below(4) == 0;
    let damaged = match name.rsplit_once('.').map_or("", |(_, ending)| ending) {
        _ if blind => None,
        "gz" => packed::gzip(bytes, stream, |text, stream| {
            file(name.strip_suffix(".gz").unwrap_or_default(), text, words, stream);
        }),
        "npz" | "zip" | "pt" => packed::zip(bytes, stream, |name, bytes, stream| file(name, bytes, words, stream)),
        "npy" if stream.below(2) == 0 => arrays::npy(bytes, stream),
        "safetensors" => arrays::tensors(bytes, stream),
        _ => None,
    };
    match damaged {
        Some(damaged) => *bytes = damaged,
        None => bytes::damage(bytes, words, stream),
    }
}
