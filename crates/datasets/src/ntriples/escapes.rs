//! Escapes of N-Triples: characters that are written as `\n`, `\u00e9` and the like.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Text in which every escape is replaced by its character.
///
/// # Errors
/// When a backslash begins no escape, naming it.
pub(super) fn unescaped(text: &str, escape: impl Fn(&str) -> Result<(char, usize), String>) -> Result<String, String> {
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('\\') {
        plain.push_str(&rest[..at]);
        let (character, n_bytes) = escape(&rest[at..])?;
        plain.push(character);
        rest = &rest[at + n_bytes..];
    }
    plain.push_str(rest);
    Ok(plain)
}

/// Character of the escape that `text` begins with, in a literal; and the length of the escape in bytes.
pub(super) fn of_literal(text: &str) -> Result<(char, usize), String> {
    let character = match text.as_bytes().get(1) {
        Some(b't') => '\t',
        Some(b'b') => '\u{8}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b'f') => '\u{c}',
        Some(b'"') => '"',
        Some(b'\'') => '\'',
        Some(b'\\') => '\\',
        _ => return of_code(text, r#"expected \t, \b, \n, \r, \f, \", \', \\, \u and four digits, or \U and eight"#),
    };
    Ok((character, 2))
}

/// Character of the escape that `text` begins with, in an IRI; and the length of the escape in bytes.
pub(super) fn of_iri(text: &str) -> Result<(char, usize), String> {
    of_code(text, r"expected \u and four hexadecimal digits, or \U and eight")
}

fn of_code(text: &str, expected: &str) -> Result<(char, usize), String> {
    let n_digits = match text.as_bytes().get(1) {
        Some(b'u') => 4,
        Some(b'U') => 8,
        _ => 0,
    };
    let digits = text.get(2..2 + n_digits).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
    match code.and_then(char::from_u32) {
        Some(character) => Ok((character, 2 + n_digits)),
        None => {
            let end = text.char_indices().nth(2 + n_digits).map_or(text.len(), |(at, _)| at);
            Err(format!("{:?} is no escape of a character; {expected}", Shown(&text[..end])))
        }
    }
}

/// Text of an escape, which is shown between quotes as it is.
struct Shown<'a>(&'a str);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('`')?;
        self.0.chars().filter(|c| !c.is_control()).try_for_each(|c| f.write_char(c))?;
        f.write_char('`')
    }
}

/// Value of a literal as canonical N-Triples have it: only quotes, backslashes and line ends are escaped.
pub(super) fn canonical(value: &str) -> Cow<'_, str> {
    let escape = |character| match character {
        '"' => Some("\\\""),
        '\\' => Some("\\\\"),
        '\n' => Some("\\n"),
        '\r' => Some("\\r"),
        _ => None,
    };
    if value.chars().all(|character| escape(character).is_none()) {
        return Cow::Borrowed(value);
    }
    let mut escaped = String::with_capacity(value.len() + 2);
    for character in value.chars() {
        match escape(character) {
            Some(text) => escaped.push_str(text),
            None => escaped.push(character),
        }
    }
    Cow::Owned(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_escape_of_the_standard() {
        let text = r#"a\t\b\n\r\f\"\'\\\u00e9\U0001F600z"#;
        assert_eq!(unescaped(text, of_literal).unwrap(), "a\t\u{8}\n\r\u{c}\"'\\é😀z");
        assert_eq!(unescaped(r"x\u0041", of_iri).unwrap(), "xA");
        for wrong in [r"\x", r"\u12", r"\u12g4", r"\uD800", r"\U00110000", r"\u+123", "\\", r"\é", r"\u00é0"] {
            assert!(unescaped(wrong, of_literal).unwrap_err().contains("is no escape"), "{wrong}");
        }
        assert!(unescaped(r"\n", of_iri).unwrap_err().starts_with(r"`\n` is no escape of a character"));
        assert_eq!(canonical("a\"b\\c\nd\re\tf"), "a\\\"b\\\\c\\nd\\re\tf");
    }
}
