//! A line of N-Triples, by the grammar of W3C's recommendation "RDF 1.1 N-Triples" (2014).

use std::borrow::Cow;

use super::escapes::{canonical, of_iri, of_literal, unescaped};

/// Number of characters of a line that an error shows.
const EXCERPT: usize = 40;
/// Type of literals that state none.
const STRING: &str = "<http://www.w3.org/2001/XMLSchema#string>";
/// Advice on text that is Turtle.
const TURTLE: &str = "this is Turtle; convert it to N-Triples, as by riot or rdflib";

/// Triple of names. Equal terms have equal names, and different terms have different ones: an IRI stands without its
/// brackets, a blank node as `_:x`, and a literal in quotes as canonical N-Triples have it.
#[derive(Debug, PartialEq)]
pub(super) struct Triple<'a> {
    pub(super) subject: Cow<'a, str>,
    pub(super) predicate: Cow<'a, str>,
    pub(super) object: Cow<'a, str>,
}

impl<'a> Triple<'a> {
    /// Triple of a line without its end; `None` for an empty line or a comment.
    ///
    /// # Errors
    /// When the line is no triple, with what was found and expected.
    pub(super) fn of_line(line: &'a str) -> Result<Option<Self>, String> {
        let mut rest = Rest(line);
        rest.skip_blanks();
        if rest.is_at_end() {
            return Ok(None);
        }
        let subject = match rest.0.as_bytes() {
            [b'"', ..] => return Err("a literal as subject; expected an IRI or a blank node".to_owned()),
            _ => rest.resource("an IRI or a blank node as subject")?,
        };
        rest.skip_blanks();
        let predicate = match rest.0.as_bytes() {
            [b'<', ..] => rest.iri()?,
            _ => return Err(rest.unexpected("an IRI as predicate")),
        };
        rest.skip_blanks();
        let object = match rest.0.as_bytes() {
            [b'"', ..] => rest.literal()?,
            _ => rest.resource("an IRI, a blank node or a literal as object")?,
        };
        rest.skip_blanks();
        rest.end()?;
        Ok(Some(Self { subject, predicate, object }))
    }

    /// Whether the object is a literal.
    pub(super) fn has_literal(&self) -> bool {
        self.object.starts_with('"')
    }
}

/// Rest of a line.
struct Rest<'a>(&'a str);

impl<'a> Rest<'a> {
    fn skip_blanks(&mut self) {
        self.0 = self.0.trim_start_matches([' ', '\t']);
    }

    fn is_at_end(&self) -> bool {
        matches!(self.0.as_bytes(), [] | [b'#', ..])
    }

