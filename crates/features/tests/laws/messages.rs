//! Full text of each message: the problem, with bytes and counts, and the remedy.

use girih_features::{CacheShares, Cut, HostReads, Hotness, MemoryBudget, Planner, Storage, TierPlan};
use girih_partition::Patches;

use crate::cache_plan::{Case, budget};

/// Message of an error.
fn refused<T: std::fmt::Debug, E: std::fmt::Display>(result: Result<T, E>) -> String {
    result.map_err(|error| error.to_string()).expect_err("a refusal")
}

#[test]
fn plans_that_no_memory_holds() {
    let case = Case::new(1500, 2);
    let plan = |budget: MemoryBudget, share| -> Result<TierPlan, _> { case.planner(budget).plan(share) };
    for (refusal, expected) in [
        (
            plan(budget(2, 999, None), None),
            "training alone needs 1000 B (1000 bytes) on each GPU, which has 999 B (999 bytes): give a smaller \
             --batch-size or --fanout, or use GPUs with more memory",
        ),
        (
            plan(budget(2, 5000, Some(10)), None),
            "the graph takes 58 KiB (59224 bytes): 2 GPU(s) have 4 KiB (4000 bytes) for it each, which leaves 56 \
             KiB (57284 bytes) to the host, and the host has 10 B (10 bytes); give the host 56 KiB (57284 bytes), \
             or partition it over about 15 GPUs",
        ),
        (
            plan(budget(2, 1 << 20, Some(10)), Some(1.0)),
            "the graph takes 58 KiB (59224 bytes): 2 GPU(s) have 0 B (0 bytes) for it each, which leaves 58 KiB \
             (59224 bytes) to the host, and the host has 10 B (10 bytes); give the host 58 KiB (59224 bytes), or \
             give features a smaller share",
        ),
        (
            plan(budget(2, 1 << 20, None), Some(1.5)),
            "the feature cache has the share 1.5 of the memory: give a number from 0 to 1",
        ),
        (plan(budget(3, 1 << 20, None), None), "the graph has 2 parts for 3 GPUs: give one part for each GPU"),
        (plan(budget(0, 1 << 20, None), None), "a plan for 0 GPUs: give at least 1"),
    ] {
        assert_eq!(refused(refusal), expected);
    }
    assert_eq!(
        refused(budget(1, 1 << 20, Some(999)).host_beside(1000)),
        "evaluation layer by layer needs 1000 B (1000 bytes) of host memory for hidden layers, and the host \
             has 999 B (999 bytes): give a smaller --hidden, or --precision bf16"
    );
}

#[test]
fn copies_that_no_memory_holds() {
    let case = Case::new(1500, 1);
    let copies = |budget| Planner { storage: Storage::Copied, ..case.planner(budget) }.plan(None);
    assert_eq!(
        refused(copies(budget(1, 2000, None))),
        "training leaves 1000 B (1000 bytes) of each GPU, and the indptr and the index of cached rows alone \
             take 35 KiB (36008 bytes): give a smaller --batch-size, or use GPUs with more memory (graph and \
             features take 216 KiB (221224 bytes))"
    );
    assert_eq!(
        refused(copies(budget(1, 60_000, Some(10)))),
        "graph and features take 216 KiB (221224 bytes): each GPU has 58 KiB (59000 bytes) for both, which leaves \
         193 KiB (197216 bytes) to the host, and the host has 10 B (10 bytes); compress the features (--codec topk:8), or \
         use more memory on the host or the GPUs"
    );
}

#[test]
fn settings_that_are_none() {
    assert_eq!(
        refused("warm".parse::<Hotness>()),
        "`warm` is not a measure of hotness: give one of degree, pagerank, reverse-pagerank, presampled"
    );
    assert_eq!(
        refused("fast".parse::<HostReads>()),
        "`fast` is not a way to read rows of host memory: give one of auto, staged, in-place"
    );
    assert_eq!(
        refused("0.6,0.6".parse::<CacheShares>()),
        "`0.6,0.6` is not a share of the nodes: give a number from 0 to 1 for rows that every GPU holds, such \
             as 0.2, or two for rows on every GPU and rows on one GPU each, such as 0.2,0.5 (at most 1 together)"
    );
    let patches = Patches::new(vec![0, 2, 5]).unwrap();
    assert_eq!(
        refused(Cut::new(&crate::skewed(4), patches)),
        "the partition is of 5 nodes, and the graph has 4: partition this graph"
    );
}
