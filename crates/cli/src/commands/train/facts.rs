//! [`Facts`]: description of a training session, and its result as a table.

use std::time::Duration;

use girih_datasets::{DataSource, Outline, TypeWidth};
use girih_graph_format::{NodeType, Notes};
use girih_machine::{Machine, memory, readable_bytes};
use girih_partition::counted;
use girih_trainer::{CacheReport, InteractionSizes, Outcome, StageTimes, TaskKind, TrainConfig, unread_types};

use super::scores;
use crate::context::reading;
use crate::curves::{Curves, Measure};
use crate::dates;
use crate::output::{self, Results, median_ms, ms};

/// Description that is known before training.
pub struct Facts {
    data: String,
    device: String,
    n_nodes: usize,
    n_edges: usize,
    n_features: usize,
    n_classes: usize,
    generated: bool,
    multi_label: bool,
    interactions: Option<InteractionSizes>,
    /// Numbers of relations and of training, validation and test triples, if triples are trained on.
    triples: Option<(usize, [usize; 3])>,
    /// Line for each node type, and number of edge types, if there are several node types.
    types: Option<(Vec<String>, usize)>,
    /// Codec and bytes per row of compressed features.
    codes: Option<(String, usize)>,
    task: TaskKind,
    model: &'static str,
    splits: Vec<[usize; 3]>,
    notes: Notes,
}

/// Line for each node type, and number of edge types, if there are several node types.
fn types_of(outline: &Outline) -> Option<(Vec<String>, usize)> {
    let schema = outline.schema.as_ref().filter(|_| !outline.type_widths.is_empty())?;
    let line = |(number, (of, width)): (usize, (&NodeType, &TypeWidth))| {
        let target = if number == outline.target { " (target)" } else { "" };
        let rows = match width {
            TypeWidth::Given(width) => counted(*width, "feature"),
            TypeWidth::Learned(Some(width)) => format!("learned rows of {width}"),
            TypeWidth::None | TypeWidth::Learned(None) => "learned rows".to_owned(),
        };
        format!("{}{target}: {}, {rows}", of.name, counted(of.n_nodes, "node"))
    };
    let types = schema.node_types().iter().zip(&outline.type_widths).enumerate().map(line).collect();
    Some((types, schema.edge_types().len()))
}

/// Numbers of relations and of training, validation and test triples, in a knowledge graph.
fn triples_of(outline: &Outline) -> Option<(usize, [usize; 3])> {
    let edge_types = outline.schema.iter().flat_map(|schema| schema.edge_types());
    Some((edge_types.filter(|of| of.reverse_of.is_none()).count(), outline.triples?))
}

impl Facts {
    /// Description of data and a configuration, on a device.
    pub fn of(data: &DataSource, spec: &str, config: &TrainConfig, device: String) -> Self {
        let outline = data.outline();
        let mut notes = data.notes();
        notes.append(config.notes(outline.weighted));
        notes.append(unread_types(config, &outline));
        let &Outline { generated, n_nodes, n_edges, n_features, n_classes, multi_label, .. } = &outline;
        let sizes = |n_users| InteractionSizes { n_users, n_items: n_nodes - n_users, n_train: n_edges / 2 };
        Self {
            data: spec.to_owned(),
            device,
            n_nodes,
            n_edges,
            n_features,
            n_classes,
            generated,
            multi_label,
            interactions: outline.n_users.map(sizes),
            triples: triples_of(&outline).filter(|_| config.task == TaskKind::Triples),
            types: types_of(&outline),
            codes: outline.codes.clone(),
            task: config.task,
            model: config.model.kind.name(),
            splits: outline.splits,
            notes,
        }
    }

    /// Title of a report.
    pub fn title(&self) -> String {
        format!("{} on {}", self.model, self.data)
    }

