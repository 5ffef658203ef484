//! [`Layout`]: the form of a file's lines, found from the lines up to the first edge.

use super::columns::{Columns, Role};
use super::comments::{Comments, is_skipped};
use super::dict;
use super::edges::Edges;
use super::features::{self, FeatureColumns};
use super::header::{self, Header, example, shown_names};
use super::ids::{Sides, Sizes};
use super::konect::Shape;
use super::times;
use crate::coo::check_proportion;
use crate::file::text::{Fields, Lines, Separator, line_error};
use crate::{FormatError, Notes};

/// Smallest number that may be a time in seconds since the epoch: 10⁸ is a day of 1973.
pub(super) const FIRST_TIME: f32 = 1e8;

/// Message of dictionaries in a list whose features are asked for.
const DICTS_WITHOUT_FEATURES: &str = "lines that end in {…} have no columns of features; write the values as columns, with \
     a header, or leave --edge-features out";

/// Options of reading an edge list.
#[derive(Clone, Debug, Default)]
pub struct EdgeListOptions {
    /// Number of nodes. `None`: the number stated in the file, else the largest id plus one, unless that is
    /// implausibly large for the edges.
    pub n_nodes: Option<usize>,
    /// Roles of the columns; `None`: those of header and comments.
    pub columns: Option<Columns>,
    /// Whether sources and targets have separate ids, as users and items; `None`: as header and comments say, even where
    /// `columns` gives the roles.
    pub bipartite: Option<bool>,
    /// Whether times of edges are read.
    pub times: ReadTimes,
    /// Columns that are read as features of edges, in this order: names in the header in any case, or numbers from 1. The
    /// single entry `all` stands for every column without nodes, times or numbers of lines. A column of weights may be one
    /// of features, too.
    pub features: Vec<String>,
    /// Names of columns that the file does not state, for `features`; empty: those of the header.
    pub names: Vec<String>,
    /// Smallest id, on each side of a bipartite list; `None`: 0, and 1 in KONECT's lists, which take nothing else.
    pub ids_from: Option<u32>,
    /// Numbers of sources and of targets of a bipartite list; `None`: as comments say, or as the ids require.
    pub sides: Option<(usize, usize)>,
}

/// Whether times of edges are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadTimes {
    /// They are left out, and noted.
    #[default]
    No,
    /// They are read where one column has them, as numbers in the first line.
    IfThere,
    /// They are read, and a list without them is an error.
    Required,
}

/// Lines up to the first edge.
#[derive(Debug)]
pub(super) struct Preamble<'a> {
    pub(super) comments: Comments,
    header: Option<Line<'a>>,
    first: Option<Line<'a>>,
}

/// Line with its number from 1 and the byte offset of its start.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    text: &'a [u8],
    number: usize,
    start: usize,
}

impl<'a> Preamble<'a> {
    /// Reads up to the first edge.
    ///
    /// # Errors
    /// When a comment of girih or KONECT cannot be parsed.
    pub(super) fn read(text: &'a [u8], options: &EdgeListOptions, notes: &mut Notes) -> Result<Self, FormatError> {
        let mut preamble = Self { comments: Comments::default(), header: None, first: None };
        let mut lines = Lines::new(text);
        let mut start = 0;
        while let Some(text_of_line) = lines.next() {
            let line = Line { text: text_of_line, number: lines.n_read(), start };
            start = text.len() - lines.rest().len();
            if is_skipped(line.text) {
                preamble.comments.take(line.text, line.number, notes)?;
            } else if preamble.header.is_none() && is_header(line.text, options) {
                preamble.header = Some(line);
            } else {
                preamble.first = Some(line);
                break;
            }
        }
        Ok(preamble)
    }

