//! Reading the lines of an edge list into arrays.

use std::collections::BTreeSet;

use super::columns::Role;
use super::comments::is_skipped;
use super::dict;
use super::edges::{Edges, count_rows};
use super::ids::Sizes;
use super::layout::{Layout, LineKind};
use super::times;
use crate::file::number::{float, integer};
use crate::file::text::{Fields, concat, parse_lines, shown};
use crate::{FormatError, MAX_NODES, NodeId, Notes};

/// Largest number of keys that notes list.
const MOST_KEYS: usize = 16;
const FIELDS: &str = "source, target and an optional weight";

/// Parses the edges of all lines from the layout's first on.
///
/// # Errors
/// At the first line that is not an edge.
pub(super) fn parse(text: &[u8], layout: &Layout, notes: &mut Notes) -> Result<Edges, FormatError> {
    let (lines, n_before) = (&text[layout.start..], layout.n_lines_before);
    let ids = Ids::new(layout);
    let chunks = match &layout.lines {
        LineKind::Plain { weighted } => {
            parse_lines(lines, n_before, |line, edges: &mut Edges| plain(line, layout, &ids, *weighted, edges))
        }
        LineKind::Columns(roles) => {
            parse_lines(lines, n_before, |line, edges: &mut Edges| columns(line, (layout, &ids), roles, edges))
        }
        LineKind::Dicts { weighted } => {
            parse_lines(lines, n_before, |line, edges: &mut Edges| with_dict(line, layout, &ids, *weighted, edges))
        }
    }?;
    let keys: BTreeSet<&[u8]> = chunks.iter().flat_map(|chunk| &chunk.other_keys).map(|key| &key[..]).collect();
    for key in keys.into_iter().take(MOST_KEYS) {
        notes.leave_out(format!("key {:?} of edges", shown(key)), "");
    }
    if let LineKind::Columns(roles) = &layout.lines
        && roles.contains(&Role::Index)
        && !count_rows(&chunks)
    {
        notes.warn("the column of line numbers does not count lines; where it holds nodes, say so by --columns");
    }
    Ok(Edges {
        sources: concat(&chunks, |c| &c.sources),
        targets: concat(&chunks, |c| &c.targets),
        weights: concat(&chunks, |c| &c.weights),
        times: concat(&chunks, |c| &c.times),
        features: concat(&chunks, |c| &c.features),
        ..Edges::default()
    })
}

/// Ranges of ids in the file.
struct Ids {
    first: u64,
    /// Numbers of source and target ids.
    limits: [u64; 2],
}

impl Ids {
    fn new(layout: &Layout) -> Self {
        let limits = match &layout.sizes {
            Sizes::One(Some((rows, cols))) => [*cols, *rows],
            Sizes::Sides(sides) => sides.known.map_or([MAX_NODES; 2], |(left, right)| [left, right]),
            Sizes::One(None) => [MAX_NODES; 2],
        };
        Self { first: layout.first_id, limits: limits.map(|limit| limit.min(MAX_NODES) as u64) }
    }

    #[inline]
    fn source(&self, field: Option<&[u8]>) -> Result<NodeId, String> {
        self.id(field, self.limits[0])
    }

    #[inline]
    fn target(&self, field: Option<&[u8]>) -> Result<NodeId, String> {
        self.id(field, self.limits[1])
    }

    #[inline]
    fn id(&self, field: Option<&[u8]>, limit: u64) -> Result<NodeId, String> {
        let id = field.and_then(integer).map(|id| id.wrapping_sub(self.first));
        match id {
            Some(id) if id < limit => Ok(id as NodeId),
            _ => Err(self.problem(field, limit)),
        }
    }

    /// Description of the error in an id.
    #[cold]
    fn problem(&self, field: Option<&[u8]>, limit: u64) -> String {
        let first = self.first;
        let Some(field) = field else { return format!("one field; expected {FIELDS}") };
        let id = shown(field);
        if field.is_empty() || !field.iter().all(u8::is_ascii_digit) {
            return format!("{id:?} is not a node id; expected an integer from {first}");
        }
        if limit == MAX_NODES as u64 {
            if integer(field).is_some_and(|id| id < first) {
                return format!("node {id} does not exist; ids count from {first}");
            }
            return format!(
                "node id {id} is too large; ids are below {}: number the nodes from {first} (a hash or a user's number \
                 is no id)",
                limit + first
            );
        }
        format!("node {id} does not exist; there are at most {limit} nodes, numbered from {first}")
    }
}

