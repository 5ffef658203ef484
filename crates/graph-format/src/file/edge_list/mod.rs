//! Edge lists: text with one edge per line, `source target [weight]` or as a header says.
//!
//! ```text
//! # comments start with #, % or //            the separator is ; or , when the first edge has one, else blanks
//! source,target,weight                        a header is a first line without any number
//! 0,1,0.5                                     edge 0 → 1: row 1, column 0
//! ```
//! - [`columns`]: roles of columns; [`header`]: common names of them.
//! - [`comments`], [`konect`]: informative comments; [`dict`]: networkx's dictionaries.
//! - [`times`]: times as ticks; [`features`]: columns of features of edges.
//! - [`layout`]: the form of a file's lines; [`lines`]: parsing them into [`edges`]; [`ids`]: the meaning of their ids.
//!
//! Chunks that end at line ends are parsed in parallel; the result and the error do not depend on their number.

mod columns;
mod comments;
mod dict;
mod edges;
mod features;
mod header;
mod ids;
mod konect;
mod layout;
mod lines;
mod times;
mod write;

use std::path::Path;

use super::sniff::check_text;
use super::text::{EDGE_BYTES, Text, check_end, check_memory, without_mark};
use crate::{Coo, EdgeFeatures, FormatError, MAX_NODES, Notes, Times};

pub use self::columns::{Columns, Role};
use self::ids::Sizes;
use self::konect::Shape;
pub use self::layout::{EdgeListOptions, ReadTimes};
use self::layout::{Layout, Preamble};
pub use self::write::write_edge_list;

/// Message of a list without edges.
const EMPTY: &str = "the file holds no edge; a graph without edges is the line `# girih: nodes 5`";

/// Contents of an edge list.
#[derive(Clone, Debug)]
pub struct EdgeList {
    /// Edges, including repeated ones; row = target, column = source.
    pub edges: Coo,
    /// Whether the file declares its edges as directed; `None` when it does not say.
    pub directed: Option<bool>,
    /// Numbers of nodes on the left (sources, the first ids) and on the right, if these have separate ids in the
    /// file.
    pub sides: Option<(usize, usize)>,
    /// Times of the edges, in their order, if they are read.
    pub times: Option<Times>,
    /// Features of the edges, in their order, if the options ask for some.
    pub features: Option<EdgeFeatures>,
    /// Notes of data left out, made up or doubtful.
    pub notes: Notes,
}

/// Reads an edge list from a text file, and unpacks it when its name ends in `.gz`.
///
/// # Errors
/// When the file cannot be read, is another kind of file, holds no edge, or is ambiguous. At the first line that is
/// not an edge, naming the line.
pub fn read_edge_list(path: &Path, options: &EdgeListOptions) -> Result<EdgeList, FormatError> {
    let text = Text::read(path)?;
    parse_edge_list(&text, options).map_err(|e| e.at(path))
}

/// Reads an edge list from text.
///
/// # Errors
/// As [`read_edge_list`].
pub fn parse_edge_list(text: &[u8], options: &EdgeListOptions) -> Result<EdgeList, FormatError> {
    check_text(text, "an edge list", None)?;
    let time_bytes = if options.times == ReadTimes::No { 0 } else { times::EDGE_BYTES };
    check_memory(text, [b'\n'; 3], EDGE_BYTES + time_bytes)?;
    let text = without_mark(text);
    if let Some(n) = options.n_nodes.filter(|&n| n > MAX_NODES) {
        return Err(FormatError::invalid(format!("{n} nodes exceed the limit of {MAX_NODES}")));
    }
    let mut notes = Notes::default();
    check_end(text, "the text", &mut notes);
    let preamble = Preamble::read(text, options, &mut notes)?;
    let konect = preamble.comments.konect.clone();
    let directed = konect.as_ref().map(|konect| konect.shape == Shape::Directed);
    let Some(layout) = Layout::new(&preamble, options, &mut notes)? else {
        return without_edges(&preamble, directed, options, notes);
    };
    if layout.features.width() > 0 {
        let feature_bytes = layout.features.width() as u64 * features::VALUE_BYTES;
        check_memory(text, [b'\n'; 3], EDGE_BYTES + time_bytes + feature_bytes)?;
    }
    let mut edges = lines::parse(text, &layout, &mut notes)?;
    let written = std::mem::take(&mut edges.times);
    let times = layout.reads_times.then(|| times::in_ticks(&written, &mut notes)).transpose()?;
    let values = std::mem::take(&mut edges.features);
    let names = layout.features.names.clone();
    let features = (!names.is_empty()).then(|| EdgeFeatures::new(names, values)).transpose()?;
    layout.check_times(&edges)?;
    preamble.check_counts(&edges, &mut notes)?;
    preamble.check_stated(edges.sources.len(), options)?;
    let (edges, sides) = match &layout.sizes {
        Sizes::Sides(sides) => {
            let (edges, sides) = ids::two_sets(edges, sides, layout.first_id, &mut notes)?;
            (edges, Some(sides))
        }
        Sizes::One(sizes) => (ids::one_set(edges, *sizes, layout.first_id, &mut notes)?, None),
    };
    Ok(EdgeList { edges, directed, sides, times, features, notes })
}

/// List without edges, whose number of nodes girih's own comment states.
fn without_edges(
    preamble: &Preamble<'_>,
    directed: Option<bool>,
    options: &EdgeListOptions,
    notes: Notes,
) -> Result<EdgeList, FormatError> {
    preamble.check_stated(0, options)?;
    let Some((rows, cols, _)) = preamble.comments.own.sizes else { return Err(FormatError::invalid(EMPTY)) };
    if let Some(name) = options.features.first() {
        return Err(FormatError::invalid(format!(
            "--edge-features {name}: the list has no edges, and so no columns; leave --edge-features out"
        )));
    }
    let edges = Coo::new(rows, cols, Vec::new(), Vec::new(), None)?;
    let times = (options.times == ReadTimes::Required).then(Times::default);
    Ok(EdgeList { edges, directed, sides: None, times, features: None, notes })
}
