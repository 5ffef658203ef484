//! Flags for reading files; also the section `[read]` of a configuration file.

use std::path::PathBuf;

use clap::Args;
use girih_datasets::{LabelColumns, Literals, LoadOptions, NodeTypesFrom, ReverseEdges, TypeNames, TypeRules};
use girih_graph_format::Duplicates;
use girih_graph_format::file::{Columns, ReadTimes, Verify};
use serde::{Deserialize, Serialize};

use super::RowDivisor;

/// How files become a data set, as flags or in a configuration file under the same names.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[command(next_help_heading = "Data")]
#[serde(default, deny_unknown_fields)]
pub struct ReadArgs {
    /// Features from another file: .npy, .csv, sparse .npz of scipy, or .codes
    ///
    /// One row for each node. `girih compress` makes .codes of a .npy.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub features: Option<PathBuf>,
    /// Labels from another file: .npy, .csv or .txt
    ///
    /// One class for each node, negative where unknown; for several labels a node, a row of 0 and 1 each. Text may have
    /// the columns `node,label`. Of data whose nodes have names, a table of names and labels. Of IGB, 19 or 2K: its labels of
    /// so many classes.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels: Option<PathBuf>,
    /// Training nodes with their labels: a table, for data whose nodes have names
    ///
    /// A .tsv or .csv with a header. Without --train, --val and --test, the split is that of the data, or drawn.
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub train: Option<PathBuf>,
    /// Validation nodes with their labels, as --train
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val: Option<PathBuf>,
    /// Test nodes with their labels, as --train
    #[arg(long, value_name = "FILE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<PathBuf>,
    /// Columns of tables of labels, by their headers
    ///
    /// [default: the one that begins with label, and the first other one that names nodes]
    #[arg(long, value_name = "NODE,LABEL")]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub label_columns: Option<LabelColumns>,
    /// Share of the training nodes of --train that is drawn for validation, such as 0.2
    #[arg(long, value_name = "SHARE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_share: Option<f64>,
    /// Literals of N-Triples: nodes, features of their subjects, or drop to leave them out [default: nodes]
    #[arg(long, value_name = "RULE", ignore_case = true)]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub literals: Option<Literals>,
    /// Types of the nodes of N-Triples: single, or rdf-type for their classes [default: single]
    #[arg(long, value_name = "RULE", ignore_case = true)]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub node_types: Option<NodeTypesFrom>,
    /// Reverse relations of typed data: add, merge or no
    ///
    /// With merge, a relation inside one type gets the other direction of each edge, and only others a reverse.
    /// [default: of what girih has written no, else add, unless a relation is the reverse of another]
    #[arg(long, value_name = "add|merge|no", ignore_case = true)]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub reverse: Option<ReverseEdges>,
    /// Type of the nodes to be classified, in typed data [default: the one with labels]
    #[arg(long, value_name = "TYPE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Names of the types of id pairs, such as p=paper,a=author [default: their letters]
    #[arg(long, value_name = "LETTER=NAME,…")]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub type_names: Option<TypeNames>,
    /// Store every edge in both directions
    ///
    /// [default: of edge lists true, of other files as the format's published loader does]
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symmetrize: Option<bool>,
    /// Rule for parallel edges: sum, merge, keep or refuse
    ///
    /// sum adds their weights; merge stores a pair once, with the first weight; keep counts every one of them, as PyG
    /// and DGL do; refuse stops. [default: as the format's own loader does, see docs/formats.md]
    #[arg(long, value_name = "RULE", ignore_case = true)]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub duplicates: Option<Duplicates>,
    /// Columns of an edge list, such as source,target,-,weight, or of triples: head,relation,tail
    ///
    /// Roles are source, target, weight, time, and - for a column that is not used. [default: as the header says, else
    /// source,target or source,target,weight; triples head,relation,tail]
    #[arg(long, value_name = "ROLES")]
    #[serde(skip_serializing_if = "Option::is_none", with = "by_name")]
    pub columns: Option<Columns>,
    /// Sources and targets of an edge list are numbered apart, like users and items
    ///
    /// For instance, user 3 and item 3 are two nodes. Sources keep their ids, and those of the targets follow.
    /// [default: as the header says, else false]
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bipartite: Option<bool>,
    /// Id of the first node in an edge list: 0 or 1
    ///
    /// With users and items, that of the first node on each side. [default: 0, and 1 in KONECT's lists]
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u32).range(0..=1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids_from: Option<u32>,
    /// First class of labels: 0 or 1
    ///
    /// [default: 0, and labels without a 0 are refused]
    #[arg(long, value_name = "0|1", value_parser = clap::value_parser!(u32).range(0..=1))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labels_from: Option<u32>,
    /// Whether a row of 0 and 1 holds several labels of a node
    ///
    /// [default: one class where every row has exactly one 1, else several labels]
    #[arg(long, value_name = "BOOL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub multi_label: Option<bool>,
    /// Divide each row of features by its sum, its length, or the root of its length
    ///
    /// [default: sum for Planetoid, root-length for gnn-benchmark, else none]
    #[arg(long, value_enum, ignore_case = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize_features: Option<RowDivisor>,
    /// Split to use: a number from 0, all, or random
    ///
    /// With all, run r takes split r. Split sets of id pairs are also chosen by the numbers in their names. random draws 60 % train, 20 % val and 20 % test, whatever splits the
    /// data has.
    /// [default: all]
    #[arg(long, value_name = "I|all|random", value_parser = parse_split)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub split: Option<SplitChoice>,
}

