//! Orders, partitions and ranks: `reorder`, `partition`, `train --ranks` and `train --reorder`.

mod plans;

use girih_graph_format::file::{self, Array};

use crate::girih::{SMALL, Workspace, assert_keys, girih, names_in, says};
use crate::recommend::{QUICK, write_tastes};

#[test]
fn ranks_train_what_one_rank_does() {
    let train = |flags: &[&str]| {
        let args = ["train", "--data", SMALL, "--epochs", "15", "--json"];
        girih(&[&args, flags].concat()).ok().result()
    };
    let single = train(&[]);
    for flags in [
        &["--ranks", "3"][..],
        &["--ranks", "4", "--partition", "1.5d", "--replication", "2", "--exchange", "rows"],
        &["--ranks", "4", "--partition", "2d"],
        &["--ranks", "8", "--partition", "3d", "--exchange", "dense", "--chunks", "2"],
        &["--ranks", "5", "--cuts", "weighted", "--stages", "2"],
    ] {
        let shared = train(flags);
        assert_eq!(shared["ranks"].as_u64(), Some(flags[1].parse().unwrap()));
        assert_keys(&shared, &["partition", "replication", "exchange", "cuts", "wire", "reorder"]);
        for key in ["train_loss", "test_loss"] {
            let (a, b) = (single[key].as_f64().unwrap(), shared[key].as_f64().unwrap());
            assert!((a - b).abs() < 1e-4 * a, "{flags:?}: {key} {b}, on one rank {a}");
        }
    }
    // Rounding is small; sums in another order change it occasionally.
    let loss = |flags: &[&str]| train(flags)["train_loss"].as_f64().unwrap();
    let [two, four] = ["2", "4"].map(|ranks| loss(&["--ranks", ranks, "--wire", "bf16"]));
    let exact = single["train_loss"].as_f64().unwrap();
    assert!(train(&["--ranks", "2"]).get("wire_error").is_none());
    let error = train(&["--ranks", "2", "--wire", "bf16"])["wire_error"].as_f64().unwrap();
    assert!((1e-5..1e-2).contains(&error), "{error}");
    assert!((two - four).abs() < 1e-3 * two, "{two}, on four ranks {four}");
    assert!(two != exact && (two - exact).abs() < 1e-2 * exact, "{two}, without rounding {exact}");
}

#[test]
fn recommenders_and_batch_normalisation_train_on_ranks() {
    let work = Workspace::new();
    let tastes = write_tastes(&work);
    let recommender = [&["--data", &tastes], &QUICK[..]].concat();
    let normalised = ["--data", SMALL, "--norm", "batch"];
    for settings in [&recommender[..], &normalised] {
        let train = |ranks: &[&str]| {
            let args = ["train", "--epochs", "6", "--eval-every", "3", "--json"];
            girih(&[&args, settings, ranks].concat()).ok().result()
        };
        let single = train(&[]);
        for ranks in [&["--ranks", "3"][..], &["--ranks", "4", "--partition", "2d"]] {
            let shared = train(ranks);
            let loss = |result: &serde_json::Value| result["train_loss"].as_f64().unwrap();
            assert!((loss(&single) - loss(&shared)).abs() < 1e-4 * loss(&single), "{ranks:?}: {shared}, not {single}");
            if let Some(recall) = single["recall_at_20"].as_f64() {
                let found = shared["recall_at_20"].as_f64().unwrap();
                assert!((recall - found).abs() < 0.02, "{ranks:?}: {found}, not {recall}");
            }
        }
    }
}

#[test]
fn checkpoints_of_ranks_resume_on_one_and_back() {
    let work = Workspace::new();
    let train = |out: &str, epochs: &str, flags: &[&str]| {
        let out = work.arg(out);
        let args = ["train", "--data", SMALL, "--epochs", epochs, "--out", &out, "--json"];
        girih(&[&args, flags].concat()).ok().result()
    };
    let straight = train("straight", "12", &[]);
    train("mixed", "4", &["--ranks", "4"]);
    train("mixed", "8", &["--resume"]);
    let mixed = train("mixed", "12", &["--resume", "--ranks", "4", "--partition", "2d"]);
    let loss = |result: &serde_json::Value| result["train_loss"].as_f64().unwrap();
    assert!((loss(&straight) - loss(&mixed)).abs() < 1e-4 * loss(&straight), "{straight} {mixed}");
}

