//! The grammar of the command line.

use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use girih_cli::internals::args::{Cli, Command, command};
use girih_compress::CodecSpec;
use girih_trainer::{BatchKind, ModelKind, Schedule, TrainConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::parsed;

#[test]
fn the_command_line_is_consistent() {
    command().debug_assert();
}

#[test]
fn a_path_is_the_data() {
    for (line, spec) in [("train a.mtx", "a.mtx"), ("train --data a.mtx", "a.mtx"), ("train a --epochs 3", "a")] {
        let Ok(Command::Train(args)) = parsed(&format!("girih {line}")) else { panic!("{line}") };
        assert_eq!(args.data.data.as_deref(), Some(spec), "{line}");
    }
    for line in ["stats a", "convert a --out b", "reorder a --order rcm", "sample a", "partition a --ranks 2"] {
        assert!(parsed(&format!("girih {line}")).is_ok(), "{line}");
    }
    let both = parsed("girih train a.mtx --data b.mtx").unwrap_err();
    assert_eq!(both.kind(), ErrorKind::ArgumentConflict);
}

/// A flag that some networks ignore names those that read it.
#[test]
fn help_names_the_networks_that_read_a_setting() {
    let girih = command();
    let train = girih.find_subcommand("train").unwrap();
    for kind in ModelKind::ALL {
        for setting in kind.properties().settings.iter().filter(|name| !["aggregate_once", "slope"].contains(name)) {
            let flag = train.get_arguments().find(|arg| arg.get_long() == Some(&setting.replace('_', "-"))).unwrap();
            let help = flag.get_help().unwrap().to_string();
            let words = help.split(|c: char| !c.is_alphanumeric());
            assert!(words.into_iter().any(|word| word == kind.name()), "--{setting} and {}: {help}", kind.name());
        }
    }
}

/// Flags of other programs that messages mention.
const OF_OTHERS: [&str; 3] = ["--release", "--gpu-architecture", "--std"];

/// Every flag that a message recommends exists: the sources of all crates mention only flags of some command.
#[test]
fn flags_in_messages_exist() {
    let girih = command();
    let exists = |flag: &str| {
        let name = &flag[2..];
        let of = |arg: &clap::Arg| {
            let aliases = arg.get_visible_aliases().unwrap_or_default();
            arg.get_long() == Some(name) || aliases.contains(&name)
        };
        ["help", "version"].contains(&name)
            || girih.get_arguments().chain(girih.get_subcommands().flat_map(clap::Command::get_arguments)).any(of)
    };
    let mut n_found = 0;
    for (file, text) in sources() {
        for flag in flags_in(&text) {
            n_found += 1;
            assert!(exists(&flag) || OF_OTHERS.contains(&flag.as_str()), "{}: {flag}", file.display());
        }
    }
    assert!(n_found > 200, "{n_found} flags are named: the sources are not where they were");
}

/// Sources of all crates, without tests, comments, and the table of other tools' flags.
fn sources() -> Vec<(PathBuf, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut folders, mut found) = (Vec::new(), Vec::new());
    folders.extend(std::fs::read_dir(crates).unwrap().map(|entry| entry.unwrap().path().join("src")));
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") && !path.ends_with("args/suggest.rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                found.push((path, code.collect::<Vec<_>>().join("\n")));
            }
        }
    }
    found
}

/// Words of a text that are long flags.
fn flags_in(text: &str) -> Vec<String> {
    let is_of_flag = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let starts = text.match_indices("--").filter(|(at, _)| {
        let before = text[..*at].chars().next_back();
        let after = text[at + 2..].chars().next();
        before.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '-') && after.is_some_and(|c| c.is_ascii_lowercase())
    });
    starts.map(|(at, _)| text[at..].chars().take_while(|c| is_of_flag(*c)).collect::<String>()).collect()
}

#[test]
fn flags_are_found_in_text() {
    assert_eq!(flags_in("give --lr (now 1), `--out DIR` or --a=b; a--b --- -- --, x--y"), ["--lr", "--out", "--a"]);
}

