//! Plans of ranks: `train --plan` and `--partition auto`.

use crate::girih::{Finished, SMALL, girih, says};

#[test]
fn a_plan_for_ranks_tries_every_partition_and_names_the_quickest() {
    let plan = |extra: &[&str]| girih(&[&["train", "--data", SMALL, "--plan"], extra].concat());
    let result = plan(&["--gpus", "4", "--memory", "80GB", "--json"]).ok().result();
    let plans = result["plans"].as_array().unwrap();
    let partitions: Vec<&str> = plans.iter().map(|plan| plan["grid"].as_str().unwrap()).collect();
    let schemes: Vec<&str> = partitions.iter().map(|grid| grid.split(',').next().unwrap()).collect();
    let [rows, replicas, square] = [["1d"; 6].as_slice(), &["1.5d"; 8], &["2d"; 6]];
    assert_eq!(schemes, [rows, replicas, square].concat());
    let stages_of = |plans: &[serde_json::Value]| -> Vec<String> {
        plans.iter().map(|plan| plan["stages"].as_str().unwrap().to_owned()).collect()
    };
    let of_a_grid = |stages: &[&'static str]| stages.repeat(2);
    // Rows are too narrow to be split. Four replicas hold all rows, so none are exchanged.
    let grids = [&["1", "turns", "steps"][..], &["1", "1"], &["1", "1"], &["1", "steps", "1"]];
    assert_eq!(stages_of(plans), grids.map(of_a_grid).concat());
    let wide = ["--gpus", "4", "--memory", "80GB", "--hidden", "256", "--layers", "3", "--json"];
    let wide = plan(&wide).ok().result();
    assert_eq!(stages_of(wide["plans"].as_array().unwrap())[..6], ["1", "2", "3", "4", "turns", "steps"]);
    let chunks = plans.iter().filter(|plan| plan["chunks"] == 4).map(|plan| &plan["stages"]);
    assert_eq!(chunks.collect::<Vec<_>>(), ["1"; 6]);
    let epoch = |plan: &serde_json::Value| plan["epoch_ms"].as_f64().unwrap();
    assert!(plans.iter().all(|plan| plan["fits"] == true && epoch(plan) > 0.0), "{result}");
    assert!(plans.iter().all(|plan| epoch(plan) >= epoch(&result["choice"])), "{result}");
    let bound = |plan: &serde_json::Value| plan["bound_ms"].as_f64().unwrap();
    assert!(plans.iter().all(|plan| bound(plan) > 0.0 && bound(plan) <= 1.0001 * epoch(plan)), "{result}");
    assert_eq!(result["available_bytes"], 80_000_000_000u64);
    assert!(result["figures"].as_str().unwrap().contains("H200"), "{result}");

    // Sixteen GPUs span two hosts, and the network between hosts is slower than the links inside one.
    let sent = |gpus: &str| {
        let result = plan(&["--gpus", gpus, "--memory", "80GB", "--json"]).ok().result();
        result["plans"][0]["exchange_ms"].as_f64().unwrap()
    };
    assert!(sent("16") > 1.1 * sent("8"), "{} and {} ms", sent("16"), sent("8"));

    let shown = plan(&["--gpus", "8", "--memory", "80GB"]).ok().out;
    for part in ["3d, 8 ranks, 2 × 2 × 2", "8 ranks in 4 groups of 2", "rows", "Choice", "--gpus 8 --partition"] {
        assert!(shown.contains(part), "no {part}: {shown}");
    }
    // CPUs wait for exchanges, so chunks have no benefit.
    let on_cpu = plan(&["--ranks", "4", "--json"]).ok().result();
    assert_eq!(on_cpu["plans"].as_array().unwrap().len(), 12);
    let flags = ["--gpus", "2", "--memory", "80GB", "--cuts", "weighted", "--wire", "bf16"];
    let shown = plan(&flags).ok().out;
    for part in ["--stages ", " --cuts weighted --wire bf16"] {
        assert!(shown.contains(part), "no {part}: {shown}");
    }
}

#[test]
fn a_plan_for_ranks_is_not_told_what_it_finds_out() {
    for flags in [
        &["--partition", "2d"][..],
        &["--partition", "1.5d", "--replication", "2"],
        &["--partition", "2d", "--chunks", "3"],
        &["--exchange", "rows"],
        &["--stages", "3"],
        &["--layout", "patches"],
        &["--rank-deadline", "9"],
    ] {
        let args = ["train", "--data", SMALL, "--plan", "--gpus", "4", "--memory", "80GB"];
        let said = girih(&[&args, flags].concat()).refused(2);
        assert!(says(&said, "--plan tries every partition"), "{flags:?}: {said}");
    }
}

#[test]
fn the_quickest_partition_can_be_trained_by() {
    let train = |flags: &[&str]| {
        let args = ["train", "--data", SMALL, "--epochs", "3", "--json", "--reorder", "degree"];
        girih(&[&args, flags].concat()).ok().result()
    };
    let chosen = train(&["--ranks", "4", "--partition", "auto"]);
    assert_eq!(chosen["ranks"], 4);
    assert!(["1d", "1.5d", "2d"].contains(&chosen["partition"].as_str().unwrap()), "{chosen}");
    assert!(["dense", "rows"].contains(&chosen["exchange"].as_str().unwrap()), "{chosen}");
    assert!(["1", "steps"].contains(&chosen["stages"].as_str().unwrap()), "{chosen}");
}

#[test]
fn a_plan_of_mini_batches_on_gpus_tells_what_each_layout_takes() {
    let plan = |extra: &[&str]| {
        let data = "synth:planted,nodes=20000,degree=20,features=256,classes=4";
        let kind = if extra.contains(&"--batch") { &[][..] } else { &["--batch", "neighbor"] };
        girih(&[&["train", "--data", data, "--model", "sage", "--plan"], kind, extra].concat())
    };
    let on = |n: &str, extra: &[&str]| {
        let result = plan(&[&["--gpus", n, "--memory", "80GB", "--json"], extra].concat()).ok().result();
        let of = |layout: &str| {
            let plan = result["plans"].as_array().unwrap().iter().find(|plan| plan["layout"] == layout);
            plan.map(|plan| plan["needed_bytes"].as_u64().unwrap())
        };
        (of("replicated").unwrap(), ["split-features", "patches"].map(of), result["choice"].clone())
    };
    let ((whole, [_, two], choice), (_, [_, four], _)) = (on("2", &[]), on("4", &[]));
    assert!(two.unwrap() > four.unwrap(), "{two:?}, {four:?}");
    assert_eq!(choice, "replicated", "what needs no other GPU is quicker");
    // With features on hosts, the graph is not divided into patches. Clusters need complete graph and features.
    let small = ["--batch-size", "16", "--fanout", "5,5"];
    let [split, _] = on("2", &small).1;
    let [of_hosts, cut] = on("2", &[&small[..], &["--feature-cache", "0.1"]].concat()).1;
    assert!(of_hosts.unwrap() < split.unwrap() && cut.is_none(), "{of_hosts:?}, {split:?}, {cut:?}");
    assert_eq!(on("2", &["--feature-cache", "0,0.5"]).1, [None; 2]);
    assert_eq!(on("2", &["--batch", "cluster"]).1, [None; 2]);

    let tight = format!("{}", two.unwrap().min(whole) - 1);
    let refused = plan(&["--gpus", "2", "--memory", &tight]);
    assert!(refused.out.contains("none fits") && refused.out.contains("too large"), "{}", refused.out);
    let refused = Finished { out: String::new(), ..refused }.refused(1);
    assert!(says(&refused, "training needs") && says(&refused, "more ranks"), "{refused}");
    let cpus = plan(&["--ranks", "2"]).refused(2);
    assert!(says(&cpus, "give --gpus N instead of --ranks"), "{cpus}");
}

#[test]
fn a_model_too_large_for_all_partitions_is_refused_with_remedies() {
    let wide = ["--hidden", "4096", "--gpus", "4", "--plan", "--memory", "1300MB"];
    let data = "synth:planted,nodes=20000,degree=8,features=64,classes=4";
    let finished = girih(&[&["train", "--data", data], &wide[..]].concat());
    assert!(finished.out.contains("too large") && finished.out.contains("none fits"), "{}", finished.out);
    let refused = Finished { out: String::new(), ..finished }.refused(1);
    for part in ["no partition for 4 ranks fits", "for each", "are free", "--hidden"] {
        assert!(says(&refused, part), "no {part}: {refused}");
    }
    let refused = |args: &[&str]| girih(&[&["train", "--data", SMALL], args].concat()).refused(2);
    assert!(says(&refused(&["--partition", "auto"]), "give --ranks N or --gpus N"));
    assert!(says(&refused(&["--ranks", "2", "--partition", "4d"]), "or auto"));
    let partition = girih(&["partition", "--data", SMALL, "--ranks", "4", "--partition", "auto"]).refused(2);
    assert!(says(&partition, "girih train"), "{partition}");
    let too_many = girih(&["train", "--data", SMALL, "--gpus", "1000", "--plan", "--memory", "80GB"]).refused(1);
    assert!(says(&too_many, "at most one rank a node"), "{too_many}");
    let links = girih(&["train", "--data", SMALL, "--task", "links", "--gpus", "2", "--plan", "--memory", "80GB"]);
    assert!(says(&links.refused(1), "--task links on ranks is not supported"));
}

#[test]
fn a_partition_that_is_chosen_is_not_told_how() {
    let train = ["train", "--data", SMALL, "--epochs", "1", "--device", "cpu", "--ranks", "4", "--partition", "auto"];
    for flags in [&["--replication", "2"][..], &["--exchange", "rows"], &["--stages", "1"], &["--chunks", "2"]] {
        let said = girih(&[&train, flags].concat()).refused(2);
        assert!(says(&said, "--partition auto also chooses"), "{said}");
    }
}