#[test]
fn ranks_apply_what_one_rank_applies() {
    let work = Workspace::new();
    let out = work.arg("out");
    girih(&["train", "--data", SMALL, "--epochs", "9", "--out", &out]).ok();
    let with = |command: &str, flags: &[&str]| {
        let args = [command, "--data", SMALL, "--checkpoint", &out, "--json"];
        girih(&[&args, flags].concat())
    };
    let predict = |name: &str, flags: &[&str]| {
        let file = work.arg(name);
        assert_eq!(with("predict", &[&["--out", &file], flags].concat()).ok().result()["nodes"], 600);
        Array::read(&work.path(name)).unwrap()
    };
    let one = with("evaluate", &[]).ok().result();
    let logits = predict("one.npy", &["--logits"]).into_matrix().unwrap();
    let classes = predict("classes.npy", &[]).into_i64().unwrap();
    for flags in [&["--ranks", "3"][..], &["--ranks", "4", "--partition", "2d", "--exchange", "dense"]] {
        let shared = with("evaluate", flags).ok().result();
        assert_eq!(shared["test_accuracy"], one["test_accuracy"], "{flags:?}");
        assert_eq!(shared["ranks"].as_u64(), Some(flags[1].parse().unwrap()));
        let found = predict("ranks.npy", &[flags, &["--logits"]].concat()).into_matrix().unwrap();
        assert_eq!((found.n_rows(), found.n_cols()), (logits.n_rows(), logits.n_cols()));
        assert!(found.data().iter().zip(logits.data()).all(|(a, b)| (a - b).abs() < 1e-4), "{flags:?}");
        assert_eq!(*predict("ranks.npy", flags).into_i64().unwrap(), *classes, "{flags:?}");
    }
    assert!(says(
        &with("evaluate", &["--ranks", "2", "--partition", "auto"]).refused(2),
        "--partition auto is for girih train"
    ));
    assert!(says(&with("evaluate", &["--partition", "2d"]).refused(2), "--ranks N"));
    // A trained model is applied to the whole graph, so it has no layout.
    assert!(says(
        &with("evaluate", &["--ranks", "2", "--layout", "patches"]).refused(2),
        "unexpected argument '--layout'"
    ));
    let similarity = with("evaluate", &["--ranks", "2", "--similarity", "--codec", "half"]).refused(2);
    assert!(says(&similarity, "leave --ranks"), "{similarity}");
}

#[test]
fn training_in_another_order_learns_the_same() {
    let train = |flags: &[&str]| {
        let args = ["train", "--data", SMALL, "--epochs", "40", "--dropout", "0", "--json"];
        girih(&[&args, flags].concat()).ok().result()
    };
    let plain = train(&[]);
    for order in ["degree", "rcm", "slashburn", "metis", "community", "random"] {
        let ordered = train(&["--reorder", order]);
        assert_eq!(ordered["reorder"], order);
        let (a, b) = (plain["train_loss"].as_f64().unwrap(), ordered["train_loss"].as_f64().unwrap());
        assert!((a - b).abs() < 1e-3 * a, "{order}: {b}, not {a}");
    }
    let blockwise = train(&["--reorder", "community", "--ranks", "4"]);
    assert_eq!(blockwise["reorder"], "community in 4 blocks");
}

