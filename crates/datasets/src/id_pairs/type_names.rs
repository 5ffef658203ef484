//! [`TypeNames`]: names of node types in place of letters.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use crate::DatasetError;

/// Names of node types, by the letters of files of id pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeNames {
    by_letter: BTreeMap<char, String>,
}

impl TypeNames {
    /// Name of the type of a letter; the letter, if it has no other name.
    pub(super) fn of(&self, letter: char) -> String {
        self.by_letter.get(&letter).cloned().unwrap_or_else(|| letter.to_string())
    }

    /// Refuses letters that no file has.
    pub(super) fn check_letters(&self, known: &BTreeSet<char>) -> Result<(), DatasetError> {
        let Some(letter) = self.by_letter.keys().find(|letter| !known.contains(letter)) else { return Ok(()) };
        let known = known.iter().map(char::to_string).collect::<Vec<_>>().join(", ");
        Err(DatasetError::invalid(format!("--type-names {letter}=…: there is no such node type; known are {known}")))
    }
}

impl fmt::Display for TypeNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = self.by_letter.iter().map(|(letter, name)| format!("{letter}={name}")).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for TypeNames {
    type Err = DatasetError;

    /// Parses names such as `p=paper,a=author`.
    fn from_str(text: &str) -> Result<Self, DatasetError> {
        let wrong = || {
            DatasetError::invalid(format!(
                "{text:?} does not name types by their letters; expected LETTER=NAME, such as p=paper,a=author"
            ))
        };
        let mut by_letter = BTreeMap::new();
        for pair in text.split(',') {
            let (letter, name) = pair.split_once('=').ok_or_else(wrong)?;
            let mut letters = letter.trim().chars();
            let (Some(letter), None) = (letters.next(), letters.next()) else { return Err(wrong()) };
            let name = name.trim();
            if name.is_empty() || by_letter.insert(letter, name.to_owned()).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self { by_letter })
    }
}
