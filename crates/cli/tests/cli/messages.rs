//! Exact text of errors, warnings and notes, for people and as events.

use std::fs;
use std::path::Path;

use girih_graph_format::file::write_npy;
use serde_json::{Value, json};

use crate::girih::{Finished, SMALL, Workspace, command, girih};

/// Output of a failed command in one line, without the frame of miette.
fn said(finished: &Finished) -> String {
    let words = finished.err.split(|c: char| c.is_whitespace() || "│├╰─▶×".contains(c));
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Message of a command line that is refused with this status.
fn refusal(status: i32, line: &str) -> String {
    let finished = girih(&line.split(' ').collect::<Vec<_>>());
    assert_eq!(finished.code, Some(status), "{line}: {}", finished.err);
    said(&finished)
}

/// Writes a graph of six nodes as named arrays, with labels of `n_classes` classes.
fn write_graph(folder: &Path, n_classes: i64, n_features: usize) {
    fs::create_dir_all(folder).unwrap();
    let edges: Vec<i64> = (0..6).chain((0..6).map(|v| (v + 1) % 6)).collect();
    write_npy(&folder.join("edge_index.npy"), &[2, 6], &edges).unwrap();
    write_npy(&folder.join("x.npy"), &[6, n_features], &vec![1.0f32; 6 * n_features]).unwrap();
    write_npy(&folder.join("y.npy"), &[6], &(0..6).map(|v| v % n_classes).collect::<Vec<i64>>()).unwrap();
    for (name, first) in [("train", 0), ("val", 2), ("test", 4)] {
        let mask: Vec<u8> = (0..6).map(|v| u8::from(v / 2 == first / 2)).collect();
        write_npy(&folder.join(format!("{name}_mask.npy")), &[6], &mask).unwrap();
    }
}

#[test]
fn wrong_usage_is_said_in_the_words_of_the_flags() {
    for (line, expected) in [
        ("train --model sgc --hidden 8", "--hidden has no effect on sgc, which has no hidden layers: leave it out"),
        ("train --reorder-blocks 2", "--reorder-blocks has no effect without an order: give --reorder ORDER, too"),
        (
            "train --task links --reorder rcm",
            "--reorder with --task links is not supported: the split of the links depends on node ids, and girih evaluate \
             would test other links; write the order once with `girih reorder --out DIR`, and train on DIR",
        ),
        (
            "train --layout patches --ranks 2",
            "--layout patches with full batches is not supported: --partition divides the graph of full batches; leave \
             --layout out, or give --batch neighbor",
        ),
        (
            "train --ranks 2 --chunks 2",
            "--chunks has no effect on the partition 1d: leave it out, or take --partition 1.5d, 2d or 3d",
        ),
        ("stats", "no data is named: give a PATH or a generator, for instance synth:planted,nodes=10000,degree=20"),
        ("partition x --ranks 4 --partition auto", "--partition auto is for girih train: give 1d, 1.5d, 2d or 3d here"),
    ] {
        assert_eq!(refusal(2, line), expected, "{line}");
    }
}

#[test]
fn settings_that_cannot_be_trained_name_the_flag_that_helps() {
    let links = format!("train --data {SMALL} --epochs 1 --task links");
    assert_eq!(
        refusal(1, &format!("{links} --model sgc")),
        "--task links with --model sgc is not supported: from its initial weights of zero, inner products have no \
         gradient; give another --model, such as gcn"
    );
    assert_eq!(
        refusal(1, &format!("{links} --ranks 2 -q")),
        "--task links on ranks is not supported: one rank splits the links and trains on them; leave --ranks, --gpus and \
         launchers out, or give --task nodes"
    );
    assert_eq!(
        refusal(1, &format!("train --data {SMALL} --metric roc-auc -q")),
        "synth:planted,nodes=600,degree=8,features=24,classes=4 has 4 classes; ROC-AUC is defined for two classes, or for \
         several labels a node: give --metric accuracy"
    );
}

#[test]
fn caches_on_a_cpu_are_refused() {
    let batches = "train --batch neighbor --device cpu";
    for (line, expected) in [
        (
            format!("{batches} --feature-cache 0.5"),
            "--feature-cache on the CPU is not supported: the CPU reads host memory directly, so that caches have no effect; \
             leave --feature-cache out, or give --device cuda",
        ),
        (
            format!("{batches} --topology-cache 0.5"),
            "--topology-cache on the CPU is not supported: the CPU reads host memory directly, so that caches have no \
             effect; leave --topology-cache out, or give --device cuda",
        ),
    ] {
        let message = refusal(1, &format!("{line} --data {SMALL}"));
        assert!(message.ends_with(expected), "{line}: {message}");
    }
}

/// Contradictory settings are refused with the flag that helps; the header of the data may come first.
#[test]
fn settings_that_do_not_go_together_name_a_flag_that_helps() {
    let batches = "train --batch neighbor --device cpu";
    let patches = format!("{batches} --ranks 2 --layout patches");
    for (line, expected) in [
        (
            format!("{patches} --score-by layers"),
            "--score-by layers with --layout patches is not supported: ranks that hold a part of the graph score all \
             nodes in one pass; leave it out, or give --layout replicated",
        ),
        (
            format!("{patches} --feature-cache 0.5"),
            "--feature-cache or --topology-cache with --layout patches is not supported: each rank holds its own rows in the \
             memory of its device; leave the caches out, or give --layout replicated",
        ),
        (
            format!("{batches} --ranks 2 --layout split-features --feature-cache 0.2,0.5"),
            "a second share of --feature-cache with --layout split-features is not supported: rows that not every GPU \
             caches are read from the host, never from another GPU; leave it out, or give --layout replicated",
        ),
        (
            "train --device cpu --batch cluster --ranks 2 --layout patches".to_owned(),
            "--layout patches with --batch cluster is not supported: such batches need the whole graph and all features on \
             each rank; give --batch neighbor, or --layout replicated",
        ),
        (
            "train --device cpu --batch cluster --ranks 2".to_owned(),
            "a step of 1 subgraph(s) on 2 ranks is not supported: each rank needs one; give --subgraphs-per-step 2 (steps \
             become fewer and larger)",
        ),
        (
            format!("{batches} --ranks 2 --norm batch"),
            "--norm batch with --batch neighbor on ranks is not supported: batch normalisation needs the statistics of a \
             whole mini-batch, and each rank sees its own seeds only; give --norm layer, or train on one rank",
        ),
        (
            format!("{batches} --score-by layers --norm batch"),
            "--score-by layers is not possible for this gcn: a layer reads more than the rows of the layer before it (batch \
             normalisation, jumping knowledge, several hops); give --score-by graph",
        ),
        (format!("{batches} --saint edge"), "setting `batch.saint` must be left out: only saint batches use it"),
        (format!("{batches} --clusters 4"), "setting `batch.clusters` must be left out: only cluster batches use it"),
        (
            "train --batch neighbor --codec int8 --tier-memory 1GB --plan".to_owned(),
            "--tier-memory is for dense features and topk codes; the host decodes codes of int8: give --codec topk:8, or \
             leave --tier-memory out",
        ),
        (
            "sample --plan --fanout 4,2 --memory 1.001MB --training-memory 1MB --host-memory 1KB".to_owned(),
            "the graph takes 23 KiB (24008 bytes): 1 GPU(s) have 999 B (999 bytes) for it each, which leaves 23 KiB (24008 \
             bytes) to the host, and the host has 1000 B (1000 bytes); give the host 23 KiB (24008 bytes), or partition it \
             over about 24 GPUs",
        ),
    ] {
        let message = refusal(1, &format!("{line} --data {SMALL}"));
        assert!(message.ends_with(expected), "{line}: {message}");
    }
    for (line, expected) in [
        (
            "--feature-cache 1.5",
            "`1.5` is not a share of the nodes: give a number from 0 to 1 for rows that every GPU holds, such as 0.2, or two \
             for rows on every GPU and rows on one GPU each, such as 0.2,0.5 (at most 1 together)",
        ),
        (
            "--hotness warm",
            "`warm` is not a measure of hotness: give one of degree, pagerank, reverse-pagerank, presampled",
        ),
        ("--host-reads never", "`never` is not a way to read rows of host memory: give one of auto, staged, in-place"),
    ] {
        let message = refusal(2, &format!("{batches} {line}"));
        assert!(message.contains(expected), "{line}: {message}");
    }
}

/// The message states the classes of the other data, not those of the model.
#[test]
fn a_model_on_other_data_names_both_as_they_are() {
    let work = Workspace::new();
    write_graph(&work.path("data"), 3, 4);
    write_graph(&work.path("other"), 2, 5);
    let (data, other, out) = (work.arg("data"), work.arg("other"), work.arg("out"));
    girih(&["train", &data, "--epochs", "2", "--out", &out]).ok();
    let finished = girih(&["evaluate", "--checkpoint", &out, "--data", &other]);
    assert_eq!(finished.code, Some(1));
    let expected = format!(
        "{out}/run-000.safetensors: the model was trained on data (6 nodes, 12 edges, 4 features, 3 classes) and cannot be \
         applied to other (6 nodes, 12 edges, 5 features, 2 classes): their features differ"
    );
    let sizes = |text: &str| text.replace("12 edges", "E edges").replace("6 edges", "E edges");
    assert_eq!(sizes(&said(&finished)), sizes(&expected));
}

#[test]
fn a_resumed_session_names_settings_that_differ() {
    let work = Workspace::new();
    let out = work.arg("out");
    girih(&["train", "--data", SMALL, "--epochs", "2", "--out", &out]).ok();
    let other = girih(&["train", "--out", &out, "--resume", "--hidden", "9", "--lr", "0.5"]);
    assert_eq!(other.code, Some(1));
    assert_eq!(
        said(&other),
        format!(
            "gcn on {SMALL} (generated): 600 nodes, 4800 edges, 24 features, 4 classes; device cpu \
             split: 334 train, 58 val, 208 test \
             {out}/run-000.safetensors: it was trained with other settings: model.hidden 9 (was 16), optimizer.lr 0.5 (was \
             0.01); resume with those of the checkpoint, or choose another --out"
        )
        .replace("4800 edges", &edges_in(&other.err))
        .replace("device cpu", &device_in(&other.err))
    );
    let longer = girih(&["train", "--out", &out, "--resume", "--epochs", "4", "--eval-every", "2"]).ok();
    assert!(longer.err.contains("resumed with epochs 4 (was 2), eval_every 2 (was 1)\n"), "{}", longer.err);
}

/// Number of edges in a headline, which depends on the generator.
fn edges_in(text: &str) -> String {
    let words: Vec<&str> = text.split(", ").collect();
    words.iter().find(|word| word.ends_with(" edges")).unwrap().to_string()
}

fn device_in(text: &str) -> String {
    text.lines().next().unwrap().rsplit_once("; ").unwrap().1.to_owned()
}

#[test]
fn a_finished_session_that_is_resumed_says_that_nothing_is_left() {
    let work = Workspace::new();
    let out = work.arg("out");
    let train = |flags: &[&str]| girih(&[&["train", "--data", SMALL, "--out", &out], flags].concat()).ok();
    train(&["--epochs", "3"]);
    let again = train(&["--resume"]);
    let expected = format!(
        "nothing is left to do: all epochs in {out} are done; train on with --epochs above 3, or add runs with --runs\n"
    );
    assert!(again.err.ends_with(&expected), "{}", again.err);
    let result = train(&["--resume", "--json"]).result();
    assert_eq!((&result["epochs_trained"], &result["epochs"]), (&json!(0), &json!(3)));
    assert_eq!(train(&["--resume", "--epochs", "5", "--json"]).result()["epochs_trained"], 2);
}

/// Results are equal bit for bit only with the same number of ranks.
#[test]
fn other_ranks_than_before_are_a_warning() {
    let work = Workspace::new();
    let out = work.arg("out");
    let train = |flags: &[&str]| {
        girih(&[&["train", "--data", SMALL, "--device", "cpu", "--out", &out, "--json", "-q"], flags].concat()).ok()
    };
    train(&["--epochs", "2", "--ranks", "2"]);
    let same = train(&["--epochs", "3", "--ranks", "2", "--resume"]);
    assert!(!same.err.contains("bit for bit"), "{}", same.err);
    let one = train(&["--epochs", "4", "--resume"]);
    let warning = one.events().into_iter().find(|event| event["event"] == "warning").expect("a warning");
    let message = warning["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!("{out}/run-000.safetensors: trained so far by 2 ranks on cpu (")),
        "{message}"
    );
    let end = "and from here by one rank on cpu: results agree up to the order of sums, not bit for bit";
    assert!(message.ends_with(end), "{message}");
    assert!(one.err.contains(&format!("warning: {message}\n")), "{}", one.err);
}

#[test]
fn an_error_is_the_last_event_under_json() {
    let failed = girih(&["stats", "nowhere.mtx", "--json"]);
    let event = failed.events().pop().unwrap();
    assert_eq!((&event["event"], &event["status"]), (&json!("error"), &json!(1)));
    assert!(event["message"].as_str().unwrap().contains("nowhere.mtx"), "{event}");
    assert!(said(&failed).contains(event["message"].as_str().unwrap()), "{}", failed.err);

    let usage = girih(&["train", "--json", "--learning-rate", "1"]);
    assert_eq!(usage.code, Some(2));
    let expected = json!({
        "event": "error",
        "message": "unexpected argument '--learning-rate' found",
        "help": "girih's flag is `--lr`",
        "status": 2,
    });
    assert_eq!(usage.events(), [expected]);
    assert!(usage.err.contains("tip: girih's flag is `--lr`"), "{}", usage.err);
    let usage = girih(&["predict", "--json", "--checkpoint", "a"]).events().pop().unwrap();
    let message = usage["message"].as_str().unwrap();
    assert!(message.contains("required arguments were not provided: --out <FILE.npy>"), "{message}");
    assert_eq!(usage["help"], json!(null));

    let launched = girih(&["launch", "--nproc", "2", "--", "train", "--plan", "--json"]);
    let events = launched.events();
    assert_eq!((launched.code, events.len()), (Some(2), 1));
    assert_eq!(events[0]["message"], "--plan trains nothing: call it alone, without girih launch");
}

#[test]
fn a_config_that_is_wrong_says_where_and_has_help_in_its_event() {
    let work = Workspace::new();
    fs::write(work.path("a.toml"), "epochs = 3\nlearning_rate = 0.1\n").unwrap();
    let failed = girih(&["train", "--config", &work.arg("a.toml"), "--json"]);
    let event = failed.events().pop().unwrap();
    assert!(event["message"].as_str().unwrap().contains("learning_rate"), "{event}");
    assert!(event["help"].as_str().unwrap().contains("docs/configuration.md"), "{event}");
}

/// `-q` leaves warnings, `-qq` only errors, and JSON stays complete.
#[test]
fn quiet_is_quiet_and_quieter() {
    let ranks = (std::thread::available_parallelism().map_or(1, usize::from) + 1).to_string();
    let warning = format!("warning: {ranks} ranks on ");
    let many = ["train", "--data", SMALL, "--epochs", "1", "--device", "cpu", "--ranks", &ranks];
    let err = |flags: &[&str]| girih(&[&many, flags].concat()).ok().err;
    let usual = err(&[]);
    assert!(usual.contains("gcn on ") && usual.contains(&warning), "{usual}");
    let quiet = err(&["-q"]);
    assert!(quiet.starts_with(&warning) && quiet.lines().count() == 1, "{quiet}");
    assert_eq!(err(&["-qq"]), "");
    let logged = command(&[&many[..], &["-qq"]].concat()).env("GIRIH_LOG", "warn").output().unwrap();
    assert!(String::from_utf8(logged.stderr).unwrap().starts_with(&warning));
    let conflict = girih(&["train", "-q", "-v"]);
    assert_eq!(conflict.code, Some(2), "{}", conflict.err);
}

/// A terminal gets a progress bar; a file gets a line for slow work, which `-q` omits.
#[test]
fn long_work_without_a_terminal_says_what_it_does() {
    let partition = ["partition", "--data", SMALL, "--ranks", "4"];
    let told = girih(&partition).ok().err;
    assert!(told.contains("counting the blocks and what is sent\n"), "{told}");
    assert_eq!(girih(&[&partition[..], &["-q"]].concat()).ok().err, "");
    assert_eq!(girih(&[&partition[..], &["--json"]].concat()).ok().err, "");
}

/// The measured rates of this machine are cached: only the first plan measures them.
#[test]
fn a_plan_measures_the_machine_once() {
    let work = Workspace::new();
    let plan = || {
        let args = ["train", "--data", SMALL, "--device", "cpu", "--plan"];
        Finished::new(command(&args).env("GIRIH_CACHE", work.path("cache")).output().unwrap()).ok()
    };
    assert!(plan().err.contains("measuring memory bandwidth"));
    let second = plan();
    assert!(!second.err.contains("measuring memory bandwidth"), "{}", second.err);
}

/// A plan of any size is possible: 200 000 columns of three matrices would take a terabyte.
#[test]
fn a_plan_allocates_nothing_of_what_it_plans() {
    for model in ["gcn", "gat", "sage", "lightgcn", "gin", "ngcn", "appnp", "mlp"] {
        let data = if model == "lightgcn" { "synth:planted,nodes=600,degree=8" } else { SMALL };
        let layers = ["--layers", "3", "--hidden", "200000", "--model", model];
        let args = [&["train", "--data", data, "--device", "cpu", "--plan", "--json"], &layers[..]].concat();
        let finished = girih(&args);
        assert!(!finished.err.contains("panicked") && finished.code.is_some(), "{model}: {}", finished.err);
        let plans = finished.events();
        if model == "lightgcn" {
            continue;
        }
        assert_eq!((finished.code, &plans[0]["fits"]), (Some(1), &json!(false)), "{model}: {}", finished.err);
        let refused = plans.last().unwrap()["message"].as_str().unwrap();
        assert!(refused.starts_with("training needs ") && refused.contains("--hidden "), "{model}: {refused}");
    }
}

/// Training that cannot fit is refused before it allocates.
#[test]
fn training_beyond_main_memory_is_refused() {
    let message = refusal(1, &format!("train --data {SMALL} --device cpu --layers 3 --hidden 1000000"));
    let told = message.split_once("; ").map_or("", |(_, rest)| rest);
    assert!(message.contains("training needs ") && message.contains(" of main memory beside graph"), "{message}");
    assert!(told.contains("--hidden ") && told.contains("fits"), "{message}");
}

/// A number is printed with the same digits in every output.
#[test]
fn numbers_have_the_same_digits_everywhere() {
    let work = Workspace::new();
    let out = work.arg("out");
    let finished = girih(&["train", "--data", SMALL, "--epochs", "3", "--out", &out, "--json"]).ok();
    let metrics = fs::read_to_string(work.path("out/metrics.jsonl")).unwrap();
    let printed: Vec<&str> = finished.out.lines().take(3).collect();
    assert_eq!(metrics.lines().collect::<Vec<_>>(), printed, "epochs are printed as they are kept");
    let last: Value = serde_json::from_str(printed[2]).unwrap();
    let result = finished.result();
    assert_eq!(result["train_loss"].to_string(), last["train_loss"].to_string());
    assert!(result["train_loss"].to_string().len() < 12, "an f32 has no digits of an f64: {}", result["train_loss"]);
    assert_eq!(result["val_loss"], last["val_loss"]);
    let kept: Value = serde_json::from_str(&fs::read_to_string(work.path("out/result.json")).unwrap()).unwrap();
    assert_eq!(kept, result);
    let percent = format!("{:.2} %", 100.0 * result["test_accuracy"].as_f64().unwrap());
    assert!(fs::read_to_string(work.path("out/report.html")).unwrap().contains(&percent));
    assert!(girih(&["evaluate", "--checkpoint", &out]).ok().out.contains(&percent));
    let time = last["time"].as_f64().unwrap();
    assert!((1.7e9..1e10).contains(&time), "{time}");
}

#[test]
fn runs_are_counted_from_zero_as_their_files_are() {
    let work = Workspace::new();
    let out = work.arg("out");
    let train = ["train", "--data", SMALL, "--epochs", "2", "--runs", "2", "--out", &out];
    let told = girih(&train).ok().err;
    let runs: Vec<&str> = told.lines().filter(|line| line.starts_with("run ")).collect();
    assert!(runs[0].starts_with("run   0 ") && runs[1].starts_with("run   1 "), "{told}");
    assert!(work.path("out/run-001.safetensors").is_file());
    let shown = girih(&["evaluate", "--checkpoint", &format!("{out}/run-001.safetensors")]).ok().out;
    assert!(shown.lines().any(|line| line.split_whitespace().eq(["Run", "1"])), "{shown}");
}

/// A different codec in an evaluation gives no warning about different data; a different split does.
#[test]
fn another_codec_is_no_alarm() {
    let work = Workspace::new();
    let out = work.arg("out");
    for codec in [None, Some("int8")] {
        let out = format!("{out}{}", codec.unwrap_or_default());
        let codec = codec.map_or(vec![], |codec| vec!["--codec", codec]);
        let train = ["train", "--data", SMALL, "--epochs", "2", "--runs", "2", "--split", "1", "--out", &out];
        girih(&[&train[..], &codec[..]].concat()).ok();
        for other in ["none", "int8", "topk:2"] {
            let evaluated = girih(&["evaluate", "--checkpoint", &out, "--codec", other]).ok();
            assert!(!evaluated.err.contains("warning"), "{other}: {}", evaluated.err);
        }
        let other = girih(&["evaluate", "--checkpoint", &out, "--split", "0"]).ok();
        assert!(other.err.contains("warning: ") && other.err.contains("another split"), "{}", other.err);
    }
}

#[test]
fn doctor_fits_80_columns() {
    let doctor = girih(&["doctor"]).ok().out;
    for line in doctor.lines().filter(|line| !line.contains('/')) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let bash = girih(&["completions", "bash"]).ok().out;
    assert!(bash.contains("girih__subcmd__train") || bash.contains("girih__train"), "{}", &bash[..400]);
    for shell in ["zsh", "fish", "powershell", "elvish"] {
        assert!(girih(&["completions", shell]).ok().out.contains("weight-decay"), "{shell}");
    }
    let work = Workspace::new();
    girih(&["completions", "man", "--out", &work.arg("man")]).ok();
    let page = fs::read_to_string(work.path("man/girih-train.1")).unwrap();
    assert!(page.contains("weight\\-decay") && page.contains("Examples"), "{page}");
    assert!(work.path("man/girih.1").is_file() && work.path("man/girih-doctor.1").is_file());
}
