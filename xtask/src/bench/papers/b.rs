//! Tables of Ma et al. 2024: sparsified features.

use super::table::{Column, Paper, Row, Table, Value};

const PAPER: Paper = Paper {
    letter: "B",
    about: "Ma et al., sparsified input features, Computer Systems & Applications 33(1), 2024",
    gpu: "NVIDIA GTX 1080 Ti",
};
const ACCURACY: Value = Value::Metric("accuracy_percent");
const CODECS: &str = "cargo xtask bench codecs";
const REDDIT: &str = "*reddit*factors*";
const MAG: &str = "*mag240m*factors*";

pub(super) const TABLES: &[Table] = &[
    Table {
        paper: PAPER,
        id: "B2",
        title: "Table 2: cosine similarity to the uncompressed run by ratio, MAG240M",
        note: "Here: rows of a generated graph with the width of MAG240M. Similarities of layers are not recorded.",
        columns: &[
            Column { name: "8", suites: &["codecs"], value: Value::Metric("cosine") },
            Column { name: "16", suites: &["codecs"], value: Value::Metric("cosine") },
            Column { name: "32", suites: &["codecs"], value: Value::Metric("cosine") },
            Column { name: "64", suites: &["codecs"], value: Value::Metric("cosine") },
        ],
        rows: &[
            Row::new(
                "input",
                MAG,
                &["0.963", "0.868", "0.746", "0.623"],
                &["codec/topk:64", "codec/topk:32", "codec/topk:16", "codec/topk:8"],
            ),
            Row::new("layer 1", MAG, &["0.981", "0.918", "0.818", "0.704"], &["", "", "", ""]),
            Row::new("layer 2", MAG, &["0.989", "0.944", "0.859", "0.752"], &["", "", "", ""]),
            Row::new("layer 3", MAG, &["0.991", "0.949", "0.867", "0.762"], &["", "", "", ""]),
        ],
        commands: &[CODECS],
    },
    Table {
        paper: PAPER,
        id: "B3",
        title: "Table 3: accuracy with all features and with codes, %",
        note: "Here: generated graphs with the widths of Reddit and MAG240M, so that differences compare, not levels. \
               The paper's MLP loses 6 to 11 points.",
        columns: &[
            Column { name: "all features", suites: &["codecs"], value: ACCURACY },
            Column { name: "codes", suites: &["codecs"], value: ACCURACY },
            Column { name: "difference, points", suites: &["codecs"], value: Value::Metric("beside_none_points") },
        ],
        rows: &[
            Row::new("GraphSAGE, Reddit", REDDIT, &["96.3", "95.9", ""], SAGE),
            Row::new("GraphSAGE, Papers100M", "*papers100m*", &["66.1", "65.6", ""], SAGE),
            Row::new("GraphSAGE, MAG240M", MAG, &["68.4", "68.2", ""], SAGE),
            Row::new("GAT, Reddit", REDDIT, &["95.2", "94.9", ""], GAT),
            Row::new("GAT, Papers100M", "*papers100m*", &["66.0", "65.1", ""], GAT),
            Row::new("GAT, MAG240M", MAG, &["67.9", "67.2", ""], GAT),
            Row::new("Cluster-GCN, Reddit", REDDIT, &["95.9", "95.7", ""], GCN),
            Row::new("Cluster-GCN, Papers100M", "*papers100m*", &["62.2", "61.5", ""], GCN),
            Row::new("Cluster-GCN, MAG240M", MAG, &["no memory", "", ""], GCN),
            Row::new("MLP, Reddit", REDDIT, &["", "", ""], MLP),
            Row::new("MLP, MAG240M", MAG, &["", "", ""], MLP),
        ],
        commands: &[CODECS],
    },
    Table {
        paper: PAPER,
        id: "B3-epochs",
        title: "Table 3: seconds per epoch of GraphSAGE with all features on the host, and with codes",
        note: "Here: a tenth of MAG240M's nodes and a quarter of Papers100M's, one GPU, codes on the GPU. Compare \
               ratios, not seconds.",
        columns: &[
            Column { name: "all features", suites: &["gpu-large"], value: Value::Seconds },
            Column { name: "codes", suites: &["gpu-large"], value: Value::Seconds },
        ],
        rows: &[
            Row::new("Reddit", "*reddit*", &["16.8", "2.5"], EPOCHS),
            Row::new("Papers100M", "*papers100m@0.25", &["188.6", "49.2"], EPOCHS),
            Row::new("MAG240M", "*mag240m@0.1", &["564.2", "120.9"], EPOCHS),
        ],
        commands: &["cargo xtask bench gpu-large --graph synth:mag240m@0.1", LARGE],
    },
    Table {
        paper: PAPER,
        id: "B4",
        title: "Table 4: accuracy and epochs of GraphSAGE by ratio, MAG240M",
        note: "Here: a generated graph with the width of MAG240M; epochs of each ratio are not recorded.",
        columns: &[
            Column { name: "accuracy, %", suites: &["codecs"], value: ACCURACY },
            Column { name: "epoch, s", suites: &[], value: Value::Seconds },
        ],
        rows: &[
            Row::new("1", MAG, &["68.4", "564"], &["sage/none", ""]),
            Row::new("8", MAG, &["68.5", "204"], &["sage/topk:64", ""]),
            Row::new("16", MAG, &["68.3", "150"], &["sage/topk:32", ""]),
            Row::new("32", MAG, &["68.2", "130"], &["sage/topk:16", ""]),
            Row::new("64", MAG, &["68.2", "120"], &["sage/topk:8", ""]),
            Row::new("128", MAG, &["67.2", "114"], &["sage/topk:4", ""]),
        ],
        commands: &[CODECS],
    },
];

const LARGE: &str = "cargo xtask bench gpu-large --graph synth:papers100m@0.25";
const SAGE: &[&str] = &["sage/none", "sage/topk:8", "sage/topk:8"];
const GAT: &[&str] = &["gat/none", "gat/topk:8", "gat/topk:8"];
const GCN: &[&str] = &["gcn/none", "gcn/topk:8", "gcn/topk:8"];
const MLP: &[&str] = &["mlp/none", "mlp/topk:8", "mlp/topk:8"];
const EPOCHS: &[&str] = &["1 device*features on the host", "1 device*topk:8 on every device"];