#[test]
fn auto_chooses_for_the_device_that_is_described() {
    let choose = |device: &[&str]| {
        let args = ["reorder", "--data", SMALL, "--order", "auto", "--width", "32", "--json"];
        girih(&[&args, device].concat()).ok().result()
    };
    let starved = choose(&["--cache", "16", "--cache-gb-s", "100", "--memory-gb-s", "1"]);
    let number = |result: &serde_json::Value, key: &str| result[key].as_f64().unwrap();
    assert_ne!(starved["chosen"], "none");
    assert!(
        number(&starved, "predicted_product_ms_after") < number(&starved, "predicted_product_ms_before"),
        "{starved}"
    );
    assert!(number(&starved, "break_even_products") > 0.0, "{starved}");
    // If memory is as fast as the cache, an order has no benefit.
    let indifferent = choose(&["--cache-gb-s", "1", "--memory-gb-s", "1"]);
    assert_eq!((&indifferent["chosen"], &indifferent["break_even_products"]), (&"none".into(), &().into()));
    assert_eq!(indifferent["bandwidth_before"], indifferent["bandwidth_after"]);
    girih(&["reorder", "--data", SMALL, "--order", "auto", "--cache-gb-s", "1"]).refused(2);
    girih(&["reorder", "--data", SMALL, "--order", "auto", "--cache-gb-s", "0", "--memory-gb-s", "1"]).refused(2);
    let trained = girih(&["train", "--data", SMALL, "--epochs", "2", "--reorder", "auto", "--json"]).ok().result();
    assert!(trained["reorder"].as_str().unwrap().starts_with("auto: "), "{trained}");
}

/// METIS prints a message if a part gets no node; standard output must hold only the result.
#[test]
fn parts_of_a_few_nodes_leave_standard_output_to_the_result() {
    let data = "synth:planted,nodes=3000,degree=2,features=2,classes=2";
    for blocks in ["2500", "1000", "375"] {
        let finished = girih(&["reorder", "--data", data, "--order", "parts", "--blocks", blocks, "--json"]).ok();
        assert!(finished.out.lines().all(|line| line.starts_with('{')), "{blocks} parts: {}", finished.out);
    }
}

#[test]
fn reorder_writes_the_data_and_the_order() {
    let work = Workspace::new();
    let (out, plot) = (work.arg("ordered"), work.arg("spy.png"));
    let report = work.arg("report.html");
    let files = ["--out", &out, "--plot", &plot, "--report", &report];
    let args = ["reorder", "--data", SMALL, "--order", "community", "--json"];
    let result = girih(&[&args[..], &files].concat()).ok().result();
    let page = std::fs::read_to_string(work.path("report.html")).unwrap();
    assert!(page.contains("data:image/png;base64,iVBOR") && page.contains("inside each block"), "{}", &page[..600]);
    assert_eq!(page.matches("<rect").count(), 3 * 16, "three heat maps of 4 × 4 blocks");
    assert_eq!(page.matches("<img").count(), 2, "as it is, and in the order");
    assert_keys(
        &result,
        &[
            "order",
            "seconds",
            "nodes",
            "edges",
            "bandwidth_before",
            "bandwidth_after",
            "mean_gap_before",
            "mean_gap_after",
            "tiles_before",
            "tiles_after",
            "nnz_share_in_dense_tiles_before",
            "nnz_share_in_dense_tiles_after",
            "coverage_before",
            "coverage_after",
            "lru_hit_rate_before",
            "lru_hit_rate_after",
        ],
    );
    let smaller = |key: &str| result[format!("{key}_after")].as_f64() < result[format!("{key}_before")].as_f64();
    assert!(smaller("mean_gap") && smaller("tiles"), "{result}");
    assert_eq!(&std::fs::read(work.path("spy.png")).unwrap()[1..4], b"PNG");

    // Applying the written order again gives the same result, and the reordered folder can be trained on.
    let order = work.arg("ordered/new_of_old.npy");
    let again = girih(&["reorder", "--data", SMALL, "--permutation", &order, "--json"]).ok().result();
    for key in ["bandwidth_after", "mean_gap_after", "tiles_after"] {
        assert_eq!(again[key], result[key]);
    }
    let loss = |data: &str| {
        let args = ["train", "--data", data, "--epochs", "5", "--dropout", "0", "--json"];
        girih(&args).ok().result()["train_loss"].as_f64().unwrap()
    };
    let (a, b) = (loss(SMALL), loss(&out));
    assert!((a - b).abs() < 1e-4 * a, "{b}, not {a}");
}

