//! Short help and examples of every command.

use clap::Command;

/// Help of a command, in addition to the texts of its flags.
pub struct Help {
    /// Name of the command.
    pub command: &'static str,
    /// Ids of the flags and arguments that `-h` shows; `--help` shows all. If empty, `-h` shows all as well.
    pub common: &'static [&'static str],
    /// Pairs of a purpose and its command line.
    pub examples: &'static [(&'static str, &'static str)],
}

/// Flags that every `-h` shows.
const EVERYWHERE: &[&str] = &["path", "json", "quiet", "verbose", "help"];
/// Maximum number of examples in `-h`.
const SHORT_EXAMPLES_MAX: usize = 3;

/// Help of all commands.
pub const HELP: &[Help] = &[
    Help {
        command: "train",
        common: &["model", "layers", "hidden", "lr", "epochs", "batch", "device", "out", "resume"],
        examples: &[
            ("A GCN on a small generated graph", "girih train"),
            ("A graph of your own, kept", "girih train PATH --model sage --out runs/first"),
            ("Go on after Ctrl-C", "girih train --out runs/first --resume"),
            ("Memory and time, nothing trained", "girih train PATH --hidden 256 --plan"),
            ("Mini-batches", "girih train PATH --model sage --batch neighbor --fanout 15,10"),
        ],
    },
    Help {
        command: "launch",
        common: &[],
        examples: &[
            ("Four ranks on this host", "girih launch --nproc 4 -- train PATH --epochs 50"),
            (
                "Two hosts, the same on each but for --node",
                "girih launch --nproc 4 --nodes 2 --node 0 --rendezvous host:9000 --secret-file FILE -- train PATH",
            ),
        ],
    },
    Help {
        command: "evaluate",
        common: &["checkpoint", "codec", "device", "ranks", "similarity", "ogb"],
        examples: &[
            ("On the data of the training", "girih evaluate --checkpoint runs/first"),
            ("On other data", "girih evaluate PATH --checkpoint runs/first"),
            ("As the Open Graph Benchmark scores it", "girih evaluate ogbl-ddi --checkpoint runs/ddi --ogb"),
        ],
    },
    Help {
        command: "predict",
        common: &["checkpoint", "nodes", "out", "logits", "device", "ranks"],
        examples: &[
            ("One class per node, for NumPy", "girih predict --checkpoint runs/first --out classes.npy"),
            ("Logits", "girih predict PATH --checkpoint runs/first --logits --out logits.npy"),
            (
                "Nodes that the graph does not have",
                "girih predict --checkpoint runs/first --nodes new.npz --out new.npy",
            ),
        ],
    },
    Help {
        command: "embed",
        common: &["checkpoint", "out", "device"],
        examples: &[("A row per node, for NumPy", "girih embed --checkpoint runs/first --out embeddings.npy")],
    },
    Help {
        command: "serve",
        common: &["checkpoint", "fanout", "device", "listen", "queue", "max_nodes"],
        examples: &[
            ("Exact answers", "girih serve --checkpoint runs/first"),
            (
                "Sampled ones, on another port",
                "girih serve --checkpoint runs/first --fanout 10,10 --listen 127.0.0.1:9000",
            ),
        ],
    },
    Help {
        command: "export",
        common: &[],
        examples: &[
            ("A state dict for PyG", "girih export --checkpoint runs/first --out weights.safetensors"),
            ("A folder for Hugging Face's hub", "girih export --checkpoint runs/first --format hf --out hub"),
        ],
    },
    Help {
        command: "import",
        common: &["weights", "format", "config", "model", "layers", "hidden", "heads", "out"],
        examples: &[
            (
                "A GCN of PyG, to score on a graph",
                "girih import PATH --weights weights.safetensors --model gcn --hidden 64 --out runs/imported",
            ),
            ("A folder of girih export --format hf", "girih import --weights hub --format hf --out runs/imported"),
        ],
    },
    Help {
        command: "compare",
        common: &["runs", "out"],
        examples: &[
            ("Two models", "girih compare runs/gcn runs/sage"),
            ("All sessions, with curves", "girih compare runs/* --out compared.html"),
        ],
    },
    Help {
        command: "stats",
        common: &["symmetrize", "cache", "width"],
        examples: &[("Any format", "girih stats PATH"), ("For programs", "girih stats synth:reddit@0.1 --json")],
    },
    Help {
        command: "reorder",
        common: &["order", "out", "plot", "report", "seed"],
        examples: &[
            ("Compare orders", "girih reorder PATH --order degree,rcm,metis,community --plot spy.png"),
            ("Write the data in an order", "girih reorder PATH --order community --out ordered"),
        ],
    },
    Help {
        command: "partition",
        common: &["ranks", "partition", "replication", "exchange", "compare", "plot"],
        examples: &[
            ("16 ranks in a square", "girih partition PATH --ranks 16 --partition 2d"),
            ("Before and after an order", "girih partition PATH --ranks 4 --compare metis --plot blocks.svg"),
        ],
    },
    Help {
        command: "sample",
        common: &["batch", "fanout", "batch_size", "epochs", "seed", "threads", "ranks", "plan"],
        examples: &[
            ("Neighbors of 1024 seeds", "girih sample PATH --fanout 15,10,5"),
            ("Placement in the memory of two GPUs", "girih sample PATH --plan --gpus 2 --memory 80GB"),
        ],
    },
    Help {
        command: "compress",
        common: &[],
        examples: &[
            ("Codes of 1/64 of float32", "girih compress PATH --codec topk:8 --out codes"),
            ("The best code of at most 32 bytes a row", "girih compress x.npy --codec auto:32 --out codes"),
        ],
    },
    Help {
        command: "decompress",
        common: &[],
        examples: &[("Back to an array", "girih decompress codes --out features.npy")],
    },
    Help {
        command: "generate",
        common: &[],
        examples: &[
            ("A tenth of Reddit's size", "girih generate reddit@0.1 --out reddit"),
            ("Sizes of your own", "girih generate planted,nodes=10000,degree=20 --out planted"),
        ],
    },
    Help {
        command: "convert",
        common: &["out", "features", "labels", "symmetrize"],
        examples: &[
            ("A folder that maps into memory", "girih convert PATH --out folder"),
            ("The graph alone, for scipy", "girih convert PATH --out graph.npz"),
        ],
    },
    Help {
        command: "verify",
        common: &[],
        examples: &[
            ("Data, before a long training", "girih verify folder"),
            ("All checkpoints of a session", "girih verify runs/first"),
        ],
    },
    Help {
        command: "doctor",
        common: &[],
        examples: &[("Speed, memory, CUDA", "girih doctor"), ("For programs", "girih doctor --json")],
    },
    Help {
        command: "completions",
        common: &[],
        examples: &[
            ("For bash, in this shell", "girih completions bash > girih.bash"),
            ("Manual pages", "girih completions man --out man"),
        ],
    },
];

/// Command with its examples, and with a short help of the common flags.
pub(super) fn completed(command: Command) -> Command {
    let Some(help) = HELP.iter().find(|help| help.command == command.get_name()) else { return command };
    let shown = &help.examples[..help.examples.len().min(SHORT_EXAMPLES_MAX)];
    let command = command.after_help(short_examples(shown)).after_long_help(examples(help.examples));
    if help.common.is_empty() {
        return command;
    }
    command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let is_common = help.common.contains(&id) || EVERYWHERE.contains(&id);
        arg.hide_short_help(!is_common)
    })
}

/// Examples at the end of a short help text, one line each.
fn short_examples(all: &[(&str, &str)]) -> String {
    let lines = all.iter().map(|(_, line)| format!("  {line}"));
    std::iter::once("Examples:".to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}

/// Examples at the end of a help text, two lines each.
fn examples(all: &[(&str, &str)]) -> String {
    let lines = all.iter().map(|(what, line)| format!("  # {what}\n  {line}"));
    std::iter::once("Examples:".to_owned()).chain(lines).collect::<Vec<_>>().join("\n")
}
