//! Help texts of all commands.

use girih_cli::internals::args::{Cli, HELP, command};

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
