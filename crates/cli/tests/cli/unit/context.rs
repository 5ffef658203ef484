//! Data, devices and settings that flags name.

use girih_cli::internals::args::{Cli, Command, Device};
use girih_cli::internals::context::{add, device_of, resolve, shown_splits, to_toml};
use girih_cli::internals::output::Results;
use girih_graph_format::Notes;
use girih_trainer::{ModelKind, TaskKind, TrainConfig};

use super::parsed;

#[test]
fn people_and_programs_see_the_same() {
    let mut notes = Notes::default();
    notes.make_up("merged_edges", "3 edges are parallel to another", &[("edges", 3)]);
    notes.leave_out("edge_attr.npy", "edge features");
    notes.warn("most ids never occur");
    let mut results = Results::default();
    add(&mut results, &[[1, 2, 3]], &notes);
    let shown = [
        ("Splits", "1 train, 2 val, 3 test"),
        ("Made up", "3 edges are parallel to another"),
        ("Not used", "edge_attr.npy: edge features"),
        ("Warnings", "most ids never occur"),
    ];
    assert_eq!(results.shown().collect::<Vec<_>>(), shown);
    let json = results.to_json();
    assert_eq!(json["made_up"][0]["edges"], 3);
    assert_eq!(json["not_used"][0]["what"], "edge_attr.npy");
    assert_eq!(json["warnings"][0], "most ids never occur");
    assert_eq!(json["splits"][0]["test"], 3);
}

#[test]
fn splits_are_counted() {
    assert_eq!(shown_splits(&[]), "none");
    assert_eq!(shown_splits(&[[1, 2, 3]; 2]), "2 of 1 train, 2 val, 3 test each");
    assert_eq!(shown_splits(&[[1, 2, 3], [1, 2, 4]]), "2, the first of 1 train, 2 val, 3 test");
}

/// Configuration of `girih train` with a configuration file and flags.
fn configured(text: &str, flags: &str) -> TrainConfig {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.toml");
    std::fs::write(&path, text).unwrap();
    let words = ["girih", "train", "--config", path.to_str().unwrap()].into_iter().chain(flags.split_whitespace());
    let Command::Train(args) = Cli::parse_line(words).unwrap().command else { panic!("not train") };
    resolve(&args).unwrap().1
}

#[test]
fn a_file_changes_the_defaults_of_its_model() {
    let config = configured("epochs = 5\n[model]\nkind = \"lightgcn\"\nlayers = 2\n", "");
    let published = TrainConfig::for_model(ModelKind::LightGcn);
    assert_eq!((config.epochs, config.model.layers), (5, 2));
    assert_eq!((config.model.hidden, config.batch_size), (published.model.hidden, published.batch_size));
    assert_eq!(config.optimizer, published.optimizer);
}

#[test]
fn the_chosen_model_goes_before_that_of_the_file() {
    let config = configured("[optimizer]\nlr = 0.5\n", "--model lightgcn");
    assert_eq!((config.optimizer.lr, config.optimizer.weight_decay, config.model.layers), (0.5, 1e-4, 3));
    assert_eq!(configured("", ""), TrainConfig::default());
}

#[test]
fn every_default_survives_its_file() {
    let Ok(Command::Train(args)) = parsed("girih train --data data") else { panic!("not train") };
    for (task, kind) in [
        (TaskKind::Nodes, ModelKind::Gcn),
        (TaskKind::Nodes, ModelKind::LightGcn),
        (TaskKind::Links, ModelKind::Sage),
        (TaskKind::Triples, ModelKind::Embedding),
    ] {
        let config = TrainConfig::for_task(task, kind);
        assert_eq!(configured(&to_toml(Some(&args.data), &config).unwrap(), ""), config);
    }
}

