//! Typed data as data without types, for programs that know none.

use girih_graph_format::{Csr, Matrix};

use crate::{Dataset, DatasetError, Features, TypeFeatures, TypedData};

impl Dataset {
    /// This data without types: nodes of all types have global ids, and relations are merged. A note says so.
    ///
    /// # Errors
    /// When types have features of different widths, or only some have features, or these are compressed. When the
    /// data has triples.
    pub fn homogeneous(self) -> Result<Self, DatasetError> {
        let Some(typed) = &self.typed else { return Ok(self) };
        if self.triples.is_some() {
            let what = format!("{} has triples, whose relations are its types", self.name);
            return Err(DatasetError::invalid(format!("{what}; keep the types, or read another graph")));
        }
        let features = if typed.has_several_types() { merged(typed)? } else { self.features.clone() };
        let mut notes = self.notes;
        let schema = typed.graph.schema();
        let (n_relations, n_edges) = (typed.graph.relations().len(), self.graph.nnz());
        let text = format!("{schema} are left out: {n_relations} relations are one graph of {n_edges} edges");
        notes.make_up("homogeneous", text, &[("edges", n_edges as u64)]);
        if self.names.is_some() {
            notes.leave_out("names of nodes and classes", "data without types has none");
        }
        let dataset = Self { typed: None, names: None, features, notes, ..self };
        dataset.validate()?;
        Ok(dataset)
    }
}

/// Rows of features of all nodes, if types have features of one width.
fn merged(typed: &TypedData) -> Result<Option<Features>, DatasetError> {
    let types = typed.graph.schema().node_types();
    let given: Vec<Option<&Features>> = typed.features.iter().map(TypeFeatures::given).collect();
    let Some(width) = given.iter().flatten().map(|rows| rows.width()).next() else { return Ok(None) };
    let (mut all, mut is_sparse) = (Vec::with_capacity(types.len()), true);
    for (of, rows) in types.iter().zip(&given) {
        let wrong = |found: String| {
            let rest = format!("another type has features of {width} columns; without types, all nodes need as many");
            DatasetError::invalid(format!("type {} has {found}, and {rest}", of.name))
        };
        match rows {
            None => return Err(wrong("no features".to_owned())),
            Some(rows) if rows.width() != width => return Err(wrong(format!("{} columns", rows.width()))),
            Some(Features::Compressed(_)) => return Err(wrong("compressed features, which are not merged".to_owned())),
            Some(rows) => {
                is_sparse &= matches!(rows, Features::Sparse(_));
                all.push(*rows);
            }
        }
    }
    if is_sparse { stacked(&all).map(Some) } else { dense(&all, width).map(Some) }
}

fn stacked(all: &[&Features]) -> Result<Features, DatasetError> {
    let with_values = |csr: &Csr| match csr.values() {
        Some(_) => Ok(csr.clone()),
        None => csr.with_values(Some(vec![1.0; csr.nnz()].into())),
    };
    let sparse = all.iter().filter_map(|rows| if let Features::Sparse(csr) = rows { Some(csr) } else { None });
    let has_values = sparse.clone().any(|csr| csr.values().is_some());
    let mut whole: Option<Csr> = None;
    for csr in sparse {
        let next = if has_values { with_values(csr)? } else { csr.clone() };
        whole = Some(whole.map_or(Ok(next.clone()), |above| above.stacked(&next))?);
    }
    whole.map(Features::Sparse).ok_or_else(|| DatasetError::invalid("no type of nodes"))
}

fn dense(all: &[&Features], width: usize) -> Result<Features, DatasetError> {
    let mut values = Vec::new();
    for rows in all {
        match rows {
            Features::Dense(matrix) => values.extend_from_slice(matrix.data()),
            Features::Sparse(csr) => values.extend_from_slice(Matrix::from_sparse(csr).data()),
            Features::Compressed(_) => {}
        }
    }
    let n_rows = all.iter().map(|rows| rows.n_rows()).sum();
    Ok(Features::Dense(Matrix::new(n_rows, width, values)?))
}
