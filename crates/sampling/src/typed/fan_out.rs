//! [`TypedFanOut`]: number of neighbors of each edge type in each hop, and the [`FanOutRules`] that state it by names.

use std::fmt;
use std::str::FromStr;

use girih_graph_format::Schema;

use crate::{FanOut, Neighbors, SampleError};

/// Largest number of hops; the number of a hop has eight bits in the key of a draw.
const MAX_HOPS: usize = 256;
/// Number of edge types that a message lists at most.
const LISTED: usize = 20;

/// Number of neighbors of each edge type in each hop, from the seeds outward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedFanOut {
    /// For each hop, the neighbors of each edge type; `None` for a type that is not followed.
    hops: Vec<Vec<Option<Neighbors>>>,
}

impl TypedFanOut {
    /// Equal fan-out for each of `n_edge_types` types.
    #[must_use]
    pub fn uniform(fan_out: &FanOut, n_edge_types: usize) -> Self {
        Self { hops: fan_out.hops().iter().map(|&neighbors| vec![Some(neighbors); n_edge_types]).collect() }
    }

    /// Neighbors of each edge type, hop by hop from the seeds outward; `None` for a type that is not followed.
    #[must_use]
    pub fn hops(&self) -> &[Vec<Option<Neighbors>>] {
        &self.hops
    }

    /// Whether no edge into nodes of the type `target` is followed, so that a batch has its seeds alone.
    #[must_use]
    pub fn is_closed(&self, schema: &Schema, target: usize) -> bool {
        let mut followed =
            schema.edge_types().iter().zip(&self.hops[0]).filter(|(edges, _)| edges.destination == target);
        followed.all(|(_, neighbors)| neighbors.is_none())
    }
}

/// Fan-outs by the names of edge types.
///
/// Written as `15,10` for all types, or as `cites=15,10; author.writes.paper=5,0; *=10,10`: by relation, by full name, and
/// `*` for all others. A full name goes before a relation. `-1` takes all neighbors, and 0 does not follow the type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FanOutRules {
    rules: Vec<(String, Vec<i64>)>,
}

impl FanOutRules {
    /// Name in rules for all edge types that no other rule names.
    pub const OTHERS: &str = "*";

    /// Makes rules of names and numbers, one number a hop from the seeds outward.
    ///
    /// # Errors
    /// When there is no rule or no hop, two rules have one name or different numbers of hops, or a number is neither -1
    /// nor from 0 to [`FanOut::MAX`].
    ///
    /// A name is a relation, a full name or `*`.
    pub fn new(rules: Vec<(String, Vec<i64>)>) -> Result<Self, SampleError> {
        let Some((first, hops)) = rules.first() else {
            return Err(SampleError::invalid("a fan-out without rules; give one number a layer, such as 15,10"));
        };
        for (at, (name, numbers)) in rules.iter().enumerate() {
            if rules[..at].iter().any(|(other, _)| other == name) {
                return Err(SampleError::invalid(format!("the fan-out has two rules for {name}; leave one out")));
            }
            check_numbers(name, numbers)?;
            if numbers.len() != hops.len() {
                return Err(SampleError::invalid(format!(
                    "the fan-out of {name} has {} hops, but that of {first} has {}; give one number a layer to each",
                    numbers.len(),
                    hops.len()
                )));
            }
        }
        Ok(Self { rules })
    }

    /// Numbers for all edge types that no other rule names, if there is such a rule.
    #[must_use]
    pub fn others(&self) -> Option<&[i64]> {
        self.rules.iter().find(|(name, _)| name == Self::OTHERS).map(|(_, numbers)| &numbers[..])
    }

    /// Rules for edge types that are named.
    pub fn by_type(&self) -> impl Iterator<Item = (&str, &[i64])> {
        self.rules.iter().filter(|(name, _)| name != Self::OTHERS).map(|(name, numbers)| (&name[..], &numbers[..]))
    }

    /// Number of hops.
    #[must_use]
    pub fn n_hops(&self) -> usize {
        self.rules[0].1.len()
    }

    /// Fan-out of the edge types of a schema.
    ///
    /// # Errors
    /// When a rule names no edge type, or no rule is for one.
    pub fn of_schema(&self, schema: &Schema) -> Result<TypedFanOut, SampleError> {
        let n_types = schema.edge_types().len();
        for (name, _) in self.rules.iter().filter(|(name, _)| name != Self::OTHERS) {
            if !(0..n_types).any(|edge_type| is_named(schema, edge_type, name)) {
                return Err(SampleError::invalid(format!(
                    "the fan-out names the edge type {name:?}, which the graph does not have; it has {}",
                    listed(schema)
                )));
            }
        }
        let of_types: Vec<&[i64]> =
            (0..n_types).map(|edge_type| self.numbers_of(schema, edge_type)).collect::<Result<_, _>>()?;
        let of_hop = |hop: usize| of_types.iter().map(|numbers| neighbors(numbers[hop])).collect();
        Ok(TypedFanOut { hops: (0..self.n_hops()).map(of_hop).collect() })
    }