/// Every flag whose values are names also accepts capitals.
#[test]
fn names_are_read_in_any_case() {
    for line in [
        "train --model GCN --optimizer AdamW --device CPU --reorder RCM --precision BF16 --codec TOPK:8",
        "train --partition 1D --exchange Rows --cuts Weighted --stages Steps --transport NCCL --schedule Cosine",
        "train --hotness Degree --host-reads Staged --tier-memory AUTO --density-threshold Never",
        "reorder x --order Degree,METIS",
        "sample x --batch Layer --relabel Fused --hotness Presampled --plan",
        "partition x --ranks 4 --partition 2D --compare Parts",
        "train x --split ALL --normalize-features Root-Length",
        "compress x --codec Int8 --out y",
        "completions Bash",
    ] {
        if let Err(error) = parsed(&format!("girih {line}")) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn settings_are_read_back_from_their_file() {
    let written = |flags: &str| {
        let Ok(Command::Train(args)) = parsed(&format!("girih train {flags}")) else { panic!("{flags}") };
        assert_is_read_back(&args.data.read)
    };
    let text = written("--duplicates merge --columns target,source,-,weight --ids-from 1 --split random");
    assert!(text.contains("duplicates = \"merge\"") && text.contains("split = \"random\""), "{text}");
    assert!(written("--split all").contains("\"all\"") && written("--split 3").contains('3'));
    assert_eq!(written("--epochs 3"), "");
}

/// Returns the text of settings as a file holds them.
fn assert_is_read_back<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(settings: &T) -> String {
    let text = toml::to_string(settings).unwrap();
    assert_eq!(&toml::from_str::<T>(&text).unwrap(), settings);
    text
}

#[test]
fn flags_come_before_others() {
    let (flags, file) =
        (parsed("girih train --symmetrize true"), parsed("girih train --symmetrize false --ids-from 1"));
    let (Ok(Command::Train(flags)), Ok(Command::Train(file))) = (flags, file) else { panic!("not train") };
    let both = flags.data.read.or(file.data.read);
    assert_eq!((both.symmetrize, both.ids_from), (Some(true), Some(1)));
}

#[test]
fn flags_override_what_the_file_says() {
    let line = "girih train --model sage --lr 0.1 --schedule step:10:0.5";
    let Ok(Command::Train(args)) = parsed(line) else { panic!("not train") };
    let mut config = TrainConfig { epochs: 7, ..TrainConfig::default() };
    args.settings.override_in(&mut config);
    assert_eq!((config.model.kind, config.optimizer.lr, config.epochs), (ModelKind::Sage, 0.1, 7));
    assert_eq!(config.optimizer.schedule, Schedule::Step { every: 10, factor: 0.5 });
}

#[test]
fn a_codec_is_named_as_girih_compress_names_it() {
    let config = |codec: &str| {
        let command = parsed(&format!("girih train --codec {codec}")).map_err(|error| error.to_string())?;
        let Command::Train(args) = command else { panic!("not train") };
        let mut config = TrainConfig { codec: Some(CodecSpec::Int4), ..TrainConfig::default() };
        args.settings.override_in(&mut config);
        Ok::<_, String>(config.codec)
    };
    assert_eq!(config("topk:8"), Ok(Some(CodecSpec::Topk(8))));
    assert_eq!((config("half"), config("none")), (Ok(Some(CodecSpec::F16)), Ok(None)));
    for (wrong, told) in [("foo", "topk:K"), ("foo", "or none"), ("topk:0", "1 to 128"), ("topk", "topk:8")] {
        let error = config(wrong).unwrap_err();
        assert!(error.contains(told), "{wrong}: {error}");
    }
}

#[test]
fn a_fan_out_is_one_number_a_layer() {
    let line = "girih train --batch neighbor --fanout -1,5 --replace";
    let Ok(Command::Train(args)) = parsed(line) else { panic!("not train") };
    let mut config = TrainConfig::default();
    args.settings.override_in(&mut config);
    assert_eq!((config.batch.kind, &config.batch.fanout[..]), (BatchKind::Neighbor, &[-1, 5][..]));
    assert!(config.batch.replace && config.validate().is_ok());
}

#[test]
fn a_schedule_that_makes_no_sense_is_refused() {
    for schedule in ["step:x:0.5", "linear"] {
        assert!(parsed(&format!("girih train --schedule {schedule}")).is_err(), "{schedule}");
    }
}

#[test]
fn units_are_of_ten_and_of_two() {
    let memory = |size: &str| {
        let cli = Cli::parse_line(["girih", "train", "--plan", &format!("--memory={size}")]).ok()?;
        let Command::Train(args) = cli.command else { panic!("not train") };
        args.memory
    };
    assert_eq!(memory("80GB"), Some(80_000_000_000));
    assert_eq!(memory("1.5 gib"), Some(3 << 29));
    assert_eq!(memory("4096"), Some(4096));
    assert_eq!(memory("12B"), Some(12));
    for wrong in ["", "GB", "-1GB", "0", "much", "1e30TB", "nan", "é"] {
        assert_eq!(memory(wrong), None, "{wrong}");
    }
}
