//! Options of typed data: [`Literals`], [`NodeTypesFrom`], [`ReverseEdges`] and [`LabelColumns`].

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
    /// Literals are features of their subjects: a column for each predicate whose literals are all numbers, and one for each
    /// literal of others.
    Features,
}

/// Rule that gives the nodes of N-Triples their types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeTypesFrom {
    /// All nodes are of one type.
    #[default]
    Single,
    /// The class that `rdf:type` states of a node is its type; of several, the one with the most nodes. Nodes without one are
    /// entities, and literals are of a type of their own.
    RdfType,
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

/// Choice of this name, in any case.
fn named<T: Copy + fmt::Display, const N: usize>(all: [T; N], name: &str) -> Option<T> {
    all.into_iter().find(|of| of.to_string().eq_ignore_ascii_case(name))
}

impl fmt::Display for Literals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nodes => "nodes",
            Self::Drop => "drop",
            Self::Features => "features",
        })
    }
}

impl FromStr for Literals {
    type Err = DatasetError;

    /// Parses the name of a treatment, in any case.
    fn from_str(name: &str) -> Result<Self, DatasetError> {
        named([Self::Nodes, Self::Drop, Self::Features], name).ok_or_else(|| {
            DatasetError::invalid(format!("{name:?} is no treatment of literals; expected nodes, drop or features"))
        })
    }
}

impl fmt::Display for NodeTypesFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Single => "single",
            Self::RdfType => "rdf-type",
        })
    }
}

impl FromStr for NodeTypesFrom {
    type Err = DatasetError;

    /// Parses the name of a rule, in any case.
    fn from_str(name: &str) -> Result<Self, DatasetError> {
        named([Self::Single, Self::RdfType], name).ok_or_else(|| {
            DatasetError::invalid(format!("{name:?} is no rule for node types; expected single or rdf-type"))
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
        named([Self::Add, Self::Merge, Self::No], name).ok_or_else(|| {
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
