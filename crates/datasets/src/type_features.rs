//! Features of node types that rules make: learned rows, constants, and means of neighbors.

use std::sync::Arc;

use girih_graph_format::{Csr, Matrix, NodeId, TypedGraph};
use rayon::prelude::*;

use crate::{Dataset, DatasetError, Features, TypeFeatures, TypeRule, TypeRules, TypedData};

impl Dataset {
    /// Applies rules for the features of node types, unless they have been applied already. Means of means are computed
    /// after those that they read.
    ///
    /// # Errors
    /// When there are no types, a name is not one of them, or a mean has no features to read.
    pub fn with_type_rules(self, rules: &TypeRules) -> Result<Self, DatasetError> {
        if rules.values().all(|rule| *rule == TypeRule::AsIs) || *rules == self.type_rules {
            return self.check_names(rules);
        }
        let dataset = self.check_names(rules)?;
        let mut typed = dataset.typed.map(Arc::unwrap_or_clone).expect("rules name types");
        if !typed.has_several_types() {
            return Err(DatasetError::invalid(
                "rules for the features of node types are for data with several types; give --features-from",
            ));
        }
        let mut waiting: Vec<(usize, &TypeRule)> = Vec::new();
        for (name, rule) in rules {
            let number = typed.graph.schema().node_type(name).expect("checked");
            match rule {
                TypeRule::AsIs => {}
                TypeRule::Learned(width) => typed.features[number] = TypeFeatures::Learned(*width),
                TypeRule::Constant => typed.features[number] = constant(&typed, number)?,
                TypeRule::Mean(_) => waiting.push((number, rule)),
            }
        }
        compute_means(&mut typed, waiting)?;
        Ok(Self { typed: Some(Arc::new(typed)), type_rules: rules.clone(), ..dataset })
    }

    /// Checks that rules name node types of this data.
    fn check_names(self, rules: &TypeRules) -> Result<Self, DatasetError> {
        let schema = self.typed.as_ref().map(|typed| typed.graph.schema());
        let known = |name: &&String| schema.is_some_and(|schema| schema.node_type(name).is_some());
        let Some(unknown) = rules.keys().find(|name| !known(name)) else { return Ok(self) };
        let what = format!("there is no node type {unknown:?}, for which a rule for features is given");
        Err(DatasetError::invalid(match schema {
            None => format!("{what}: {} has no types; leave the rule out, or give --features-from", self.name),
            Some(schema) => {
                let names: Vec<&str> = schema.node_types().iter().map(|of| &of.name[..]).collect();
                format!("{what}; {} has {}", self.name, names.join(", "))
            }
        }))
    }
}

/// One for each node of a type.
fn constant(typed: &TypedData, number: usize) -> Result<TypeFeatures, DatasetError> {
    let n = typed.graph.schema().node_types()[number].n_nodes;
    Ok(TypeFeatures::Given(Features::Dense(Matrix::new(n, 1, vec![1.0; n])?)))
}

/// Computes means, those whose sources have features first.
fn compute_means(typed: &mut TypedData, mut waiting: Vec<(usize, &TypeRule)>) -> Result<(), DatasetError> {
    while !waiting.is_empty() {
        let mut later = Vec::new();
        let n_before = waiting.len();
        for &(number, rule) in &waiting {
            let TypeRule::Mean(edges) = rule else { unreachable!("only means wait") };
            let relation = relation_into(&typed.graph, number, edges)?;
            let source = typed.graph.schema().edge_types()[relation].source;
            let waits = waiting.iter().any(|&(of, _)| of == source);
            if waits {
                later.push((number, rule));
                continue;
            }
            let Some(features) = typed.features[source].given() else {
                let (name, of) = (&typed.graph.schema().node_types()[source].name, name_of(typed, number));
                let what = format!("{of} is to have the mean over {edges}, but {name} has no features");
                return Err(DatasetError::invalid(format!("{what}; give {of} learned rows, or {name} features")));
            };
            typed.features[number] = TypeFeatures::Given(mean(&typed.graph.relations()[relation], features)?);
        }
        if later.len() == n_before {
            let names: Vec<&str> = later.iter().map(|&(number, _)| name_of(typed, number)).collect();
            let what = format!("the features of {} are means of each other", names.join(" and "));
            return Err(DatasetError::invalid(format!("{what}; give one of them learned rows")));
        }
        waiting = later;
    }
    Ok(())
}

