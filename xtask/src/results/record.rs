//! [`Record`]: stored output of a benchmark suite, as far as the page of results needs it.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::listing::Listing;

/// Folder of the records.
pub const FOLDER: &str = "benches/record/";
/// Records about correctness, which have no suite.
pub const UNTIMED: [&str; 2] = ["gpu-verified", "gpu-sanitized"];
/// First part of the names of records of instruction counts, which have no suite either.
pub const COUNTS: &str = "counts-";

/// Stored output of one run of a suite.
#[derive(Debug, Deserialize)]
pub struct Record {
    /// Name of the suite.
    pub suite: String,
    /// Graphs with their sizes, as `SPEC: SIZES; SPEC: SIZES`.
    graph: Option<String>,
    /// Day of the run.
    pub date: String,
    /// Measured source.
    commit: Option<Commit>,
    /// Machine of the run.
    machine: Machine,
    /// Measured ceilings of the CPU, by name; names end in the unit.
    #[serde(default)]
    pub ceilings: BTreeMap<String, f64>,
    /// GPU, if the suite ran on one.
    pub device: Option<Device>,
    /// Whether the run was stopped before its end.
    #[serde(default)]
    is_cut: bool,
    /// Results.
    pub cases: Vec<Case>,
    /// Goals of the suite.
    #[serde(default)]
    pub goals: Vec<Goal>,
    /// Name of the file, without `.json`.
    #[serde(skip)]
    pub name: String,
}

/// Suite of a record, or `all`.
#[derive(Deserialize)]
struct Kind {
    suite: String,
}

/// Outcome of `bench all`.
#[derive(Deserialize)]
struct Whole {
    /// Whether operands were small: their figures are no results.
    is_quick: bool,
    /// Record of each suite.
    records: Vec<Record>,
}

/// Records of a file whose figures are results.
fn parse(bytes: &[u8]) -> Result<Vec<Record>, serde_json::Error> {
    if serde_json::from_slice::<Kind>(bytes)?.suite != "all" {
        return Ok(vec![serde_json::from_slice(bytes)?]);
    }
    let Whole { is_quick, records } = serde_json::from_slice(bytes)?;
    Ok(if is_quick { Vec::new() } else { records })
}

/// Measured source.
#[derive(Debug, Deserialize)]
struct Commit {
    /// First digits of the hash.
    hash: String,
    /// Whether files differed from the commit.
    dirty: bool,
}

/// CPU of the run.
#[derive(Debug, Deserialize)]
struct Machine {
    /// Model name.
    cpu: String,
    /// Number of cores.
    cores: usize,
}

/// GPU of the run.
#[derive(Debug, Deserialize)]
pub struct Device {
    /// Model name.
    name: String,
    /// Rate of copies within its memory, in 10⁹ bytes a second.
    #[serde(default)]
    pub copy_gb_s: f64,
}

/// Bound that the suite set for a result.
#[derive(Debug, Deserialize)]
pub struct Goal {
    /// Measured quantity, with its unit.
    pub what: String,
    /// Measured value.
    pub found: f64,
    /// Upper bound.
    pub at_most: f64,
    /// Whether the value is within the bound.
    pub is_met: bool,
}

/// Result of one case.
#[derive(Debug, Deserialize)]
pub struct Case {
    /// Name, unique in its record.
    pub name: String,
    /// Time of one run.
    pub time: Time,
    /// Derived numbers.
    pub metrics: BTreeMap<String, Option<f64>>,
}

/// Summary of the repeats of a case.
#[derive(Debug, Deserialize)]
pub struct Time {
    /// Median in seconds.
    pub median_s: f64,
}

