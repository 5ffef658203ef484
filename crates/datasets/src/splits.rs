//! [`SplitRule`]: random splits for data that ships none.

use girih_graph_format::{NodeId, NodeType, Notes};
use girih_random::{Key, purpose, unit_f64};

use crate::{DatasetError, Labels, LoadOptions, Split, UNLABELLED};

/// Rule that assigns nodes to train, validation and test; only labelled nodes take part.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SplitRule {
    /// A fixed number of nodes of every class for training and validation, the rest for testing.
    PerClass {
        /// Training nodes of each class.
        train: usize,
        /// Validation nodes of each class.
        val: usize,
    },
    /// Independent assignment: training with probability `train`, validation with probability `val`, else testing.
    Fractions {
        /// Expected fraction of training nodes.
        train: f64,
        /// Expected fraction of validation nodes.
        val: f64,
        /// Expected fraction of test nodes; `None` for the rest.
        test: Option<f64>,
    },
}

impl SplitRule {
    /// 20 nodes per class for training and 30 for validation (Shchur et al., "Pitfalls of Graph Neural Network
    /// Evaluation", 2018, section 3).
    pub const GNN_BENCHMARK: Self = Self::PerClass { train: 20, val: 30 };

    /// 60 % training, 20 % validation, 20 % testing: the rule for labels without any split.
    pub const UNSPLIT: Self = Self::Fractions { train: 0.6, val: 0.2, test: None };

    /// Draws the split of one run; equal seeds and runs give equal splits.
    ///
    /// # Errors
    /// With [`SplitRule::PerClass`], when a class has too few nodes or nodes have several classes.
    pub fn draw(self, labels: &Labels, seed: u64, run: u64) -> Result<Split, DatasetError> {
        let key = Key::new(seed, purpose::SPLIT).child(run);
        match (self, labels) {
            (Self::PerClass { train, val }, Labels::Single { n_classes, classes }) => {
                per_class(*n_classes, classes, train, val, key)
            }
            (Self::PerClass { .. }, Labels::Multi { .. }) => {
                Err(DatasetError::invalid("a split per class needs one class per node; these nodes have several"))
            }
            (Self::Fractions { train, val, test }, labels) => Ok(fractions(labels, (train, val, test), key)),
        }
    }

    /// Draws the splits of runs `0..n`.
    ///
    /// # Errors
    /// As [`SplitRule::draw`].
    pub fn draw_many(self, labels: &Labels, seed: u64, n: usize) -> Result<Vec<Split>, DatasetError> {
        (0..n as u64).map(|run| self.draw(labels, seed, run)).collect()
    }
}

/// Ids of a part of a split of the target's nodes, ascending.
///
/// # Errors
/// When one is beyond the type, or listed twice.
pub(crate) fn part_of(mut ids: Vec<NodeId>, target: &NodeType) -> Result<Vec<NodeId>, DatasetError> {
    let (name, n_nodes) = (&target.name, target.n_nodes);
    if let Some(at) = ids.iter().position(|&id| id as usize >= n_nodes) {
        return Err(DatasetError::invalid(format!(
            "value {at} is node {}, and the target {name} has {n_nodes} nodes, counted from 0",
            ids[at]
        )));
    }
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        None => Ok(ids),
        Some(pair) => Err(DatasetError::invalid(format!("node {} is listed twice", pair[0]))),
    }
}

/// Draws splits for data without any, by the convention of its format, with a note. Draws none if the options bring
/// other labels or a rule of their own, and none if a class has too few nodes, which is noted.
pub(crate) fn drawn_by(rule: SplitRule, labels: &Labels, options: &LoadOptions, notes: &mut Notes) -> Vec<Split> {
    if options.random_split || options.labels.is_some() {
        return Vec::new();
    }
    match rule.draw_many(labels, options.seed, options.n_drawn()) {
        Ok(splits) => {
            note_drawn(rule, &splits, options, notes);
            splits
        }
        Err(error) => {
            notes.warn(format!(
                "no split is drawn: {error}; --split random draws one of 60 % train, 20 % val, 20 % test"
            ));
            Vec::new()
        }
    }
}

/// Draws splits on the user's request.
///
/// # Errors
/// When there are no labels.
pub(crate) fn drawn_as_asked(
    labels: Option<&Labels>,
    options: &LoadOptions,
    notes: &mut Notes,
) -> Result<Vec<Split>, DatasetError> {
    let labels = labels.ok_or_else(|| {
        DatasetError::invalid("--split random deals nodes with labels, and there are no labels; leave it out")
    })?;
    let rule = SplitRule::UNSPLIT;
    let splits = rule.draw_many(labels, options.seed, options.n_drawn())?;
    note_drawn(rule, &splits, options, notes);
    Ok(splits)
}

fn note_drawn(rule: SplitRule, splits: &[Split], options: &LoadOptions, notes: &mut Notes) {
    let Some(split) = splits.first() else { return };
    let how = match rule {
        SplitRule::PerClass { train, val } => format!("{train} nodes of each class train, {val} val, the rest test"),
        SplitRule::Fractions { train, val, test } => {
            let percent = |share: f64| format!("{:.0} %", 100.0 * share);
            let test = test.unwrap_or(1.0 - train - val);
            format!("{} train, {} val, {} test", percent(train), percent(val), percent(test))
        }
    };
    let sizes = split.parts().map(|(_, nodes)| nodes.len());
    let [train, val, test] = sizes;
    let text = format!("split drawn at random, {how}: {train}, {val} and {test} nodes, seed {}", options.seed);
    let counts = [("splits", splits.len()), ("train", train), ("val", val), ("test", test)].map(|(k, n)| (k, n as u64));
    notes.make_up("drawn_split", text, &[&counts[..], &[("seed", options.seed)]].concat());
}

fn per_class(n_classes: usize, classes: &[u32], train: usize, val: usize, key: Key) -> Result<Split, DatasetError> {
    let mut members: Vec<Vec<NodeId>> = vec![Vec::new(); n_classes];
    for (v, &class) in classes.iter().enumerate().filter(|&(_, &class)| class != UNLABELLED) {
        members[class as usize].push(v as NodeId);
    }
    let mut split = Split::default();
    for (class, mut nodes) in members.into_iter().enumerate() {
        if nodes.len() < train + val {
            return Err(DatasetError::invalid(format!(
                "class {class} has {} labelled nodes; {train} for training and {val} for validation need {}",
                nodes.len(),
                train + val
            )));
        }
        key.stream(class as u64, 0).shuffle(&mut nodes);
        split.test.extend(nodes.split_off(train + val));
        split.val.extend(nodes.split_off(train));
        split.train.extend(nodes);
    }
    for part in [&mut split.train, &mut split.val, &mut split.test] {
        part.sort_unstable();
    }
    Ok(split)
}

fn fractions(labels: &Labels, (train, val, test): (f64, f64, Option<f64>), key: Key) -> Split {
    let end = test.map_or(1.0, |test| train + val + test);
    let mut split = Split::default();
    for v in (0..labels.n_nodes() as NodeId).filter(|&v| labels.is_labelled(v)) {
        let words = key.block(u64::from(v), 0);
        let draw = unit_f64(u64::from(words[0]) << 32 | u64::from(words[1]));
        let part = if draw < train {
            &mut split.train
        } else if draw < train + val {
            &mut split.val
        } else if draw < end {
            &mut split.test
        } else {
            continue;
        };
        part.push(v);
    }
    split
}
