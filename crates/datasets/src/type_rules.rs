//! [`TypeRule`]: a rule for the features of a node type.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Widest learned rows.
const MAX_WIDTH: usize = 1 << 20;

/// Rule for the features of a node type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum TypeRule {
    /// Features of the data; without any, learned rows as wide as the layers.
    #[default]
    AsIs,
    /// A learned row for each node; `None` stands for the width of the layers.
    Learned(Option<usize>),
    /// Mean of the features of the neighbors by an edge type that ends in this node type: its full name, or the name of
    /// its relation if that is the only one of this name. Nodes without such neighbors get zeros.
    Mean(String),
    /// The number one for every node: all nodes of the type start alike.
    Constant,
}

/// Rules by the name of a node type.
pub type TypeRules = BTreeMap<String, TypeRule>;

impl TypeRule {
    /// The rules as users write them, for messages.
    pub const VALUES: &'static str = "as-is, learned, learned:128, mean:EDGETYPE or constant";
}

impl fmt::Display for TypeRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsIs => f.write_str("as-is"),
            Self::Learned(None) => f.write_str("learned"),
            Self::Learned(Some(width)) => write!(f, "learned:{width}"),
            Self::Mean(edges) => write!(f, "mean:{edges}"),
            Self::Constant => f.write_str("constant"),
        }
    }
}

impl FromStr for TypeRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "as-is" => Ok(Self::AsIs),
            None if text == "learned" => Ok(Self::Learned(None)),
            None if text == "constant" => Ok(Self::Constant),
            Some(("learned", width)) => match width.parse() {
                Ok(width) if (1..=MAX_WIDTH).contains(&width) => Ok(Self::Learned(Some(width))),
                _ => Err(format!("`{width}` in `{text}` must be a number from 1 to {MAX_WIDTH}, as in learned:128")),
            },
            Some(("mean", edges)) if !edges.is_empty() => Ok(Self::Mean(edges.to_owned())),
            _ => Err(format!("`{text}` is no rule for the features of a node type; expected {}", Self::VALUES)),
        }
    }
}

impl TryFrom<String> for TypeRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TypeRule> for String {
    fn from(rule: TypeRule) -> Self {
        rule.to_string()
    }
}
