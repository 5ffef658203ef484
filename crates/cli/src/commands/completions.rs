//! `girih completions`: shell completions and manual pages, generated from the grammar of the command line.

use std::io::Write as _;
use std::path::Path;

use clap_complete::{Shell, generate};
use clap_mangen::Man;
use girih_graph_format::file;

use crate::args::{CompletionsArgs, Script, command};
use crate::error::CliError;
use crate::output::print_text;

const PROGRAM: &str = "girih";

/// Prints completions, or writes completions or manual pages to a folder.
pub fn run(args: &CompletionsArgs) -> Result<(), CliError> {
    let Some(shell) = shell(args.script) else {
        let missing = || CliError::Usage("manual pages are several files: give --out DIR".to_owned());
        return write_pages(args.out.as_deref().ok_or_else(missing)?);
    };
    let mut text = Vec::new();
    generate(shell, &mut command(), PROGRAM, &mut text);
    match &args.out {
        None => print_text(&text),
        Some(folder) => write(folder, &file_of(shell), &text)?,
    }
    Ok(())
}

fn shell(script: Script) -> Option<Shell> {
    match script {
        Script::Bash => Some(Shell::Bash),
        Script::Zsh => Some(Shell::Zsh),
        Script::Fish => Some(Shell::Fish),
        Script::PowerShell => Some(Shell::PowerShell),
        Script::Elvish => Some(Shell::Elvish),
        Script::Man => None,
    }
}

/// File name under which a shell looks for completions of a program.
fn file_of(shell: Shell) -> String {
    match shell {
        Shell::Zsh => format!("_{PROGRAM}"),
        Shell::Fish => format!("{PROGRAM}.fish"),
        Shell::PowerShell => format!("_{PROGRAM}.ps1"),
        Shell::Elvish => format!("{PROGRAM}.elv"),
        _ => format!("{PROGRAM}.bash"),
    }
}

/// Writes `girih.1`, and `girih-COMMAND.1` for each command.
fn write_pages(folder: &Path) -> Result<(), CliError> {
    let mut girih = command().disable_help_subcommand(true);
    girih.build();
    for command in std::iter::once(&girih).chain(girih.get_subcommands()) {
        let name = if command.get_name() == PROGRAM {
            PROGRAM.to_owned()
        } else {
            format!("{PROGRAM}-{}", command.get_name())
        };
        let mut page = Vec::new();
        Man::new(command.clone())
            .title(name.as_str())
            .render(&mut page)
            .map_err(|error| CliError::Other(format!("{name}.1: {error}")))?;
        write(folder, &format!("{name}.1"), &page)?;
    }
    Ok(())
}

fn write(folder: &Path, name: &str, text: &[u8]) -> Result<(), CliError> {
    std::fs::create_dir_all(folder).map_err(|error| CliError::io(folder, error))?;
    Ok(file::write_file(&folder.join(name), |out| Ok(out.write_all(text)?))?)
}
