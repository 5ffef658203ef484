//! KONECT's first lines: `% FORMAT WEIGHTS`, then maybe `% EDGES LEFT RIGHT` (Kunegis, "KONECT: the Koblenz network
//! collection", WWW 2013 companion, and its handbook).
//!
//! ```text
//! % bip positive              sym, asym or bip; the kind of weights
//! % 4 3 2                     edges, nodes on the left, nodes on the right
//! 1 1 2 1082040961            node, node, weight, time; ids count from 1, on each side of a bip network
//! ```

use super::columns::{Columns, Role};
use crate::file::number::integer;
use crate::file::text::{Fields, Separator, shown};

/// Information from the first lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Konect {
    pub(super) shape: Shape,
    weights: Weights,
    pub(super) counts: Option<Counts>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Undirected,
    Directed,
    Bipartite,
}

/// Numbers in the second line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) n_edges: u64,
    /// Numbers of nodes on the left and on the right; both are the number of all nodes in a network that is not
    /// bipartite.
    pub(super) n_nodes: Option<(u64, u64)>,
    /// Number of the line.
    pub(super) line: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weights {
    None,
    /// Numbers of parallel edges; a line without one is one edge.
    Multiplicities,
    /// Every line has a weight.
    Given,
}

impl Konect {
    /// Parses a file's first line; `None` when it is another comment.
    ///
    /// # Errors
    /// When the kind of weights is unknown, or not supported.
    pub(super) fn parse(line: &[u8]) -> Result<Option<Self>, String> {
        let Some(text) = line.strip_prefix(b"%") else { return Ok(None) };
        let words: Vec<String> = Fields::new(text, Separator::Blank).map(shown).collect();
        let [shape, weights, ..] = &words[..] else { return Ok(None) };
        let shape = match shape.as_str() {
            "sym" => Shape::Undirected,
            "asym" => Shape::Directed,
            "bip" => Shape::Bipartite,
            _ => return Ok(None),
        };
        let weights = match weights.as_str() {
            "unweighted" => Weights::None,
            "positive" => Weights::Multiplicities,
            "posweighted" | "signed" | "multisigned" | "weighted" | "multiweighted" | "multiposweighted" => {
                Weights::Given
            }
            "dynamic" => {
                return Err("the edges of a dynamic KONECT network come and go over time, and girih reads one graph; \
                            write the edges of one time as a list of their own"
                    .to_owned());
            }
            other => {
                return Err(format!("{other} is no kind of KONECT's weights; expected unweighted, positive and so on"));
            }
        };
        Ok(Some(Self { shape, weights, counts: None }))
    }

    /// Reads the second line, if it holds counts.
    pub(super) fn take_counts(&mut self, line: &[u8], number: usize) {
        let Some(text) = line.strip_prefix(b"%") else { return };
        let numbers: Option<Vec<u64>> = Fields::new(text, Separator::Blank).map(integer).collect();
        self.counts = match numbers.as_deref() {
            Some(&[n_edges]) => Some(Counts { n_edges, n_nodes: None, line: number }),
            Some(&[n_edges, left, right]) => Some(Counts { n_edges, n_nodes: Some((left, right)), line: number }),
            _ => None,
        };
    }

    /// Whether the third column counts parallel edges.
    pub(super) fn counts_edges(&self) -> bool {
        self.weights == Weights::Multiplicities
    }

    /// Names of the columns.
    pub(super) fn names(&self) -> [&'static str; 4] {
        let third = match self.weights {
            Weights::None => "weight, of a network that line 1 calls unweighted",
            Weights::Multiplicities | Weights::Given => "weight",
        };
        ["source", "target", third, "time"]
    }

    /// Roles of `n_fields` columns.
    ///
    /// # Errors
    /// When declared weights are missing, or there are too many columns.
    pub(super) fn columns(&self, n_fields: usize) -> Result<Columns, String> {
        let third = if self.weights == Weights::None { Role::Ignored } else { Role::Weight };
        let roles = [Role::Source, Role::Target, third, Role::Time];
        if !(2..=4).contains(&n_fields) {
            return Err(format!("{n_fields} fields; a KONECT line has two nodes, maybe a weight and a time"));
        }
        if self.weights == Weights::Given && n_fields == 2 {
            return Err(
                "two fields, but line 1 announces weights; name the columns by --columns source,target".to_owned()
            );
        }
        Columns::new(roles[..n_fields].to_vec()).map_err(|error| error.to_string())
    }
}