/// Appends the edge of a line of two or three fields; skipped lines append nothing.
fn plain(line: &[u8], layout: &Layout, ids: &Ids, weighted: bool, edges: &mut Edges) -> Result<(), String> {
    if is_skipped(line) {
        return Ok(());
    }
    let mut fields = Fields::new(line, layout.separator);
    let source = ids.source(fields.next())?;
    let target = ids.target(fields.next())?;
    match (weighted, fields.next()) {
        (true, Some(field)) => edges.weights.push(parse_weight(field)?),
        (false, None) => {}
        (true, None) => return Err("no weight, but earlier lines have one; all or none must".to_owned()),
        (false, Some(_)) => return Err("a third field, but earlier lines have two; all or none must".to_owned()),
    }
    if fields.next().is_some() {
        return Err(format!("more than three fields; expected {FIELDS}"));
    }
    edges.sources.push(source);
    edges.targets.push(target);
    Ok(())
}

/// Appends the edge of a line with one field per role; skipped lines append nothing.
fn columns(line: &[u8], (layout, ids): (&Layout, &Ids), roles: &[Role], edges: &mut Edges) -> Result<(), String> {
    if is_skipped(line) {
        return Ok(());
    }
    let mut fields = Fields::new(line, layout.separator);
    let row = edges.features.len();
    edges.features.resize(row + layout.features.width(), 0.0);
    for (at, role) in roles.iter().enumerate() {
        let field = fields.next().ok_or_else(|| format!("{at} fields, but earlier lines have {}", roles.len()))?;
        match role {
            Role::Source => edges.sources.push(ids.source(Some(field))?),
            Role::Target => edges.targets.push(ids.target(Some(field))?),
            Role::Weight => edges.weights.push(parse_weight(field)?),
            Role::Index => edges.index.push(field),
            Role::Time if layout.reads_times => edges.times.push(times::parse(field)?),
            Role::Relation | Role::Time | Role::Ignored => {}
        }
        if let Some(place) = layout.features.place(at) {
            edges.features[row + place] = layout.features.parse(field, at)?;
        }
    }
    match fields.next() {
        None => Ok(()),
        Some(_) => Err(format!("more fields than the {} of earlier lines", roles.len())),
    }
}

/// Appends the edge of a line that ends in a dictionary; skipped lines append nothing.
fn with_dict(line: &[u8], layout: &Layout, ids: &Ids, weighted: bool, edges: &mut Edges) -> Result<(), String> {
    if is_skipped(line) {
        return Ok(());
    }
    let (edge, dict) = dict::split(line).ok_or("no {…} at its end, but earlier lines have one")?;
    let mut fields = Fields::new(edge, layout.separator);
    let source = ids.source(fields.next())?;
    let target = ids.target(fields.next())?;
    if fields.any(|field| !field.is_empty()) {
        return Err("more than two fields in front of {…}".to_owned());
    }
    let dict = dict::parse(dict)?;
    match (weighted, dict.weight) {
        (true, Some(weight)) => edges.weights.push(weight),
        (false, None) => {}
        _ => return Err("some edges have the key 'weight' and others do not; all or none must".to_owned()),
    }
    for key in dict.other_keys {
        if !edges.other_keys.contains(key) && edges.other_keys.len() < MOST_KEYS {
            edges.other_keys.insert(key.to_vec());
        }
    }
    edges.sources.push(source);
    edges.targets.push(target);
    Ok(())
}

fn parse_weight(field: &[u8]) -> Result<f32, String> {
    let weight = float(field).filter(|weight| weight.is_finite());
    weight.ok_or_else(|| {
        let remedy = if field.contains(&b',') { "; decimals stand behind a point" } else { "" };
        format!("{:?} is not a weight; expected a finite number{remedy}", shown(field))
    })
}