impl Record {
    /// Reads all records of suites, by file name.
    ///
    /// # Errors
    /// When a file is no record.
    pub fn all(listing: &Listing) -> Result<Vec<Self>, String> {
        let mut records = Vec::new();
        for file in listing.with_extension("json") {
            let Some(name) = file.path.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".json")) else {
                continue;
            };
            if !UNTIMED.contains(&name) && !name.starts_with(COUNTS) {
                let found = parse(&file.bytes).map_err(|e| format!("{}: not a record: {e}", file.path))?;
                records.extend(found.into_iter().map(|record| Self { name: name.to_owned(), ..record }));
            }
        }
        Ok(records)
    }

    /// SPECs of the graphs.
    fn graphs(&self) -> Vec<&str> {
        let described = self.graph.iter().flat_map(|graph| graph.split("; "));
        described.map(|graph| graph.split(": ").next().unwrap_or(graph)).collect()
    }

    /// Cases with the SPEC of their graph, and their names without it. Without a SPEC, the first part of the name is
    /// the graph.
    pub fn cases_by_graph(&self) -> Vec<(&str, Vec<(&str, &Case)>)> {
        let graphs = self.graphs();
        let mut groups: Vec<(&str, Vec<(&str, &Case)>)> = Vec::new();
        for case in &self.cases {
            let by_default = graphs.first().map(|graph| (*graph, case.name.as_str())).or(case.name.split_once('/'));
            let named =
                graphs.iter().find_map(|&graph| Some((graph, case.name.strip_prefix(graph)?.strip_prefix('/')?)));
            let (graph, name) = named.or(by_default).unwrap_or(("", &case.name));
            match groups.iter_mut().find(|(known, _)| *known == graph) {
                Some((_, cases)) => cases.push((name, case)),
                None => groups.push((graph, vec![(name, case)])),
            }
        }
        groups
    }

    /// Words of the file name between the suite and the commit.
    fn label(&self) -> &str {
        let rest = self.name.strip_prefix(&self.suite).unwrap_or(&self.name);
        let rest = rest.strip_suffix("-dirty").unwrap_or(rest);
        rest.rsplit_once('-').map_or("", |(label, _)| label)
    }

    /// Device of a case with the number of GPUs, or the CPU with its cores.
    pub fn device_of(&self, case: &str) -> String {
        let Machine { cpu, cores } = &self.machine;
        let Some(Device { name, .. }) = &self.device else {
            if self.suite == "scaling" {
                return "H200, planned".to_owned();
            }
            return format!("{}, {cores} cores", cpu.replace("(R)", "").replace(" Processor", ""));
        };
        let model = name.strip_prefix("NVIDIA ").unwrap_or(name).split(' ').next().unwrap_or_default();
        format!("{} × {model}", self.gpus_of(case))
    }

    /// Number of GPUs of a case: the third part of its name in `gpu-ranks`, otherwise the word before `devices`.
    pub fn gpus_of(&self, case: &str) -> usize {
        let of_ranks = (self.suite == "gpu-ranks").then(|| case.split('/').nth(2)).flatten();
        let before_word = case.split_once(" devices").and_then(|(before, _)| before.rsplit(['/', ' ']).next());
        of_ranks.or(before_word).and_then(|n| n.parse().ok()).unwrap_or(1)
    }

    /// Link from a page in `docs` to the record, with all that limits its figures.
    pub fn link(&self) -> String {
        let mut link = format!("[{0}](../{FOLDER}{0}.json)", self.name);
        if let Some(Commit { hash, dirty }) = &self.commit {
            if !self.name.contains(hash.as_str()) {
                link += &format!(", of {hash}");
            }
            link += if *dirty { ", dirty" } else { "" };
        }
        link + if self.is_cut { ", not whole" } else { "" }
    }

    /// Number of edges of the only graph, as its description says; `None` for several graphs.
    pub fn n_edges(&self) -> Option<f64> {
        let described = self.graph.as_deref().filter(|graph| !graph.contains("; "))?;
        described.split(" edges").next()?.rsplit(' ').next()?.parse().ok()
    }

    /// Description in one line: name, graphs with their sizes, device of a case, date, and all that limits its figures.
    pub fn describe(&self, case: &str) -> String {
        let graph = self.graph.as_deref().unwrap_or("no graph");
        let dirty = if self.commit.as_ref().is_some_and(|commit| commit.dirty) { "; dirty" } else { "" };
        let cut = if self.is_cut { "; not whole" } else { "" };
        format!("{}: {graph}; {}; {}{dirty}{cut}", self.name, self.device_of(case), self.date)
    }

    /// Whether `newer` makes this record superfluous: it has the same suite, graphs, device and label, all cases of
    /// this record, and is later, or whole where this record is not.
    fn is_superseded_by(&self, newer: &Self) -> bool {
        let key = |record: &Self| {
            let graphs = record.graphs().join("; ");
            let device = record.device.as_ref().map(|device| device.name.clone());
            (record.suite.clone(), graphs, device, record.label().to_owned())
        };
        let names = |record: &Self| -> BTreeSet<String> { record.cases.iter().map(|case| case.name.clone()).collect() };
        let (mine, others) = (names(self), names(newer));
        // Records have no time of day. Two of one day with the same cases are therefore both refused.
        let is_earlier = self.date < newer.date || (self.date == newer.date && mine == others);
        let is_replaced = if self.is_cut == newer.is_cut { is_earlier } else { self.is_cut };
        key(self) == key(newer) && mine.is_subset(&others) && is_replaced
    }
}

/// Refuses records that a newer one of the same suite, graph, device and label replaces.
///
/// # Errors
/// When there is one; the message names it.
pub fn refuse_superseded(records: &[Record]) -> Result<(), String> {
    for older in records {
        for newer in records.iter().filter(|newer| newer.name != older.name) {
            if older.is_superseded_by(newer) {
                let (old, new) = (&older.name, &newer.name);
                let day = if older.date == newer.date && older.is_cut == newer.is_cut {
                    "both are of one day: remove the earlier one"
                } else {
                    "remove it"
                };
                return Err(format!("{FOLDER}{old}.json is replaced by {new}.json; {day}"));
            }
        }
    }
    Ok(())
}
