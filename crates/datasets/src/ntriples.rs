//! N-Triples as data: resources and literals are nodes, and each predicate is a type of edges.

mod escapes;
mod line;
mod literal_features;
mod node_types;
mod options;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use girih_graph_format::file::LineBlocks;
use girih_graph_format::{MAX_NODES, NodeId, Notes};
use girih_machine::memory::Free;
use girih_machine::readable_bytes;

use self::line::Triple;
use self::literal_features::LiteralFeatures;
use self::node_types::{NodeTypes, RDF_TYPE};
pub use self::options::{LabelColumns, Literals, NodeTypesFrom, ReverseEdges};
use crate::entity_graph::{Edges, adds_reverse, entity_graph};
use crate::file_kind::{FileKind, stem};
use crate::inventory::Inventory;
use crate::name_table::NameTable;
use crate::named_labels::{self, LabelFiles};
use crate::typed_parts::{TypedParts, check_edge_options};
use crate::{Dataset, DatasetError, Features, LoadOptions, NameList, Names, TypedData};

/// Tables of folders in the form in which the authors of R-GCN published theirs: training, test, both.
const TABLES: [&str; 3] = ["trainingSet.tsv", "testSet.tsv", "completeDataset.tsv"];
/// Bytes per triple while relations become rows: lists, rows, reverses and their union.
const TRIPLE_BYTES: u64 = 64;
/// Bytes of memory below which growth is not checked.
const UNCHECKED: u64 = 64 << 20;

/// Loads the graph of a file, with the names of its nodes.
///
/// # Errors
/// When a line is no triple, naming the line; when there is none, or memory does not suffice.
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    check_edge_options(options).map_err(|e| e.at(path))?;
    let triples = Triples::read(path, options.literals.unwrap_or_default()).map_err(|e| e.at(path))?;
    triples.into_dataset(stem(path), options).map_err(|e| e.at(path))
}

/// Loads a folder of one file and its tables of labels; the tables that the options name take their place. Notes name
/// the other entries.
///
/// # Errors
/// As [`load`], and when the tables contradict the graph or each other.
pub(crate) fn load_folder(folder: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let Some(file) = file_in(folder) else {
        return Err(DatasetError::invalid("there is no single .nt or .nt.gz file").at(folder));
    };
    let (mut dataset, mut others) = (load(&file, options)?, Inventory::of_folder(folder)?);
    others.take(&file.file_name().unwrap_or_default().to_string_lossy());
    if !options.names_labels() {
        let [train, test, all] = TABLES.map(|name| Some(folder.join(name)).filter(|path| path.is_file()));
        named_labels::attach(&mut dataset, &LabelFiles { all, parts: [train, None, test] }, options)?;
        TABLES.into_iter().for_each(|name| others.take(name));
    }
    others.note(&mut dataset.notes);
    Ok(dataset)
}

/// Whether a folder has one N-Triples file and a table of training nodes.
pub(crate) fn is_folder(folder: &Path) -> bool {
    folder.join(TABLES[0]).is_file() && file_in(folder).is_some()
}

/// The only N-Triples file of a folder.
fn file_in(folder: &Path) -> Option<PathBuf> {
    let paths = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files = paths.filter(|path| FileKind::of(path) == Some(FileKind::NTriples));
    files.next().filter(|_| files.next().is_none())
}

/// Triples of a file, by predicate.
struct Triples {
    literals: Literals,
    nodes: NameTable,
    predicates: NameTable,
    edges: Vec<Edges>,
    n_edges: usize,
    n_dropped: usize,
    /// Triples that are features of their subjects.
    of_literals: LiteralFeatures,
}

impl Triples {
    fn read(path: &Path, literals: Literals) -> Result<Self, DatasetError> {
        let (nodes, predicates) = (NameTable::default(), NameTable::default());
        let (edges, of_literals) = (Vec::new(), LiteralFeatures::default());
        let mut triples = Self { literals, nodes, predicates, edges, n_edges: 0, n_dropped: 0, of_literals };
        let (mut blocks, mut n_lines) = (LineBlocks::open(path, "N-Triples")?, 0);
        while let Some(block) = blocks.next_block()? {
            let (text, is_whole) = valid_lines(block);
            for line in text.split_terminator('\n') {
                n_lines += 1;
                triples.add_line(line).map_err(|what| DatasetError::invalid(format!("line {n_lines}: {what}")))?;
            }
            if !is_whole {
                let line = n_lines + 1;
                let remedy = "save the file as UTF-8, as by `iconv -f LATIN1 -t UTF-8 OLD > NEW`";
                return Err(DatasetError::invalid(format!("line {line} is no UTF-8 text; {remedy}")));
            }
            triples.check_growth(Free::now())?;
        }
        if triples.n_edges == 0 {
            let lines = format!("{n_lines} lines and no triple between nodes");
            return Err(DatasetError::invalid(format!(
                "{lines}; expected lines as `<subject> <predicate> <object> .`"
            )));
        }
        Ok(triples)
    }

