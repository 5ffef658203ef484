//! Tests of the page on small records.

use super::page::page;
use super::{PAGE, check};
use crate::listing::Listing;

/// Record of a suite on `synth:reddit` and one H200, with cases `NAME, SECONDS`.
fn record(suite: &str, date: &str, rest: &str, cases: &[(&str, f64)]) -> String {
    let case = |(name, seconds): &(&str, f64)| {
        format!(r#"{{"name": "{name}", "time": {{"median_s": {seconds}}}, "metrics": {{"x_one": 1.5, "odd": 7}}}}"#)
    };
    let cases: Vec<String> = cases.iter().map(case).collect();
    format!(
        r#"{{"suite": "{suite}", "graph": "synth:reddit: 9 nodes, 4 edges", "date": "{date}", {rest}
            "commit": {{"hash": "abc", "dirty": false}}, "machine": {{"cpu": "Any", "cores": 2}},
            "device": {{"name": "NVIDIA H200"}}, "cases": [{}]}}"#,
        cases.join(", ")
    )
}

fn path(name: &str) -> String {
    format!("benches/record/{name}.json")
}

#[test]
fn rows_have_the_fastest_case_its_values_and_its_gpus() {
    let ranks = record(
        "gpu-ranks",
        "2026-01-01",
        "",
        &[("c/bf16/1", 9.0), ("a/bf16/2/1d", 0.004), ("b/bf16/2/1d", 0.003), ("a/bf16/4/1d", 0.0021)],
    );
    let page = page(&Listing::of(&[(&path("gpu-ranks-abc"), &ranks)])).unwrap();
    let link = "[gpu-ranks-abc](../benches/record/gpu-ranks-abc.json)";
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
    assert_eq!(
        rows,
        [
            "| graph | device | case | ms | `x_one` | record |",
            &format!("| `synth:reddit` | 2 × H200 | `b/bf16/2/1d` | 3.00 | 1.50 | {link} |"),
            "| | 4 × H200 | `a/bf16/4/1d` | 2.10 | 1.50 | |",
        ]
    );
}

#[test]
fn records_that_are_not_whole_say_so() {
    let whole = record("gpu-ranks", "2026-01-01", "", &[("a/bf16/2/1d", 1.0)]);
    let cut = record("gpu-ranks", "2026-01-02", r#""is_cut": true,"#, &[("a/bf16/2/2d", 1.0)]);
    let page = page(&Listing::of(&[(&path("gpu-ranks-abc"), &whole), (&path("gpu-ranks-abd"), &cut)])).unwrap();
    assert!(page.contains("gpu-ranks-abc.json) |\n"), "{page}");
    assert!(page.contains("gpu-ranks-abd.json), of abc, not whole |\n"), "{page}");
}

#[test]
fn replaced_records_are_refused_by_name() {
    let case = [("a/bf16/2/1d", 1.0)];
    let old = record("gpu-ranks", "2026-01-01", "", &case);
    let new = record("gpu-ranks", "2026-01-02", "", &case);
    let refused = |names: [&str; 2], texts: [&str; 2]| {
        page(&Listing::of(&[(&path(names[0]), texts[0]), (&path(names[1]), texts[1])])).unwrap_err()
    };
    let same_label = ["gpu-ranks-x-abc", "gpu-ranks-x-abd"];
    assert!(refused(same_label, [&old, &new]).starts_with("benches/record/gpu-ranks-x-abc.json is replaced by"));
    assert!(refused(same_label, [&new, &old]).starts_with("benches/record/gpu-ranks-x-abd.json is replaced by"));
    assert!(refused(same_label, [&old, &old]).contains("both are of one day"));
    // Not whole: replaced even by an earlier record, if that has its cases.
    let cut = record("gpu-ranks", "2026-01-02", r#""is_cut": true,"#, &case);
    assert!(refused(same_label, [&old, &cut]).starts_with("benches/record/gpu-ranks-x-abd.json is replaced by"));
    // Another label, or a case of its own, is no reason to refuse.
    let wider = record("gpu-ranks", "2026-01-01", "", &[case[0], ("b/bf16/2/1d", 2.0)]);
    for (names, texts) in [(["gpu-ranks-x-abc", "gpu-ranks-y-abd"], [&old, &new]), (same_label, [&wider, &new])] {
        page(&Listing::of(&[(&path(names[0]), texts[0]), (&path(names[1]), texts[1])])).unwrap();
    }
}

#[test]
fn a_suite_without_a_table_is_refused() {
    let text = record("knitting", "2026-01-01", "", &[("a", 1.0)]);
    assert!(page(&Listing::of(&[(&path("knitting-abc"), &text)])).unwrap_err().contains("knitting-abc"));
}

#[test]
fn records_of_all_suites_count_one_by_one_unless_they_are_quick() {
    let one = record("gpu-ranks", "2026-01-01", "", &[("a/bf16/2/1d", 1.0)]);
    let whole = |is_quick: bool| format!(r#"{{"suite": "all", "is_quick": {is_quick}, "records": [{one}]}}"#);
    let name = path("all-cuda-abc");
    let of = |text: &str| page(&Listing::of(&[(&name, text)])).unwrap();
    assert!(of(&whole(false)).contains("[all-cuda-abc](../benches/record/all-cuda-abc.json)"));
    assert!(!of(&whole(true)).contains("all-cuda-abc"));
}

#[test]
fn tests_on_a_gpu_have_a_line_each() {
    let verified = r#"{"device": "NVIDIA H200", "tests_passed": 85, "tests_skipped": 2}"#;
    let sanitized =
        r#"{"device": "NVIDIA H200", "tools": {"memcheck": {"a": {"clean": {"seconds": 1}}, "b": "failed"}}}"#;
    let listing = Listing::of(&[(&path("gpu-verified"), verified), (&path("gpu-sanitized"), sanitized)]);
    let page = page(&listing).unwrap();
    assert!(
        page.contains("85 tests passed, 2 were skipped. Device: NVIDIA H200.") && page.contains("begun: memcheck 1/2."),
        "{page}"
    );
}

#[test]
fn the_check_compares_the_page_with_the_records() {
    let text = record("gpu-ranks", "2026-01-01", "", &[("a/bf16/2/1d", 1.0)]);
    let name = path("gpu-ranks-abc");
    let written = page(&Listing::of(&[(&name, &text)])).unwrap();
    assert_eq!(check(&Listing::of(&[(&name, &text), (PAGE, &written)])), Ok(()));
    let message = check(&Listing::of(&[(&name, &text), (PAGE, "old")])).unwrap_err();
    assert!(message.contains("differs from the records"), "{message}");
}

#[test]
fn the_page_of_this_tree_agrees_with_its_records() {
    assert_eq!(check(&Listing::read(&crate::workspace_root()).unwrap()), Ok(()));
}
