//! Flags of other tools.

use girih_cli::internals::args::{FOREIGN, command};

use super::parsed;

fn message(line: &str) -> String {
    parsed(line).unwrap_err().to_string()
}

#[test]
fn a_flag_of_another_tool_is_an_error_that_names_girihs() {
    for (line, girihs) in [
        ("girih train --learning-rate 0.1", "--lr"),
        ("girih train --workers=4", "--threads"),
        ("girih train --hidden-channels 8", "--hidden"),
        ("girih train --num-layers 3", "--layers"),
        ("girih train --batchsize 8", "--batch-size"),
        ("girih train --gpu", "--device cuda"),
        ("girih convert x --output y", "--out"),
        ("girih train --num-epochs 3", "--epochs"),
        ("girih train --wd 0", "--weight-decay"),
        ("girih -v train x --fp16", "--precision bf16"),
    ] {
        let message = message(line);
        assert!(message.contains(&format!("girih's flag is `{girihs}`")), "{line}: {message}");
        assert!(!message.contains("similar argument") && !message.contains("Usage"), "{line}: {message}");
    }
}

/// No flag in the table is girih's own, and every replacement exists in some command.
#[test]
fn the_table_holds_no_flag_of_girih_and_leads_to_one() {
    let command = command();
    let has = |flag: &str| {
        let of = |c: &clap::Command| c.get_arguments().any(|arg| arg.get_long() == Some(flag));
        command.get_subcommands().any(of)
    };
    for (foreign, girihs) in FOREIGN {
        assert!(!has(foreign.trim_start_matches('-')), "{foreign} is a flag of girih");
        let flag = girihs.split(' ').next().unwrap().trim_start_matches('-');
        assert!(has(flag), "{girihs} does not exist");
    }
}

#[test]
fn a_command_is_told_of_its_own_flags_alone() {
    assert!(!message("girih stats x --learning-rate 1").contains("girih's flag"));
}
