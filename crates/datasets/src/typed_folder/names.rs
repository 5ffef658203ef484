//! Names of nodes as text: a name in each line.

use crate::NameList;

/// Lines of names; `\`, line feeds and carriage returns are escaped.
pub(super) fn to_lines<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut text = String::new();
    for name in names {
        for c in name.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                _ => text.push(c),
            }
        }
        text.push('\n');
    }
    text
}

/// Adds the names of lines to a list.
///
/// # Errors
/// When a line has an unknown escape, or there are not `expected` lines.
pub(super) fn add_lines(text: &str, expected: usize, names: &mut NameList) -> Result<(), String> {
    let before = names.len();
    for (number, line) in text.split_terminator('\n').enumerate() {
        let name = unescaped(line).ok_or_else(|| {
            let line = number + 1;
            format!("line {line}: an escape other than \\\\, \\n and \\r")
        })?;
        names.push(&name);
    }
    match names.len() - before {
        found if found == expected => Ok(()),
        found => Err(format!("{found} names for {expected} nodes; each node needs one")),
    }
}

fn unescaped(line: &str) -> Option<String> {
    let (mut name, mut chars) = (String::with_capacity(line.len()), line.chars());
    while let Some(c) = chars.next() {
        name.push(match c {
            '\\' => match chars.next()? {
                '\\' => '\\',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            _ => c,
        });
    }
    Some(name)
}
