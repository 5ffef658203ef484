//! Tables and figures of Miao et al. 2023: training on the full graph.

use super::table::{Column, Paper, Row, Table, Value};

const PAPER: Paper = Paper {
    letter: "A",
    about: "Miao et al., training graph neural networks on several GPUs, Journal of Software 34(9), 2023",
    gpu: "NVIDIA TITAN RTX, PCIe 3",
};
const EPOCH: Value = Value::Seconds;
const PRODUCT: Value = Value::Metric("product_ms");
const HITS: Value = Value::Metric("l2_hit_percent");
const TIMES: Value = Value::Metric("x_first");
const ABLATION: &str = "cargo xtask bench gpu-ablation --graph synth:GRAPH";
const BLOCKS: &str = "cargo xtask bench gpu-blocks --graph synth:GRAPH,features=0";

/// Cells of a row of table 4: the peer, DGL, and girih without and with orders and blocks.
const END_TO_END: &[&str] =
    &["none/torch*", "", "none/f32/never", "community/f32/never", "community/f32/auto", "community/bf16/auto"];
const THRESHOLDS: &[&str] =
    &["community/f32/0.02", "community/f32/0.05", "community/f32/0.1", "community/f32/auto", "community/bf16/auto"];
const PROFILED: &[&str] =
    &["none/never/f32", "metis/never/f32", "rcm/never/f32", "community/never/f32", "community/f32/never"];
const DISTRIBUTED: &[&str] = &["community-inside/1d/2", "community-inside/1d/4", "community-inside/1.5d/4", ""];
const BLOCK_SPARSE: &[&str] =
    &["community/f32/never", "community/f32/auto", "community/bf16/never", "community/bf16/auto"];