fn name_of(typed: &TypedData, number: usize) -> &str {
    &typed.graph.schema().node_types()[number].name
}

/// Number of the edge type of a name, full or of the relation alone, that ends in a node type.
fn relation_into(graph: &TypedGraph, node_type: usize, name: &str) -> Result<usize, DatasetError> {
    let schema = graph.schema();
    let into: Vec<usize> =
        (0..schema.edge_types().len()).filter(|&number| schema.edge_types()[number].destination == node_type).collect();
    let full = into.iter().copied().find(|&number| schema.edge_name(number) == name);
    let mut short = into.iter().copied().filter(|&number| schema.edge_types()[number].relation == name);
    match (full, short.next(), short.next()) {
        (Some(number), ..) | (None, Some(number), None) => Ok(number),
        _ => {
            let known: Vec<String> = into.iter().map(|&number| schema.edge_name(number)).collect();
            let of = &schema.node_types()[node_type].name;
            let what = format!("mean:{name} names no edge type that ends in {of}, or more than one");
            Err(DatasetError::invalid(format!("{what}; there is {}", known.join(", "))))
        }
    }
}

/// Means of the rows of in-neighbors.
fn mean(relation: &Csr, features: &Features) -> Result<Features, DatasetError> {
    match features {
        Features::Sparse(rows) => Ok(Features::Sparse(mean_of_sparse(relation, rows)?)),
        Features::Dense(_) | Features::Compressed(_) => mean_of_dense(relation, features),
    }
}

fn mean_of_dense(relation: &Csr, features: &Features) -> Result<Features, DatasetError> {
    let (width, rows) = (features.width(), features.rows());
    let mut values = vec![0.0; relation.n_rows() * width];
    values.par_chunks_mut(width.max(1)).enumerate().try_for_each(|(v, out)| -> Result<(), DatasetError> {
        let mut row = vec![0.0; width];
        let share = 1.0 / relation.degree(v).max(1) as f32;
        for &u in relation.row(v) {
            rows.read_rows(u as usize, &mut row)?;
            out.iter_mut().zip(&row).for_each(|(out, x)| *out += share * x);
        }
        Ok(())
    })?;
    Ok(Features::Dense(Matrix::new(relation.n_rows(), width, values)?))
}

/// Means of sparse rows, which are sparse.
fn mean_of_sparse(relation: &Csr, rows: &Csr) -> Result<Csr, DatasetError> {
    let of_row = |v: usize| -> Vec<(NodeId, f32)> {
        let share = 1.0 / relation.degree(v).max(1) as f32;
        let entries = |&u: &NodeId| {
            let range = rows.row_range(u as usize);
            let values = rows.values().map(|values| &values[range.clone()]);
            let columns = rows.indices()[range].iter().enumerate();
            columns.map(move |(i, &column)| (column, share * values.map_or(1.0, |values| values[i])))
        };
        let mut row: Vec<(NodeId, f32)> = relation.row(v).iter().flat_map(entries).collect();
        row.sort_by_key(|&(column, _)| column);
        row.dedup_by(|next, kept| {
            let is_same = next.0 == kept.0;
            if is_same {
                kept.1 += next.1;
            }
            is_same
        });
        row
    };
    let of_rows: Vec<Vec<(NodeId, f32)>> = (0..relation.n_rows()).into_par_iter().map(of_row).collect();
    let mut indptr = vec![0_u64];
    indptr.extend(of_rows.iter().scan(0, |end, row| {
        *end += row.len() as u64;
        Some(*end)
    }));
    let (indices, values): (Vec<NodeId>, Vec<f32>) = of_rows.into_iter().flatten().unzip();
    Ok(Csr::new(relation.n_rows(), rows.n_cols(), indptr, indices, Some(values.into()))?)
}