    /// Compares the numbers of edges stated in comments with those found.
    ///
    /// # Errors
    /// When KONECT's second line states another number.
    pub(super) fn check_counts(&self, edges: &Edges, notes: &mut Notes) -> Result<(), FormatError> {
        let n_found = edges.sources.len() as u64;
        if let Some((n, line)) = self.comments.snap_edges.filter(|&(n, _)| n != n_found) {
            notes.warn(format!("line {line} states {n} edges, but the file lists {n_found}"));
        }
        let Some(konect) = &self.comments.konect else { return Ok(()) };
        let Some(counts) = konect.counts.filter(|counts| counts.n_edges != n_found) else { return Ok(()) };
        let sum: f64 = edges.weights.iter().map(|&w| f64::from(w)).sum();
        if konect.counts_edges() && sum == counts.n_edges as f64 {
            return Ok(());
        }
        Err(FormatError::invalid(format!(
            "line {}: {} edges are stated, but the file lists {n_found}; fetch the file again, or take the line out where \
             its number is wrong",
            counts.line, counts.n_edges
        )))
    }

    /// Refuses implausible numbers of nodes in comments. Numbers in options are the caller's responsibility.
    ///
    /// # Errors
    /// When a stated number is implausibly large for the number of edges.
    pub(super) fn check_stated(&self, n_edges: usize, options: &EdgeListOptions) -> Result<(), FormatError> {
        if options.n_nodes.is_some() {
            return Ok(());
        }
        let own = self.comments.own.sizes.map(|(rows, cols, line)| (rows.max(cols), line));
        let counts = self.comments.konect.as_ref().and_then(|konect| konect.counts);
        let of_konect = counts.and_then(|counts| Some((counts.n_nodes?, counts.line)));
        let of_konect = of_konect.map(|((left, right), line)| (left.max(right) as usize, line));
        own.into_iter().chain(of_konect).try_for_each(|(n_nodes, line)| {
            check_proportion(n_nodes, n_edges, &format!("line {line}: {n_nodes} nodes are stated"))
        })
    }

    /// Sizes stated by options and comments, including whether there are two sets of ids.
    fn sizes(&self, options: &EdgeListOptions, header_has_sides: bool) -> Result<Sizes, FormatError> {
        let konect = self.comments.konect.as_ref();
        let is_bip = konect.is_some_and(|konect| konect.shape == Shape::Bipartite);
        let counts = konect.and_then(|konect| konect.counts).and_then(|counts| Some((counts.n_nodes?, counts.line)));
        let own = self.comments.own.sizes;
        let total = options.n_nodes;
        if options.bipartite.unwrap_or(header_has_sides || is_bip) {
            let known = counts.filter(|_| is_bip).map(|((left, right), _)| (left as usize, right as usize));
            let known = options.sides.or(known);
            return Ok(Sizes::Sides(Sides { known, total: total.or(own.map(|(rows, ..)| rows)) }));
        }
        let of_konect = counts.map(|((left, right), line)| (left.max(right) as usize, left.max(right) as usize, line));
        let stated = own.or(of_konect);
        match (total, stated) {
            (Some(n), Some((rows, cols, line))) if (rows, cols) != (n, n) => Err(FormatError::invalid(format!(
                "line {line}: {} nodes are stated, but {n} are asked for; the list and the other files are of different \
                 graphs, or the line is wrong",
                rows.max(cols)
            ))),
            _ => Ok(Sizes::One(total.map(|n| (n, n)).or(stated.map(|(rows, cols, _)| (rows, cols))))),
        }
    }
}

/// Whether a first line consists of names: none of its fields is a number, or none of its node fields if columns are
/// given.
fn is_header(line: &[u8], options: &EdgeListOptions) -> bool {
    let line = dict::split(line).map_or(line, |(edge, _)| edge);
    let names = header::names_of(line);
    // Pandas leaves the name of its index empty, and may number the others.
    if separator_of(line) != Separator::Blank && names.first().is_some_and(String::is_empty) {
        return true;
    }
    let starts_like_number = |name: &String| starts_like_number(name.as_bytes());
    match &options.columns {
        None => !names.iter().any(starts_like_number),
        Some(columns) => {
            let is_node = |role: &Role| matches!(role, Role::Source | Role::Target);
            let nodes = columns.roles().iter().zip(&names).filter(|(role, _)| is_node(role));
            !nodes.map(|(_, name)| name).any(starts_like_number)
        }
    }
}

fn starts_like_number(field: &[u8]) -> bool {
    field.first().is_some_and(|b| b.is_ascii_digit() || matches!(b, b'-' | b'+' | b'.'))
}