pub(super) const TABLES: &[Table] = &[
    Table {
        paper: PAPER,
        id: "A4",
        title: "Table 4: seconds per epoch on one GPU",
        note: "The order is METIS or RCM in the paper, communities here. Records of gpu-ablation may have fewer features \
               than the paper's graphs; each source says how many.",
        columns: &[
            Column { name: "PyTorch", suites: &["gpu-fullbatch"], value: EPOCH },
            Column { name: "DGL", suites: &[], value: EPOCH },
            Column { name: "base", suites: &["gpu-ablation"], value: EPOCH },
            Column { name: "+ order", suites: &["gpu-ablation"], value: EPOCH },
            Column { name: "+ blocks", suites: &["gpu-ablation"], value: EPOCH },
            Column { name: "+ bf16", suites: &["gpu-ablation"], value: EPOCH },
        ],
        rows: &[
            Row::new("Reddit", "*reddit", &["1.187", "0.587", "0.710", "0.302", "0.102", ""], END_TO_END),
            Row::new("Proteins", "*proteins", &["0.714", "0.186", "0.285", "0.149", "0.060", ""], END_TO_END),
            Row::new("Archaea", "*archaea", &["no memory", "no memory", "0.980", "0.306", "0.107", ""], END_TO_END),
            Row::new("Products", "*products", &["1.537", "0.672", "0.764", "0.379", "0.136", ""], END_TO_END),
        ],
        commands: &[
            ABLATION,
            "cargo xtask bench gpu-fullbatch --graph synth:GRAPH --order none,community --peer PYTHON",
        ],
    },
    Table {
        paper: PAPER,
        id: "A5",
        title: "Table 5: seconds per epoch by the density from which tiles are dense",
        note: "Tiles of 32 × 32 in the paper; blocks for tensor cores here, whose best threshold the GPU chooses.",
        columns: &[
            Column { name: "2 %", suites: &["gpu-ablation"], value: EPOCH },
            Column { name: "5 %", suites: &["gpu-ablation"], value: EPOCH },
            Column { name: "10 %", suites: &["gpu-ablation"], value: EPOCH },
            Column { name: "chosen", suites: &["gpu-ablation"], value: EPOCH },
            Column { name: "chosen, bf16", suites: &["gpu-ablation"], value: EPOCH },
        ],
        rows: &[
            Row::new("Reddit", "*reddit", &["0.147", "0.102", "0.097", "", ""], THRESHOLDS),
            Row::new("Proteins", "*proteins", &["0.100", "0.060", "0.057", "", ""], THRESHOLDS),
            Row::new("Archaea", "*archaea", &["0.205", "0.107", "0.161", "", ""], THRESHOLDS),
            Row::new("Products", "*products", &["0.162", "0.136", "0.191", "", ""], THRESHOLDS),
        ],
        commands: &[ABLATION],
    },
    Table {
        paper: PAPER,
        id: "AF5",
        title: "Figure 5: products of the blocks of Reddit, 1.5D with 4 ranks and 2 replicas, ms",
        note: "METIS in the paper, communities here.",
        columns: BLOCK_COLUMNS_MS,
        rows: &[
            Row::new("shuffled", "*reddit*", &["262.55", "265.58", "263.70", "264.20"], BLOCKS_NONE),
            Row::new("order of the whole graph", "*reddit*", &["186.72", "100.88", "101.04", "309.16"], BLOCKS_WHOLE),
            Row::new("order inside the blocks", "*reddit*", &["166.72", "170.54", "168.91", "161.80"], BLOCKS_INSIDE),
        ],
        commands: &[BLOCKS],
    },
    Table {
        paper: PAPER,
        id: "AF5-edges",
        title: "Figure 5: millions of edges of these blocks",
        note: "The order inside the blocks leaves them as they are.",
        columns: BLOCK_COLUMNS_EDGES,
        rows: &[
            Row::new("shuffled", "*reddit*", &["29.7", "28.6", "28.6", "27.9"], BLOCKS_NONE),
            Row::new("order of the whole graph", "*reddit*", &["42.3", "3.8", "3.8", "65.0"], BLOCKS_WHOLE),
            Row::new("order inside the blocks", "*reddit*", &["29.7", "28.6", "28.6", "27.9"], BLOCKS_INSIDE),
        ],
        commands: &[BLOCKS],
    },
    Table {
        paper: PAPER,
        id: "AF8",
        title: "Figure 8: hits in the L2 cache by order, and speedup of the product",
        note: "The speedup is that of the better of METIS and RCM in the paper, that of communities here, all by rows.",
        columns: &[
            Column { name: "shuffled, %", suites: &["gpu-profile"], value: HITS },
            Column { name: "METIS, %", suites: &["gpu-profile"], value: HITS },
            Column { name: "RCM, %", suites: &["gpu-profile"], value: HITS },
            Column { name: "communities, %", suites: &["gpu-profile"], value: HITS },
            Column { name: "product, times", suites: &["gpu-ablation"], value: Value::Metric("x_base_product") },
        ],
        rows: &[
            Row::new("Reddit", "*reddit", &["57.03", "almost 80", "almost 70", "", "about 1.5"], PROFILED),
            Row::new("Archaea", "*archaea", &["55.71", "almost 99", "almost 99", "", "about 2.4"], PROFILED),
            Row::new("Proteins", "*proteins", &["", "", "", "", ""], PROFILED),
        ],
        commands: &[
            "cargo xtask bench gpu-profile --graph synth:GRAPH,features=0 --order none,metis,rcm,community --ncu ncu",
            ABLATION,
        ],
    },
    Table {
        paper: PAPER,
        id: "AF9",
        title: "Figure 9: speedup of products and epochs by orders inside the blocks",
        note: "The better of METIS and RCM in the paper, communities here. Of Proteins and Products the paper says only \
               that products are up to about twice as fast.",
        columns: &[
            Column { name: "1D, 2 ranks", suites: &["gpu-blocks"], value: TIMES },
            Column { name: "1D, 4 ranks", suites: &["gpu-blocks"], value: TIMES },
            Column { name: "1.5D, 4 ranks", suites: &["gpu-blocks"], value: TIMES },
            Column { name: "epoch, 1D, 2 ranks", suites: &[], value: TIMES },
        ],
        rows: &[
            Row::new("Reddit", "*reddit*", &["", "", "2.41", "1.87"], DISTRIBUTED),
            Row::new("Proteins", "*proteins*", &["", "", "", "1.59"], DISTRIBUTED),
            Row::new("Archaea", "*archaea*", &["", "3.46", "3.91", "1.84"], DISTRIBUTED),
            Row::new("Products", "*products*", &["", "", "", "1.39"], DISTRIBUTED),
        ],
        commands: &[BLOCKS, "cargo xtask bench gpu-ranks --graph synth:GRAPH --order none,community"],
    },
    Table {
        paper: PAPER,
        id: "AF10",
        title: "Figure 10: products by rows and with dense blocks, one GPU, ms",
        note: "The figure has bars without numbers.",
        columns: &[
            Column { name: "by rows", suites: &["gpu-ablation"], value: PRODUCT },
            Column { name: "with blocks", suites: &["gpu-ablation"], value: PRODUCT },
            Column { name: "by rows, bf16", suites: &["gpu-ablation"], value: PRODUCT },
            Column { name: "with blocks, bf16", suites: &["gpu-ablation"], value: PRODUCT },
        ],
        rows: &[
            Row::new("Reddit", "*reddit", &["", "", "", ""], BLOCK_SPARSE),
            Row::new("Proteins", "*proteins", &["", "", "", ""], BLOCK_SPARSE),
        ],
        commands: &[ABLATION],
    },
];

const BLOCK_COLUMNS_MS: &[Column] = &block_columns(Value::Ms);
const BLOCK_COLUMNS_EDGES: &[Column] = &block_columns(Value::Metric("edges_m"));
const BLOCKS_NONE: &[&str] = &["none/block/0-0", "none/block/0-1", "none/block/1-0", "none/block/1-1"];
const BLOCKS_WHOLE: &[&str] = &[
    "community-whole/block/0-0",
    "community-whole/block/0-1",
    "community-whole/block/1-0",
    "community-whole/block/1-1",
];
const BLOCKS_INSIDE: &[&str] = &[
    "community-inside/block/0-0",
    "community-inside/block/0-1",
    "community-inside/block/1-0",
    "community-inside/block/1-1",
];

const fn block_columns(value: Value) -> [Column; 4] {
    [
        Column { name: "block 0-0", suites: &["gpu-blocks"], value },
        Column { name: "block 0-1", suites: &["gpu-blocks"], value },
        Column { name: "block 1-0", suites: &["gpu-blocks"], value },
        Column { name: "block 1-1", suites: &["gpu-blocks"], value },
    ]
}
