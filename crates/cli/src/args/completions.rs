//! Flags of `girih completions`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `girih completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to complete commands in, or man for manual pages
    #[arg(value_enum, value_name = "SHELL")]
    pub script: Script,
    /// Write files to this folder [default: standard output; needed for man]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
}

/// Output that is generated from the grammar of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Script {
    Bash,
    Zsh,
    Fish,
    #[value(name = "powershell")]
    PowerShell,
    Elvish,
    /// One page for girih and one for each command
    Man,
}
