//! Options of typed data: [`Literals`], [`ReverseEdges`] and [`LabelColumns`].

use std::fmt;
use std::str::FromStr;

use crate::DatasetError;

/// Treatment of triples whose object is a literal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Literals {
    /// Each distinct literal is a node.
    #[default]
    Nodes,
    /// Such triples are left out; their subjects stay.
    Drop,
}

/// Addition of the reverse of each relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReverseEdges {
    /// Each relation gets its reverse, as a relation of its own.
    Add,
    /// A relation inside one type gets the other direction of each of its edges, as citations do in MLPerf's R-GAT; all
    /// others get their reverse.
    Merge,
    /// Relations stay as they are stored.
    No,
}

/// Columns of a table of labels: the names of nodes, and their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelColumns {
    /// Header of the column of nodes.
    pub node: String,
    /// Header of the column of labels.
    pub label: String,
}

impl fmt::Display for Literals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "nodes",
            Self::Drop => "drop",
        })
    }
}

impl FromStr for Literals {
    type Err = DatasetError;

    /// Parses the name of a treatment, in any case.
    fn from_str(name: &str) -> Result<Self, DatasetError> {
        let found = [Self::Nodes, Self::Drop].into_iter().find(|of| of.to_string().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            DatasetError::invalid(format!("{name:?} is no treatment of literals; expected nodes or drop"))
        })
    }
}

impl fmt::Display for ReverseEdges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Add => "add",
            Self::Merge => "merge",
            Self::No => "no",
        })
    }
}

impl FromStr for ReverseEdges {
    type Err = DatasetError;

    /// Parses the name of a choice, in any case.
    fn from_str(name: &str) -> Result<Self, DatasetError> {
        let all = [Self::Add, Self::Merge, Self::No];
        let found = all.into_iter().find(|of| of.to_string().eq_ignore_ascii_case(name));
        found.ok_or_else(|| {
            DatasetError::invalid(format!("{name:?} says nothing of reverses; expected add, merge or no"))
        })
    }
}

impl fmt::Display for LabelColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.node, self.label)
    }
}

impl FromStr for LabelColumns {
    type Err = DatasetError;

    /// Parses two headers with a comma between them.
    fn from_str(columns: &str) -> Result<Self, DatasetError> {
        match columns.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            [node, label] if !node.is_empty() && !label.is_empty() && node != label => {
                Ok(Self { node: node.to_owned(), label: label.to_owned() })
            }
            _ => Err(DatasetError::invalid(format!(
                "{columns:?} does not name two columns; expected NODE,LABEL, such as person,label_affiliation"
            ))),
        }
    }
}
