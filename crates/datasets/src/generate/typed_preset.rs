//! Presets of graphs with types: recipes with published sizes.

use super::preset::communities;
use super::recipes::{Labelled, PlantedSettings, RelationDraws, TypeSize, Typed};
use crate::ReverseEdges;

/// Names that `synth:` accepts.
pub(super) const NAMES: [&str; 9] = [
    "igbh",
    "igbh-tiny",
    "igbh-small",
    "igbh-medium",
    "igbh-large",
    "igbh-full",
    "mag240m-hetero",
    "ogbn-mag",
    "aifb-like",
];

/// Mean number of labelled nodes that a community has at least, where there are more communities than classes.
const LABELS_MIN: f64 = 20.0;
/// Edges of each relation of AIFB, as R-GCN reads it: 29 043 in all.
const AIFB: [u64; 45] = [
    4163, 4124, 3986, 2477, 1302, 1227, 1227, 1217, 952, 952, 765, 759, 571, 548, 534, 357, 339, 311, 298, 239, 227,
    227, 202, 200, 199, 190, 161, 152, 152, 148, 145, 129, 114, 79, 79, 68, 65, 50, 49, 16, 15, 12, 10, 5, 1,
];

/// IGBH with nodes of papers, authors, institutes and fields of study, and edges of citations, authors of papers, topics
/// and institutes. All papers have labels: 60 % train, 20 % validate.
fn igbh(nodes: [usize; 4], edges: [u64; 4]) -> Typed {
    let [paper, author, institute, fos] = nodes;
    let [cites, written_by, topic, affiliated_to] = edges;
    recipe(
        &[("paper", paper, 1024), ("author", author, 1024), ("institute", institute, 1024), ("fos", fos, 1024)],
        &[
            ("cites", [0, 0], cites),
            ("written_by", [0, 1], written_by),
            ("topic", [0, 3], topic),
            ("affiliated_to", [1, 2], affiliated_to),
        ],
        PlantedSettings { train: 0.6, val: 0.2, ..PlantedSettings::with_classes(2983) },
    )
}

/// IGBH-full with MLPerf's labelled papers, training papers and validation papers; the other labelled ones test.
fn igbh_full() -> Typed {
    const LABELLED: f64 = 157_675_969.0;
    let full =
        igbh([269_346_174, 277_220_883, 26_918, 712_960], [3_996_442_004, 716_761_549, 1_050_280_600, 48_521_486]);
    let settings = PlantedSettings { train: 94_605_581.0 / LABELLED, val: 788_379.0 / LABELLED, ..full.settings };
    Typed { labelled: Labelled::Share(LABELLED / 269_346_174.0), settings, ..full }
}

fn mag240m() -> Typed {
    const PARTS: [f64; 3] = [1_112_392.0, 138_949.0, 88_092.0];
    const LABELLED: f64 = PARTS[0] + PARTS[1] + PARTS[2];
    let full = recipe(
        &[("paper", 121_751_666, 768), ("author", 122_383_112, 0), ("institution", 25_721, 0)],
        &[("cites", [0, 0], 1_297_748_926), ("writes", [1, 0], 386_022_720), ("affiliated_with", [1, 2], 44_592_586)],
        PlantedSettings { train: PARTS[0] / LABELLED, val: PARTS[1] / LABELLED, ..PlantedSettings::with_classes(153) },
    );
    Typed { labelled: Labelled::Share(LABELLED / 121_751_666.0), ..full }
}

fn ogbn_mag() -> Typed {
    const PAPERS: f64 = 736_389.0;
    recipe(
        &[("paper", 736_389, 128), ("author", 1_134_649, 0), ("institution", 8_740, 0), ("field_of_study", 59_965, 0)],
        &[
            ("cites", [0, 0], 5_416_271),
            ("writes", [1, 0], 7_145_660),
            ("has_topic", [0, 3], 7_505_078),
            ("affiliated_with", [1, 2], 1_043_998),
        ],
        PlantedSettings { train: 629_571.0 / PAPERS, val: 64_879.0 / PAPERS, ..PlantedSettings::with_classes(349) },
    )
}

/// As AIFB: 176 nodes of many edges have labels, of which 140 train and none validates. Degrees are more uneven and
/// communities are purer than elsewhere, so that so few labels suffice.
fn aifb() -> Typed {
    let names: Vec<String> = (1..=AIFB.len()).map(|number| format!("relation{number}")).collect();
    let relations: Vec<(&str, [usize; 2], u64)> =
        names.iter().zip(AIFB).map(|(name, edges)| (&name[..], [0, 0], edges)).collect();
    let few = PlantedSettings { mix: 0.05, gamma: 1.8, ..PlantedSettings::with_classes(4) };
    let settings = PlantedSettings { train: 140.0 / 176.0, val: 0.0, ..few };
    Typed { labelled: Labelled::Hubs(176.0 / 8285.0), ..recipe(&[("entity", 8285, 0)], &relations, settings) }
}