/// The written order starts from the ids of the files, even if they were shuffled first.
#[test]
fn an_order_of_shuffled_ids_starts_at_the_files_ids() {
    let work = Workspace::new();
    let out = work.arg("ordered");
    let args = ["reorder", "--data", SMALL, "--order", "rcm", "--shuffle", "--out", &out, "--json"];
    let result = girih(&args).ok().result();
    let order = work.arg("ordered/new_of_old.npy");
    let again = girih(&["reorder", "--data", SMALL, "--permutation", &order, "--json"]).ok().result();
    assert_eq!(again["bandwidth_after"], result["bandwidth_after"]);
    assert_eq!(again["mean_gap_after"], result["mean_gap_after"]);
}

#[test]
fn several_orders_are_compared() {
    let result = girih(&["reorder", "--data", SMALL, "--order", "degree,rcm,community", "--json"]).ok().result();
    let orders = result["orders"].as_array().unwrap();
    let names: Vec<&str> = orders.iter().map(|order| order["order"].as_str().unwrap()).collect();
    assert_eq!(names, ["degree", "rcm", "community"]);
    assert!(orders.iter().all(|order| order.get("event").is_none()), "{result}");
    assert!(result["bandwidth_before"].is_u64() && result["tiles_after"].is_u64(), "{result}");
    let best = orders.iter().map(|order| order["coverage_after"].as_f64().unwrap()).fold(0.0, f64::max);
    assert_eq!(result["coverage_after"].as_f64(), Some(best));
    let shown = girih(&["reorder", "--data", SMALL, "--order", "degree,rcm"]).ok().out;
    assert!(shown.contains("as it is") && shown.contains("bandwidth"), "{shown}");
}

#[test]
fn orders_that_are_none_are_refused() {
    let work = Workspace::new();
    let refusal = |name: &str, ids: &[i64]| {
        file::write_npy(&work.path(name), &[ids.len()], ids).unwrap();
        girih(&["reorder", "--data", SMALL, "--permutation", &work.arg(name)]).refused(1)
    };
    let message = refusal("short.npy", &[0, 1]);
    assert!(says(&message, "short.npy") && says(&message, "2 ids for a graph of 600 nodes"), "{message}");
    let mut ids: Vec<i64> = (0..600).collect();
    ids[7] = 3;
    let message = refusal("twice.npy", &ids);
    assert!(says(&message, "twice.npy") && says(&message, "new id 3 is given twice"), "{message}");
    ids[7] = -1;
    let message = refusal("negative.npy", &ids);
    assert!(says(&message, "entry 7 is -1"), "{message}");
    file::write_npy(&work.path("table.npy"), &[600, 1], &ids).unwrap();
    file::write_npy(&work.path("floats.npy"), &[600], &[0.5f32; 600]).unwrap();
    for (name, code, reason) in [
        ("table.npy", 1, "expected one dimension"),
        ("floats.npy", 1, "integers"),
        ("order.txt", 2, "has to end in .npy"),
    ] {
        let message = girih(&["reorder", "--data", SMALL, "--permutation", &work.arg(name)]).refused(code);
        assert!(says(&message, reason) && message.matches(name).count() == 1, "{message}");
    }
    girih(&["reorder", "--data", SMALL, "--order", "alphabetical"]).refused(2);
    girih(&["reorder", "--data", SMALL]).refused(2);
}

