//! Every command of README, pages and help texts: it parses, and it runs on miniature data.
//!
//! Commands of a block run in one folder, one after the other. [`How`] says by a rule which commands are only planned or
//! parsed, because they need a GPU, other hosts, MPI or another launcher.

mod miniature;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use girih_cli::internals::args::{Cli, HELP, command as grammar};
use girih_documented::{Shown, shown};
use rayon::prelude::*;

use self::miniature::Miniature;
use crate::girih::{Finished, Workspace, command};

/// Command of girih with its place.
struct Documented {
    /// Page, line and text.
    place: String,
    /// Program and arguments, as they are on the page.
    words: Vec<String>,
    /// Whether another program starts it.
    is_launched: bool,
    /// Whether it may be a part of a command, as in "`girih reorder --out`".
    is_mention: bool,
}

/// Treatment of a command by a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Runs it.
    Run,
    /// Runs it with `--plan --memory 80GB`, which needs no GPU.
    Planned,
    /// Runs it on CPUs, with a rank for each GPU.
    OnCpus,
    /// Only parses it.
    Parsed,
}

impl Documented {
    /// Command that a page shows; `None` if girih is not called.
    fn of(shown: &Shown, commands: &[String]) -> Option<Self> {
        let girih = |arguments: &[String]| [&["girih".to_owned()], arguments].concat();
        let first = &shown.words[0];
        let is_part = shown.block.is_none() && shown.words.get(1).is_some_and(|word| word.starts_with("--"));
        let (words, is_launched) = if let Some(call) = shown.call("girih") {
            (girih(&call.words[1..]), !call.before.is_empty())
        } else if let Some(arguments) = shown.cargo("run") {
            let at =
                arguments.iter().position(|word| word == "--").filter(|_| !arguments.contains(&"-p".to_owned()))?;
            (girih(&arguments[at + 1..]), false)
        } else if is_part && commands.contains(first) {
            (girih(&shown.words), false)
        } else if shown.block.is_none() && first == "--model" {
            (girih(&[&["train".to_owned()], &shown.words[..]].concat()), false)
        } else {
            return None;
        };
        (words.len() > 1).then(|| Self {
            place: shown.to_string(),
            words,
            is_launched,
            is_mention: shown.block.is_none(),
        })
    }

    /// Whether a flag may name a file that another command writes or reads.
    fn names_file(&self) -> bool {
        self.words.iter().any(|word| word == "--out" || miniature::INPUTS.contains(&word.as_str()))
    }

    fn how(&self) -> How {
        let of = |flag: &str, value: &str| self.words.windows(2).any(|two| two[0] == flag && two[1].starts_with(value));
        let is = |command: &str| self.words[1] == command;
        // Tests of `ogb` run those on benchmark data.
        let is_ogb = self.words.iter().any(|word| word == "--ogb");
        if self.is_launched || is_ogb || (is("launch") && of("--nodes", "")) || of("--timeline", "") {
            return How::Parsed;
        }
        match of("--device", "cuda") || of("--gpus", "") {
            // Plans are for every layout.
            true if of("--layout", "") && is("train") => How::OnCpus,
            true if is("train") || is("sample") => How::Planned,
            true => How::Parsed,
            false => How::Run,
        }
    }

    /// Whether it is a complete command.
    ///
    /// # Errors
    /// When it does not parse, unless it is a part of a command.
    fn is_complete(&self) -> Result<bool, String> {
        let Err(error) = Cli::parse_line(miniature::parsable(&self.words)) else { return Ok(true) };
        let is_cut = match error.kind() {
            ErrorKind::DisplayHelp => return Ok(true),
            ErrorKind::MissingRequiredArgument => true,
            ErrorKind::InvalidValue => {
                matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty())
            }
            _ => false,
        };
        if self.is_mention && is_cut { Ok(false) } else { Err(format!("{}\n{error}", self.place)) }
    }
}

/// Commands of each block of the pages, then each of the help texts.
fn blocks() -> Vec<Vec<Documented>> {
    let names: Vec<String> = grammar().get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let (shown, mut blocks, mut last) = (shown(), Vec::<Vec<Documented>>::new(), None);
    for shown in &shown {
        let Some(documented) = Documented::of(shown, &names) else { continue };
        let block = shown.block.map(|line| (&shown.page, line));
        match blocks.last_mut().filter(|_| block.is_some() && block == last) {
            Some(commands) => commands.push(documented),
            None => blocks.push(vec![documented]),
        }
        last = block;
    }
    for (_, line) in HELP.iter().flat_map(|help| help.examples) {
        let words = line.split(' ').take_while(|word| *word != ">").map(str::to_owned).collect();
        blocks.push(vec![Documented {
            place: format!("--help: {line}"),
            words,
            is_launched: false,
            is_mention: false,
        }]);
    }
    // What needs no file of an earlier command is done once.
    let mut seen = BTreeSet::new();
    for block in &mut blocks {
        block.retain(|command| command.names_file() || seen.insert(command.words.clone()));
    }
    blocks
}

#[test]
fn documented_commands_parse() {
    let blocks = blocks();
    let wrong: Vec<String> = blocks.iter().flatten().filter_map(|command| command.is_complete().err()).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let count = |how| blocks.iter().flatten().filter(|command| command.how() == how).count();
    let [run, planned, parsed] = [How::Run, How::Planned, How::Parsed].map(count);
    assert!(run > 100 && planned > 20 && parsed <= 12, "{run} run, {planned} are planned, {parsed} only parsed");
}

#[test]
fn documented_commands_run() {
    let miniature = Miniature::new();
    let run = |block: &Vec<Documented>| {
        let work = Workspace::new();
        let complete = block.iter().filter(|command| command.is_complete() == Ok(true));
        complete.filter_map(|command| run(command, &miniature, work.folder()).err()).collect::<Vec<_>>()
    };
    let wrong: Vec<String> = blocks().par_iter().flat_map_iter(run).collect();
    assert!(wrong.is_empty(), "{} commands failed:\n{}", wrong.len(), wrong.join("\n"));
}

/// Runs one command in a folder, with the inputs that it lacks.
///
/// # Errors
/// When it fails; the message has place and output.
fn run(documented: &Documented, miniature: &Miniature, folder: &Path) -> Result<(), String> {
    let how = documented.how();
    if how == How::Parsed {
        return Ok(());
    }
    let words = miniature.words(&documented.words, how, documented.is_mention);
    miniature.provide(&words, folder);
    let mut process = command(&words[1..]);
    process.current_dir(folder).stdin(Stdio::null());
    if words[1] == "serve" {
        process.stdout(Stdio::piped());
        return listens(process.spawn().map_err(|e| e.to_string())?)
            .map_err(|out| format!("{}\n{out}", documented.place));
    }
    let Finished { code, out, err } = Finished::new(process.output().map_err(|e| e.to_string())?);
    if code == Some(0) {
        return Ok(());
    }
    Err(format!("{}\nran as {}\n{out}{err}", documented.place, words.join(" ")))
}

/// Ends a server after it has said that it listens.
fn listens(mut server: Child) -> Result<(), String> {
    let lines = BufReader::new(server.stdout.take().expect("is piped")).lines();
    let mut said = String::new();
    let listens = lines.map_while(Result::ok).any(|line| {
        said += &format!("{line}\n");
        line.starts_with("Listening on")
    });
    let _ = server.kill();
    let _ = server.wait();
    if listens { Ok(()) } else { Err(said) }
}
