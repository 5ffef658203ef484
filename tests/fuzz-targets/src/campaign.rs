//! [`Campaign`]: many mutations of every target, and their outcome.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use girih_random::{Key, Stream};

use crate::targets::Outcome;
use crate::{Form, Input, Target, mutate};

/// Maximum time of one input, thousands of times that of a seed.
const SLOW: Duration = Duration::from_secs(10);
/// Purpose of a campaign's random draws.
const PURPOSE: u32 = 1000;

/// Numbers of mutations and truncations of every target.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    /// Random seed.
    pub seed: u64,
    /// Number of mutations of each target.
    pub mutations: u64,
    /// Number of lengths to which each file of a seed is truncated.
    pub cuts: usize,
}

/// Outcome of all inputs of a target.
#[derive(Clone, Debug, Default)]
pub struct TargetReport {
    /// Name of the target.
    pub name: &'static str,
    /// Number of mutations that were read.
    pub mutations: u64,
    /// Number of accepted mutations.
    pub accepted: u64,
    /// Number of truncated files.
    pub cuts: u64,
    /// Peak memory in bytes.
    pub peak: usize,
    /// Peak memory as a share of the bound.
    pub share: f64,
    /// Longest time of an input.
    pub slowest: Duration,
    /// Time of all inputs.
    pub time: Duration,
}

/// Inputs that broke a law, with descriptions.
pub type Findings = Vec<(Input, String)>;

impl Campaign {
    /// Reads the seeds of a target, which must be accepted, then truncated seeds, then mutations.
    #[must_use]
    pub fn run(&self, target: &Target, scratch: &Path) -> (TargetReport, Findings) {
        let mut reader = Reader {
            target,
            scratch,
            report: TargetReport { name: target.name, ..Default::default() },
            findings: Vec::new(),
        };
        let seeds = (target.seeds)();
        let start = Instant::now();
        for seed in &seeds {
            if let Some(message) = reader.read(seed).and_then(|outcome| outcome.refused) {
                reader.findings.push((seed.clone(), format!("{}: a seed is refused: {message}", target.name)));
            }
        }
        if target.whole {
            seeds.iter().for_each(|seed| reader.cut(seed, self.cuts));
        }
        for mutation in 0..self.mutations {
            let seed = &seeds[(mutation % seeds.len() as u64) as usize];
            let input = mutate(seed, target.words, &mut self.stream(target, mutation));
            reader.report.mutations += 1;
            if reader.read(&input).is_some_and(|outcome| outcome.refused.is_none()) {
                reader.report.accepted += 1;
            }
        }
        reader.report.time = start.elapsed();
        (reader.report, reader.findings)
    }

    fn stream(&self, target: &Target, mutation: u64) -> Stream {
        let name = u64::from(crc32fast::hash(target.name.as_bytes()));
        Key::new(self.seed, PURPOSE).child(name).stream(mutation, 0)
    }
}

struct Reader<'a> {
    target: &'a Target,
    scratch: &'a Path,
    report: TargetReport,
    findings: Findings,
}

impl Reader<'_> {
    /// Reads an input; `None` if it breaks a law.
    fn read(&mut self, input: &Input) -> Option<Outcome> {
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| self.target.run(input, self.scratch)));
        let time = start.elapsed();
        self.report.slowest = self.report.slowest.max(time);
        if time > SLOW {
            self.findings.push((input.clone(), format!("{}: {time:?} for an input", self.target.name)));
        }
        match result {
            Ok(outcome) => {
                let peak = outcome.peak.unwrap_or(0);
                self.report.peak = self.report.peak.max(peak);
                let share = peak as f64 / self.target.bound.of(outcome.bytes) as f64;
                self.report.share = self.report.share.max(share);
                Some(outcome)
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned()));
                let text = text.unwrap_or_else(|| "a panic".to_owned());
                self.findings.push((input.clone(), format!("{}: {text}", self.target.name)));
                None
            }
        }
    }

    /// Truncates every binary file of a seed at many lengths; none may be accepted.
    fn cut(&mut self, seed: &Input, n_cuts: usize) {
        for (f, file) in seed.files.iter().enumerate().filter(|(_, file)| is_binary(&file.name, self.target.form)) {
            let step = (file.bytes.len() / n_cuts).max(1);
            for len in (0..file.bytes.len()).step_by(step) {
                let mut cut = seed.clone();
                cut.files[f].bytes.truncate(len);
                crate::repair(&mut cut);
                self.report.cuts += 1;
                if self.read(&cut).is_some_and(|outcome| outcome.refused.is_none()) {
                    let text = format!("{}: {} is accepted after {len} bytes", self.target.name, file.name);
                    self.findings.push((cut, text));
                }
            }
        }
    }
}

/// Whether truncation of a file is always detected; text files may end anywhere.
fn is_binary(name: &str, form: Form) -> bool {
    let is_text = [".csv", ".txt", ".toml", ".index", ".mtx", ".graph"].iter().any(|ending| name.ends_with(ending));
    form != Form::Folder && matches!(form, Form::Memory(_))
        || !is_text
        || name.starts_with("ind.") && !name.ends_with(".index")
}

impl fmt::Display for TargetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, mutations, accepted, cuts, peak, share, slowest, time } = self;
        write!(
            f,
            "{name:<14} {mutations:>6} mutations, {accepted:>5} accepted, {cuts:>5} cuts, peak {:>8.1} MiB = {:>5.1} % of its bound, \
             slowest {:>6.1} ms, {:>6.2} s",
            *peak as f64 / f64::from(1 << 20),
            100.0 * share,
            1e3 * slowest.as_secs_f64(),
            time.as_secs_f64()
        )
    }
}
