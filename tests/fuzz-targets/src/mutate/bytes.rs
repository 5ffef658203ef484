//! Damage to plain bytes and to text.

use girih_random::Stream;

/// Numbers as text at which parsers tend to fail.
const NUMBERS: [&str; 25] = [
    "0",
    "1",
    "-1",
    "2",
    "127",
    "255",
    "256",
    "65535",
    "65536",
    "1048575",
    "1048577",
    "16777216",
    "2147483646",
    "2147483647",
    "4294967295",
    "4294967296",
    "1099511627776",
    "9223372036854775807",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "-1e400",
    "nan",
    "inf",
    "0.5",
];

/// Machine integers at which parsers tend to fail.
const INTEGERS: [u64; 14] =
    [0, 1, 2, 0x7f, 0xff, 0x100, 0x7fff, 0xffff, 1 << 20, 0x7fff_ffff, 0xffff_ffff, 1 << 40, i64::MAX as u64, u64::MAX];

/// Maximum number of bytes that a repetition adds.
const REPEATED_MAX: usize = 1 << 16;

/// Random number below `bound`; 0 if `bound` is 0.
pub(super) fn below(stream: &mut Stream, bound: usize) -> usize {
    stream.below(bound.max(1) as u64) as usize
}

/// Damages bytes in one way; `words` belong to their format.
pub(super) fn damage(bytes: &mut Vec<u8>, words: &[&str], stream: &mut Stream) {
    match stream.below(12) {
        0 | 1 => flip(bytes, stream),
        2 | 3 => set_integer(bytes, stream),
        4 => bytes.truncate(below(stream, bytes.len() + 1)),
        5 => remove(bytes, stream),
        6 => duplicate(bytes, stream),
        7 | 8 => replace_number(bytes, stream),
        9 => insert_word(bytes, words, stream),
        10 => repeat(bytes, stream),
        _ => swap_lines(bytes, stream),
    }
}

fn flip(bytes: &mut [u8], stream: &mut Stream) {
    for _ in 0..=stream.below(3) {
        if bytes.is_empty() {
            return;
        }
        // Half of the flips hit the first bytes, which hold lengths and types.
        let range = if stream.below(2) == 0 { bytes.len().min(256) } else { bytes.len() };
        bytes[below(stream, range)] ^= 1 << stream.below(8);
    }
}

fn set_integer(bytes: &mut [u8], stream: &mut Stream) {
    let size = [1, 2, 4, 8][below(stream, 4)];
    if bytes.len() < size {
        return;
    }
    let aligned = stream.below(2) == 0;
    let at = below(stream, bytes.len() - size + 1);
    let at = if aligned { at / size * size } else { at };
    let value = INTEGERS[below(stream, INTEGERS.len())];
    let value = value.wrapping_add(stream.below(3)).wrapping_sub(1);
    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
}

fn range(bytes: &[u8], stream: &mut Stream) -> std::ops::Range<usize> {
    let start = below(stream, bytes.len() + 1);
    let longest = if stream.below(4) == 0 { bytes.len() } else { 16 };
    start..start + below(stream, (bytes.len() - start).min(longest) + 1)
}

fn remove(bytes: &mut Vec<u8>, stream: &mut Stream) {
    let range = range(bytes, stream);
    bytes.drain(range);
}

fn duplicate(bytes: &mut Vec<u8>, stream: &mut Stream) {
    let copied = bytes[range(bytes, stream)].to_vec();
    let at = below(stream, bytes.len() + 1);
    bytes.splice(at..at, copied);
}

/// Replaces a number in the text.
fn replace_number(bytes: &mut Vec<u8>, stream: &mut Stream) {
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_digit);
    let from = below(stream, bytes.len());
    let Some(start) = (from..bytes.len()).chain(0..from).find(|&at| is_digit(at)) else { return };
    let start = (0..start).rev().take_while(|&at| is_digit(at)).last().unwrap_or(start);
    let end = (start..bytes.len()).find(|&at| !is_digit(at)).unwrap_or(bytes.len());
    let number = NUMBERS[below(stream, NUMBERS.len())];
    bytes.splice(start..end, number.bytes());
}

fn insert_word(bytes: &mut Vec<u8>, words: &[&str], stream: &mut Stream) {
    let all: [&[&str]; 2] = [words, &NUMBERS];
    let some = all[usize::from(words.is_empty() || stream.below(4) == 0)];
    let word = some[below(stream, some.len())];
    let at = below(stream, bytes.len() + 1);
    let replaced = if stream.below(2) == 0 { word.len().min(bytes.len() - at) } else { 0 };
    bytes.splice(at..at + replaced, word.bytes());
}

/// Repeats a few bytes many times, for deep nesting, long lines, or many columns.
fn repeat(bytes: &mut Vec<u8>, stream: &mut Stream) {
    let copied = bytes[range(bytes, stream)].to_vec();
    if copied.is_empty() {
        return;
    }
    let n = 1 << stream.below(17);
    let at = below(stream, bytes.len() + 1);
    let repeated: Vec<u8> = copied.iter().copied().cycle().take((n * copied.len()).min(REPEATED_MAX)).collect();
    bytes.splice(at..at, repeated);
}

fn swap_lines(bytes: &mut Vec<u8>, stream: &mut Stream) {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&b| b == b'\n').collect();
    let (a, b) = (below(stream, lines.len()), below(stream, lines.len()));
    if lines.is_empty() {
        return;
    }
    lines.swap(a, b);
    if stream.below(4) == 0 {
        lines.remove(a);
    }
    *bytes = lines.concat();
}