fn separator_of(line: &[u8]) -> Separator {
    match () {
        () if line.contains(&b';') => Separator::Semicolon,
        () if line.contains(&b',') => Separator::Comma,
        () => Separator::Blank,
    }
}

/// Form of the lines of one file.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) separator: Separator,
    pub(super) lines: LineKind,
    pub(super) sizes: Sizes,
    /// Smallest id in the file.
    pub(super) first_id: u64,
    /// Whether the third column has no name, so that it may hold times.
    unclear_times: bool,
    /// Whether times of edges are read.
    pub(super) reads_times: bool,
    /// Columns that are read as features of edges.
    pub(super) features: FeatureColumns,
    /// Byte offset of the first edge's line.
    pub(super) start: usize,
    pub(super) n_lines_before: usize,
}

/// Contents of a line.
#[derive(Debug, PartialEq)]
pub(super) enum LineKind {
    /// Source, target, and a weight if weighted.
    Plain { weighted: bool },
    /// One field for each role.
    Columns(Vec<Role>),
    /// Source, target and a dictionary of networkx.
    Dicts { weighted: bool },
}

/// Roles of columns, and their origin.
struct Reading {
    roles: Vec<Role>,
    /// Names of the columns, if a header gives them.
    names: Vec<String>,
    /// First column of a list of features, as JODIE has it.
    list_start: Option<usize>,
    /// Whether unused columns are noted, which is so unless the user named their roles.
    notes_unused: bool,
    has_sides: bool,
    unclear_times: bool,
}

impl Reading {
    fn of(roles: &[Role]) -> Self {
        Self {
            roles: roles.to_vec(),
            names: Vec::new(),
            list_start: None,
            notes_unused: false,
            has_sides: false,
            unclear_times: false,
        }
    }

    fn of_header(header: &Header, names: Vec<String>) -> Self {
        Self { names, notes_unused: true, has_sides: header.has_sides, ..Self::of(header.columns.roles()) }
    }

    /// Contents of lines with these columns.
    fn lines(&self, features: &FeatureColumns) -> LineKind {
        match &self.roles[..] {
            [Role::Source, Role::Target] => LineKind::Plain { weighted: false },
            [Role::Source, Role::Target, Role::Weight] if features.width() == 0 => LineKind::Plain { weighted: true },
            roles => LineKind::Columns(roles.to_vec()),
        }
    }
}

impl Layout {
    /// Finds the layout of a file; `None` when it has no line with an edge.
    ///
    /// # Errors
    /// When the first edge can be read in no way or in several, or contradicts header and comments.
    pub(super) fn new(
        preamble: &Preamble<'_>,
        options: &EdgeListOptions,
        notes: &mut Notes,
    ) -> Result<Option<Self>, FormatError> {
        let Some(first) = preamble.first else {
            let Some(header) = preamble.header else { return Ok(None) };
            // Any text without a digit looks like a header; a file with nothing else is not an edge list.
            let problem = "a header, but no edge follows it; is this a list of edges?";
            return Err(line_error(header.number, header.text, problem));
        };
        let wrong = |problem: String| line_error(first.number, first.text, &problem);
        let (lines, separator, reading, features) = match dict::split(first.text) {
            Some((edge, dict)) => {
                if !options.features.is_empty() {
                    return Err(wrong(DICTS_WITHOUT_FEATURES.to_owned()));
                }
                let weighted = dict::parse(dict).map_err(wrong)?.weight.is_some();
                (LineKind::Dicts { weighted }, separator_of(edge), Reading::of(&[]), FeatureColumns::default())
            }
            None => {
                let separator = separator_of(first.text);
                let reading = preamble.read_columns(first, separator, options, notes)?;
                let features = FeatureColumns::choose(&options.features, &reading.roles, &reading.names);
                let named_in = preamble.header.unwrap_or(first);
                let features = features.map_err(|problem| line_error(named_in.number, named_in.text, &problem))?;
                (reading.lines(&features), separator, reading, features)
            }
        };
        let reads_times = match options.times {
            ReadTimes::No => false,
            ReadTimes::IfThere => times::are_there(&reading.roles, Fields::new(first.text, separator)),
            ReadTimes::Required => times::check_columns(&reading.roles).map_err(wrong).map(|()| true)?,
        };
        note_columns(&reading, &features, reads_times, Fields::new(first.text, separator), notes);
        Ok(Some(Self {
            separator,
            lines,
            sizes: preamble.sizes(options, reading.has_sides)?,
            first_id: preamble.first_id(options, notes)?,
            unclear_times: reading.unclear_times,
            reads_times,
            features,
            start: first.start,
            n_lines_before: first.number - 1,
        }))
    }