/// Recipe of node types (name, nodes, width of the features) and relations (name, source and destination, edges); the
/// first type is the target, and all its nodes have labels.
fn recipe(
    node_types: &[(&str, usize, usize)],
    relations: &[(&str, [usize; 2], u64)],
    settings: PlantedSettings,
) -> Typed {
    let type_size =
        |&(name, nodes, features): &(&str, usize, usize)| TypeSize { name: name.to_owned(), nodes, features };
    let relation = |&(name, [source, destination], edges): &(&str, [usize; 2], u64)| RelationDraws {
        name: name.to_owned(),
        source,
        destination,
        edges,
    };
    let recipe = Typed {
        node_types: node_types.iter().map(type_size).collect(),
        relations: relations.iter().map(relation).collect(),
        target: 0,
        labelled: Labelled::Share(1.0),
        reverse: ReverseEdges::Add,
        settings,
    };
    let classes = recipe.settings.classes;
    recipe.with_classes(classes)
}

impl Typed {
    /// Recipe of a preset at full scale; `None` if there is none of this name.
    ///
    /// Sizes of IGBH are those of Khatua et al., "IGB: Addressing the Gaps in Labeling, Features, Heterogeneity, and Size
    /// of Public Graph Datasets for Deep Learning Research" (KDD 2023), of the four types and relations that all sizes
    /// have; parts of `full` are MLPerf's. Sizes of MAG240M and ogbn-mag are those of Hu et al. (OGB-LSC, 2021; OGB,
    /// 2020), and of AIFB those of Schlichtkrull et al. (ESWC 2018).
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        match name {
            "igbh-tiny" => Some(igbh([100_000, 357_041, 8_738, 84_220], [447_416, 471_443, 718_445, 325_410])),
            "igbh-small" => {
                Some(igbh([1_000_000, 1_926_066, 14_751, 190_449], [12_070_502, 4_553_516, 7_234_122, 1_630_476]))
            }
            "igbh-medium" => {
                Some(igbh([10_000_000, 15_544_654, 23_256, 415_054], [120_077_694, 39_854_592, 68_510_495, 11_049_412]))
            }
            "igbh-large" => Some(igbh(
                [100_000_000, 116_959_896, 26_524, 649_707],
                [1_223_571_364, 289_502_107, 457_577_294, 34_099_660],
            )),
            "igbh" | "igbh-full" => Some(igbh_full()),
            "mag240m-hetero" => Some(mag240m()),
            "ogbn-mag" => Some(ogbn_mag()),
            "aifb-like" => Some(aifb()),
            _ => None,
        }
    }

    /// Recipe with nodes and edges times `scale`, and the numbers of communities that suit them.
    ///
    /// # Errors
    /// When a type is left without nodes; the message names a scale that is large enough.
    pub fn scaled(mut self, scale: f64) -> Result<Self, String> {
        for of in &mut self.node_types {
            let nodes = (of.nodes as f64 * scale).round() as usize;
            if nodes == 0 {
                let least = 1.0 / of.nodes as f64;
                return Err(format!("SCALE {scale} leaves no {}; take {least:.1e} or more", of.name));
            }
            of.nodes = nodes;
        }
        for of in &mut self.relations {
            of.edges = (of.edges as f64 * scale).round() as u64;
        }
        let classes = self.settings.classes;
        Ok(self.with_classes(classes))
    }

    /// Recipe with a number of classes, the number of communities that suits it, and a signal by which features alone
    /// tell the classes of about half of the nodes.
    #[must_use]
    pub fn with_classes(self, classes: usize) -> Self {
        // The largest of `n` normal numbers is about √(2 ln n).
        let signal = ((2.0 * (classes as f64).ln()).sqrt() - 0.5).max(0.0);
        let nodes = self.node_types[self.target].nodes;
        let (Labelled::Share(share) | Labelled::Hubs(share)) = self.labelled;
        let most = (share * nodes as f64 / LABELS_MIN) as usize;
        let communities = communities(nodes, self.target_edges(), classes).min(most.max(classes));
        let settings = PlantedSettings { classes, communities, signal, ..self.settings };
        Self { settings, ..self }
    }
}
