//! [`Columns`]: the roles of the columns of an edge list.

use std::fmt;
use std::str::FromStr;

use crate::FormatError;

/// Role of one column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Node that the edge leaves.
    Source,
    /// Node that the edge enters.
    Target,
    /// Weight of the edge.
    Weight,
    /// Relation of the edge, which triples have and edge lists do not.
    Relation,
    /// Time of the edge; not used.
    Time,
    /// Number of the line or edge; not used.
    Index,
    /// Not used.
    Ignored,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Target => "target",
            Self::Weight => "weight",
            Self::Relation => "relation",
            Self::Time => "time",
            Self::Index | Self::Ignored => "-",
        }
    }
}

/// Roles of all columns of an edge list, from the first, as text `source,target,-,weight`; or of triples, as
/// `head,relation,tail`.
///
/// # Invariants
/// One source, one target, at most one weight, at most one relation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns(Vec<Role>);

impl Columns {
    /// Makes the roles of columns, and checks them.
    ///
    /// # Errors
    /// When a role is missing or repeated.
    pub fn new(roles: Vec<Role>) -> Result<Self, FormatError> {
        let columns = Self(roles);
        let count = |role: Role| columns.0.iter().filter(|&&r| r == role).count();
        for (role, is_right) in [
            (Role::Source, count(Role::Source) == 1),
            (Role::Target, count(Role::Target) == 1),
            (Role::Weight, count(Role::Weight) <= 1),
            (Role::Relation, count(Role::Relation) <= 1),
        ] {
            if !is_right {
                let (role, n) = (role.name(), count(role));
                return Err(FormatError::invalid(format!(
                    "columns {columns}: {n} of them are {role}; expected one source, one target and at most one weight, \
                     such as source,target,-,weight, or head,relation,tail for triples"
                )));
            }
        }
        Ok(columns)
    }

    /// Role of each column.
    #[must_use]
    pub fn roles(&self) -> &[Role] {
        &self.0
    }
}

impl fmt::Display for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|role| role.name()).collect();
        f.write_str(&names.join(","))
    }
}

impl FromStr for Columns {
    type Err = FormatError;

    /// Roles `source`, `target`, `weight`, `time`, `relation` and `-`, in any case, separated by commas. A `head` is a
    /// source, and a `tail` a target.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        let role = |name: &str| match name.trim().to_ascii_lowercase().as_str() {
            "source" | "head" => Ok(Role::Source),
            "target" | "tail" => Ok(Role::Target),
            "weight" => Ok(Role::Weight),
            "relation" => Ok(Role::Relation),
            "time" => Ok(Role::Time),
            "-" => Ok(Role::Ignored),
            other => Err(FormatError::invalid(format!(
                "{other:?} is no role of a column; expected source, target, weight, time or - for a column that is not used; for \
                 triples head, relation and tail"
            ))),
        };
        Self::new(text.split(',').map(role).collect::<Result<_, _>>()?)
    }
}