    /// Refuses an unnamed third column that may hold times.
    ///
    /// # Errors
    /// When all its numbers are large enough for seconds since the epoch.
    pub(super) fn check_times(&self, edges: &Edges) -> Result<(), FormatError> {
        if !self.unclear_times || edges.weights.iter().any(|&weight| weight < FIRST_TIME) {
            return Ok(());
        }
        Err(FormatError::invalid(format!(
            "line {}: the third column may hold times or weights, all from {FIRST_TIME} on; say so by --columns \
             source,target,time or --columns source,target,weight",
            self.n_lines_before + 1
        )))
    }
}

impl Preamble<'_> {
    /// Finds the roles of the columns: from the options, the header, the comments of girih, KONECT and SNAP, or the
    /// number of columns.
    fn read_columns(
        &self,
        first: Line<'_>,
        separator: Separator,
        options: &EdgeListOptions,
        notes: &mut Notes,
    ) -> Result<Reading, FormatError> {
        let n_fields = Fields::new(first.text, separator).count();
        let wrong = |problem: String| line_error(first.number, first.text, &problem);
        if let Some(columns) = &options.columns {
            check_told(columns, n_fields).map_err(wrong)?;
            self.note_other_header(columns.roles(), n_fields, notes);
            let names = if options.names.is_empty() { self.names(n_fields) } else { options.names.clone() };
            let has_sides = self.names_sides(columns.roles(), n_fields);
            return Ok(Reading { names, has_sides, ..Reading::of(columns.roles()) });
        }
        if let Some(line) = self.header {
            let (names, list_start) = features::with_list(header::names_of(line.text), n_fields);
            let header =
                header::read(&names, n_fields).map_err(|problem| line_error(line.number, line.text, &problem))?;
            return Ok(Reading { list_start, ..Reading::of_header(&header, names) });
        }
        if let Some(columns) = self.comments.own.columns.as_ref().filter(|c| c.roles().len() == n_fields) {
            return Ok(Reading::of(columns.roles()));
        }
        if let Some(konect) = &self.comments.konect {
            let columns = konect.columns(n_fields).map_err(wrong)?;
            let names = konect.names().map(str::to_owned)[..n_fields].to_vec();
            return Ok(Reading { names, notes_unused: true, ..Reading::of(columns.roles()) });
        }
        if let Some((names, header)) = self.comments.header(n_fields) {
            return Ok(Reading::of_header(&header, names));
        }
        by_number(n_fields).map_err(wrong)
    }

    /// Names of `n_fields` columns in the header; none if it is missing or has another number of names.
    fn names(&self, n_fields: usize) -> Vec<String> {
        let names = self.header.map(|line| features::with_list(header::names_of(line.text), n_fields).0);
        names.filter(|names| names.len() == n_fields).unwrap_or_default()
    }

    /// Whether header or comments name the columns with these roles users and items, in either order.
    fn names_sides(&self, roles: &[Role], n_fields: usize) -> bool {
        let has_other = self.header.is_some() || self.comments.own.columns.is_some() || self.comments.konect.is_some();
        let of_comment = || self.comments.header(n_fields).map(|(names, _)| names).unwrap_or_default();
        let names = if has_other { self.names(n_fields) } else { of_comment() };
        header::names_sides(&names, roles)
    }

    /// Smallest id in the file, with a note if it is not 0.
    ///
    /// # Errors
    /// When the options contradict KONECT's first line.
    fn first_id(&self, options: &EdgeListOptions, notes: &mut Notes) -> Result<u64, FormatError> {
        let is_konect = self.comments.konect.is_some();
        let first = options.ids_from.unwrap_or(u32::from(is_konect));
        if is_konect && first != 1 {
            return Err(FormatError::invalid(format!(
                "line 1 is KONECT's, whose ids count from 1, but --ids-from {first} is given; leave that out, or take \
                 line 1 out where ids count from {first}"
            )));
        }
        if first > 0 {
            let as_others = if is_konect { ", as KONECT's do" } else { "" };
            let text = format!("ids count from {first}{as_others}: node k of the file is node k − {first}");
            notes.make_up("shifted_ids", text, &[("first", u64::from(first))]);
        }
        Ok(u64::from(first))
    }

    /// Notes a header that disagrees with the options.
    fn note_other_header(&self, roles: &[Role], n_fields: usize, notes: &mut Notes) {
        let Some(line) = self.header else { return };
        let names = header::names_of(line.text);
        let role_of = |roles: &[Role], wanted: Role| roles.iter().position(|&role| role == wanted);
        let is_as_told = header::read(&features::with_list(names.clone(), n_fields).0, n_fields).is_ok_and(|header| {
            [Role::Source, Role::Target, Role::Weight]
                .into_iter()
                .all(|role| role_of(header.columns.roles(), role) == role_of(roles, role))
        });
        if !is_as_told {
            let what = format!("line {} (header {})", line.number, shown_names(&names));
            notes.leave_out(what, "--columns takes its place");
        }
    }
}