    /// Numbers of an edge type: by its full name, by its relation, or as all others.
    fn numbers_of(&self, schema: &Schema, edge_type: usize) -> Result<&[i64], SampleError> {
        let (full, relation) = (schema.edge_name(edge_type), &schema.edge_types()[edge_type].relation);
        let rule = |wanted: &str| self.rules.iter().find(|(name, _)| name == wanted);
        match rule(&full).or_else(|| rule(relation)).or_else(|| rule(Self::OTHERS)) {
            Some((_, numbers)) => Ok(numbers),
            None => Err(SampleError::invalid(format!(
                "the fan-out says nothing of the edge type {full}; add a rule for it, or *=NUMBERS for all others"
            ))),
        }
    }
}

/// Checks the numbers of a rule.
fn check_numbers(name: &str, numbers: &[i64]) -> Result<(), SampleError> {
    if numbers.is_empty() || numbers.len() > MAX_HOPS {
        return Err(SampleError::invalid(format!(
            "the fan-out of {name} has {} hops; give one number a layer, at most {MAX_HOPS}",
            numbers.len()
        )));
    }
    match numbers.iter().find(|&&number| !(-1..=i64::from(FanOut::MAX)).contains(&number)) {
        None => Ok(()),
        Some(number) => Err(SampleError::invalid(format!(
            "the fan-out of {name} takes {number} neighbors; give a number from 0 to {}, or -1 for all",
            FanOut::MAX
        ))),
    }
}

/// Neighbors that a checked number stands for; `None` for 0.
fn neighbors(number: i64) -> Option<Neighbors> {
    match number {
        0 => None,
        -1 => Some(Neighbors::All),
        count => Some(Neighbors::Count(count as u32)),
    }
}

fn is_named(schema: &Schema, edge_type: usize, name: &str) -> bool {
    schema.edge_types()[edge_type].relation == name || schema.edge_name(edge_type) == name
}

/// Names of the edge types, as far as a message lists them.
fn listed(schema: &Schema) -> String {
    let n_types = schema.edge_types().len();
    let names: Vec<String> = (0..n_types.min(LISTED)).map(|edge_type| schema.edge_name(edge_type)).collect();
    let more = if n_types > LISTED { format!(" and {} more", n_types - LISTED) } else { String::new() };
    format!("{}{more}", names.join(", "))
}

impl FromStr for FanOutRules {
    type Err = SampleError;

    /// Numbers without a name are a [`FanOut`] of all types. A rule is divided at its last `=`, as names may have others.
    fn from_str(text: &str) -> Result<Self, SampleError> {
        if !text.contains('=') {
            return Ok(Self::from(&text.parse::<FanOut>()?));
        }
        let rule = |rule: &str| {
            let (name, numbers) = rule.rsplit_once('=').unwrap_or((Self::OTHERS, rule));
            let parsed: Result<Vec<i64>, _> = numbers.split(',').map(|number| number.trim().parse()).collect();
            parsed.map(|parsed| (name.trim().to_owned(), parsed)).map_err(|_| {
                SampleError::invalid(format!(
                    "{rule:?} is no fan-out; write one number a layer, such as 15,10, or by edge type, such as \
                     \"cites=15,10; *=5,5\""
                ))
            })
        };
        Self::new(text.split(';').map(str::trim).filter(|part| !part.is_empty()).map(rule).collect::<Result<_, _>>()?)
    }
}

impl From<&FanOut> for FanOutRules {
    fn from(fan_out: &FanOut) -> Self {
        let number = |hop: &Neighbors| match *hop {
            Neighbors::Count(count) => i64::from(count),
            Neighbors::All => -1,
        };
        Self { rules: vec![(Self::OTHERS.to_owned(), fan_out.hops().iter().map(number).collect())] }
    }
}

impl fmt::Display for FanOutRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, numbers)) in self.rules.iter().enumerate() {
            let before = if at == 0 { "" } else { "; " };
            let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
            let numbers = numbers.join(",");
            if self.rules.len() == 1 && name == Self::OTHERS {
                f.write_str(&numbers)?;
            } else {
                write!(f, "{before}{name}={numbers}")?;
            }
        }
        Ok(())
    }
}