    /// One line for people, before training.
    pub fn headline(&self) -> String {
        let generated = if self.generated { " (generated)" } else { "" };
        let shown = |(n, noun)| counted(n, noun);
        let task = match self.task {
            TaskKind::Nodes => "",
            TaskKind::Links => ", links",
            TaskKind::Triples => ", triples",
        };
        let sizes = match self.interactions {
            None if self.triples.is_some() => self.sizes_of_triples().map(|(name, n)| counted(n, name)).join(", "),
            Some(sizes) => {
                [(sizes.n_users, "user"), (sizes.n_items, "item"), (sizes.n_train, "interaction")].map(shown).join(", ")
            }
            None => {
                let nodes = [(self.n_nodes, "node"), (self.n_edges, "edge")].map(shown).join(", ");
                let rows = match &self.types {
                    None => [(self.n_features, "feature"), (self.n_classes, "class")].map(shown).join(", "),
                    Some((types, n_edge_types)) => {
                        [(types.len(), "node type"), (*n_edge_types, "edge type"), (self.n_classes, "class")]
                            .map(shown)
                            .join(", ")
                    }
                };
                format!("{nodes}, {rows}")
            }
        };
        let codes = self
            .codes
            .as_ref()
            .map_or(String::new(), |(codec, row_bytes)| format!(" as {codec}, {row_bytes} bytes a row"));
        format!("{}{task} on {}{generated}: {sizes}{codes}; device {}", self.model, self.data, self.device)
    }