/// Checks the roles that options give `n_fields` columns.
fn check_told(columns: &Columns, n_fields: usize) -> Result<(), String> {
    let n = columns.roles().len();
    if n != n_fields {
        return Err(format!("{n_fields} fields, but --columns {columns} names {n}"));
    }
    if columns.roles().contains(&Role::Relation) {
        return Err(format!(
            "--columns {columns} is for triples, which are a folder of train.txt, valid.txt and test.txt; in an edge list, \
             give - for the relation"
        ));
    }
    Ok(())
}

/// Roles of the columns of lines without a header, by their number.
fn by_number(n_fields: usize) -> Result<Reading, String> {
    let all = [Role::Source, Role::Target, Role::Weight];
    match n_fields {
        0 | 1 => {
            Err("one field; expected source, target and an optional weight, separated by commas, semicolons, blanks \
                      or tabs"
                .to_owned())
        }
        2 => Ok(Reading::of(&all[..2])),
        3 => Ok(Reading { unclear_times: true, ..Reading::of(&all) }),
        4 => Err("4 fields without a header; say which is which by --columns source,target,weight,time, by --columns \
                  source,target,-,- or the like"
            .to_owned()),
        n => Err(format!(
            "{n} fields without a header; say which is which by --columns {}, with weight for a - where there are weights",
            example(n)
        )),
    }
}

/// Notes the names of unused columns, of which `fields` are the first values. [`Role::Index`] columns are checked later.
fn note_columns(
    reading: &Reading,
    features: &FeatureColumns,
    reads_times: bool,
    fields: Fields<'_>,
    notes: &mut Notes,
) {
    let n_columns = reading.roles.len();
    let end = reading.list_start.unwrap_or(n_columns);
    for (at, (role, field)) in reading.roles[..end].iter().zip(fields).enumerate() {
        let why = match role {
            _ if features.place(at).is_some() => continue,
            Role::Time if !reads_times => times::LEFT_OUT,
            Role::Relation if reading.notes_unused => "relations of edges",
            Role::Ignored if reading.notes_unused && features::is_number(field) => features::LEFT_OUT,
            Role::Ignored if reading.notes_unused => "no common name of nodes or weights; --columns can say what it is",
            Role::Index if reading.notes_unused => "numbers of lines or edges",
            _ => continue,
        };
        notes.leave_out(column(at, reading.names.get(at).map_or("time", String::as_str)), why);
    }
    if end < n_columns {
        features::note_list(end, n_columns, features, notes);
    }
}

/// Name of a column in notes; `at` counts from 0.
fn column(at: usize, name: &str) -> String {
    let name = if name.is_empty() { "no name" } else { name };
    format!("column {} ({name})", at + 1)
}
