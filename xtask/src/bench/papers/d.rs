//! Tables and figures of Li et al. 2025: relabelling and transfers.

use super::table::{Column, Paper, Row, Table, Value};

const PAPER: Paper =
    Paper { letter: "D", about: "Li et al., toBlockFast and pinned transfers of features, 2025", gpu: "NVIDIA K80" };
const STEPS: &[&str] = &["gpu-steps", "gpu-sampled"];
const FIRST: Value = Value::Metric("x_first");
const RELABELLINGS: &[&str] =
    &["sampling/to-block-fast, *", "sampling/fused, *", "sampling/rank, *", "sampling/on the device"];
const TRANSFERS: &[&str] = &["rows/gathered in pinned*", "rows/in pieces beside copies", "rows/in place", ""];
const MINIBATCH: &str = "cargo xtask bench gpu-minibatch --graph synth:GRAPH --peer PYTHON";

pub(super) const TABLES: &[Table] = &[
    Table {
        paper: PAPER,
        id: "DF6",
        title: "Figure 6: speedup of sampling over to_block, by relabelling",
        note: "One CPU thread, and the GPU. The paper compares with DGL's operator, girih with its own copy of it; for \
               DGL itself see the suite sampling.",
        columns: &[
            Column { name: "toBlockFast", suites: STEPS, value: FIRST },
            Column { name: "fused", suites: STEPS, value: FIRST },
            Column { name: "by rank", suites: STEPS, value: FIRST },
            Column { name: "on the GPU", suites: STEPS, value: FIRST },
        ],
        rows: &[
            Row::new("Reddit", "*reddit", &["1.59", "1.60", "", ""], RELABELLINGS),
            Row::new("Products", "*products", &["1.75", "1.98", "", ""], RELABELLINGS),
            Row::new("Papers100M", "*papers100m", &["2.00", "2.35", "", ""], RELABELLINGS),
            Row::new("Yelp", "*yelp", &["1.31", "1.52", "", ""], RELABELLINGS),
        ],
        commands: &["cargo xtask bench gpu-steps --graph synth:GRAPH"],
    },
    Table {
        paper: PAPER,
        id: "DF7",
        title: "Figure 7: speedup of bringing features to the GPU over pageable copies",
        note: "The paper's figure is the best speedup of the whole training, which girih's steps do not have.",
        columns: &[
            Column { name: "pinned", suites: STEPS, value: FIRST },
            Column { name: "in pieces beside copies", suites: STEPS, value: FIRST },
            Column { name: "in place (UVA)", suites: STEPS, value: FIRST },
            Column { name: "whole training", suites: &[], value: FIRST },
        ],
        rows: &[
            Row::new("Reddit", "*reddit", &["", "", "", "1.10"], TRANSFERS),
            Row::new("Products", "*products", &["", "", "", "1.79"], TRANSFERS),
            Row::new("Papers100M", "*papers100m", &["", "", "", "1.58"], TRANSFERS),
            Row::new("Yelp", "*yelp", &["", "", "", "1.06"], TRANSFERS),
        ],
        commands: &["cargo xtask bench gpu-steps --graph synth:GRAPH"],
    },
    Table {
        paper: PAPER,
        id: "D2",
        title: "Table 2: speedup of whole training over other libraries, one GPU",
        note: "girih: epochs in f32 with features on the host.",
        columns: &[
            Column { name: "DGL", suites: &[], value: Value::Metric("x_peer") },
            Column { name: "PyG", suites: &["gpu-minibatch"], value: Value::Metric("x_peer") },
            Column { name: "Graph-Learn", suites: &[], value: Value::Metric("x_peer") },
        ],
        rows: &[
            Row::new("Reddit", "*reddit", &["1.11", "1.08", "0.96"], WHOLE),
            Row::new("Products", "*products", &["1.80", "1.44", "1.36"], WHOLE),
            Row::new("Papers100M", "*papers100m", &["1.58", "1.67", "1.27"], WHOLE),
            Row::new("Yelp", "*yelp", &["1.06", "0.97", "1.01"], WHOLE),
        ],
        commands: &[MINIBATCH],
    },
    Table {
        paper: PAPER,
        id: "D3",
        title: "Table 3: seconds per epoch on Reddit, by size of the batch",
        note: "Batches of 1000, 4000 and 8000 seeds and fan-out 10,10,25 in the paper; 1024 and 8192 seeds and fan-out \
               15,10,5 here.",
        columns: &[
            Column { name: "DGL", suites: &[], value: Value::Seconds },
            Column { name: "PyG", suites: &["gpu-minibatch"], value: Value::Seconds },
            Column { name: "the paper, girih", suites: &["gpu-minibatch"], value: Value::Seconds },
        ],
        rows: &[
            Row::new("1000", "*reddit", &["29.35", "22.14", "4.10"], &["", "1024/pyg*", "1024/f32"]),
            Row::new("4000", "*reddit", &["13.79", "11.51", "1.98"], &["", "4096/pyg*", "4096/f32"]),
            Row::new("8000", "*reddit", &["9.39", "7.44", "1.29"], &["", "8192/pyg*", "8192/f32"]),
        ],
        commands: &[MINIBATCH],
    },
];

const WHOLE: &[&str] = &["", "1024/f32/features on the host", ""];