    /// Numbers of entities, relations and triples, with their names.
    fn sizes_of_triples(&self) -> [(&'static str, usize); 5] {
        let (n_relations, [train, val, test]) = self.triples.unwrap_or_default();
        [
            ("entity", self.n_nodes),
            ("relation", n_relations),
            ("training triple", train),
            ("validation triple", val),
            ("test triple", test),
        ]
    }

    /// Lines for people below the headline: sizes of the split, and made-up data.
    pub fn lines(&self) -> Vec<String> {
        let has_split = self.task == TaskKind::Nodes && self.interactions.is_none();
        let split = has_split.then(|| format!("split: {}", reading::shown_splits(&self.splits)));
        split.into_iter().chain(self.notes.made_up.iter().map(|made| made.text.clone())).collect()
    }

    /// Warns about unused or doubtful data.
    pub fn warn(&self) {
        reading::warn_of(&self.notes);
    }

    /// Facts about the data, for people.
    pub fn of_data(&self) -> Vec<(&'static str, String)> {
        let generated = if self.generated { " (generated)" } else { "" };
        let counted = |n: usize| if n == 0 { String::new() } else { n.to_string() };
        let mut rows = vec![("Data", format!("{}{generated}", self.data))];
        match self.interactions {
            Some(InteractionSizes { n_users, n_items, n_train }) => {
                rows.extend(
                    [("Users", n_users), ("Items", n_items), ("Training interactions", n_train)]
                        .map(|(name, n)| (name, n.to_string())),
                );
            }
            None if self.triples.is_some() => {
                let [entities, relations, train, val, test] = self.sizes_of_triples().map(|(_, n)| n.to_string());
                rows.extend([("Entities", entities), ("Relations", relations), ("Training triples", train)]);
                rows.extend([("Validation triples", val), ("Test triples", test)]);
            }
            None => {
                let classes = if self.multi_label { "Labels a node may have" } else { "Classes" };
                let degree = self.n_edges as f64 / self.n_nodes.max(1) as f64;
                rows.extend([
                    ("Nodes", self.n_nodes.to_string()),
                    ("Edges", format!("{}, {degree:.1} a node", self.n_edges)),
                    ("Features", counted(self.n_features)),
                    (classes, counted(self.n_classes)),
                    ("Node types", self.types.as_ref().map_or_else(String::new, |(types, _)| types.join("\n"))),
                ]);
            }
        }
        let codes = self.codes.as_ref().map(|(codec, row_bytes)| format!("{codec}, {row_bytes} bytes a row"));
        rows.push(("Compressed as", codes.unwrap_or_default()));
        if self.task == TaskKind::Nodes && self.interactions.is_none() {
            rows.push(("Split", reading::shown_splits(&self.splits)));
        }
        let made_up: Vec<&str> = self.notes.made_up.iter().map(|made| made.text.as_str()).collect();
        let not_used = self.notes.not_used_line().unwrap_or_default();
        rows.extend([
            ("Made up", made_up.join("\n")),
            ("Not used", not_used.trim_start_matches("not used: ").to_owned()),
            ("Warnings", self.notes.warnings.join("\n")),
        ]);
        rows
    }

    /// Machine, versions and date of the session, for people.
    pub fn of_session(&self) -> Vec<(&'static str, String)> {
        let version = env!("CARGO_PKG_VERSION");
        let build = if cfg!(debug_assertions) { ", a debug build" } else { "" };
        vec![
            ("Date", dates::utc(dates::now())),
            ("Device", self.device.clone()),
            ("Machine", Machine::here().describe()),
            ("Threads", rayon::current_num_threads().to_string()),
            ("System", format!("{}, {}", std::env::consts::OS, std::env::consts::ARCH)),
            ("girih", format!("{version}{build}")),
        ]
    }

    /// Result of training, with the epochs of this session and earlier ones. `peak_device_bytes` counts devices with
    /// memory of their own.
    pub fn results(&self, config: &TrainConfig, outcome: &Outcome, curves: &Curves, peak_device_bytes: u64) -> Results {
        let mut results = Results::default();
        results
            .add("model", self.model, "Model", self.model)
            .add("data", self.data.as_str(), "Data", self.data.as_str())
            .add_hidden("generated", self.generated)
            .add_hidden("device", self.device.as_str())
            .add_hidden("seed", config.seed)
            .add_hidden("task", config.task.name())
            .add_hidden("batch", config.batch.kind.name())
            .add_hidden("codec", self.codes.as_ref().map_or("none", |(codec, _)| codec.as_str()))
            .add_hidden("row_bytes", self.codes.as_ref().map(|(_, row_bytes)| *row_bytes))
            .add_hidden("runs", outcome.runs.len())
            .add_hidden("epochs", outcome.runs.iter().map(|run| run.epochs).max())
            .add_hidden("stopped", outcome.stopped);
        if config.model.kind.is_recommender() {
            scores::add_ranking(&mut results, outcome);
        } else if self.task == TaskKind::Links {
            scores::add_links(&mut results, outcome);
        } else if self.task == TaskKind::Triples {
            results.add("decoder", config.triples.decoder.name(), "Decoder", config.triples.decoder.name());
            scores::add_triples(&mut results, outcome);
        } else {
            scores::add_nodes(&mut results, outcome, (config.metric, self.multi_label));
        }
        if let Some(error) = outcome.wire_error {
            results.add("wire_error", error, "Error of logits by rounding on the wire", output::percent(error));
        }
        add_times(&mut results, outcome, curves);
        add_tiers(&mut results, &outcome.tiers);
        let peak = memory::peak_bytes();
        results
            .add("peak_host_bytes", peak, "Peak memory", peak.map_or(String::new(), readable_bytes))
            .add_hidden("peak_device_bytes", peak_device_bytes)
            .add_hidden("nodes", self.n_nodes)
            .add_hidden("edges", self.n_edges);
        reading::add_hidden(&mut results, &self.splits, &self.notes);
        results
    }
}

/// Adds the contents of each memory tier, unless devices held everything.
fn add_tiers(results: &mut Results, tiers: &[CacheReport]) {
    if tiers.is_empty() {
        return;
    }
    let lines: Vec<String> = tiers.iter().map(of_share).collect();
    results.add("tiers", serde_json::to_value(tiers).unwrap_or_default(), "Tiers", lines.join("\n"));
}

/// Contents of one memory tier in words.
pub fn of_share(share: &CacheReport) -> String {
    let (bytes, reads) = (readable_bytes(share.bytes), output::percent(share.reads));
    let CacheReport { of, tier, n_nodes, .. } = share;
    format!("{of} of {n_nodes} nodes, {}: {bytes}, {reads} of reads", tier.name())
}

/// Adds times of the epochs of this session; if it trained none, those of earlier sessions.
fn add_times(results: &mut Results, outcome: &Outcome, curves: &Curves) {
    let times = &outcome.times;
    let mut steps: Vec<Duration> = times.iter().map(|t| t.steps).collect();
    if steps.is_empty() {
        steps = curves.means(Measure::StepsMs).into_iter().map(|(_, ms)| Duration::from_secs_f64(1e-3 * ms)).collect();
    }
    let median = median_ms(steps.iter().copied());
    let fastest = steps.into_iter().min().map(ms);
    let stage = |stage: fn(StageTimes) -> Duration| median_ms(times.iter().filter_map(|t| t.stages.map(stage)));
    let stages = serde_json::json!({
        "batches": stage(|t| t.batches),
        "forward": stage(|t| t.forward),
        "backward": stage(|t| t.backward),
        "optimizer": stage(|t| t.optimizer),
        "evaluate": median_ms(times.iter().map(|t| t.evaluate)),
    });
    results
        .add("epoch_ms_median", median, "Epoch, median", median.map_or(String::new(), |ms| format!("{ms:.2} ms")))
        .add_hidden("epoch_ms_min", fastest)
        .add_hidden("stage_ms", stages);
}