#[test]
fn partition_says_who_does_what() {
    let args = ["partition", "--data", SMALL, "--ranks", "8", "--partition", "1.5d", "--replication", "2", "--json"];
    let result = girih(&[&args[..], &["--gather", "100"]].concat()).ok().result();
    assert_keys(&result, &["ranks", "nnz_per_block", "imbalance", "bytes_sent_per_rank", "predicted_ms"]);
    let blocks = result["nnz_per_block"].as_array().unwrap();
    let total: u64 = blocks.iter().flat_map(|row| row.as_array().unwrap()).map(|nnz| nnz.as_u64().unwrap()).sum();
    assert_eq!((blocks.len(), Some(total)), (4, result["edges"].as_u64()));
    assert_eq!(result["bytes_sent_per_rank"].as_array().unwrap().len(), 8);

    let work = Workspace::new();
    let plot = work.arg("blocks.svg");
    let flags = ["--gather", "100", "--plot", &plot, "--compare", "metis"];
    let result = girih(&[&args[..], &flags].concat()).ok().result();
    let compared = result["compared"].as_array().unwrap();
    assert_eq!([&compared[0]["order"], &compared[1]["order"]], ["metis", "metis in 4 blocks"]);
    for order in compared {
        assert_keys(order, &["imbalance", "rank_imbalance", "bytes_sent_per_rank", "memory_per_rank", "predicted_ms"]);
    }
    let svg = std::fs::read_to_string(work.path("blocks.svg")).unwrap();
    assert_eq!(svg.matches("<rect").count(), 3 * 16, "three panels of 4 × 4 blocks");
    assert!(svg.contains("metis in 4 blocks"), "{svg}");
    let shown = girih(&["partition", "--data", SMALL, "--ranks", "2", "--gather", "9", "--compare", "rcm"]).ok().out;
    assert!(shown.contains("one product") && shown.contains("rcm in 2 blocks"), "{shown}");
}

#[test]
fn ranks_that_cannot_share_are_refused() {
    let refusal = |code: i32, flags: &[&str]| {
        let args = ["train", "--data", "synth:planted,nodes=6,degree=2,features=2,classes=2", "--epochs", "1"];
        girih(&[&args, flags].concat()).refused(code)
    };
    let message = refusal(2, &["--ranks", "6", "--partition", "2d"]);
    assert!(says(&message, "6 ranks form no square") && says(&message, "4 or 9"), "{message}");
    let message = refusal(2, &["--ranks", "6", "--partition", "1.5d", "--replication", "4"]);
    assert!(says(&message, "4 replicas do not divide 6 ranks"), "{message}");
    assert!(says(&refusal(2, &["--ranks", "2", "--replication", "2"]), "choose 1.5d"));
    assert!(says(&refusal(2, &["--ranks", "2", "--stages", "0"]), "give 1 or more, steps or turns"));
    assert!(says(&refusal(2, &["--ranks", "2", "--chunks", "2"]), "take --partition 1.5d, 2d or 3d"));
    assert!(says(&refusal(2, &["--ranks", "1", "--replication", "0"]), "1 rank with 0 replicas"));
    assert!(says(&refusal(1, &["--ranks", "7"]), "6 nodes cannot be cut over 7 ranks"));
    assert!(says(&refusal(2, &["--ranks", "1000"]), "1000 ranks are too many for threads of one process"));
    assert!(says(&refusal(2, &["--reorder-blocks", "3"]), "give --reorder ORDER"));
    let on_cpus = ["--ranks", "2", "--device", "cpu", "--transport", "peer"];
    assert!(says(&refusal(1, &on_cpus), "these ranks are on CPUs"));
    assert!(says(&refusal(2, &["--ranks", "2", "--transport", "shared"]), "choose one of nccl, peer"));
    for unused in [
        ["--partition", "2d"],
        ["--exchange", "rows"],
        ["--wire", "bf16"],
        ["--stages", "2"],
        ["--stages", "steps"],
        ["--stages", "turns"],
        ["--chunks", "2"],
        ["--rank-deadline", "9"],
        ["--transport", "peer"],
        ["--ranks-per-gpu", "2"],
    ] {
        for plan in [&[][..], &["--plan"]] {
            assert!(says(&girih(&[&["train"], &unused[..], plan].concat()).refused(2), "give --ranks N"), "{unused:?}");
        }
    }
    let on_cpu = girih(&["train", "--device", "cpu", "--timeline", "a.json"]).refused(2);
    assert!(says(&on_cpu, "--timeline records CUDA") && says(&on_cpu, "give --device cuda"), "{on_cpu}");
    assert!(says(&girih(&["train", "--timeline", "a.txt"]).refused(2), ".json"));
    let idle = girih(&["train", "--timeline", "a.json", "--plan", "--memory", "80GB"]).refused(2);
    assert!(says(&idle, "leave one of them out"), "{idle}");
    for ranks in [["--ranks", "2", "--device", "cpu"].as_slice(), &["--gpus", "2"], &["--gpus", "2", "--plan"]] {
        let message = refusal(2, &[ranks, &["--ranks-per-gpu", "2"]].concat());
        assert!(says(&message, "--ranks-per-gpu is for processes on CUDA devices"), "{message}");
    }
    let rounded = girih(&["partition", "--data", SMALL, "--ranks", "2", "--gather", "9", "--wire", "bf16"]).refused(2);
    assert!(says(&rounded, "leave --wire out"), "{rounded}");
    girih(&["train", "--ranks", "2", "--partition", "4d"]).refused(2);
    girih(&["train", "--ranks", "0"]).refused(2);
}

