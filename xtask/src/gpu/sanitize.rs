//! `cargo xtask gpu-sanitize`: runs every GPU test alone under one tool of NVIDIA's compute-sanitizer.
//!
//! A tool makes a test 10 to 100 times slower. Each test therefore has its own time limit, and several run in
//! parallel. The record keeps clean tests, so that the next call, on this or another machine, runs only the rest
//! until the sources change. `--every 8` runs only each eighth case of a test, for tests that would not end
//! otherwise.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Args;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{REQUIRE, TESTS, gpus, program_name, sources_of};

/// Prefixes of kernels of NCCL and cuBLAS. NCCL's read whole words where a message ends within one, and use barriers of
/// part of a block. racecheck does not follow the barriers in shared memory of cuBLAS.
const LIBRARIES: [&str; 2] = ["nccl", "nvjet"];
/// Tool that must follow the kernels of libraries: without them, their results seem never written.
const FOLLOWS_LIBRARIES: &str = "initcheck";
/// Number of printed errors, so that errors of a library hide no others.
const ERRORS_MAX: &str = "5000";
/// Programs whose tests have ranks on several GPUs.
const OF_RANKS: [&str; 2] = ["girih-tests-cuda_ranks::", "girih-tests-cuda_patches::"];
/// Number of lines of the first error that the record keeps.
const FIRST_LINES: usize = 3;
/// Pause of a thread that cannot start a remaining test yet.
const PAUSE: Duration = Duration::from_millis(200);

/// Tools, limits of time, and places of the record.
#[derive(Args)]
pub struct SanitizeArgs {
    /// Folder that `dist` made.
    #[arg(long)]
    prebuilt: PathBuf,
    /// Tools: memcheck, racecheck, initcheck, synccheck.
    #[arg(long, value_delimiter = ',', default_value = "memcheck,racecheck,initcheck,synccheck")]
    tools: Vec<String>,
    /// Seconds for all; tests that have begun then are given up.
    #[arg(long, default_value_t = 3600)]
    seconds: u64,
    /// Seconds for a test.
    #[arg(long, default_value_t = 600)]
    seconds_per_test: u64,
    /// Runs every N-th case of each test; 1 runs all.
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Tests side by side.
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Most tests of several GPUs at once; their ranks wait for each other.
    #[arg(long, default_value_t = 2)]
    rank_jobs: usize,
    /// Keeps verdicts on earlier sources, for instance after a change of names. The record lists these sources.
    #[arg(long)]
    keep_older: bool,
    /// Record that is read, and written again.
    #[arg(long, default_value = "benches/record/gpu-sanitized.json")]
    record: PathBuf,
    /// Where the record goes, if not back to where it was.
    #[arg(long)]
    out: Option<PathBuf>,
}

/// Verdicts of each tool on each test, with hashes of the tested sources.
#[derive(Default, Serialize, Deserialize)]
struct Record {
    device: String,
    sources: BTreeMap<String, String>,
    /// SHA-256 of the hashes of earlier sources whose verdicts were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept_from: Vec<String>,
    /// Verdicts by tool, then by program and test.
    tools: BTreeMap<String, BTreeMap<String, Verdict>>,
}

impl Record {
    /// Record for `sources`. If they differ from its own, verdicts stay only if `keeps_older`.
    fn for_sources(mut self, sources: BTreeMap<String, String>, keeps_older: bool) -> Self {
        if self.sources == sources {
            return self;
        }
        if !keeps_older {
            return Self { sources, ..Self::default() };
        }
        let hashes: Vec<&str> = self.sources.values().map(String::as_str).collect();
        self.kept_from.push(format!("{:x}", Sha256::digest(hashes.concat())));
        Self { sources, ..self }
    }
}

/// Outcome of a test under a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    /// The tool found no error, and the test passed.
    Clean {
        /// Duration of the test in seconds.
        seconds: u64,
        /// Step between the cases that were run; 1 for all.
        every: usize,
    },
    /// The test reported that this machine lacks a requirement, such as a second GPU.
    Skipped,
    /// The tool found errors.
    Errors {
        /// First lines of the first error, and the tool's summary.
        summary: String,
        /// Names of the kernels.
        kernels: Vec<String>,
    },
    /// The tool found errors, but only in kernels of a library, which end the test.
    Library {
        /// Names of the kernels.
        kernels: Vec<String>,
    },
    /// The test failed without an error of the tool; tests with deadlines may do so.
    Failed,
    /// The test exceeded its time limit.
    Unfinished {
        /// Time limit in seconds.
        seconds: u64,
    },
}

/// Test to run under a tool.
struct Job {
    tool: String,
    program: PathBuf,
    test: String,
    every: usize,
}

/// GPUs of this machine, given to tests in turns.
struct Gpus {
    n: usize,
    n_given: AtomicUsize,
}