#[test]
fn how_data_are_read_survives_its_file_and_belongs_to_these_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.toml");
    let data = |flags: &str| {
        let Ok(Command::Train(args)) = parsed(&format!("girih train {flags}")) else { panic!("{flags}") };
        args.data
    };
    let rest = "--features x.npy --symmetrize false --normalize-features root-length";
    let read_so = data(&format!("--data edges.csv --labels y.npy --split 3 {rest}"));
    std::fs::write(&file, to_toml(Some(&read_so), &TrainConfig::default()).unwrap()).unwrap();
    let resolved = |flags: &str| {
        let words = ["girih", "train", "--config", file.to_str().unwrap()].into_iter().chain(flags.split_whitespace());
        let Command::Train(args) = Cli::parse_line(words).unwrap().command else { panic!("not train") };
        resolve(&args).unwrap().0
    };
    assert_eq!(resolved(""), read_so);
    let flags = "--data edges.csv --labels z.npy --split all";
    assert_eq!(resolved(flags), data(&format!("{flags} {rest}")));
    assert_eq!(resolved("--data other.npz"), data("--data other.npz"));
}

#[test]
fn links_have_defaults_of_their_own() {
    let links = TrainConfig::for_task(TaskKind::Links, ModelKind::Gat);
    assert_eq!(configured("", "--task links --model gat"), links);
    assert_eq!(configured("task = \"links\"\n[model]\nkind = \"gat\"\n", ""), links);
    assert_eq!((links.optimizer.weight_decay, links.model.hidden, links.model.heads), (0.0, 8, 8));
    assert_eq!(TrainConfig::for_task(TaskKind::Links, ModelKind::Gcn).model.hidden, 32);
}

/// Device of a process under `girih train` with flags; `local_rank` is that of a process of a launcher.
fn device(flags: &str, local_rank: Option<usize>) -> Result<Device, String> {
    let command = parsed(&format!("girih train {flags}")).map_err(|error| error.to_string())?;
    let Command::Train(args) = command else { panic!("not train") };
    let found = device_of(&args.device, &args.ranks, local_rank).map_err(|error| error.to_string())?;
    assert!(found.ranks_per_gpu == args.ranks.ranks_per_gpu || !matches!(found.device, Device::Cuda(_)));
    Ok(found.device)
}

#[test]
fn processes_share_gpus_where_they_are_asked_to() {
    for (local_rank, expected) in [0, 0, 1, 1, 2].into_iter().enumerate() {
        let found = device("--ranks-per-gpu 2 --device cuda", Some(local_rank));
        assert_eq!(found, Ok(Device::Cuda(expected)));
    }
    for (flags, local_rank) in [
        ("--gpus 2", None),
        ("--device cuda --ranks 4", None),
        ("--device cuda", None),
        ("--device auto", Some(1)),
        ("--device cpu", Some(1)),
    ] {
        let message = device(&format!("--ranks-per-gpu 2 {flags}"), local_rank).expect_err("refused");
        assert!(message.contains("--ranks-per-gpu is for processes on CUDA devices"), "{message}");
    }
}

#[test]
fn ranks_are_on_gpus_where_these_are_asked_for() {
    for (flags, local_rank, expected) in [
        ("--device auto", None, Device::Auto),
        ("--device cuda:3", None, Device::Cuda(3)),
        ("--ranks 2", None, Device::Cpu),
        ("--device auto", Some(1), Device::Cpu),
        ("--device cuda --ranks 2", None, Device::Cuda(0)),
        ("--gpus 2", None, Device::Cuda(0)),
        ("--device cuda", Some(3), Device::Cuda(3)),
    ] {
        assert_eq!(device(flags, local_rank), Ok(expected), "{flags}");
    }
}

#[test]
fn conflicting_devices_are_refused() {
    for (flags, local_rank, expected) in [
        ("--gpus 2 --device cpu", None, "--device"),
        ("--gpus 2 --device cuda:1", None, "CUDA_VISIBLE_DEVICES"),
        ("--ranks 2 --device cuda:1", None, "CUDA_VISIBLE_DEVICES"),
        ("--gpus 2", Some(0), "--device cuda instead of --gpus"),
    ] {
        let message = device(flags, local_rank).expect_err("refused");
        assert!(message.contains(expected), "{message}");
    }
}
