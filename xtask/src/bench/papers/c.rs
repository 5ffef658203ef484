//! Tables of Cai et al. 2023: sampled training over NVLink.

use super::table::{Column, Paper, Row, Table, Value};

const PAPER: Paper = Paper { letter: "C", about: "Cai et al., DSP, PPoPP 2023", gpu: "8 × NVIDIA V100 16 GB, NVLink" };
const SAMPLED: &[&str] = &["gpu-minibatch", "gpu-sampled", "gpu-large"];
const MINIBATCH: &str = "cargo xtask bench gpu-minibatch --graph synth:products --peer PYTHON";
const EPOCH: Value = Value::Seconds;
const OF_PYG: &[&str] = &["1024/pyg*", "", "", ""];
const OURS: &[&str] = &[
    "1024/bf16",
    "1024/bf16 a device/2 devices, *",
    "1024/bf16 a device/4 devices, *",
    "1024/bf16 a device/8 devices, *",
];
const OURS_LARGE: &[&str] = &["1 device, bf16, *", "2 devices, bf16, *", "4 devices, bf16, *", "8 devices, bf16, *"];
const NOTHING: &[&str] = &["", "", "", ""];

pub(super) const TABLES: &[Table] = &[
    Table {
        paper: PAPER,
        id: "C4",
        title: "Table 4: seconds per epoch of GraphSAGE by number of GPUs",
        note: "Three layers of 256, 1024 seeds a GPU, fan-out 15,10,5. girih stands in the rows of DSP, in bf16, with its \
               fastest placement.",
        columns: &[
            Column { name: "1 GPU", suites: SAMPLED, value: EPOCH },
            Column { name: "2", suites: SAMPLED, value: EPOCH },
            Column { name: "4", suites: SAMPLED, value: EPOCH },
            Column { name: "8", suites: SAMPLED, value: EPOCH },
        ],
        rows: &[
            Row::new("Products, PyG", "*products", &["28.8", "20.4", "17.1", "16.1"], OF_PYG),
            Row::new("Products, DGL-CPU", "*products", &["14.7", "9.29", "6.43", "5.45"], NOTHING),
            Row::new("Products, Quiver", "*products", &["5.71", "4.06", "2.82", "2.51"], NOTHING),
            Row::new("Products, DGL-UVA", "*products", &["6.87", "6.03", "3.17", "1.61"], NOTHING),
            Row::new("Products, DSP", "*products", &["3.11", "1.75", "0.992", "0.613"], OURS),
            Row::new("Papers100M, DGL-UVA", "*papers100m", &["47.5", "39.6", "30.2", "18.3"], NOTHING),
            Row::new("Papers100M, DSP", "*papers100m", &["39.1", "24.5", "15.3", "4.64"], OURS_LARGE),
            Row::new("Friendster, DSP", "*friendster", &["270", "116", "64.6", "44.8"], OURS_LARGE),
        ],
        commands: &[MINIBATCH, "cargo xtask bench gpu-large"],
    },
    Table {
        paper: PAPER,
        id: "C5",
        title: "Table 5: seconds per epoch of GCN on 8 GPUs",
        note: "The text at hand lacks the figures; it says that the speedups exceed those of GraphSAGE.",
        columns: &[Column { name: "8 GPUs", suites: SAMPLED, value: EPOCH }],
        rows: &[Row::new("Products, GCN", "*products", &[""], &[""])],
        commands: &["girih train --data synth:products --model gcn --batch neighbor --device cuda --gpus 8"],
    },
    Table {
        paper: PAPER,
        id: "C6-7",
        title: "Tables 6 and 7: sampling of a batch of 1024 seeds, ms",
        note: "The text at hand ends before these tables; it says that sampling is up to 20 times as fast as over UVA or \
               on CPUs.",
        columns: &[
            Column { name: "graph on the GPU", suites: &["gpu-sampling"], value: Value::Ms },
            Column { name: "graph on the host, by UVA", suites: &["gpu-sampling"], value: Value::Ms },
            Column { name: "one CPU thread", suites: &["gpu-sampling"], value: Value::Ms },
        ],
        rows: &[
            Row::new("Products", "*products*", &["", "", ""], SAMPLING),
            Row::new("Reddit", "*reddit*", &["", "", ""], SAMPLING),
        ],
        commands: &["cargo xtask bench gpu-sampling --graph synth:GRAPH,features=0"],
    },
    Table {
        paper: PAPER,
        id: "CP",
        title: "Pipeline on and off: seconds per epoch, Products, one GPU",
        note: "The paper's pipeline takes 1.5 times off an epoch of several GPUs. On one GPU girih overlaps kernels \
               within a step as well.",
        columns: &[
            Column { name: "on", suites: SAMPLED, value: EPOCH },
            Column { name: "off", suites: SAMPLED, value: EPOCH },
        ],
        rows: &[
            Row::new("features on the GPU", "*products", &["", ""], &["1024/bf16", "1024/bf16/nothing ahead"]),
            Row::new(
                "features on the host",
                "*products",
                &["", ""],
                &["1024/bf16/features on the host", "1024/bf16/features on the host, nothing ahead"],
            ),
        ],
        commands: &[MINIBATCH],
    },
    Table {
        paper: PAPER,
        id: "CF10",
        title: "Figure 10: seconds per epoch by the share of rows cached on the GPU, Products",
        note: "The figure has curves of Papers100M and Friendster without numbers.",
        columns: &[
            Column { name: "0.1", suites: SAMPLED, value: EPOCH },
            Column { name: "0.2", suites: SAMPLED, value: EPOCH },
            Column { name: "0.5", suites: SAMPLED, value: EPOCH },
            Column { name: "1", suites: SAMPLED, value: EPOCH },
        ],
        rows: &[
            Row::new(
                "features",
                "*products",
                &["", "", "", ""],
                &[
                    "1024/bf16/features, cache 0.1",
                    "1024/bf16/features, cache 0.2",
                    "1024/bf16/features, cache 0.5",
                    "1024/bf16/features, cache 1",
                ],
            ),
            Row::new(
                "graph",
                "*products",
                &["", "", "", ""],
                &[
                    "1024/bf16/graph, cache 0.1",
                    "1024/bf16/graph, cache 0.2",
                    "1024/bf16/graph, cache 0.5",
                    "1024/bf16/graph, cache 1",
                ],
            ),
        ],
        commands: &[MINIBATCH],
    },
];

const SAMPLING: &[&str] =
    &["1024/15,10,5/local", "1024/15,10,5/global, graph on the host*", "1024/15,10,5/local, one thread*"];