impl Gpus {
    /// Value of `CUDA_VISIBLE_DEVICES` for the next test: one GPU, or two for a test with ranks. One tool slows several
    /// tests on the same GPU.
    fn next(&self, has_ranks: bool) -> String {
        let turn = self.n_given.fetch_add(1, Ordering::Relaxed);
        if has_ranks && self.n > 1 {
            let first = turn % (self.n / 2) * 2;
            return format!("{first},{}", first + 1);
        }
        (turn % self.n.max(1)).to_string()
    }
}

impl Job {
    /// Name in the record.
    fn name(&self) -> String {
        let program = self.program.file_name().unwrap_or_default().to_string_lossy();
        format!("{}::{}", program.trim_start_matches("test-"), self.test)
    }

    /// Whether the test has ranks on several GPUs.
    fn has_ranks(&self) -> bool {
        OF_RANKS.iter().any(|name| self.name().starts_with(name))
    }

    /// Runs the test for at most `limit` on the GPUs listed in `gpus`.
    fn run(&self, limit: Duration, gpus: &str) -> Result<Verdict, String> {
        let start = Instant::now();
        let excluded = LIBRARIES.iter().filter(|_| self.tool != FOLLOWS_LIBRARIES);
        let output = Command::new("timeout")
            .args(["--kill-after=5", &limit.as_secs().to_string(), "compute-sanitizer", "--tool", &self.tool])
            // The driver and NCCL query features that may not exist.
            .args(["--report-api-errors=no", "--target-processes=all", "--error-exitcode=99"])
            .args(["--print-limit", ERRORS_MAX])
            .args(excluded.map(|name| format!("--kernel-name-exclude=kns={name}")))
            .arg(&self.program)
            .args(["--exact", &self.test, "--test-threads=1", "--nocapture"])
            .env(REQUIRE.0, REQUIRE.1)
            .env("CUDA_VISIBLE_DEVICES", gpus)
            .env("GIRIH_DEADLINE", limit.as_secs().to_string())
            .env("GIRIH_PIECE", format!("0/{}", self.every))
            .output()
            .map_err(|error| format!("timeout: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let verdict = verdict(output.status.code(), &text, (start.elapsed(), self.every));
        if verdict == Verdict::Failed {
            println!("{}: {}", self.name(), reason(&String::from_utf8_lossy(&output.stderr)));
        }
        Ok(verdict)
    }
}

/// First panic in the standard error of a test, with its message.
fn reason(errors: &str) -> String {
    let lines: Vec<&str> =
        errors.lines().skip_while(|line| !line.contains(" panicked at ")).take(FIRST_LINES).collect();
    lines.join("; ")
}

/// Verdict from an exit status and an output.
fn verdict(code: Option<i32>, text: &str, (elapsed, every): (Duration, usize)) -> Verdict {
    let seconds = elapsed.as_secs();
    let lines = || text.lines().filter(|line| line.starts_with("=========") && !line.contains("COMPUTE-SANITIZER"));
    let summary: Vec<&str> =
        lines().take(FIRST_LINES).chain(lines().skip(FIRST_LINES).filter(|line| line.contains("SUMMARY"))).collect();
    let summary = summary.join("; ");
    match code {
        Some(0) if text.contains("skipped") => Verdict::Skipped,
        Some(0) if text.contains("test result: ok. 1 passed") => Verdict::Clean { seconds, every },
        Some(124 | 137) | None => Verdict::Unfinished { seconds },
        Some(99) => {
            let kernels = kernels_with_errors(text);
            let is_of_library = |name: &&str| LIBRARIES.iter().any(|prefix| name.starts_with(prefix));
            let only_library = !kernels.is_empty() && kernels.iter().all(is_of_library);
            let kernels: Vec<String> = kernels.into_iter().map(str::to_owned).collect();
            // A tool counts a test that fails as an error of its own.
            let only_test = kernels.is_empty() && text.contains("Target application returned an error");
            match (only_library, only_test) {
                (true, _) => Verdict::Library { kernels },
                (_, true) => Verdict::Failed,
                _ => Verdict::Errors { summary, kernels },
            }
        }
        _ => Verdict::Failed,
    }
}

/// Kernels in which a tool found errors. Each error lists places such as `=========  at NAME(…)+0x…`, after the accessing
/// thread if two accesses collide.
fn kernels_with_errors(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("========= ")).map(str::trim_start);
    let places = lines.filter(|line| !line.starts_with("Host Frame")).filter_map(|line| {
        let place = line.strip_prefix("at ").or_else(|| line.split_once(" at ").map(|(_, place)| place))?;
        place.contains("+0x").then_some(place)
    });
    places.map(|place| place.split(['(', '+']).next().unwrap_or(place)).collect()
}

/// Runs the tests that are not clean yet, and writes the record.
///
/// # Errors
/// When a test has errors or failed, a program is missing, or the record cannot be read or written.
pub fn sanitize(args: &SanitizeArgs) -> Result<(), String> {
    let sources = sources_of(&args.prebuilt)?;
    let mut record = read(&args.record)?.for_sources(sources, args.keep_older);
    let names = gpus()?;
    let gpus = Gpus { n: names.len(), n_given: AtomicUsize::new(0) };
    record.device.clone_from(&names[0]);
    let jobs = jobs(args, &record)?;
    println!("{} tests to run", jobs.len());
    let end = Instant::now() + Duration::from_secs(args.seconds);
    let (queue, record) = (Mutex::new(Queue { jobs, n_ranks: 0 }), Mutex::new(record));
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            scope.spawn(|| work(args, end, &gpus, &queue, &record));
        }
    });
    let record = record.into_inner().unwrap_or_else(PoisonError::into_inner);
    let out = args.out.as_ref().unwrap_or(&args.record);
    let text = serde_json::to_string_pretty(&record).map_err(|e| e.to_string())? + "\n";
    fs::write(out, text).map_err(|e| format!("{}: {e}", out.display()))?;
    told(&record, queue.into_inner().unwrap_or_else(PoisonError::into_inner).jobs.len())
}