/// Split sets to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SplitValue", into = "SplitValue")]
pub enum SplitChoice {
    /// All split sets, one per run.
    All,
    /// The split set with this number, in every run.
    One(usize),
    /// Random split sets, one per run.
    Random,
}

/// Split in a configuration file: a number, or a word.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum SplitValue {
    Number(usize),
    Word(String),
}

impl TryFrom<SplitValue> for SplitChoice {
    type Error = String;

    fn try_from(value: SplitValue) -> Result<Self, String> {
        match value {
            SplitValue::Number(split) => Ok(Self::One(split)),
            SplitValue::Word(word) => parse_split(&word),
        }
    }
}

impl From<SplitChoice> for SplitValue {
    fn from(choice: SplitChoice) -> Self {
        match choice {
            SplitChoice::One(split) => Self::Number(split),
            SplitChoice::All => Self::Word("all".to_owned()),
            SplitChoice::Random => Self::Word("random".to_owned()),
        }
    }
}

fn parse_split(text: &str) -> Result<SplitChoice, String> {
    match text.to_ascii_lowercase().as_str() {
        "all" => Ok(SplitChoice::All),
        "random" => Ok(SplitChoice::Random),
        _ => text.parse().map(SplitChoice::One).map_err(|_| "expected a number from 0, all, or random".to_owned()),
    }
}

impl ReadArgs {
    /// These options, with unset ones taken from `others`.
    pub fn or(self, others: Self) -> Self {
        let Self {
            features,
            labels,
            train,
            val,
            test,
            label_columns,
            val_share,
            literals,
            node_types,
            reverse,
            target,
            type_names,
            symmetrize,
            duplicates,
            columns,
            bipartite,
            ids_from,
            labels_from,
            multi_label,
            normalize_features,
            split,
        } = self;
        Self {
            features: features.or(others.features),
            labels: labels.or(others.labels),
            train: train.or(others.train),
            val: val.or(others.val),
            test: test.or(others.test),
            label_columns: label_columns.or(others.label_columns),
            val_share: val_share.or(others.val_share),
            literals: literals.or(others.literals),
            node_types: node_types.or(others.node_types),
            reverse: reverse.or(others.reverse),
            target: target.or(others.target),
            type_names: type_names.or(others.type_names),
            symmetrize: symmetrize.or(others.symmetrize),
            duplicates: duplicates.or(others.duplicates),
            columns: columns.or(others.columns),
            bipartite: bipartite.or(others.bipartite),
            ids_from: ids_from.or(others.ids_from),
            labels_from: labels_from.or(others.labels_from),
            multi_label: multi_label.or(others.multi_label),
            normalize_features: normalize_features.or(others.normalize_features),
            split: split.or(others.split),
        }
    }

    /// Options for the loaders. `seed` and `n_splits` decide the splits that are drawn.
    pub fn options(&self, seed: u64, n_splits: usize, strict: bool) -> LoadOptions {
        let read = self.clone();
        LoadOptions {
            feature_norm: read.normalize_features.map(Into::into),
            symmetrize: read.symmetrize,
            seed,
            n_splits,
            split: match read.split {
                None | Some(SplitChoice::All | SplitChoice::Random) => None,
                Some(SplitChoice::One(split)) => Some(split),
            },
            random_split: read.split == Some(SplitChoice::Random),
            features: read.features,
            codec: None,
            features_from: None,
            type_rules: TypeRules::new(),
            labels: read.labels,
            train: read.train,
            val: read.val,
            test: read.test,
            label_columns: read.label_columns,
            val_share: read.val_share,
            literals: read.literals,
            node_types: read.node_types,
            reverse: read.reverse,
            target: read.target,
            type_names: read.type_names,
            labels_from: read.labels_from,
            multi_label: read.multi_label,
            duplicates: read.duplicates,
            columns: read.columns,
            bipartite: read.bipartite,
            times: ReadTimes::No,
            edge_features: Vec::new(),
            ids_from: read.ids_from,
            strict,
            verify: Verify::Full,
        }
    }
}

/// Serialises values as their names.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        value.as_ref().map(ToString::to_string).serialize(serializer)
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let name = Option::<String>::deserialize(deserializer)?;
        name.map(|name| name.parse().map_err(serde::de::Error::custom)).transpose()
    }
}
