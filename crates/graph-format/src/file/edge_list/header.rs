//! Roles of columns by the names of a header: only common names are known, and nothing is guessed.

use super::columns::{Columns, Role};
use crate::file::text::{Fields, Separator, shown};

/// Column names and their roles.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) columns: Columns,
    /// Whether sources and targets are users and items: two sets of ids.
    pub(super) has_sides: bool,
}

/// Meaning of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Source,
    Target,
    User,
    Item,
    Weight,
    Time,
    Index,
    Unknown,
}

const SOURCES: &[&str] = &["source", "src", "from", "head", "sender", "follower", "citing"];
const TARGETS: &[&str] =
    &["target", "tgt", "to", "dst", "dest", "destination", "tail", "receiver", "recipient", "followee", "cited"];
/// Whole names, which take no suffix: `uid` and `vid` are users and videos.
const FIRST_NODES: &[&str] = &["u", "node1", "nodeid1", "nodea", "id1", "n1", "vertex1"];
const SECOND_NODES: &[&str] = &["v", "node2", "nodeid2", "nodeb", "id2", "n2", "vertex2"];
const USERS: &[&str] = &["user", "customer", "reviewer"];
const ITEMS: &[&str] = &["item", "movie", "product", "book", "artist"];
const WEIGHTS: &[&str] = &["weight", "weights", "edgeweight", "w", "wt", "sign"];
const TIMES: &[&str] = &["time", "timestamp", "unixtime", "datetime", "date", "year", "epoch", "ts", "t"];
const INDICES: &[&str] = &["id", "index", "idx", "edgeid", "eid", "edgeindex", "rowid"];

impl Meaning {
    fn of(name: &str, column: usize) -> Self {
        let name = plain_name(name);
        if (name.is_empty() && column == 0) || name.starts_with("unnamed0") {
            return Self::Index;
        }
        let endings = ["nodeid", "vertexid", "node", "vertex", "id", ""];
        let stems = || endings.iter().filter_map(|ending| name.strip_suffix(ending)).filter(|stem| !stem.is_empty());
        let is_node = |names: &[&str]| stems().any(|stem| names.contains(&stem));
        let is = |names: &[&str]| names.contains(&name.as_str());
        match () {
            () if is(INDICES) => Self::Index,
            () if is_node(SOURCES) || is(FIRST_NODES) => Self::Source,
            () if is_node(TARGETS) || is(SECOND_NODES) => Self::Target,
            () if is_node(USERS) => Self::User,
            () if is_node(ITEMS) => Self::Item,
            () if is(WEIGHTS) => Self::Weight,
            () if is(TIMES) => Self::Time,
            () => Self::Unknown,
        }
    }

    fn role(self) -> Role {
        match self {
            Self::Source | Self::User => Role::Source,
            Self::Target | Self::Item => Role::Target,
            Self::Weight => Role::Weight,
            Self::Time => Role::Time,
            Self::Index => Role::Index,
            Self::Unknown => Role::Ignored,
        }
    }
}

/// Name of a column in lower case, without separators between its words.
pub(super) fn plain_name(name: &str) -> String {
    let is_separator = |c: char| matches!(c, '_' | '-' | '.' | ' ' | ':');
    name.to_lowercase().chars().filter(|&c| !is_separator(c)).collect()
}

/// Names of the columns of a header line.
pub(super) fn names_of(line: &[u8]) -> Vec<String> {
    let separator = match () {
        () if line.contains(&b';') => Separator::Semicolon,
        () if line.contains(&b',') => Separator::Comma,
        // A name may hold blanks, and the first one may be empty.
        () if line.contains(&b'\t') => Separator::Tab,
        () => Separator::Blank,
    };
    Fields::new(line, separator).map(shown).collect()
}

/// Roles of the columns by their names, for lines with `n_fields` fields.
///
/// # Errors
/// When the names contradict the lines or each other, or do not identify source and target.
pub(super) fn read(names: &[String], n_fields: usize) -> Result<Header, String> {
    let remedy = format!("say which is which by --columns {}", example(n_fields));
    let listed = shown_names(names);
    if names.len() != n_fields {
        return Err(format!(
            "the header names {} columns ({listed}), but the first line after it has {n_fields} fields; {remedy}",
            names.len()
        ));
    }
    let meanings: Vec<Meaning> = names.iter().enumerate().map(|(at, name)| Meaning::of(name, at)).collect();
    let count = |wanted: &[Meaning]| meanings.iter().filter(|meaning| wanted.contains(meaning)).count();
    let (n_sources, n_targets) = (count(&[Meaning::Source, Meaning::User]), count(&[Meaning::Target, Meaning::Item]));
    if (n_sources, n_targets) != (1, 1) {
        return Err(format!(
            "the header ({listed}) names {n_sources} columns as sources and {n_targets} as targets; expected one of each, \
             {remedy}"
        ));
    }
    let (is_user, is_item) = (count(&[Meaning::User]) == 1, count(&[Meaning::Item]) == 1);
    if is_user != is_item {
        return Err(format!(
            "the header ({listed}) names one column after users or items and the other after nodes; they may share their \
             ids or not, {remedy}"
        ));
    }
    let roles = meanings.iter().map(|meaning| meaning.role()).collect();
    let columns = Columns::new(roles).map_err(|_| format!("the header ({listed}) names several weights; {remedy}"))?;
    Ok(Header { columns, has_sides: is_user })
}

/// Whether the columns with the roles source and target have names of users and items, in either order.
pub(super) fn names_sides(names: &[String], roles: &[Role]) -> bool {
    let meaning_of = |wanted: Role| {
        let at = roles.iter().position(|&role| role == wanted)?;
        names.get(at).map(|name| Meaning::of(name, at))
    };
    matches!(
        (meaning_of(Role::Source), meaning_of(Role::Target)),
        (Some(Meaning::User), Some(Meaning::Item)) | (Some(Meaning::Item), Some(Meaning::User))
    )
}

/// Example value of `--columns` for `n_fields` columns.
pub(super) fn example(n_fields: usize) -> String {
    let mut roles = vec!["source", "target"];
    roles.resize(n_fields.max(2), "-");
    roles.join(",")
}

/// Names as messages show them.
pub(super) fn shown_names(names: &[String]) -> String {
    let shown = |name: &String| if name.is_empty() { "no name".to_owned() } else { name.clone() };
    names.iter().map(shown).collect::<Vec<_>>().join(", ")
}