/// Record of earlier calls; empty if there is none.
fn read(path: &Path) -> Result<Record, String> {
    if !path.exists() {
        return Ok(Record::default());
    }
    let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

/// Tests that are not clean yet, under all tools, tool by tool.
fn jobs(args: &SanitizeArgs, record: &Record) -> Result<VecDeque<Job>, String> {
    let mut jobs = VecDeque::new();
    let programs: Vec<PathBuf> = TESTS.iter().map(|(p, t)| args.prebuilt.join(program_name(p, t))).collect();
    for tool in &args.tools {
        for program in &programs {
            for test in tests_of(program)? {
                let job = Job { tool: tool.clone(), program: program.clone(), test, every: args.every.max(1) };
                let known = record.tools.get(tool).and_then(|tests| tests.get(&job.name()));
                if !matches!(known, Some(Verdict::Clean { every, .. }) if *every <= job.every) {
                    jobs.push_back(job);
                }
            }
        }
    }
    Ok(jobs)
}

/// Names of the tests in a program.
fn tests_of(program: &Path) -> Result<Vec<String>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", program.display());
    let output = Command::new(program).args(["--list", "--format=terse"]).output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Tests that have not started.
struct Queue {
    jobs: VecDeque<Job>,
    /// Number of running tests on several GPUs.
    n_ranks: usize,
}

impl Queue {
    /// First test that can start now, if at most `most` tests on several GPUs may run.
    fn take(&mut self, most: usize) -> Option<Job> {
        let at = self.jobs.iter().position(|job| !job.has_ranks() || self.n_ranks < most.max(1))?;
        let job = self.jobs.remove(at)?;
        self.n_ranks += usize::from(job.has_ranks());
        Some(job)
    }
}

/// Runs tests until none are left or the time is over.
fn work(args: &SanitizeArgs, end: Instant, gpus: &Gpus, queue: &Mutex<Queue>, record: &Mutex<Record>) {
    let queue = || queue.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left < Duration::from_secs(1) {
            return;
        }
        let Some(job) = queue().take(args.rank_jobs) else {
            if queue().jobs.is_empty() {
                return;
            }
            std::thread::sleep(PAUSE);
            continue;
        };
        let limit = left.min(Duration::from_secs(args.seconds_per_test));
        let outcome = job.run(limit, &gpus.next(job.has_ranks()));
        queue().n_ranks -= usize::from(job.has_ranks());
        match outcome {
            Ok(verdict) => {
                println!("{} {}: {verdict:?}", job.tool, job.name());
                let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
                record.tools.entry(job.tool.clone()).or_default().insert(job.name(), verdict);
            }
            Err(message) => return eprintln!("{message}"),
        }
    }
}

