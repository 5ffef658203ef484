//! Columns that are read as features of edges: the choice by names and numbers, and lists of them as JODIE has.

use super::columns::Role;
use super::header::plain_name;
use crate::Notes;
use crate::file::number::{float, integer};
use crate::file::text::shown;

/// Memory of one value in bytes: in its chunk, which may have room for as many again, and in the list.
pub(super) const VALUE_BYTES: u64 = 12;
/// Note of columns with numbers that are not read.
pub(super) const LEFT_OUT: &str = "numbers that --edge-features, --edge-label or --columns can read";
/// Choice of every column that may have features.
const ALL: &str = "all";
/// Largest number of columns that a message lists.
const MOST_COLUMNS: usize = 16;
/// Last name of JODIE's headers, without separators; it stands for any number of columns.
const LIST: &str = "commaseparatedlistoffeatures";

/// Columns that are read as features of edges.
#[derive(Debug, Default)]
pub(super) struct FeatureColumns {
    /// Name of each feature.
    pub(super) names: Vec<String>,
    /// Number of the feature in each column of the file; empty if no features are read.
    places: Vec<Option<usize>>,
}

impl FeatureColumns {
    /// Columns by their names or numbers, in the order of `asked`; `names` is empty if columns have none.
    ///
    /// # Errors
    /// When a column does not exist, is named ambiguously or twice, or has nodes or times.
    pub(super) fn choose(asked: &[String], roles: &[Role], names: &[String]) -> Result<Self, String> {
        let mut chosen = Self::default();
        if asked.is_empty() {
            return Ok(chosen);
        }
        let columns = Named { roles, names };
        chosen.places.resize(roles.len(), None);
        if let [only] = asked
            && only.trim().eq_ignore_ascii_case(ALL)
        {
            let others = |&at: &usize| matches!(roles[at], Role::Weight | Role::Relation | Role::Ignored);
            (0..roles.len()).filter(others).for_each(|at| chosen.push(at, &columns));
            if chosen.names.is_empty() {
                return Err(format!(
                    "--edge-features all: every column has nodes, times or numbers of lines; the columns are {}; leave \
                     --edge-features out",
                    columns.listed()
                ));
            }
            return Ok(chosen);
        }
        for name in asked {
            let at = columns.find(name.trim())?;
            columns.check_role(at)?;
            if chosen.places[at].is_some() {
                return Err(format!("--edge-features asks twice for {}; name it once", columns.shown(at)));
            }
            chosen.push(at, &columns);
        }
        Ok(chosen)
    }

    fn push(&mut self, at: usize, columns: &Named<'_>) {
        self.places[at] = Some(self.names.len());
        self.names.push(columns.name_of_feature(at));
    }

    /// Number of features of each edge; 0 if none are read.
    pub(super) fn width(&self) -> usize {
        self.names.len()
    }

    /// Number of the feature in a column, counted from 0, if it is read as one.
    #[inline]
    pub(super) fn place(&self, column: usize) -> Option<usize> {
        self.places.get(column).copied().flatten()
    }

    /// Parses the value of a feature in a column.
    ///
    /// # Errors
    /// When it is not a finite number.
    #[inline]
    pub(super) fn parse(&self, field: &[u8], column: usize) -> Result<f32, String> {
        finite(field).ok_or_else(|| self.problem(field, column))
    }

    /// Description of the error in a value.
    #[cold]
    fn problem(&self, field: &[u8], column: usize) -> String {
        let name = self.place(column).map_or("", |place| &self.names[place]);
        let problem = match field {
            [] => "the value is missing".to_owned(),
            _ => format!("{:?} is not a feature of an edge", shown(field)),
        };
        let column = column + 1;
        format!(
            "column {column} ({name}): {problem}; expected a finite number; else leave the column out of --edge-features"
        )
    }
}

/// Columns with their roles, and their names if they have some.
struct Named<'a> {
    roles: &'a [Role],
    names: &'a [String],
}

