//! The folders of LightGCN and NGCF (He et al., SIGIR 2020; Wang et al., SIGIR 2019), such as Gowalla.
//!
//! ```text
//! train.txt         a line a user: `user item item …`; in its place s_adj_mat.npz, the graph as SciPy saves it
//! s_adj_mat.npz     users and items as nodes, users first, every interaction in both directions
//! test.txt          as train.txt
//! user_list.txt, item_list.txt    optional: a header, then a line a user or item
//! ```

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use girih_graph_format::file::read_sparse_npz;
use girih_graph_format::{Coo, Csr, Duplicates, MAX_NODES, NodeId, Notes, check_proportion};

use crate::edges::refuse_duplicates_option;
use crate::inventory::Inventory;
use crate::{Dataset, DatasetError, Interactions, LoadOptions};

const TRAIN: &str = "train.txt";
const TEST: &str = "test.txt";
const ADJACENCY: &str = "s_adj_mat.npz";
const USERS: &str = "user_list.txt";
const ITEMS: &str = "item_list.txt";

/// Whether a folder has the files of this format.
pub(crate) fn recognizes(folder: &Path) -> bool {
    let has = |name: &str| folder.join(name).is_file();
    has(TEST) && (has(TRAIN) || has(ADJACENCY))
}

/// Loads a folder; training interactions come from `train.txt` if both files exist.
///
/// # Errors
/// When a file is missing or damaged, names users or items that do not exist, or contradicts another one.
pub(crate) fn load(folder: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    refuse_duplicates_option(options, "a user may list an item once").map_err(|e| e.at(folder))?;
    let name = folder.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let listed = Listed { users: count_lines(&folder.join(USERS))?, items: count_lines(&folder.join(ITEMS))? };
    let test = Pairs::read(&folder.join(TEST))?;
    let text = folder.join(TRAIN);
    let (train, train_path) = if text.is_file() {
        let pairs = Pairs::read(&text)?;
        let n_users = listed.users.unwrap_or_else(|| pairs.n_users().max(test.n_users()));
        let n_items = listed.items.unwrap_or_else(|| pairs.n_items().max(test.n_items()));
        (pairs.to_csr(n_users, n_items)?, text)
    } else {
        let path = folder.join(ADJACENCY);
        (from_adjacency(&path, listed).map_err(|e| e.at(&path))?, path)
    };
    test.refuse_known(&train)?;
    let test = test.to_csr(train.n_rows(), train.n_cols())?;
    let interactions = Interactions::new(train, test).map_err(|e| e.at(&train_path))?;
    let mut notes = Notes::default();
    let mut files = Inventory::of_folder(folder)?;
    files.take_all(|name| [TEST, USERS, ITEMS].contains(&name) || train_path.ends_with(name));
    for name in files.left() {
        let why = if name == ADJACENCY { "train.txt has the same" } else { crate::inventory::reason(name) };
        notes.leave_out(name, why);
    }
    Ok(Dataset { notes, ..Dataset::of_interactions(name, interactions)? })
}

/// Numbers of users and items, where a file lists them.
#[derive(Clone, Copy)]
struct Listed {
    users: Option<usize>,
    items: Option<usize>,
}

/// Lines of a list after its header; `None` without the file.
fn count_lines(path: &Path) -> Result<Option<usize>, DatasetError> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = read_text(path)?;
    Ok(Some(text.lines().skip(1).filter(|line| !line.trim().is_empty()).count()))
}

fn read_text(path: &Path) -> Result<String, DatasetError> {
    std::fs::read_to_string(path).map_err(|e| DatasetError::from(e).at(path))
}

/// Training items of every user, from the graph of users and items.
fn from_adjacency(path: &Path, listed: Listed) -> Result<Csr, DatasetError> {
    let graph = read_sparse_npz(path)?;
    let n_nodes = graph.n_rows();
    if graph.values().is_some() || !graph.is_symmetric() {
        return Err(DatasetError::invalid(
            "the adjacency is weighted or not symmetric; expected every interaction as a one in both directions",
        ));
    }
    let (n_users, n_items) = match (listed.users, listed.items) {
        (Some(users), Some(items)) => (users, items),
        (Some(users), None) => (users, n_nodes.saturating_sub(users)),
        (None, Some(items)) => (n_nodes.saturating_sub(items), items),
        (None, None) => (count_users(&graph), n_nodes - count_users(&graph)),
    };
    if n_users + n_items != n_nodes {
        return Err(DatasetError::invalid(format!(
            "the adjacency has {n_nodes} nodes, but {USERS} and {ITEMS} list {n_users} users and {n_items} items"
        )));
    }
    let among = |nodes: std::ops::Range<usize>| graph.block(nodes.clone(), nodes).map(|block| block.nnz());
    if among(0..n_users)? + among(n_users..n_nodes)? > 0 {
        return Err(DatasetError::invalid(format!(
            "the adjacency joins users with users or items with items; the first {n_users} nodes must be the users"
        )));
    }
    Ok(graph.block(0..n_users, n_users..n_nodes)?)
}