/// Prints counts. Returns an error if a tool found errors or a test failed.
fn told(record: &Record, n_left: usize) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (tool, tests) in &record.tools {
        let count = |kind: fn(&Verdict) -> bool| tests.values().filter(|verdict| kind(verdict)).count();
        let clean = count(|verdict| matches!(verdict, Verdict::Clean { .. }));
        let unfinished = count(|verdict| matches!(verdict, Verdict::Unfinished { .. }));
        let skipped = count(|verdict| *verdict == Verdict::Skipped);
        let library = count(|verdict| matches!(verdict, Verdict::Library { .. }));
        println!(
            "{tool}: {clean} clean, {unfinished} did not end, {skipped} skipped, {library} ended by a library, of {}",
            tests.len()
        );
        let bad = tests.iter().filter(|(_, verdict)| matches!(verdict, Verdict::Errors { .. } | Verdict::Failed));
        wrong.extend(bad.map(|(name, verdict)| format!("{tool} {name}: {verdict:?}")));
    }
    println!("{n_left} tests not begun");
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_told_apart() {
        let of = |code, text| verdict(code, text, (Duration::from_secs(3), 8));
        assert_eq!(of(Some(0), "test result: ok. 1 passed; 0 failed"), Verdict::Clean { seconds: 3, every: 8 });
        // The name of a test that does not exist runs no test.
        assert_eq!(of(Some(0), "test result: ok. 0 passed; 0 failed"), Verdict::Failed);
        assert_eq!(of(Some(0), "skipped: one GPU\ntest result: ok. 1 passed; 0 failed"), Verdict::Skipped);
        assert_eq!(of(Some(124), ""), Verdict::Unfinished { seconds: 3 });
        let summary = "========= ERROR SUMMARY: 2 errors";
        let text = format!("x\n{summary}\n");
        assert_eq!(of(Some(99), &text), Verdict::Errors { summary: summary.to_owned(), kernels: Vec::new() });
        let text = "========= Target application returned an error";
        assert_eq!(of(Some(99), text), Verdict::Failed);
        let errors = "running 1 test\nthread 'a' panicked at a.rs:1:2:\ntoo late\nnote: x\nmore\n";
        assert_eq!(reason(errors), "thread 'a' panicked at a.rs:1:2:; too late; note: x");
        let hazard = "========= Error: Potential WAR hazard detected at __shared__ 0x8ec0 in block (0,13,0) :\n\
                      =========     Read Thread (16,0,0) at product+0x690\n\
                      =========     Write Thread (480,0,0) at product+0x7040\n\
                      =========         Host Frame: at main+0x5 in test\n";
        assert_eq!(kernels_with_errors(hazard), BTreeSet::from(["product"]));
        let at =
            |kernel| format!("========= Barrier error\n=========     at {kernel}(Args<(unsigned long)4096>)+0x10200\n");
        let of_nccl = at("ncclDevKernel_SendRecv");
        let of_both = format!("{of_nccl}{}", at("spmm"));
        let kernels = vec!["ncclDevKernel_SendRecv".to_owned()];
        assert_eq!(of(Some(99), &of_nccl), Verdict::Library { kernels });
        assert!(matches!(of(Some(99), &of_both), Verdict::Errors { .. }));
        assert_eq!(of(Some(101), "test result: FAILED. 0 passed; 1 failed"), Verdict::Failed);
    }

    #[test]
    fn verdicts_on_earlier_sources_stay_only_on_request() {
        let sources = |hash: &str| BTreeMap::from([("a.cu".to_owned(), hash.to_owned())]);
        let record = || {
            let verdicts = BTreeMap::from([("a".to_owned(), Verdict::Skipped)]);
            let tools = BTreeMap::from([("memcheck".to_owned(), verdicts)]);
            Record { sources: sources("1"), tools, ..Record::default() }
        };
        let same = record().for_sources(sources("1"), false);
        assert_eq!((same.tools.len(), same.kept_from.len()), (1, 0));
        assert_eq!(record().for_sources(sources("2"), false).tools.len(), 0);
        let kept = record().for_sources(sources("2"), true);
        assert_eq!((kept.tools.len(), kept.kept_from.len(), kept.sources), (1, 1, sources("2")));
    }

    #[test]
    fn gpus_take_turns() {
        let gpus = Gpus { n: 4, n_given: AtomicUsize::new(0) };
        assert_eq!([false, true, true, false, true].map(|ranks| gpus.next(ranks)), ["0", "2,3", "0,1", "3", "0,1"]);
        let one = Gpus { n: 1, n_given: AtomicUsize::new(0) };
        assert_eq!([false, true].map(|ranks| one.next(ranks)), ["0", "0"]);
    }

    #[test]
    fn ranks_run_beside_few_others() {
        let job = |program: &str| Job {
            tool: "memcheck".to_owned(),
            program: PathBuf::from(format!("test-girih-tests-{program}")),
            test: "a".to_owned(),
            every: 1,
        };
        let jobs = VecDeque::from(["cuda_ranks", "cuda_patches", "cuda", "cuda_ranks"].map(job));
        let mut queue = Queue { jobs, n_ranks: 0 };
        let mut take = || queue.take(1).map(|job| job.name());
        assert_eq!(take().as_deref(), Some("girih-tests-cuda_ranks::a"));
        assert_eq!(take().as_deref(), Some("girih-tests-cuda::a"));
        assert_eq!(take(), None);
        queue.n_ranks -= 1;
        assert_eq!(queue.take(1).map(|job| job.name()).as_deref(), Some("girih-tests-cuda_patches::a"));
    }
}
