//! Reads an input as a target does, to reproduce a finding of libFuzzer on stable Rust: `read TARGET FILE`.

use std::time::Instant;

use girih_fuzz_targets::{Counting, Input, find};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, path] = &arguments[..] else { panic!("expected TARGET FILE") };
    let target = find(name).unwrap_or_else(|| panic!("no target {name}"));
    let input = Input::decode(&std::fs::read(path).expect("a file that can be read"), target.form);
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let start = Instant::now();
    let outcome = target.run(&input, scratch.path());
    println!("{outcome:?} in {:?}", start.elapsed());
}
