//! [`SUITES`]: rows and columns of each suite on the page of results.

/// Table of a suite.
pub struct Suite {
    /// Name of the suite.
    pub name: &'static str,
    /// Sentence below the heading.
    pub about: &'static str,
    /// Patterns of case names, in which `*` is any text. A row has the fastest case that fits.
    pub rows: &'static [&'static str],
    /// Metrics after the median time.
    pub metrics: &'static [&'static str],
}

/// Table of the products of blocks, on CPUs and on GPUs.
const BLOCKS: Suite = Suite {
    name: "blocks",
    about: "Products of the blocks of a partition; time of the slowest rank.",
    rows: &[
        "none/1.5d/4",
        "community-whole/1.5d/4",
        "community-inside/1.5d/4",
        "community-inside/2d/4",
        "community-inside/1d/4",
    ],
    metrics: &["x_first", "fastest_rank_ms"],
};

/// Tables in the order of the page: suites for CPUs, then for GPUs.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "spmm",
        about: "Sparse times dense matrix on the CPU, beside DGL.",
        rows: &["w64/csr/f32", "w64/csr/bf16", "w128/csr/f32", "w128/csr/bf16", "w256/csr/f32", "w256/csr/bf16"],
        metrics: &["gathered_gb_s", "share_of_l3", "x_peer_copy", "x_peer_scaled"],
    },
    Suite {
        name: "fullbatch",
        about: "Epochs on the whole graph, beside DGL.",
        rows: &["gcn/f32", "gcn/bf16", "sage/f32", "sage/bf16", "sgc/f32", "mlp/f32"],
        metrics: &["x_peer", "peak_over_needed"],
    },
    Suite {
        name: "attention",
        about: "Epochs of attention networks, beside DGL and PyG.",
        rows: &["gat", "gat/dgl*", "gat/pyg*", "gatv2"],
        metrics: &["x_girih", "peak_over_needed"],
    },
    Suite {
        name: "minibatch",
        about: "Steps of GraphSAGE on sampled batches, beside DGL.",
        rows: &["step/2 ahead", "step/0 ahead", "step/dgl*"],
        metrics: &["x_peer"],
    },
    Suite {
        name: "sampling",
        about: "Sampled batches of 1000 seeds, beside DGL.",
        rows: &[
            "15,10,5/to-block/1*",
            "15,10,5/rank/1*",
            "15,10,5/rank/2*",
            "15,10,5/dgl*",
            "25,10,10/rank/2*",
            "25,10,10/dgl*",
        ],
        metrics: &["million_edges_s", "x_classic", "x_peer"],
    },
    Suite {
        name: "reorder",
        about: "Products of 128 columns in each node order.",
        rows: &["shuffled", "degree", "slashburn", "rcm", "metis", "community"],
        metrics: &["x_shuffled", "coverage", "order_s"],
    },
    BLOCKS,
    Suite {
        name: "batches",
        about: "Accuracy of mini-batches beside the full graph.",
        rows: &["sage/neighbor", "gat/neighbor", "gcn/cluster"],
        metrics: &["accuracy_percent", "beside_full_points", "beside_full_error_points"],
    },
    Suite {
        name: "codecs",
        about: "Compressed features, and training with them beside `f32`.",
        rows: &["codec/topk:8", "codec/int8", "sage/topk:8", "gat/topk:8"],
        metrics: &["ratio", "cosine", "gather_gb_s", "accuracy_percent", "beside_none_points"],
    },
    Suite {
        name: "tiers",
        about: "Reads that a cache of a tenth of the nodes serves. Times are those of the order.",
        rows: &["degree/10 %", "presampled/10 %", "in hindsight/10 %"],
        metrics: &["feature_hits_percent", "row_hits_percent", "expected_percent"],
    },
    Suite {
        name: "io",
        about: "Formats of graphs and data sets.",
        rows: &["whole data set/load", "folder, mapped/load", "csv/load", "tsv.gz/load", "mtx/load", "metis/load"],
        metrics: &["mb_s", "million_edges_s"],
    },
    Suite {
        name: "lightgcn",
        about: "Recommendation, beside the authors' method in PyTorch.",
        rows: &["epoch", "batch", "evaluation"],
        metrics: &["x_peer"],
    },
    Suite {
        name: "scaling",
        about: "Planned epochs for the number of GPUs before the partition; nothing ran. \
                [Scaling](scaling.md) has all numbers of GPUs.",
        rows: &["8/*", "64/*"],
        metrics: &["x_one", "exchanges_ms", "memory_gb"],
    },
    Suite {
        name: "gpu-spmm",
        about: "Sparse times dense matrix on a GPU, beside cuSPARSE. `gathered_of_copy` is above one where caches serve rows.",
        rows: &["*/w128/f32/girih", "*/w128/bf16/girih"],
        metrics: &["x_cusparse", "gathered_of_copy", "compulsory_of_copy"],
    },
    Suite {
        name: "gpu-fullbatch",
        about: "Epochs of a GCN, beside PyTorch.",
        rows: &["*/f32/once", "*/bf16/once"],
        metrics: &["x_peer", "x_peer_same_order"],
    },
    Suite {
        name: "gpu-ablation",
        about: "Parts of sparse products: order, storage and dense blocks.",
        rows: &["none/bf16/never", "*/bf16/auto"],
        metrics: &["product_ms", "x_base", "x_base_product", "coverage"],
    },
    Suite {
        name: "gpu-profile",
        about: "Memory traffic of single products, by NVIDIA's kernel profiler.",
        rows: &["none/never/f32", "community/auto/f32", "none/never/bf16", "community/auto/bf16"],
        metrics: &["memory_gb_s", "memory_of_copy", "l2_hit_percent"],
    },
    Suite { name: "gpu-blocks", ..BLOCKS },
    Suite {
        name: "gpu-ranks",
        about: "Epochs of a GCN on several GPUs: the fastest way in bf16.",
        rows: &["*/bf16/2/*", "*/bf16/4/*"],
        metrics: &["x_one", "x_bound", "predicted_over_measured"],
    },
    Suite {
        name: "gpu-sampling",
        about: "Sampled batches, hop by hop on the GPU or one CPU thread.",
        rows: &["1024/15,10,5/local", "8192/15,10,5/local", "8192/15,10,5/local, one thread*"],
        metrics: &["billion_edges_s"],
    },
    Suite {
        name: "gpu-steps",
        about: "Steps of a mini-batch of 1024 seeds; features on the host, or as codes on the GPU.",
        rows: &["sampling/on the device", "rows/in place", "codes/topk:8 to bf16", "stages/bf16/all"],
        metrics: &["gb_s", "share_of_copies", "x_slowest"],
    },
    Suite {
        name: "gpu-minibatch",
        about: "Epochs of GraphSAGE on sampled batches, beside PyG and WholeGraph.",
        rows: &["1024/bf16", "1024/bf16/features on the host", "* devices, all on each", "* devices, both in patches*"],
        metrics: &["ms_a_batch", "x_peer", "x_wholegraph", "x_one"],
    },
    Suite {
        name: "gpu-sampled",
        about: "Steps and epochs of sampled training, in one record.",
        rows: &[
            "stages/bf16/all",
            "1024/bf16",
            "1024/bf16/features on the host",
            "* devices, all on each",
            "* devices, both in patches*",
        ],
        metrics: &["ms_a_batch", "x_one", "x_slowest"],
    },
    Suite {
        name: "gpu-large",
        about: "Epochs on graphs whose features exceed a GPU.",
        rows: &["*, features on the host", "*, topk:8 on every device", "1 device, *cache*", "4 devices, *"],
        metrics: &["ms_a_batch", "host_reads_percent", "x_uncompressed", "x_one"],
    },
    Suite {
        name: "gpu-accuracy",
        about: "Losses and scores of a GPU beside the CPU's, and of bf16 beside `f32`.",
        rows: &["loss/device", "bf16"],
        metrics: &["loss_difference_millionths", "accuracy_percent", "roc_auc_percent", "beside_f32_points"],
    },
];