#[test]
fn a_deadline_has_no_largest_value() {
    let deadline = u64::MAX.to_string();
    girih(&["train", "--data", SMALL, "--epochs", "1", "--ranks", "2", "--rank-deadline", &deadline]).ok();
}

#[test]
fn partition_refuses_what_cannot_be() {
    let refusal = |flags: &[&str]| {
        let args = ["partition", "--data", SMALL, "--ranks", "4"];
        girih(&[&args, flags].concat()).refused(2)
    };
    for flags in [["--latency", "nan"], ["--latency", "-1"], ["--link", "0"], ["--gather", "0"], ["--gather", "inf"]] {
        assert!(says(&refusal(&flags), "expected a"), "{flags:?}");
    }
    assert!(says(&refusal(&["--plot", "blocks.png"]), "has to end in .svg"));
    assert!(says(&refusal(&["--replication", "3"]), "choose 1.5d"));
    assert!(says(&girih(&["partition", "--ranks", "4"]).refused(2), "no data is named"));
}

#[test]
fn graphs_without_nodes_are_ordered_and_drawn() {
    let work = Workspace::new();
    std::fs::write(work.path("none.csv"), "# girih: nodes 0\n").unwrap();
    let (plot, report) = (work.arg("new/spy.png"), work.arg("new/page.html"));
    let args =
        ["reorder", "--data", &work.arg("none.csv"), "--order", "degree,rcm", "--plot", &plot, "--report", &report];
    let shown = girih(&args).ok().out;
    assert!(!shown.contains("-0.00") && shown.contains(&plot) && shown.contains(&report), "{shown}");
    assert_eq!(names_in(&work.path("new")), ["page.html", "spy.png"]);
}

#[test]
fn output_that_cannot_be_written_is_refused_before_the_work() {
    let work = Workspace::new();
    std::fs::write(work.path("file"), "").unwrap();
    for (flag, name) in [("--out", "file/a"), ("--plot", "file/a.png"), ("--report", "file/a.html")] {
        let message = girih(&["reorder", "--data", SMALL, "--order", "rcm", flag, &work.arg(name)]).refused(1);
        assert!(says(&message, "file is a file"), "{message}");
    }
    let message = girih(&["reorder", "--data", SMALL, "--order", "rcm", "--plot", "spy.svg"]).refused(2);
    assert!(says(&message, "has to end in .png"), "{message}");
    let message = girih(&["generate", SMALL, "--out", "."]).refused(1);
    assert!(says(&message, "is a folder: give the name"), "{message}");
}

/// Reordering replaces an earlier order of the same data, but no other data set.
#[test]
fn another_data_set_is_not_replaced() {
    let work = Workspace::new();
    let out = work.arg("ordered");
    let reorder = |data: &str, order: &str| girih(&["reorder", "--data", data, "--order", order, "--out", &out]);
    reorder(SMALL, "rcm").ok();
    reorder(SMALL, "degree").ok();
    let message = reorder("synth:planted,nodes=50", "rcm").refused(1);
    assert!(says(&message, &out) && says(&message, "holds another data set"), "{message}");

    std::fs::create_dir(work.path("thesis")).unwrap();
    std::fs::write(work.path("thesis/chapter1"), "years of work").unwrap();
    let message = girih(&["reorder", "--data", SMALL, "--order", "rcm", "--out", &work.arg("thesis")]).refused(1);
    assert!(says(&message, "holds something else"), "{message}");
}