impl Named<'_> {
    fn name(&self, at: usize) -> &str {
        self.names.get(at).map_or("", |name| name.trim())
    }

    /// Column with this name, or else with this number.
    fn find(&self, asked: &str) -> Result<usize, String> {
        let matches = |at: &usize| !asked.is_empty() && self.name(*at).eq_ignore_ascii_case(asked);
        let found: Vec<usize> = (0..self.names.len()).filter(matches).collect();
        let n_columns = self.roles.len();
        match (&found[..], integer(asked.as_bytes())) {
            (&[at], _) => Ok(at),
            ([first, second, ..], _) => Err(format!(
                "--edge-features {asked}: columns {} and {} both have this name; give the number of one",
                first + 1,
                second + 1
            )),
            ([], Some(number)) if (1..=n_columns as u64).contains(&number) => Ok(number as usize - 1),
            ([], Some(number)) => Err(format!(
                "--edge-features {number}: there are {n_columns} columns, counted from 1; the columns are {}; give one of \
                 them",
                self.listed()
            )),
            ([], None) if self.names.is_empty() => Err(format!(
                "--edge-features {asked}: the columns have no names here; give numbers from 1 to {n_columns}"
            )),
            ([], None) if asked.eq_ignore_ascii_case(ALL) => {
                Err("--edge-features all already stands for every column; leave the others out".to_owned())
            }
            ([], None) => Err(format!(
                "--edge-features {asked}: no column has this name; the columns are {}; give one of them",
                self.listed()
            )),
        }
    }

    /// Refuses columns of nodes and times.
    fn check_role(&self, at: usize) -> Result<(), String> {
        let why = match self.roles[at] {
            Role::Source => "has the sources of the edges",
            Role::Target => "has the targets of the edges",
            Role::Time => "has the times of the edges, which --time-encoding reads",
            Role::Weight | Role::Relation | Role::Index | Role::Ignored => return Ok(()),
        };
        let listed = self.listed();
        let column = self.shown(at);
        Err(format!("--edge-features: {column} {why}; the columns are {listed}; leave this one out"))
    }

    /// Name of a feature: that of its column, or the number of a column whose name is missing or not its own.
    fn name_of_feature(&self, at: usize) -> String {
        let name = self.name(at);
        let is_own = self.names.iter().filter(|other| other.trim().eq_ignore_ascii_case(name)).count() == 1;
        if is_own && !name.is_empty() { name.to_owned() } else { (at + 1).to_string() }
    }

    fn shown(&self, at: usize) -> String {
        match self.name(at) {
            "" => format!("column {}", at + 1),
            name => format!("column {} ({name})", at + 1),
        }
    }

    /// Numbers and names of all columns, or of the first ones.
    fn listed(&self) -> String {
        let n_columns = self.roles.len();
        if self.names.is_empty() {
            return format!("1 to {n_columns}");
        }
        let one = |at: usize| match self.name(at) {
            "" => (at + 1).to_string(),
            name => format!("{} ({name})", at + 1),
        };
        let listed: Vec<String> = (0..n_columns.min(MOST_COLUMNS)).map(one).collect();
        let more = n_columns - listed.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        listed.join(", ") + &more
    }
}

/// Names of columns for lines with `n_fields` fields, and the first column of a list of features. The last name of JODIE's
/// headers stands for such a list, as long as the lines are; its columns are named `feature_0`, `feature_1`, and so on.
pub(super) fn with_list(mut names: Vec<String>, n_fields: usize) -> (Vec<String>, Option<usize>) {
    if names.len() > n_fields || names.last().is_none_or(|name| plain_name(name) != LIST) {
        return (names, None);
    }
    names.pop();
    let first = names.len();
    names.extend((0..n_fields - first).map(|i| format!("feature_{i}")));
    (names, Some(first))
}

/// Whether a field may be the value of a feature.
pub(super) fn is_number(field: &[u8]) -> bool {
    finite(field).is_some()
}

#[inline]
fn finite(field: &[u8]) -> Option<f32> {
    float(field).filter(|value| value.is_finite())
}

/// Notes the columns of a list of features, from column `first` on, that are not read: one note for all.
pub(super) fn note_list(first: usize, n_columns: usize, features: &FeatureColumns, notes: &mut Notes) {
    let n_left_out = (first..n_columns).filter(|&at| features.place(at).is_none()).count();
    let n_all = n_columns - first;
    let last = n_columns;
    let first = first + 1;
    let what = match n_left_out {
        0 => return,
        1 if n_all == 1 => format!("column {first} (feature_0)"),
        n if n == n_all => format!("columns {first} to {last} (feature_0 to feature_{})", n_all - 1),
        n => format!("{n} of the columns {first} to {last} (feature_0 to feature_{})", n_all - 1),
    };
    notes.leave_out(what, LEFT_OUT);
}