    /// Takes a number of bytes that end at a character.
    fn take(&mut self, n_bytes: usize) -> &'a str {
        let (taken, rest) = self.0.split_at(n_bytes);
        self.0 = rest;
        taken
    }

    fn resource(&mut self, expected: &str) -> Result<Cow<'a, str>, String> {
        match self.0.as_bytes() {
            [b'<', ..] => self.iri(),
            [b'_', b':', ..] => self.blank_node(),
            _ => Err(self.unexpected(expected)),
        }
    }

    /// Takes an IRI, and returns it without its brackets.
    fn iri(&mut self) -> Result<Cow<'a, str>, String> {
        let inner = &self.0[1..];
        let mut at = 0;
        loop {
            at += inner.as_bytes()[at..].iter().take_while(|&&byte| may_be_in_iri(byte)).count();
            match inner.as_bytes().get(at) {
                Some(b'\\') => at += 1,
                Some(b'>') => break,
                Some(_) if self.0.starts_with("<<") => return Err(self.unexpected("an IRI")),
                _ => return Err(self.broken_iri(at)),
            }
        }
        self.take(at + 2);
        let text = &inner[..at];
        let iri = if text.contains('\\') { Cow::Owned(unescaped(text, of_iri)?) } else { Cow::Borrowed(text) };
        let forbidden = |character: &char| u8::try_from(*character).is_ok_and(|byte| !may_be_in_iri(byte));
        if let Some(character) = iri.chars().filter(|_| matches!(iri, Cow::Owned(_))).find(forbidden) {
            return Err(format!("the IRI <{}> has an escape of {character:?}, which no IRI may have", excerpt(text)));
        }
        if !is_absolute(&iri) {
            let why = "it is relative; expected a scheme, as in <http://example.org/name>";
            return Err(format!("the IRI <{}> is no name: {why}", excerpt(&iri)));
        }
        Ok(iri)
    }

    fn broken_iri(&self, at: usize) -> String {
        let found = match self.0[1..][at..].chars().next() {
            Some(character) => format!("the character {character:?} in it"),
            None => "the line ends before `>`".to_owned(),
        };
        format!("the IRI {} is broken: {found}; write such characters as \\u escapes", excerpt(self.0))
    }

    /// Takes a blank node with its `_:`.
    fn blank_node(&mut self) -> Result<Cow<'a, str>, String> {
        let label = &self.0[2..];
        let is_start = |c: char| is_name_start(c) || c.is_ascii_digit();
        if !label.starts_with(is_start) {
            return Err(self.unexpected("a letter, a digit, `_` or `:` after `_:`"));
        }
        let may_be_in = |c: char| is_name_start(c) || is_name_part(c) || c == '.';
        let n = label.find(|c| !may_be_in(c)).unwrap_or(label.len());
        // A dot at the end belongs to the triple.
        let n = label[..n].trim_end_matches('.').len();
        Ok(Cow::Borrowed(self.take(2 + n)))
    }

    /// Takes a literal with its language or type.
    fn literal(&mut self) -> Result<Cow<'a, str>, String> {
        let whole = self.0;
        let n = self.length_of_quoted()?;
        let (quoted, value) = (self.take(n), &whole[1..n - 1]);
        let mut suffix = Cow::Borrowed("");
        if let Some(after) = self.0.strip_prefix("^^") {
            self.0 = after;
            if !after.starts_with('<') {
                return Err(self.unexpected("the IRI of a type after `^^`"));
            }
            match self.iri()? {
                Cow::Borrowed(_) => suffix = Cow::Borrowed(&after[..after.len() - self.0.len()]),
                Cow::Owned(iri) => suffix = Cow::Owned(format!("<{iri}>")),
            }
        } else if self.0.starts_with('@') {
            suffix = self.language()?;
        }
        let has_type = suffix.starts_with('<') && suffix != STRING;
        let mark = if has_type { "^^" } else { "" };
        let suffix = if suffix == STRING { Cow::Borrowed("") } else { suffix };
        if let (false, Cow::Borrowed(suffix)) = (value.contains('\\'), &suffix) {
            return Ok(Cow::Borrowed(&whole[..quoted.len() + mark.len() + suffix.len()]));
        }
        let value = unescaped(value, of_literal)?;
        Ok(Cow::Owned(format!("\"{}\"{mark}{suffix}", canonical(&value))))
    }

    /// Number of bytes of the text in quotes at the start, quotes included.
    fn length_of_quoted(&self) -> Result<usize, String> {
        let bytes = self.0.as_bytes();
        let mut at = 1;
        loop {
            at += bytes[at..].iter().take_while(|&&byte| byte != b'"' && byte != b'\\').count();
            match bytes.get(at..) {
                Some([b'"', ..]) => return Ok(at + 1),
                Some([b'\\', _, ..]) => at += 2,
                _ => {
                    let literal = excerpt(self.0);
                    return Err(format!(
                        "the literal {literal} has no end: expected `\"`; write line ends in it as \\n"
                    ));
                }
            }
        }
    }

    /// Takes a language tag with its `@`, in lower case, as tags do not differ by case.
    fn language(&mut self) -> Result<Cow<'a, str>, String> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let n = self.0[1..].find(|c| !is_part(c)).map_or(self.0.len(), |n| n + 1);
        let mut parts = self.0[1..n].split('-');
        let is_language = parts.next().is_some_and(|part| part.bytes().all(|b| b.is_ascii_alphabetic()));
        if !is_language || n == 1 || self.0[1..n].split('-').any(str::is_empty) {
            return Err(self.unexpected("a language, such as @en or @en-gb"));
        }
        let tag = self.take(n);
        let has_capitals = tag.bytes().any(|b| b.is_ascii_uppercase());
        Ok(if has_capitals { Cow::Owned(tag.to_ascii_lowercase()) } else { Cow::Borrowed(tag) })
    }

    /// Takes the dot that ends a triple, and what may follow it.
    fn end(&mut self) -> Result<(), String> {
        match self.0.as_bytes() {
            [b'.', ..] => {}
            [b'<', ..] => {
                let remedy = "this is N-Quads; leave the names of graphs out";
                return Err(format!("a fourth term, {}, where a triple ends by a dot; {remedy}", excerpt(self.0)));
            }
            _ => return Err(self.unexpected("a dot at the end of the triple")),
        }
        self.take(1);
        self.skip_blanks();
        if self.is_at_end() { Ok(()) } else { Err(self.unexpected("the end of the line after the dot")) }
    }

    /// Error about the start of the rest, with advice for text that is Turtle.
    fn unexpected(&self, expected: &str) -> String {
        let found = if self.is_at_end() { "the line ends".to_owned() } else { format!("found {}", excerpt(self.0)) };
        if is_turtle(self.0) { format!("{found}: {TURTLE}") } else { format!("{found}, but expected {expected}") }
    }
}

/// Whether text that is no N-Triples looks like Turtle: a directive, a prefixed name, `a`, `;` or another short form.
fn is_turtle(text: &str) -> bool {
    let word = text.split([' ', '\t']).next().unwrap_or_default();
    let is_prefixed = word.split_once(':').is_some_and(|(prefix, _)| {
        prefix.chars().all(|c| is_name_part(c) || is_name_start(c) || c == '.') && prefix != "_"
    });
    let is_directive = ["@prefix", "@base", "prefix", "base"].iter().any(|name| word.eq_ignore_ascii_case(name));
    let is_value = word.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-'));
    is_prefixed
        || is_directive
        || is_value
        || matches!(word, "a" | "true" | "false")
        || word.starts_with([';', ',', '[', ']', '(', ')', '\'', '"'])
}

/// Start of a text, for errors.
fn excerpt(text: &str) -> String {
    let end = text.char_indices().nth(EXCERPT);
    let shown: String = text[..end.map_or(text.len(), |(at, _)| at)].chars().filter(|c| !c.is_control()).collect();
    format!("`{shown}{}`", if end.is_some() { "…" } else { "" })
}

fn may_be_in_iri(byte: u8) -> bool {
    byte > b' ' && !matches!(byte, b'<' | b'>' | b'"' | b'{' | b'}' | b'|' | b'^' | b'`' | b'\\')
}

/// Whether an IRI begins with a scheme.
fn is_absolute(iri: &str) -> bool {
    let Some((scheme, _)) = iri.split_once(':') else { return false };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
}

/// `PN_CHARS_U` of the grammar.
fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic()
        || matches!(c, '_' | ':' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}')
        || matches!(c, '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}')
        || matches!(c, '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}')
        || matches!(c, '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

/// Characters that `PN_CHARS` of the grammar adds.
fn is_name_part(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '-' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}