    /// Adds the triple of a line. Carriage returns end lines as well.
    fn add_line(&mut self, line: &str) -> Result<(), String> {
        for line in line.split('\r') {
            if let Some(triple) = Triple::of_line(line)? {
                self.add(&triple)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, triple: &Triple<'_>) -> Result<(), String> {
        let subject = self.nodes.number_of(&triple.subject);
        match self.literals {
            Literals::Drop if triple.has_literal() => {
                self.n_dropped += 1;
                return Ok(());
            }
            Literals::Features if triple.has_literal() => {
                self.of_literals.add(subject, &triple.predicate, &triple.object);
                return Ok(());
            }
            _ => {}
        }
        let object = self.nodes.number_of(&triple.object);
        if self.nodes.len() > MAX_NODES {
            return Err(format!("more than {MAX_NODES} nodes; read a smaller file"));
        }
        let predicate = self.predicates.number_of(&triple.predicate) as usize;
        if predicate == self.edges.len() {
            self.edges.push(Edges::default());
        }
        self.edges[predicate].push(subject, object);
        self.n_edges += 1;
        Ok(())
    }

    /// Refuses to go on when names and triples may not have the memory to double.
    fn check_growth(&self, free: Option<Free>) -> Result<(), DatasetError> {
        let held = self.nodes.n_bytes() + self.of_literals.n_bytes() + (self.n_edges * size_of::<[NodeId; 2]>()) as u64;
        self.check_memory("so far", held, free.filter(|_| held > UNCHECKED))
    }

    fn check_memory(&self, what: &str, needed: u64, free: Option<Free>) -> Result<(), DatasetError> {
        let Some(Free { bytes, limit }) = free.filter(|free| needed > free.bytes) else { return Ok(()) };
        Err(DatasetError::too_large(format!(
            "{} nodes, {} relations and {} triples {what} need {} of memory, and {limit} has {} free; read it where there \
             is more",
            self.nodes.len(),
            self.edges.len(),
            self.n_edges,
            readable_bytes(needed),
            readable_bytes(bytes)
        )))
    }

    fn into_dataset(self, name: String, options: &LoadOptions) -> Result<Dataset, DatasetError> {
        let n_types = self.edges.len() as u64 * if adds_reverse(options) { 2 } else { 1 };
        let offsets = n_types * (self.nodes.len() as u64 + 1) * size_of::<u64>() as u64;
        self.check_memory("as rows", offsets + self.n_edges as u64 * TRIPLE_BYTES, Free::now())?;

        if options.node_types == Some(NodeTypesFrom::RdfType) {
            return self.with_node_types(name, options);
        }
        let (n_nodes, mut notes) = (self.nodes.len(), Notes::default());
        note_dropped(self.n_dropped, &mut notes);
        let features = self.of_literals.into_matrix(self.literals, n_nodes, &mut notes)?.map(Features::Sparse);
        let typed = entity_graph(&self.predicates.into_names(), self.edges, n_nodes, options, &mut notes)?;
        let names = Names { nodes: self.nodes.into_names(), classes: Vec::new() };
        let dataset = Dataset::of_typed(name, TypedData::of_graph(typed))?;
        Ok(Dataset { names: Some(Arc::new(names)), features, notes, ..dataset })
    }

    /// As [`into_dataset`](Self::into_dataset), with a type of nodes for each class that `rdf:type` states.
    fn with_node_types(mut self, name: String, options: &LoadOptions) -> Result<Dataset, DatasetError> {
        let mut notes = Notes::default();
        note_dropped(self.n_dropped, &mut notes);
        let (nodes, predicates) = (self.nodes.into_names(), self.predicates.into_names());
        let Some(typing) = predicates.iter().position(|predicate| predicate == RDF_TYPE) else {
            return Err(DatasetError::invalid(format!(
                "no triple has the predicate <{RDF_TYPE}>, so that no node has a class; leave --node-types out"
            )));
        };
        let types = NodeTypes::new(&nodes, &self.edges[typing], &mut notes);
        let ids = types.ids();
        self.of_literals.renumber(&ids);
        let features = self.of_literals.into_matrix(self.literals, nodes.len(), &mut notes)?;
        let features = types.features(features.as_ref());
        let graph = types.graph(&predicates, self.edges, options, &mut notes)?;
        let mut order = vec![0; ids.len()];
        ids.iter().enumerate().for_each(|(node, &id)| order[id as usize] = node);
        let mut names = NameList::default();
        order.into_iter().for_each(|node| names.push(nodes.get(node)));
        let names = Some(Names { nodes: names, classes: Vec::new() });
        let parts = TypedParts { graph, features, target: 0, labels: None, splits: Vec::new(), names };
        Ok(Dataset { notes, ..parts.into_dataset(name)? })
    }
}

/// Longest part of a block that is UTF-8 and ends at a line end; and whether this is the whole block.
fn valid_lines(block: &[u8]) -> (&str, bool) {
    match std::str::from_utf8(block) {
        Ok(text) => (text, true),
        Err(error) => {
            let text = std::str::from_utf8(&block[..error.valid_up_to()]).unwrap_or_default();
            (&text[..text.rfind('\n').map_or(0, |at| at + 1)], false)
        }
    }
}

fn note_dropped(n_dropped: usize, notes: &mut Notes) {
    if n_dropped > 0 {
        let noun = if n_dropped == 1 { "triple that ends in a literal is" } else { "triples that end in literals are" };
        let text = format!("{n_dropped} {noun} left out (--literals nodes reads literals as nodes)");
        notes.make_up("dropped_literals", text, &[("triples", n_dropped as u64)]);
    }
}
