//! [`LoadOptions`]: options of loading files as a [`Dataset`](crate::Dataset).

use std::path::PathBuf;

use girih_compress::CodecSpec;
use girih_graph_format::Duplicates;
use girih_graph_format::file::{Columns, ReadTimes, Verify};

use crate::{
    DatasetError, FeatureNorm, FeaturesFrom, LabelColumns, Literals, NodeTypesFrom, ReverseEdges, TypeNames, TypeRules,
};

/// Options of loading; every default is the convention of the format's published loader.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOptions {
    /// Divisor of feature rows. `None`: the sum for Planetoid, as its users do; the root of the length for the bags
    /// of words of gnn-benchmark; no division elsewhere.
    pub feature_norm: Option<FeatureNorm>,
    /// Store every edge in both directions. `None`: the convention of the format, which is yes for Planetoid,
    /// gnn-benchmark, the heterophilous graphs, OGB and edge lists. It is no for girih's own folder, named arrays and
    /// matrices.
    pub symmetrize: Option<bool>,
    /// Random seed of all draws, such as splits of data that ships none.
    pub seed: u64,
    /// Number of split sets to draw for data that ships none, one per run.
    pub n_splits: usize,
    /// Split set to keep, counted from 0, of the shipped or drawn ones; `None`: all. For id pairs, the number in the names
    /// of its files chooses a set as well.
    pub split: Option<usize>,
    /// Dense features (`.npy`) or compressed ones (`.codes`), one row per node, for formats without features, such as
    /// edge lists.
    pub features: Option<PathBuf>,
    /// Rule that makes features for data without any; data with features is then refused. `None`: no rule.
    pub features_from: Option<FeaturesFrom>,
    /// Rules for the features of node types.
    pub type_rules: TypeRules,
    /// Codec that compresses features as they are read, fitted with `seed`; `None`: features stay as the data has
    /// them.
    pub codec: Option<CodecSpec>,
    /// Labels for formats without labels: `.npy` or a text table (`.csv`, `.tsv`, `.txt`), one class per node,
    /// negative or NaN when unknown; or a row of 0 and 1 per node. Where nodes have names, a text table names nodes and
    /// their labels. `19` and `2K` choose labels of IGB.
    pub labels: Option<PathBuf>,
    /// Table of training nodes with their labels, for data whose nodes have names.
    pub train: Option<PathBuf>,
    /// Table of validation nodes with their labels, as `train`.
    pub val: Option<PathBuf>,
    /// Table of test nodes with their labels, as `train`.
    pub test: Option<PathBuf>,
    /// Columns of tables of labels; `None`: found by their headers and contents.
    pub label_columns: Option<LabelColumns>,
    /// Share of the training nodes that is drawn for validation, where tables name training nodes.
    pub val_share: Option<f64>,
    /// Draw splits of 60 % train, 20 % val and 20 % test, and ignore those of the data.
    pub random_split: bool,
    /// Smallest class of the labels, 0 or 1; `None`: 0, and labels without a 0 are refused.
    pub labels_from: Option<u32>,
    /// Whether a row of 0 and 1 holds several labels or one class; `None`: one class where every row has exactly one 1.
    pub multi_label: Option<bool>,
    /// Treatment of parallel edges; `None`: that of the format's own loader.
    pub duplicates: Option<Duplicates>,
    /// Roles of the columns of an edge list; `None`: those of its header, or else source, target and weight.
    pub columns: Option<Columns>,
    /// Whether sources and targets of an edge list have separate ids; `None`: as its header says.
    pub bipartite: Option<bool>,
    /// Id of the first node in an edge list, on each side if there are two; `None`: 0, and 1 in KONECT's lists.
    pub ids_from: Option<u32>,
    /// Whether times of edges are read; only edge lists have them.
    pub times: ReadTimes,
    /// Columns of an edge list that are read as features of its edges: names or numbers from 1, or `all`. They are read
    /// with times alone.
    pub edge_features: Vec<String>,
    /// Treatment of literals in N-Triples; `None`: they are nodes.
    pub literals: Option<Literals>,
    /// Rule for the node types of N-Triples; `None`: all are of one type.
    pub node_types: Option<NodeTypesFrom>,
    /// Whether relations get reverse relations. `None`: relations of girih's own files stay as they are; others get one
    /// unless it is there.
    pub reverse: Option<ReverseEdges>,
    /// Name of the node type whose nodes have labels and splits; `None`: the only one with labels.
    pub target: Option<String>,
    /// Names of the node types of id pairs; `None`: their letters.
    pub type_names: Option<TypeNames>,
    /// Refuse data that is partly unused or doubtful.
    pub strict: bool,
    /// Whether folders and stores are compared with their checksums.
    pub verify: Verify,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            feature_norm: None,
            symmetrize: None,
            seed: 0,
            n_splits: 1,
            split: None,
            features: None,
            features_from: None,
            type_rules: TypeRules::new(),
            codec: None,
            labels: None,
            train: None,
            val: None,
            test: None,
            label_columns: None,
            val_share: None,
            random_split: false,
            labels_from: None,
            multi_label: None,
            duplicates: None,
            columns: None,
            bipartite: None,
            ids_from: None,
            times: ReadTimes::No,
            edge_features: Vec::new(),
            literals: None,
            node_types: None,
            reverse: None,
            target: None,
            type_names: None,
            strict: false,
            verify: Verify::Full,
        }
    }
}