#[cfg(test)]
mod tests {
    use girih_graph_format::{Coo, Duplicates, EdgeType, NodeType, Schema};

    use super::*;

    /// Papers 0 and 1 with features, authors 0 (both papers) and 1 (none), and one institute of author 0.
    fn data(sparse: bool) -> Dataset {
        let node = |name: &str, n_nodes| NodeType { name: name.to_owned(), n_nodes };
        let edge = |relation: &str, source, destination| EdgeType {
            relation: relation.to_owned(),
            source,
            destination,
            reverse_of: None,
        };
        let types = vec![node("paper", 2), node("author", 2), node("institute", 1)];
        let schema = Schema::new(types, vec![edge("written_by", 0, 1), edge("works_at", 1, 2)]).unwrap();
        let written = Coo::new(2, 2, vec![0, 0], vec![0, 1], None).unwrap().to_csr(Duplicates::Refuse).unwrap();
        let works = Coo::new(1, 2, vec![0], vec![0], None).unwrap().to_csr(Duplicates::Refuse).unwrap();
        let graph = TypedGraph::new(schema, vec![written, works]).unwrap();
        let features = match sparse {
            false => Features::Dense(Matrix::new(2, 3, vec![1.0, 0.0, 2.0, 3.0, 0.0, 4.0]).unwrap()),
            true => {
                let rows = Coo::new(2, 3, vec![0, 0, 1, 1], vec![0, 2, 0, 2], Some(vec![1.0, 2.0, 3.0, 4.0]));
                Features::Sparse(rows.unwrap().to_csr(Duplicates::Refuse).unwrap())
            }
        };
        let mut typed = TypedData::of_graph(graph);
        typed.features[0] = TypeFeatures::Given(features);
        Dataset::of_typed("papers", typed).unwrap()
    }

    fn rules(rules: &[(&str, &str)]) -> TypeRules {
        rules.iter().map(|&(name, rule)| (name.to_owned(), rule.parse().unwrap())).collect()
    }

    #[test]
    fn means_of_means_are_computed_in_order() {
        for sparse in [false, true] {
            let asked = rules(&[("institute", "mean:works_at"), ("author", "mean:paper.written_by.author")]);
            let made = data(sparse).with_type_rules(&asked).unwrap();
            made.validate().unwrap();
            let typed = made.typed.as_ref().unwrap();
            let expected = [vec![2.0, 0.0, 3.0, 0.0, 0.0, 0.0], vec![2.0, 0.0, 3.0]];
            for (features, expected) in typed.features[1..].iter().zip(expected) {
                let TypeFeatures::Given(features) = features else { panic!("means are features") };
                let mut found = vec![9.0; expected.len()];
                features.rows().read_rows(0, &mut found).unwrap();
                assert_eq!(found, expected);
            }
            assert_eq!(made.clone().with_type_rules(&asked).unwrap(), made);
        }
    }

    #[test]
    fn rules_without_a_meaning_are_refused() {
        let told = |asked: &[(&str, &str)]| data(false).with_type_rules(&rules(asked)).unwrap_err().to_string();
        let unknown = told(&[("autor", "learned")]);
        assert_eq!(
            unknown,
            "there is no node type \"autor\", for which a rule for features is given; papers has paper, author, institute"
        );
        assert!(told(&[("author", "mean:writes")]).contains("there is paper.written_by.author"));
        let learned = told(&[("author", "learned:4"), ("institute", "mean:works_at")]);
        assert!(learned.starts_with("institute is to have the mean over works_at, but author has no features"));
        assert!("mean:".parse::<TypeRule>().is_err() && "learned:0".parse::<TypeRule>().is_err());
        for text in ["as-is", "learned", "learned:7", "mean:a.b.c", "constant"] {
            assert_eq!(text.parse::<TypeRule>().unwrap().to_string(), text);
        }
    }
}