#[test]
fn an_array_of_the_order_has_one_number_a_node() {
    let work = Workspace::new();
    let out = work.arg("ordered");
    girih(&["reorder", "--data", SMALL, "--order", "rcm", "--blocks", "3", "--out", &out, "--json"]).ok();
    let ids = Array::read(&work.path("ordered/new_of_old.npy")).unwrap().into_i64().unwrap();
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..600).collect::<Vec<i64>>());
    for (old, &new) in ids.iter().enumerate() {
        assert_eq!(old * 3 / 600, new as usize * 3 / 600, "nodes stay in their range");
    }
}

#[test]
fn flags_that_say_nothing_of_what_is_trained_are_refused() {
    let refused = |flags: &[&str]| {
        let args = ["train", "--data", SMALL, "--epochs", "1", "--ranks", "4"];
        girih(&[&args, flags].concat()).refused(2)
    };
    for flag in [
        &["--wire", "bf16"][..],
        &["--stages", "2"],
        &["--exchange", "rows"],
        &["--cuts", "weighted"],
        &["--partition", "2d"],
        &["--partition", "2d", "--chunks", "2"],
        &["--layout", "replicated", "--wire", "bf16"],
    ] {
        let said = refused(&[&["--batch", "neighbor"], flag].concat());
        assert!(says(&said, "have no effect on mini-batches of ranks that hold the whole graph"), "{flag:?}: {said}");
    }
    let said = refused(&["--batch", "neighbor", "--transport", "peer"]);
    assert!(says(&said, "--transport has no effect"), "{said}");
    for kind in [["--batch", "neighbor"], ["--model", "lightgcn"]] {
        let said = refused(&[&kind[..], &["--partition", "auto"]].concat());
        assert!(
            says(&said, "only full-batch training of models that read features") && !says(&said, "--plan"),
            "{said}"
        );
    }
    for layout in ["patches", "split-features", "replicated"] {
        assert!(says(
            &refused(&["--layout", layout]),
            &format!("--layout {layout} with full batches is not supported")
        ));
    }
}

#[test]
fn results_of_mini_batches_say_how_ranks_shared_them() {
    let train = |flags: &[&str]| {
        let args = ["train", "--data", SMALL, "--epochs", "1", "--batch", "neighbor", "--ranks", "2", "--json"];
        girih(&[&args, flags].concat()).ok().result()
    };
    let whole = train(&[]);
    assert_eq!((&whole["ranks"], &whole["layout"]), (&2.into(), &"replicated".into()));
    for key in ["partition", "exchange", "cuts", "stages", "chunks", "wire"] {
        assert!(whole.get(key).is_none(), "{key} in {whole}");
    }
    let patches = train(&["--layout", "patches", "--cuts", "weighted", "--wire", "bf16"]);
    assert_keys(&patches, &["partition", "exchange", "stages"]);
    assert_eq!([&patches["layout"], &patches["cuts"], &patches["wire"]], ["patches", "weighted", "bf16"]);
    let split = train(&["--layout", "split-features"]);
    assert_eq!(split["layout"], "split-features");
    assert_eq!(split["train_loss"], train(&["--layout", "patches"])["train_loss"], "the same batches");
    // Without a partition there are no blocks to order inside of.
    let order = |flags: &[&str]| train(flags)["reorder"].clone();
    assert_eq!(order(&["--layout", "patches", "--reorder", "parts"]), "2 parts");
    assert_eq!(order(&["--reorder", "community"]), "community");
    let whole = girih(&["train", "--data", SMALL, "--reorder", "parts"]).refused(2);
    assert!(says(&whole, "--reorder-blocks N"), "{whole}");
    let compared =
        girih(&["partition", "--data", SMALL, "--ranks", "4", "--gather", "9", "--compare", "parts", "--json"]);
    let compared = compared.ok().result();
    let orders: Vec<_> = compared["compared"].as_array().unwrap().iter().map(|row| &row["order"]).collect();
    assert_eq!(orders, ["4 parts"]);
}
