//! Flags of other tools, with girih's names for them.

use std::ffi::OsString;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Flags of other tools, with the replacement; the first word of a replacement is a flag of girih.
pub const FOREIGN: &[(&str, &str)] = &[
    ("--learning-rate", "--lr"),
    ("--learning_rate", "--lr"),
    ("--wd", "--weight-decay"),
    ("--weight_decay", "--weight-decay"),
    ("--l2", "--weight-decay"),
    ("--workers", "--threads"),
    ("--num-workers", "--threads"),
    ("--num_workers", "--threads"),
    ("--num-threads", "--threads"),
    ("--jobs", "--threads"),
    ("--hidden-channels", "--hidden"),
    ("--hidden_channels", "--hidden"),
    ("--hidden-dim", "--hidden"),
    ("--hidden-size", "--hidden"),
    ("--num-hidden", "--hidden"),
    ("--n-hidden", "--hidden"),
    ("--num-layers", "--layers"),
    ("--num_layers", "--layers"),
    ("--n-layers", "--layers"),
    ("--num-heads", "--heads"),
    ("--num_heads", "--heads"),
    ("--batchsize", "--batch-size"),
    ("--batch_size", "--batch-size"),
    ("--bs", "--batch-size"),
    ("--num-neighbors", "--fanout"),
    ("--num_neighbors", "--fanout"),
    ("--fan-out", "--fanout"),
    ("--gpu", "--device cuda"),
    ("--cuda", "--device cuda"),
    ("--use-cuda", "--device cuda"),
    ("--cpu", "--device cpu"),
    ("--num-gpus", "--gpus"),
    ("--n-gpus", "--gpus"),
    ("--output", "--out"),
    ("--output-dir", "--out"),
    ("--save-dir", "--out"),
    ("--log-dir", "--out"),
    ("--num-epochs", "--epochs"),
    ("--num_epochs", "--epochs"),
    ("--n-epochs", "--epochs"),
    ("--max-epochs", "--epochs"),
    ("--num-runs", "--runs"),
    ("--n-runs", "--runs"),
    ("--random-seed", "--seed"),
    ("--random-state", "--seed"),
    ("--drop-rate", "--dropout"),
    ("--feat-drop", "--input-dropout"),
    ("--attn-drop", "--attention-dropout"),
    ("--early-stopping", "--patience"),
    ("--early-stop", "--patience"),
    ("--lr-scheduler", "--schedule"),
    ("--scheduler", "--schedule"),
    ("--optim", "--optimizer"),
    ("--arch", "--model"),
    ("--network", "--model"),
    ("--dataset", "--data"),
    ("--data-path", "--data"),
    ("--data-dir", "--data"),
    ("--dataset-path", "--data"),
    ("--input", "--data"),
    ("--graph", "--data"),
    ("--checkpoint-path", "--checkpoint"),
    ("--ckpt", "--checkpoint"),
    ("--model-path", "--checkpoint"),
    ("--save-every", "--checkpoint-every"),
    ("--world-size", "--ranks"),
    ("--num-parts", "--ranks"),
    ("--fp16", "--precision bf16"),
    ("--bf16", "--precision bf16"),
    ("--amp", "--precision bf16"),
    ("--dry-run", "--plan"),
    ("--nproc-per-node", "--nproc"),
    ("--nproc_per_node", "--nproc"),
    ("--nnodes", "--nodes"),
    ("--node-rank", "--node"),
    ("--node_rank", "--node"),
];

/// Replaces clap's suggestion by girih's flag, if the unknown flag is one of another tool and the command at hand has
/// girih's.
pub(super) fn with_flag_of_girih(mut error: clap::Error, command: &clap::Command, words: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidArg) else { return error };
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let subcommand = words.iter().filter_map(|word| command.find_subcommand(word)).next();
    let Some(girihs) = subcommand.and_then(|command| girihs(unknown, command)) else { return error };
    // The usage line shows clap's suggestion, too.
    let guesses =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::TrailingArg, ContextKind::Usage];
    for guess in guesses {
        error.remove(guess);
    }
    let tip = StyledStr::from(format!("girih's flag is `{girihs}`"));
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip]));
    error
}

/// Flag of girih in a command that corresponds to another tool's flag.
fn girihs(unknown: &str, command: &clap::Command) -> Option<&'static str> {
    let name = unknown.split('=').next().unwrap_or(unknown).to_ascii_lowercase();
    let here = |girihs: &str| {
        let flag = girihs.split(' ').next().unwrap_or(girihs).trim_start_matches('-').to_owned();
        command.get_arguments().any(|arg| arg.get_long() == Some(&flag))
    };
    FOREIGN.iter().find(|(foreign, girihs)| *foreign == name && here(girihs)).map(|(_, girihs)| *girihs)
}
