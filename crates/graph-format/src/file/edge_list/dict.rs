//! Dictionaries that networkx writes after an edge: `{}`, `{'weight': 3.0, 'color': 'red'}`. Nothing is executed.

use crate::file::number::float;
use crate::file::text::shown;

/// Weight and other keys of one dictionary.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Dict<'a> {
    pub(super) weight: Option<f32>,
    pub(super) other_keys: Vec<&'a [u8]>,
}

/// Splits a line before its dictionary; `None` when it has none.
pub(super) fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let line = line.trim_ascii_end();
    let at = line.iter().position(|&b| b == b'{').filter(|_| line.ends_with(b"}"))?;
    Some((&line[..at], &line[at..]))
}

/// Parses the keys and the weight of `{'key': value, …}`.
///
/// # Errors
/// When the text is not a dictionary, or its weight is not a finite number.
pub(super) fn parse(text: &[u8]) -> Result<Dict<'_>, String> {
    let inner = text.strip_prefix(b"{").and_then(|text| text.strip_suffix(b"}"));
    let mut rest = inner.ok_or_else(|| not_a_dict(text))?.trim_ascii();
    let mut dict = Dict::default();
    while !rest.is_empty() {
        let (key, after) = quoted(rest).ok_or_else(|| not_a_dict(text))?;
        let after = after.trim_ascii_start().strip_prefix(b":").ok_or_else(|| not_a_dict(text))?;
        let end = end_of_value(after).ok_or_else(|| not_a_dict(text))?;
        let value = after[..end].trim_ascii();
        match key {
            b"weight" if dict.weight.is_some() => return Err("two weights of one edge".to_owned()),
            b"weight" => {
                let weight = float(value).filter(|weight| weight.is_finite());
                dict.weight = Some(
                    weight.ok_or_else(|| format!("{:?} is not a weight; expected a finite number", shown(value)))?,
                );
            }
            key => dict.other_keys.push(key),
        }
        rest = after.get(end + 1..).unwrap_or_default().trim_ascii();
    }
    Ok(dict)
}

fn not_a_dict(text: &[u8]) -> String {
    format!("{:?} is not a dictionary as networkx writes it, such as {{'weight': 3.0}}", shown(text))
}

/// Splits the quoted string at the start of `text` from the rest.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&quote, rest) = text.split_first().filter(|(quote, _)| matches!(quote, b'\'' | b'"'))?;
    let end = end_of_string(rest, quote)?;
    Some((&rest[..end], &rest[end + 1..]))
}

/// Position of the closing quote.
fn end_of_string(text: &[u8], quote: u8) -> Option<usize> {
    let mut at = 0;
    while at < text.len() {
        match text[at] {
            b'\\' => at += 2,
            byte if byte == quote => return Some(at),
            _ => at += 1,
        }
    }
    None
}

/// Position of the comma after a value, or of the end; `None` for unclosed brackets and quotes.
fn end_of_value(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    while at < text.len() {
        match text[at] {
            quote @ (b'\'' | b'"') => at += 1 + end_of_string(&text[at + 1..], quote)?,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => break,
            _ => {}
        }
        at += 1;
    }
    (depth == 0 && at > 0).then_some(at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dictionaries_give_their_weight_and_name_the_rest() {
        let dict = |text: &'static str| parse(text.as_bytes()).unwrap();
        assert_eq!(dict("{}"), Dict::default());
        assert_eq!(dict("{ }"), Dict::default());
        assert_eq!(dict("{'weight': 3.0}").weight, Some(3.0));
        let text = "{\"a\": 'x, }', 'weight':-1e-3, 'b': [1, (2, {'c': 3})], 'd': None, }";
        assert_eq!(dict(text), Dict { weight: Some(-1e-3), other_keys: vec![b"a", b"b", b"d"] });
        for text in [
            "{weight: 1}",
            "{'weight' 1}",
            "{'weight': }",
            "{'a': [}",
            "{'a': 'x}",
            "{'a': 1",
            "{'weight': __import__('os')}",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_no_panic(text in "[{}\\[\\]()'\"\\\\:, a1]{0,30}") {
            let _ = parse(text.as_bytes());
            let _ = parse(format!("{{{text}}}").as_bytes());
        }
    }
}
