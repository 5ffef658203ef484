//! Inputs that libFuzzer found. The program has a single test, because memory is counted for all threads.

use girih_fuzz_targets::{Counting, Input, find};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn inputs_that_fuzzing_found_hold_the_laws() {
    let scratch = tempfile::tempdir().unwrap();
    // Files of a data set under other names are read as graphs in text.
    let planetoid = find("planetoid").unwrap();
    for (name, text) in
        [("ind.small.el", "7 2144836"), ("ind.small.el", "1048577\t7"), ("i___s.graph", "1048575\t0\t\t0")]
    {
        let outcome = planetoid.run(&Input::folder(&[(name, text.as_bytes())]), scratch.path());
        assert!(outcome.peak.is_some(), "memory is counted");
    }
}
