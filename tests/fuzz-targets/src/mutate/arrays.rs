//! Damage to the headers of arrays, with lengths that stay consistent.

use girih_random::Stream;

use super::bytes;

/// Words in headers of `.npy`.
const NPY: [&str; 17] = [
    "'<f4'",
    "'<i8'",
    "'<f8'",
    "'|b1'",
    "'|u1'",
    "'<u8'",
    "'>i4'",
    "'|O'",
    "'|S4'",
    "'<U2'",
    "'<f2'",
    "True",
    "False",
    "(,)",
    "'shape': (0, 9223372036854775807)",
    "'descr': [",
    "'<c8'",
];
/// Words in headers of safetensors.
const TENSORS: [&str; 10] = [
    "\"shape\":[0]",
    "\"data_offsets\":[0,0]",
    "\"F32\"",
    "\"I64\"",
    "\"BF16\"",
    "\"BOOL\"",
    "[0,18446744073709551615]",
    "{\"a\":",
    "\"__metadata__\":{}",
    ",,",
];

/// Damages the text of a `.npy` header and updates its length; `None` if there is no header.
pub(super) fn npy(file: &[u8], stream: &mut Stream) -> Option<Vec<u8>> {
    if !file.starts_with(b"\x93NUMPY\x01") {
        return None;
    }
    let length = usize::from(u16::from_le_bytes([*file.get(8)?, *file.get(9)?]));
    let mut text = file.get(10..10 + length)?.to_vec();
    bytes::damage(&mut text, &NPY, stream);
    let length = u16::try_from(text.len()).ok()?;
    Some([&file[..8], &length.to_le_bytes(), &text, &file[10 + length_of(file)..]].concat())
}

fn length_of(file: &[u8]) -> usize {
    usize::from(u16::from_le_bytes([file[8], file[9]]))
}

/// Damages the header of a safetensors file, or its values, and updates the header's length.
pub(super) fn tensors(file: &[u8], stream: &mut Stream) -> Option<Vec<u8>> {
    let (length, rest) = file.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (mut header, mut values) = (rest.get(..length)?.to_vec(), rest.get(length..)?.to_vec());
    if stream.below(4) == 0 {
        bytes::damage(&mut values, &[], stream);
    } else {
        bytes::damage(&mut header, &TENSORS, stream);
    }
    Some([&(header.len() as u64).to_le_bytes()[..], &header, &values].concat())
}
