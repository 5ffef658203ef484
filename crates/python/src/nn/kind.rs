//! [`Kind`]: which matrix of a graph a layer multiplies by.

use std::str::FromStr;

/// Matrix that a layer multiplies by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Sum over edges, parallel ones counted: GIN.
    Sum,
    /// Sum of the edges' weights.
    Weights,
    /// Mean over edges: SAGE.
    Mean,
    /// Pattern alone, for weights and scores of the caller; with a self loop at each destination if `loops`.
    Pattern { loops: bool },
    /// Symmetric normalisation, as `gcn_norm` of `PyG`. Missing self loops are added if `loops`, of weight two if
    /// `improved` and edges have weights. If `estimated`, rows of a block estimate those of the whole graph.
    Gcn { loops: bool, improved: bool, estimated: bool },
}

impl FromStr for Kind {
    type Err = String;

    /// Kind of a name: `sum`, `weights`, `mean`, `pattern` or `gcn`, followed by `+loops`, `+improved` and `+estimated`.
    fn from_str(name: &str) -> Result<Self, String> {
        let mut parts = name.split('+');
        let (kind, mut flags) = (parts.next().unwrap_or_default(), [false; 3]);
        for part in parts {
            let at = ["loops", "improved", "estimated"].iter().position(|&flag| flag == part);
            flags[at.ok_or_else(|| format!("no operand {name:?}"))?] = true;
        }
        match (kind, flags) {
            ("sum", [false, false, false]) => Ok(Self::Sum),
            ("weights", [false, false, false]) => Ok(Self::Weights),
            ("mean", [false, false, false]) => Ok(Self::Mean),
            ("pattern", [loops, false, false]) => Ok(Self::Pattern { loops }),
            ("gcn", [loops, improved, estimated]) => Ok(Self::Gcn { loops, improved, estimated }),
            _ => Err(format!("no operand {name:?}")),
        }
    }
}
