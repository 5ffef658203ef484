//! Numbers and strings in the notation of the older protocols.

use std::rc::Rc;

/// Decodes a two's complement, little-endian integer of any length; `None` beyond 64 bits.
pub(super) fn long(bytes: &[u8]) -> Option<i64> {
    let sign = if bytes.last().is_some_and(|b| b & 0x80 != 0) { 0xff } else { 0 };
    let mut padded = [sign; 8];
    padded.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(i64::from_le_bytes(padded))
}

/// Decodes a Python 2 string literal: strips its quotes and resolves its escapes; `None` for other text.
pub(super) fn unquote(line: &[u8]) -> Option<Vec<u8>> {
    let inner = match line {
        [b'\'', inner @ .., b'\''] | [b'"', inner @ .., b'"'] => inner,
        _ => return None,
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'\\' { unescape(&mut rest)? } else { byte });
    }
    Some(bytes)
}

/// Byte that the escape after a backslash stands for.
fn unescape(rest: &mut impl Iterator<Item = u8>) -> Option<u8> {
    match rest.next()? {
        b'x' => {
            let mut digit = || rest.next().and_then(|b| char::from(b).to_digit(16));
            digit().zip(digit()).map(|(high, low)| (high << 4 | low) as u8)
        }
        b'n' => Some(b'\n'),
        b'r' => Some(b'\r'),
        b't' => Some(b'\t'),
        quoted @ (b'\\' | b'\'' | b'"') => Some(quoted),
        _ => None,
    }
}

/// Bytes of a text whose characters are all below 256; `None` otherwise.
pub(super) fn latin1(text: &str) -> Option<Rc<[u8]>> {
    let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(c).ok()).collect();
    bytes.map(Rc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longs() {
        assert_eq!(long(&[]), Some(0));
        assert_eq!(long(&[0xff]), Some(-1));
        assert_eq!(long(&[0xff, 0]), Some(255));
        assert_eq!(long(&[0; 9]), None);
    }

    #[test]
    fn strings() {
        assert_eq!(unquote(br"'a\x41\'b'").as_deref(), Some(&b"aA'b"[..]));
        assert_eq!(unquote(br"'a\q'"), None);
        assert_eq!(unquote(b"'"), None);
        assert_eq!(latin1("\u{e9}").as_deref(), Some(&[0xe9][..]));
        assert_eq!(latin1("\u{100}"), None);
    }
}
