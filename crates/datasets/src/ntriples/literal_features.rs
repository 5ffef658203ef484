//! [`LiteralFeatures`]: literals of N-Triples as features of their subjects.
//!
//! ```text
//! <mol> <mass> "18.0"^^<…double> .      a column for the predicate: numbers, less their mean, over their deviation
//! <mol> <name> "water"@en .             a column for each literal of the predicate: 1 for its subjects
//! ```

use girih_graph_format::{Coo, Csr, Duplicates, NodeId, Notes};

use super::Literals;
use crate::DatasetError;
use crate::name_table::NameTable;

/// Literals that triples end in, by predicate.
#[derive(Default)]
pub(super) struct LiteralFeatures {
    predicates: NameTable,
    literals: NameTable,
    /// Subject and literal of each triple of a predicate.
    triples: Vec<Vec<(NodeId, NodeId)>>,
}

impl LiteralFeatures {
    /// Adds a triple, whose subject is given by its number.
    pub(super) fn add(&mut self, subject: NodeId, predicate: &str, literal: &str) {
        let predicate = self.predicates.number_of(predicate) as usize;
        if predicate == self.triples.len() {
            self.triples.push(Vec::new());
        }
        self.triples[predicate].push((subject, self.literals.number_of(literal)));
    }

    /// Gives subjects new numbers, by their old ones.
    pub(super) fn renumber(&mut self, ids: &[NodeId]) {
        self.triples.iter_mut().flatten().for_each(|(subject, _)| *subject = ids[*subject as usize]);
    }

    /// Bytes of memory that names and triples take.
    pub(super) fn n_bytes(&self) -> u64 {
        let n_triples: usize = self.triples.iter().map(Vec::len).sum();
        self.predicates.n_bytes() + self.literals.n_bytes() + (n_triples * size_of::<(NodeId, NodeId)>()) as u64
    }

    /// Features of `n_nodes` nodes, `nodes × columns`, unless literals are treated otherwise: the columns of one predicate after those of another, both in the
    /// order of their first appearance.
    ///
    /// # Errors
    /// When no triple ends in a literal, or there are more columns than a matrix may have.
    pub(super) fn into_matrix(
        self,
        literals: Literals,
        n_nodes: usize,
        notes: &mut Notes,
    ) -> Result<Option<Csr>, DatasetError> {
        if literals != Literals::Features {
            return Ok(None);
        }
        let n_triples: usize = self.triples.iter().map(Vec::len).sum();
        if n_triples == 0 {
            return Err(DatasetError::invalid("no triple ends in a literal; leave --literals features out"));
        }
        let names = self.literals.into_names();
        let (mut rows, mut columns, mut values, mut n_columns) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for triples in self.triples {
            let numbers: Option<Vec<f64>> =
                triples.iter().map(|&(_, literal)| number_of(names.get(literal as usize))).collect();
            let entries = match numbers {
                Some(numbers) => numeric(triples.iter().map(|&(subject, _)| subject).zip(numbers).collect()),
                None => one_hot(triples),
            };
            let width = entries.iter().map(|&(_, column, _)| column + 1).max().unwrap_or(0);
            for (row, column, value) in entries {
                rows.push(row);
                columns.push(n_columns + column);
                values.push(value);
            }
            n_columns += width;
        }
        let noun = if n_triples == 1 { "triple that ends in a literal is" } else { "triples that end in literals are" };
        let text = format!("{n_triples} {noun} features of {n_columns} columns (--literals nodes reads them as nodes)");
        notes.make_up("literal_features", text, &[("triples", n_triples as u64), ("columns", u64::from(n_columns))]);
        let matrix = Coo::new(n_nodes, n_columns as usize, rows, columns, Some(values))?;
        Ok(Some(matrix.to_csr(Duplicates::Refuse)?))
    }
}

/// Number that a literal stands for: of its text in quotes, or of `true` and `false`.
fn number_of(literal: &str) -> Option<f64> {
    let (text, _) = literal.strip_prefix('"')?.rsplit_once('"')?;
    match text.trim() {
        "true" => Some(1.0),
        "false" => Some(0.0),
        text => text.parse().ok().filter(|number: &f64| number.is_finite()),
    }
}

/// One column: the mean of a subject's numbers, less the mean over subjects, over their standard deviation. Equal numbers
/// are ones.
fn numeric(mut numbers: Vec<(NodeId, f64)>) -> Vec<(NodeId, NodeId, f32)> {
    numbers.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let mean_of = |of: &[(NodeId, f64)]| of.iter().map(|&(_, number)| number).sum::<f64>() / of.len() as f64;
    let means: Vec<(NodeId, f64)> =
        numbers.chunk_by(|a, b| a.0 == b.0).map(|of_subject| (of_subject[0].0, mean_of(of_subject))).collect();
    let mean = mean_of(&means);
    let variance = means.iter().map(|&(_, number)| (number - mean).powi(2)).sum::<f64>() / means.len() as f64;
    let deviation = variance.sqrt();
    let scaled = |number: f64| if deviation > 0.0 { ((number - mean) / deviation) as f32 } else { 1.0 };
    means.into_iter().map(|(subject, number)| (subject, 0, scaled(number))).collect()
}

/// A column for each literal, in the order of their numbers.
fn one_hot(mut triples: Vec<(NodeId, NodeId)>) -> Vec<(NodeId, NodeId, f32)> {
    triples.sort_unstable();
    triples.dedup();
    let mut literals: Vec<NodeId> = triples.iter().map(|&(_, literal)| literal).collect();
    literals.sort_unstable();
    literals.dedup();
    let column = |literal: NodeId| literals.partition_point(|&other| other < literal) as NodeId;
    triples.into_iter().map(|(subject, literal)| (subject, column(literal), 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_whatever_their_type() {
        let found = ["\"1.5\"", "\" -2 \"^^<http://t>", "\"true\"", "\"1e3\"@en", "\"a\"", "\"nan\"", "\"\\\"1\\\"\""];
        let expected = [Some(1.5), Some(-2.0), Some(1.0), Some(1000.0), None, None, None];
        assert_eq!(found.map(number_of), expected);
    }

    #[test]
    fn numbers_have_mean_zero_and_deviation_one_over_subjects() {
        assert_eq!(numeric(vec![(4, 3.0), (2, 1.0), (4, 1.0), (0, 0.0)]).len(), 3);
        let scaled = numeric(vec![(4, 3.0), (2, 1.0), (4, 5.0), (0, 1.0)]);
        let values: Vec<f32> = scaled.iter().map(|&(.., value)| value).collect();
        let (sum, squares) = (values.iter().sum::<f32>(), values.iter().map(|value| value * value).sum::<f32>());
        assert!(sum.abs() < 1e-6 && (squares - 3.0).abs() < 1e-5, "{values:?}");
        assert_eq!(numeric(vec![(1, 7.0), (3, 7.0)]), [(1, 0, 1.0), (3, 0, 1.0)]);
    }
}