/// Number of users of a graph in which they come first: only items have neighbors with smaller ids.
fn count_users(graph: &Csr) -> usize {
    let is_item = |&node: &usize| graph.row(node).first().is_some_and(|&first| (first as usize) < node);
    (0..graph.n_rows()).find(is_item).unwrap_or(graph.n_rows())
}

/// Pairs of user and item that a file lists.
struct Pairs {
    path: PathBuf,
    users: Vec<NodeId>,
    items: Vec<NodeId>,
    /// Line number of each pair, from 1.
    lines: Vec<usize>,
}

impl Pairs {
    fn read(path: &Path) -> Result<Self, DatasetError> {
        let mut pairs = Self { path: path.to_owned(), users: Vec::new(), items: Vec::new(), lines: Vec::new() };
        for (at, line) in read_text(path)?.lines().enumerate() {
            let mut ids = line.split_ascii_whitespace().map(|field| pairs.parse(field, at + 1));
            let Some(user) = ids.next().transpose()? else { continue };
            let items = ids.collect::<Result<Vec<_>, _>>()?;
            pairs.users.extend(items.iter().map(|_| user));
            pairs.lines.extend(items.iter().map(|_| at + 1));
            pairs.items.extend(items);
        }
        pairs.check_proportion()?;
        Ok(pairs)
    }

    /// Refuses an id that is far larger than the number of pairs, before arrays of that length are allocated.
    fn check_proportion(&self) -> Result<(), DatasetError> {
        let n_pairs = self.users.len();
        let is_far = |id: NodeId| check_proportion(id as usize + 1, n_pairs, "").is_err();
        match self.iter().find(|&(user, item, _)| is_far(user.max(item))) {
            None => Ok(()),
            Some((user, item, line)) => {
                let id = user.max(item);
                let what =
                    format!("id {id} is out of all proportion to {n_pairs} pairs; number users and items from 0");
                Err(self.error(line, &what))
            }
        }
    }

    fn parse(&self, field: &str, line: usize) -> Result<NodeId, DatasetError> {
        let id = field.parse::<NodeId>().ok().filter(|&id| (id as usize) < MAX_NODES);
        id.ok_or_else(|| {
            self.error(line, &format!("{field:?} is no id; expected `user item item …`, numbers below {MAX_NODES}"))
        })
    }

    fn error(&self, line: usize, what: &str) -> DatasetError {
        DatasetError::invalid(format!("line {line}: {what}")).at(&self.path)
    }

    fn n_users(&self) -> usize {
        self.users.iter().max().map_or(0, |&user| user as usize + 1)
    }

    fn n_items(&self) -> usize {
        self.items.iter().max().map_or(0, |&item| item as usize + 1)
    }

    /// All pairs with their lines.
    fn iter(&self) -> impl Iterator<Item = (NodeId, NodeId, usize)> {
        self.users.iter().zip(&self.items).zip(&self.lines).map(|((&user, &item), &line)| (user, item, line))
    }

    /// Refuses a pair that `train` holds.
    fn refuse_known(&self, train: &Csr) -> Result<(), DatasetError> {
        let is_known = |user: NodeId, item: NodeId| {
            (user as usize) < train.n_rows() && train.row(user as usize).binary_search(&item).is_ok()
        };
        self.iter().find(|&(user, item, _)| is_known(user, item)).map_or(Ok(()), |(user, item, line)| {
            let what = format!("user {user} met item {item} in training already; a pair may be in one part only");
            Err(self.error(line, &what))
        })
    }

    /// Items of every user; each pair may be listed once.
    fn to_csr(&self, n_users: usize, n_items: usize) -> Result<Csr, DatasetError> {
        for (user, item, line) in self.iter() {
            for (what, id, limit) in [("user", user, n_users), ("item", item, n_items)] {
                if id as usize >= limit {
                    let what = format!("{what} {id} does not exist; there are {limit}, numbered from 0");
                    return Err(self.error(line, &what));
                }
            }
        }
        let coo = Coo::new(n_users, n_items, self.users.clone(), self.items.clone(), None)?;
        let csr = coo.to_csr(Duplicates::Merge)?;
        if csr.nnz() == self.users.len() {
            return Ok(csr);
        }
        let mut seen = HashSet::new();
        match self.iter().find(|&(user, item, _)| !seen.insert((user, item))) {
            None => Ok(csr),
            Some((user, item, line)) => Err(self.error(line, &format!("user {user} lists item {item} twice"))),
        }
    }
}
