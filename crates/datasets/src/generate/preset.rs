//! [`Preset`]: named recipes with the sizes that the papers report.

use super::recipes::{Planted, PlantedSettings, Rmat};
use super::typed_preset::NAMES as TYPED_NAMES;

/// Sizes of a data set that a recipe imitates; edges are stored edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Name in a SPEC.
    pub name: &'static str,
    nodes: usize,
    edges: u64,
    features: usize,
    classes: usize,
    multi_label: bool,
    train: f64,
    val: f64,
    /// Expected fraction of test nodes, for graphs with few labelled nodes.
    test: Option<f64>,
}

const fn preset(name: &'static str, nodes: usize, edges: u64, features: usize, classes: usize) -> Preset {
    Preset { name, nodes, edges, features, classes, multi_label: false, train: 0.5, val: 0.1, test: None }
}

/// Presets: Reddit to Products as in Miao et al. 2023 (whose features of Proteins and Archaea are synthetic, too),
/// Papers100M and MAG240M as in Ma et al. 2024, Yelp as in Li et al. 2025, Friendster as in Cai et al. 2023 (SNAP's
/// exact counts).
const PRESETS: [Preset; 9] = [
    preset("planted", 10_000, 200_000, 64, 10),
    Preset { train: 0.66, ..preset("reddit", 232_965, 114_848_857, 602, 41) },
    preset("proteins", 132_534, 79_255_038, 602, 8),
    preset("archaea", 1_644_228, 206_436_882, 602, 10),
    Preset { train: 0.08, val: 0.02, ..preset("products", 2_449_029, 126_167_181, 100, 47) },
    Preset {
        train: 0.011,
        val: 0.001,
        test: Some(0.0019),
        ..preset("papers100m", 111_059_956, 3_231_371_744, 128, 172)
    },
    Preset { train: 0.005, val: 0.001, test: Some(0.0006), ..preset("mag240m", 244_160_499, 1_728_364_232, 768, 153) },
    Preset { multi_label: true, train: 0.75, ..preset("yelp", 537_635, 7_949_403, 300, 100) },
    Preset { train: 0.01, val: 0.001, ..preset("friendster", 65_608_366, 3_612_134_270, 256, 64) },
];

/// Names that `synth:` accepts, including R-MAT and graphs with types.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|preset| preset.name).chain(["rmat"]).chain(TYPED_NAMES)
}

impl Preset {
    /// Finds the preset of a name; R-MAT and graphs with types are none of these.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// Number of nodes at full scale.
    #[must_use]
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Width of the features.
    #[must_use]
    pub fn features(&self) -> usize {
        self.features
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// Mean number of stored edges of a node.
    #[must_use]
    pub fn mean_degree(&self) -> f64 {
        self.edges as f64 / self.nodes as f64
    }

    /// Recipe with nodes and edges times `scale`, and unchanged features and classes.
    #[must_use]
    pub fn recipe(&self, scale: f64) -> Planted {
        let nodes = (self.nodes as f64 * scale).round() as usize;
        let edges = (self.edges as f64 * scale).round() as u64;
        let settings = PlantedSettings {
            multi_label: self.multi_label,
            communities: communities(nodes, edges, self.classes),
            train: self.train,
            val: self.val,
            test: self.test,
            ..PlantedSettings::with_classes(self.classes)
        };
        Planted { nodes, edges: edges & !1, features: self.features, settings }
    }
}

impl PlantedSettings {
    /// Settings of presets, with one class per node and as many communities as classes. Half of the nodes train and a
    /// tenth validates.
    pub(super) fn with_classes(classes: usize) -> Self {
        Self {
            classes,
            multi_label: false,
            communities: classes,
            mix: 0.25,
            gamma: 2.3,
            signal: 2.0,
            factors: 0,
            stray: 0.0,
            noise: 0.05,
            train: 0.5,
            val: 0.1,
            test: None,
            seed: 0,
        }
    }
}

impl Default for Rmat {
    fn default() -> Self {
        Self { nodes: 1 << 16, edges: 32 << 16, seed: 0 }
    }
}

/// Number of communities: several per class, but so few that neighbors inside a community seldom repeat.
pub(crate) fn communities(nodes: usize, edges: u64, classes: usize) -> usize {
    let mean_degree = (edges as f64 / nodes.max(1) as f64).max(8.0);
    let fitting = (nodes as f64 / (16.0 * mean_degree)) as usize;
    fitting.clamp(classes, classes.saturating_mul(10)).min(nodes).max(1)
}