impl LoadOptions {
    /// Whether a file of labels or of a part of the split is named.
    pub(crate) fn names_labels(&self) -> bool {
        [&self.labels, &self.train, &self.val, &self.test].into_iter().any(Option::is_some)
    }

    /// Options for reading features that are divided before they are encoded: without the codec, if they are.
    pub(crate) fn until_divided(&self) -> Self {
        let divides = self.feature_norm.is_some_and(|norm| norm != FeatureNorm::None);
        Self { codec: self.codec.filter(|_| !divides), ..self.clone() }
    }

    /// Refuses flags of typed data, but for those that have a meaning for the data.
    ///
    /// # Errors
    /// When another one is given.
    pub(crate) fn check_typed_flags(&self, allowed: &[&str]) -> Result<(), DatasetError> {
        match self.typed_flag(allowed) {
            None => Ok(()),
            Some((flag, of)) => {
                Err(DatasetError::invalid(format!("{flag} is for {of}, which this is not; leave it out")))
            }
        }
    }

    /// First flag that is given, has a meaning for typed data alone, and is none of `allowed`; with the data that it is
    /// for.
    pub(crate) fn typed_flag(&self, allowed: &[&str]) -> Option<(&'static str, &'static str)> {
        const TYPED: &str = "data with types";
        const SEVERAL: &str = "data with several types of nodes";
        const PAIRS: &str = "folders of id pairs";
        const TRIPLES: &str = "N-Triples";
        let given = [
            (self.literals.is_some(), "--literals", TRIPLES),
            (self.node_types.is_some(), "--node-types", TRIPLES),
            (self.reverse.is_some(), "--reverse", TYPED),
            (self.target.is_some(), "--target", SEVERAL),
            (self.type_names.is_some(), "--type-names", PAIRS),
            (self.train.is_some(), "--train", TRIPLES),
            (self.val.is_some(), "--val", TRIPLES),
            (self.test.is_some(), "--test", TRIPLES),
            (self.label_columns.is_some(), "--label-columns", TRIPLES),
            (self.val_share.is_some(), "--val-share", TRIPLES),
        ];
        let mut given = given.into_iter().filter(|(is_given, flag, _)| *is_given && !allowed.contains(flag));
        given.next().map(|(_, flag, of)| (flag, of))
    }

    /// Number of split sets to draw where there are none; the set to keep is among them.
    pub(crate) fn n_drawn(&self) -> usize {
        self.split.map_or(self.n_splits, |split| self.n_splits.max(split.saturating_add(1)))
    }
}
