//! Short help and examples of every command.

use clap::Command;

/// Help of a command, in addition to the texts of its flags.
struct Help {
    command: &'static str,
    /// Ids of the flags and arguments that `-h` shows; `--help` shows all. If empty, `-h` shows all as well.
    common: &'static [&'static str],
    /// Pairs of a purpose and its command line.
    examples: &'static [(&'static str, &'static str)],
}

/// Flags that every `-h` shows.
const EVERYWHERE: &[&str] = &["path", "json", "quiet", "verbose", "help"];
/// Maximum number of examples in `-h`.
const SHORT_EXAMPLES_MAX: usize = 3;

const HELP: &[Help] = &[
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
        common: &["checkpoint", "codec", "device", "ranks", "similarity"],
        examples: &[
            ("On the data of the training", "girih evaluate --checkpoint runs/first"),
            ("On other data", "girih evaluate PATH --checkpoint runs/first"),
        ],
    },
    Help {
        command: "predict",
        common: &["checkpoint", "out", "logits", "device", "ranks"],
        examples: &[
            ("One class per node, for NumPy", "girih predict --checkpoint runs/first --out classes.npy"),
            ("Logits", "girih predict PATH --checkpoint runs/first --logits --out logits.npy"),
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
            ("Neighbours of 1024 seeds", "girih sample PATH --fanout 15,10,5"),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, command};

    const WIDTH: usize = 80;
    const SHORT_LINES_MAX: usize = 40;

    /// Every command with its help at 80 columns, from `-h` and from `--help`.
    fn rendered() -> Vec<(String, [String; 2])> {
        let mut girih = command().term_width(WIDTH);
        girih.build();
        let girih_itself = girih.clone();
        std::iter::once(&girih_itself)
            .chain(girih.get_subcommands().filter(|command| command.get_name() != "help"))
            .map(|command| {
                let mut command = command.clone().term_width(WIDTH);
                let texts = [command.render_help().to_string(), command.render_long_help().to_string()];
                (command.get_name().to_owned(), texts)
            })
            .collect()
    }

    #[test]
    fn short_help_fits_a_screen() {
        for (name, [short, _]) in rendered() {
            let lines = short.trim_end().lines().count();
            assert!(lines <= SHORT_LINES_MAX, "{name} -h has {lines} lines:\n{short}");
        }
    }

    #[test]
    fn help_fits_80_columns() {
        for (name, texts) in rendered() {
            for line in texts.iter().flat_map(|text| text.lines()) {
                assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            }
        }
    }

    #[test]
    fn every_command_has_examples_that_parse() {
        let girih = command();
        for command in girih.get_subcommands() {
            let help = HELP.iter().find(|help| help.command == command.get_name());
            let help = help.unwrap_or_else(|| panic!("{} has no examples", command.get_name()));
            for (_, line) in help.examples {
                let words = line.split(' ').take_while(|word| *word != ">");
                assert!(words.clone().nth(1) == Some(help.command), "{line}");
                if let Err(error) = Cli::parse_line(words) {
                    panic!("{line}: {error}");
                }
            }
        }
        assert_eq!(HELP.len(), girih.get_subcommands().count(), "help of a command that is gone");
    }

    #[test]
    fn common_flags_exist() {
        let girih = command();
        for help in HELP {
            let command = girih.find_subcommand(help.command).unwrap();
            for id in help.common {
                assert!(command.get_arguments().any(|arg| arg.get_id() == id), "{}: {id}", help.command);
            }
        }
    }

    /// A heading names the flags below it: output flags are not listed under ranks.
    #[test]
    fn flags_stand_in_their_groups() {
        let mut girih = command();
        girih.build();
        let heading = |command: &str, id: &str| {
            let command = girih.find_subcommand(command).unwrap();
            let arg = command.get_arguments().find(|arg| arg.get_id() == id);
            arg.unwrap_or_else(|| panic!("no {id}")).get_help_heading().unwrap_or("Options").to_owned()
        };
        for (id, expected) in [
            ("out", "Output"),
            ("json", "Output"),
            ("resume", "Output"),
            ("config", "Settings"),
            ("plan", "Plan"),
            ("memory", "Plan"),
            ("reorder", "Order of nodes"),
            ("ranks", "Ranks"),
            ("device", "Device"),
            ("quiet", "Output"),
        ] {
            assert_eq!(heading("train", id), expected, "{id}");
        }
        for id in ["batch", "fanout", "batch_size", "clusters", "epochs", "seed", "threads"] {
            assert_eq!(heading("sample", id), "Mini-batches", "{id}");
        }
        for command in ["evaluate", "predict", "stats", "sample", "partition", "reorder", "convert"] {
            assert_eq!(heading(command, "json"), "Output", "{command}");
            assert_eq!(heading(command, "data"), "Data", "{command}");
        }
    }
}
