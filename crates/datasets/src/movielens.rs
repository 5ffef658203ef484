//! `MovieLens` 100K (Harper and Konstan, "The `MovieLens` datasets: history and context", TIIS 2015): ratings of films by
//! users, with their times.
//!
//! ```text
//! u.data      user, item, rating and timestamp, separated by tabs; ids count from 1 on each side
//! u.info      numbers of users, items and ratings: `943 users`; may be missing
//! ```
//! Users are the first nodes, and items follow.

use std::path::Path;
use std::{fs, io};

use girih_graph_format::check_proportion;
use girih_graph_format::file::{Columns, EdgeList, EdgeListOptions, Role, read_edge_list};

use crate::edge_list::of_list;
use crate::inventory::Inventory;
use crate::{Dataset, DatasetError, LoadOptions};

/// Name of the file of ratings, by which the format is recognised.
pub(crate) const RATINGS: &str = "u.data";
/// Name of the file of counts.
const COUNTS: &str = "u.info";
const NAMES: [&str; 4] = ["user", "item", "rating", "timestamp"];

/// Loads the ratings of a folder, or of the file of ratings in it.
///
/// # Errors
/// When a file cannot be read, a line is no rating, or an id exceeds its count.
pub(crate) fn load(path: &Path, options: &LoadOptions) -> Result<Dataset, DatasetError> {
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or_else(|| Path::new("")) };
    let ratings = folder.join(RATINGS);
    let sides = read_counts(&folder.join(COUNTS))?;
    let list = read(&ratings, sides, options)?;
    let name = folder.file_name().map_or("movielens".into(), |name| name.to_string_lossy().into_owned());
    let n_ratings = list.edges.len();
    let (users, items) = list.sides.unwrap_or_default();
    let stated = format!("{COUNTS} states {users} users and {items} items");
    check_proportion(users + items, n_ratings, &stated).map_err(|e| e.at(folder))?;
    let mut dataset = of_list(name, list, options).map_err(|e| e.at(&ratings))?;
    if path.is_dir() {
        let mut beside = Inventory::of_folder(path)?;
        beside.take(RATINGS);
        beside.take(COUNTS);
        beside.note(&mut dataset.notes);
    }
    Ok(dataset)
}

/// Reads the ratings; `sides` are the numbers of users and items.
fn read(path: &Path, sides: Option<(usize, usize)>, options: &LoadOptions) -> Result<EdgeList, DatasetError> {
    let columns = Columns::new(vec![Role::Source, Role::Target, Role::Weight, Role::Time])?;
    let read = |sides| {
        let read = EdgeListOptions {
            columns: Some(columns.clone()),
            bipartite: Some(true),
            times: options.times,
            features: options.edge_features.clone(),
            names: NAMES.map(str::to_owned).to_vec(),
            ids_from: Some(1),
            sides,
            ..EdgeListOptions::default()
        };
        read_edge_list(path, &read)
    };
    read(sides).map_err(|error| match sides.filter(|_| read(None).is_ok()) {
        // Ratings that read well by themselves have more users or items than the counts say.
        Some((users, items)) => DatasetError::invalid(format!(
            "{error}; {COUNTS} states {users} users and {items} items: fetch both files again, or remove {COUNTS}"
        )),
        None if error.is_corrupt() || error.is_not_found() => error.into(),
        None => DatasetError::invalid(format!(
            "{error}; {RATINGS} of MovieLens has user, item, rating and timestamp on each line, and ids from 1"
        )),
    })
}

/// Numbers of users and items, if the file of counts exists.
///
/// # Errors
/// When the file cannot be read, or states no number of one of them.
fn read_counts(path: &Path) -> Result<Option<(usize, usize)>, DatasetError> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| DatasetError::from(error).at(path))?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let count = |what: &str| {
        let mut lines = text.lines().filter_map(|line| line.trim().split_once(char::is_whitespace));
        let number = lines.find(|(_, name)| name.trim() == what).and_then(|(number, _)| number.parse().ok());
        number.ok_or_else(|| {
            let message =
                format!("no line states the number of {what}, as `943 {what}`; fetch the file again, or remove it");
            DatasetError::invalid(message).at(path)
        })
    };
    Ok(Some((count("users")?, count("items")?)))
}
