//! [`add`]: bytes of features and edges of each type, by the memory that has them during training on mini-batches.

use girih_datasets::{FeaturesFrom, TypeWidth};
use girih_graph_format::{NodeId, NodeType, RelationSize};
use girih_machine::readable_bytes;
use girih_trainer::{DataSizes, TrainConfig, TypeFeatureSizes};
use serde_json::{Value, json};

use crate::output::Results;

/// Rows of one type.
struct Table {
    name: String,
    /// Number of nodes, or of edges.
    n: usize,
    bytes: u64,
    /// Whether the GPU has it.
    is_on_gpu: bool,
}

impl Table {
    fn to_json(&self) -> Value {
        let memory = if self.is_on_gpu { "gpu" } else { "main" };
        json!({ "name": self.name, "rows": self.n, "bytes": self.bytes, "memory": memory })
    }
}

/// Adds a row for the features and one for the edges of typed data, if a session samples them. The host samples, from main
/// memory. A GPU holds features, and codes of a code book; other codes wait in main memory.
pub fn add(results: &mut Results, sizes: &DataSizes, config: &TrainConfig, has_gpu: bool) {
    let Some(schema) = sizes.schema.as_ref().filter(|_| config.batch.is_sampled()) else { return };
    let of_type = |(number, of): (usize, &NodeType)| {
        let TypeFeatureSizes { width, code_bytes, .. } = sizes.features_of_type(number);
        // Learned rows are parameters.
        let TypeWidth::Given(width) = width else { return None };
        if config.features_from.is_some_and(FeaturesFrom::is_learned) {
            return None;
        }
        let row_bytes = code_bytes.unwrap_or(width * config.precision.n_bytes());
        let is_on_gpu = has_gpu && (code_bytes.is_none() || sizes.has_code_book);
        Some(Table { name: of.name.clone(), n: of.n_nodes, bytes: (of.n_nodes * row_bytes) as u64, is_on_gpu })
    };
    let features: Vec<Table> = schema.node_types().iter().enumerate().filter_map(of_type).collect();
    let of_relation = |(number, of): (usize, &RelationSize)| {
        let rows = (schema.node_types()[of.destination].n_nodes + 1) * size_of::<u64>();
        let bytes = (of.n_edges * size_of::<NodeId>() + rows) as u64;
        Table { name: schema.edge_name(number).to_string(), n: of.n_edges, bytes, is_on_gpu: false }
    };
    let edges: Vec<Table> = sizes.relations.relations.iter().enumerate().map(of_relation).collect();
    let main = features.iter().chain(&edges).filter(|table| !table.is_on_gpu).map(|table| table.bytes).sum::<u64>();
    let all = |tables: &[Table]| Value::Array(tables.iter().map(Table::to_json).collect());
    results
        .add("feature_tables", all(&features), "Features", shown(&features))
        .add("edge_tables", all(&edges), "Edges", shown(&edges))
        .add("main_memory_bytes", main, "Data in main memory", readable_bytes(main));
}

/// Sum of some tables with their place, then each.
fn shown(tables: &[Table]) -> String {
    let of_place = |is_on_gpu: bool| {
        let bytes: u64 = tables.iter().filter(|table| table.is_on_gpu == is_on_gpu).map(|table| table.bytes).sum();
        let place = if is_on_gpu { "GPU memory" } else { "main memory" };
        (bytes > 0).then(|| format!("{} in {place}", readable_bytes(bytes)))
    };
    let sums: Vec<String> = [true, false].into_iter().filter_map(of_place).collect();
    let each: Vec<String> =
        tables.iter().map(|table| format!("{} {}", table.name, readable_bytes(table.bytes))).collect();
    if sums.is_empty() { "none".to_owned() } else { format!("{}: {}", sums.join(", "), each.join(", ")) }
}
