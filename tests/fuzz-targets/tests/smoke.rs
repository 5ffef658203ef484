//! Every parser reads damaged input without a panic and within its memory bound, and refuses truncated files. The
//! long form runs under libFuzzer: see `fuzz/`.

use girih_fuzz_targets::{Campaign, Counting, targets};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Number of truncations of each file of a seed.
const CUTS: usize = 16;
/// Number of mutations of a target; `GIRIH_FUZZ_MUTATIONS` sets another one.
const MUTATIONS: u64 = 100;

#[test]
fn damaged_input_breaks_no_law() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let campaign = Campaign {
        seed: number("GIRIH_FUZZ_SEED").unwrap_or(0),
        mutations: number("GIRIH_FUZZ_MUTATIONS").unwrap_or(MUTATIONS),
        cuts: number("GIRIH_FUZZ_CUTS").map_or(CUTS, |cuts| cuts as usize),
    };
    let only = std::env::var("GIRIH_FUZZ_TARGET").ok();
    let scratch = tempfile::tempdir().unwrap();
    let mut broken = Vec::new();
    for target in targets().iter().filter(|target| only.as_deref().is_none_or(|name| name == target.name)) {
        let (report, findings) = campaign.run(target, scratch.path());
        println!("{report}");
        for (at, (input, what)) in findings.into_iter().enumerate() {
            println!("  {what}");
            if let Some(folder) = std::env::var_os("GIRIH_FUZZ_FINDINGS") {
                let path = std::path::Path::new(&folder).join(format!("{}-{at}", target.name));
                std::fs::write(path, input.encode(target.form)).unwrap();
            }
            broken.push(what);
        }
    }
    assert!(broken.is_empty(), "{} laws are broken; the first: {}", broken.len(), broken[0]);
}
