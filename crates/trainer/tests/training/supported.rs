//! The table of supported combinations and the entry points agree, and the documentation shows the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use girih_compute::{Cpu, Dtype};
use girih_datasets::{Dataset, FeaturesFrom};
use girih_features::CacheShares;
use girih_graph_format::{NodeId, TimedRows, Times};
use girih_partition::{Exchange, Scheme};
use girih_sampling::Bound;
use girih_trainer::distributed::{GraphPlacement, RankJob, RankOptions, TrainJob};
use girih_trainer::testing::reasons;
use girih_trainer::{
    Aggregator, BatchConfig, BatchKind, Cache, CacheConfig, Combination, Control, DeviceKind, ModelConfig, ModelKind,
    NormKind, ScoreBy, SessionOptions, TaskKind, TimeConfig, TrainConfig, TrainError, parse_codec, supported,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::distributed::options;
use crate::recommend::tastes;
use crate::triples::statements;
use crate::{planted, train};

const BATCHES: [BatchKind; 5] =
    [BatchKind::Full, BatchKind::Neighbor, BatchKind::Layer, BatchKind::Cluster, BatchKind::Saint];
const RULES: [FeaturesFrom; 4] =
    [FeaturesFrom::Degree, FeaturesFrom::OneHot, FeaturesFrom::Embedding(4), FeaturesFrom::RandomWalk(3)];

fn models() -> Vec<ModelKind> {
    ModelKind::ALL.to_vec()
}

/// Data that the model can read, without features if they are made.
fn data(config: &TrainConfig) -> Dataset {
    if config.model.kind.is_recommender() {
        return tastes();
    }
    if config.task == TaskKind::Triples {
        return statements();
    }
    let dataset = planted("nodes=60");
    let dataset = if config.time.is_set() { with_times(dataset) } else { dataset };
    if config.features_from.is_some() { Dataset { features: None, ..dataset } } else { dataset }
}

/// The data with a time for each of its edges.
fn with_times(dataset: Dataset) -> Dataset {
    let graph = &dataset.graph;
    let row = |v: usize| graph.row(v).iter().map(move |&u| (u, v as NodeId));
    let (sources, destinations): (Vec<NodeId>, Vec<NodeId>) = (0..graph.n_rows()).flat_map(row).unzip();
    let times = Times { values: (0..sources.len() as i64).collect(), ..Times::default() };
    let timed = TimedRows::new(graph.n_rows(), &sources, &destinations, &times, false).unwrap();
    Dataset { timed: Some(Arc::new(timed)), ..dataset }
}

/// Smallest session of a task, a model and a kind of batches: one epoch.
fn session(task: TaskKind, kind: ModelKind, batch: BatchKind) -> TrainConfig {
    let config = TrainConfig::for_task(task, kind);
    let batch_size = if kind.is_recommender() && batch != BatchKind::Cluster { Some(500) } else { None };
    let hops = if kind == ModelKind::LightGcn { 1 } else { config.model.layers };
    let hidden = if kind == ModelKind::Embedding { config.model.hidden } else { 4 };
    let model = ModelConfig { hidden, layers: hops, ..config.model.clone() };
    let batch = BatchConfig { kind: batch, ..BatchConfig::default() };
    TrainConfig { epochs: 1, patience: None, model, batch, batch_size, ..config }
}

fn on(scheme: Scheme, layout: GraphPlacement) -> RankOptions {
    let n_ranks = if scheme == Scheme::OneD { 2 } else { 4 };
    RankOptions { layout, ..options(scheme, n_ranks, 1, Exchange::Rows) }
}

fn start(config: &TrainConfig, ranks: Option<&RankOptions>) -> Result<(), TrainError> {
    let Some(ranks) = ranks else { return train(data(config), config).map(drop) };
    let (options, mut observe) = (SessionOptions::default(), |_: girih_trainer::Event<'_>| Control::Continue);
    TrainJob::new(data(config), config, ranks, &options, &mut observe).on_threads(Cpu::new).map(drop)
}

/// Checks that a session starts if the table allows it, and else is refused for the reason of the table.
fn check(config: &TrainConfig, ranks: Option<&RankOptions>) {
    let one = Combination::of(config).on_device(false);
    let asked = ranks.map_or(one, |ranks| one.on_ranks(ranks));
    match (supported(&asked), start(config, ranks)) {
        (Ok(_), Ok(())) => {}
        (Ok(plan), Err(error)) => panic!("allowed as {plan:?}, but {error}\n{asked:?}"),
        (Err(reason), Ok(())) => panic!("{reason}, but it runs\n{asked:?}"),
        (Err(reason), Err(error)) => assert_eq!(reason.to_string(), error.to_string(), "{asked:?}"),
    }
}

#[test]
fn tasks_models_batches_and_ranks_are_as_the_table_says() {
    let placements = [GraphPlacement::Replicated, GraphPlacement::Patches, GraphPlacement::SplitFeatures];
    let mut all = vec![None];
    for scheme in [Scheme::OneD, Scheme::TwoD] {
        all.extend(placements.map(|layout| Some(on(scheme, layout))));
    }
    for task in [TaskKind::Nodes, TaskKind::Links, TaskKind::Triples] {
        for kind in models() {
            for batch in BATCHES {
                all.iter().for_each(|ranks| check(&session(task, kind, batch), ranks.as_ref()));
            }
        }
    }
}

/// Sessions with settings of all kinds, of which networks ignore none.
fn any_session() -> impl Strategy<Value = (TrainConfig, Option<RankOptions>)> {
    let task = select(vec![TaskKind::Nodes, TaskKind::Nodes, TaskKind::Nodes, TaskKind::Links, TaskKind::Triples]);
    let norm = select(vec![NormKind::None, NormKind::Layer, NormKind::Batch]);
    let network = (task, select(models()), select(BATCHES.to_vec()), norm, any::<[bool; 3]>());
    let rule = prop::option::weighted(0.3, select(RULES.to_vec()));
    let shares = [(0.5, 0.0), (0.2, 0.3)].map(|(every_gpu, one_gpu)| CacheShares { every_gpu, one_gpu });
    let cache = || prop::option::weighted(0.2, select(shares.to_vec()));
    let score_by = prop::option::weighted(0.2, select(vec![ScoreBy::Graph, ScoreBy::Layers, ScoreBy::Samples]));
    let in_time = prop::bool::weighted(0.2);
    let features = (rule, prop::bool::weighted(0.2), any::<bool>(), cache(), cache(), (score_by, in_time));
    let placement = select(vec![GraphPlacement::Replicated, GraphPlacement::Patches, GraphPlacement::SplitFeatures]);
    let ranks = prop::option::of((select(vec![Scheme::OneD, Scheme::OneD, Scheme::TwoD]), placement));
    (network, features, ranks).prop_map(|(network, features, ranks)| {
        let (task, kind, batch, norm, [replace, pools, is_many]) = network;
        let (features_from, codec, is_bf16, of_features, of_topology, (score_by, in_time)) = features;
        let mut config = session(task, kind, batch);
        let stacks =
            matches!(kind, ModelKind::Gcn | ModelKind::Gat | ModelKind::Gatv2 | ModelKind::Gin | ModelKind::Gine);
        config.model.norm = if stacks { norm } else { NormKind::None };
        if kind == ModelKind::Sage && pools {
            config.model.aggregator = Aggregator::Pool;
        }
        config.batch.replace = replace && batch.has_blocks();
        config.batch.subgraphs_per_step =
            if is_many && !batch.has_blocks() && batch != BatchKind::Full { 4 } else { 1 };
        let has_layers = kind == ModelKind::Sage || (stacks && norm != NormKind::Batch);
        config.batch.score_by = score_by.filter(|by| *by != ScoreBy::Layers || has_layers);
        config.precision = if is_bf16 { Dtype::Bf16 } else { Dtype::F32 };
        config.codec = parse_codec("int8").unwrap().filter(|_| codec);
        config.features_from = features_from;
        let in_time = in_time || (kind.needs_edge_features() && is_many);
        config.edges.time_encoding = if pools && (kind.needs_edge_features() || is_bf16) { 2 } else { 0 };
        config.time = TimeConfig { before: in_time.then_some(Bound::Seed), ..TimeConfig::default() };
        config.tiers = CacheConfig { features: of_features, topology: of_topology, ..CacheConfig::default() };
        (config, ranks.map(|(scheme, layout)| on(scheme, layout)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn settings_of_all_kinds_are_as_the_table_says((config, ranks) in any_session()) {
        check(&config, ranks.as_ref());
    }
}

/// Column of the table in the documentation.
type Column = (&'static str, fn(&mut Combination));
/// Setting that a row of it is about.
type Setting = (&'static str, fn(&mut Combination));

const COLUMNS: [Column; 12] = [
    ("full", |_| {}),
    ("neighbor", |c| c.batch = BatchKind::Neighbor),
    ("layer", |c| c.batch = BatchKind::Layer),
    ("cluster", |c| c.batch = BatchKind::Cluster),
    ("saint", |c| c.batch = BatchKind::Saint),
    ("links", |c| c.task = TaskKind::Links),
    ("links in time", |c| {
        (c.task, c.batch, c.in_time, c.model) = (TaskKind::Links, BatchKind::Neighbor, true, ModelKind::Sage);
    }),
    ("triples", |c| (c.task, c.model) = (TaskKind::Triples, ModelKind::Embedding)),
    ("ranks", |c| c.n_ranks = Some(2)),
    ("replicated", |c| on_ranks(c, GraphPlacement::Replicated)),
    ("split-features", |c| on_ranks(c, GraphPlacement::SplitFeatures)),
    ("patches", |c| on_ranks(c, GraphPlacement::Patches)),
];

const SETTINGS: [Setting; 14] = [
    ("`--norm batch`", |c| c.norm = NormKind::Batch),
    ("`--precision bf16`", |c| c.precision = Dtype::Bf16),
    ("`--codec`", |c| (c.codec, c.has_codes) = (true, true)),
    ("`--features-from degree`, `random-walk`", |c| c.features_from = Some(FeaturesFrom::Degree)),
    ("`--features-from onehot`", |c| c.features_from = Some(FeaturesFrom::OneHot)),
    ("`--features-from embedding`", |c| c.features_from = Some(FeaturesFrom::Embedding(16))),
    ("`--feature-cache 0.2` on GPUs", |c| cached(c, [Cache::Same, Cache::None])),
    ("`--feature-cache 0.2,0.3` on GPUs", |c| cached(c, [Cache::Spread, Cache::None])),
    ("`--topology-cache 0.2` on GPUs", |c| cached(c, [Cache::None, Cache::Same])),
    ("`--topology-cache 0.2,0.3` on GPUs", |c| cached(c, [Cache::None, Cache::Spread])),
    ("`--score-by layers`", |c| c.score_by = Some(ScoreBy::Layers)),
    ("`--reorder`", |c| c.reorders = true),
    ("`--partition 2d`", |c| c.scheme = Some(Scheme::TwoD)),
    ("`--partition auto`", |c| c.scheme = None),
];

fn on_ranks(c: &mut Combination, layout: GraphPlacement) {
    (c.batch, c.n_ranks, c.placement) = (BatchKind::Neighbor, Some(2), Some(layout));
}

fn cached(c: &mut Combination, caches: [Cache; 2]) {
    c.device = Some(DeviceKind::Gpu);
    [c.feature_cache, c.topology_cache] = caches;
}

/// The table of the documentation: models and settings against batches, tasks and ranks. Numbers refer to reasons.
fn documented() -> String {
    let usual = || Combination { subgraphs_per_step: 2, ..Combination::of(&TrainConfig::default()) };
    let mut reasons: Vec<&str> = Vec::new();
    let mut row = |change: &dyn Fn(&mut Combination), is_of_ranks: bool| -> Vec<String> {
        let cell = |(_, column): &Column| {
            let mut asked = usual();
            column(&mut asked);
            change(&mut asked);
            if is_of_ranks && asked.n_ranks.is_none() {
                return String::new();
            }
            let Err(reason) = supported(&asked) else { return "yes".to_owned() };
            let known = reasons.iter().position(|known| *known == reason.why);
            let at = known.unwrap_or_else(|| {
                reasons.push(reason.why);
                reasons.len() - 1
            });
            (at + 1).to_string()
        };
        COLUMNS.iter().map(cell).collect()
    };
    let mut rows: Vec<(String, Vec<String>)> = Vec::new();
    for kind in models() {
        let cells = row(&|c| c.model = kind, false);
        match rows.iter_mut().find(|(_, known)| *known == cells) {
            Some((names, _)) => write!(names, ", `{}`", kind.name()).unwrap(),
            None => rows.push((format!("`{}`", kind.name()), cells)),
        }
    }
    let n_models = rows.len();
    for (name, change) in SETTINGS {
        let cells = row(&change, name.starts_with("`--partition"));
        match rows[n_models..].iter_mut().find(|(_, known)| *known == cells) {
            Some((names, _)) => write!(names, ", {name}").unwrap(),
            None => rows.push((name.to_owned(), cells)),
        }
    }
    let names = COLUMNS.map(|(name, _)| name).join(" | ");
    let mut text = format!("| | {names} |\n|---|{}\n", "---|".repeat(COLUMNS.len()));
    for (name, cells) in rows {
        writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
    }
    text.push('\n');
    for (at, reason) in reasons.iter().enumerate() {
        writeln!(text, "{}. {reason}", at + 1).unwrap();
    }
    text
}

#[test]
fn the_documentation_shows_the_table() {
    const MARKS: [&str; 2] = ["<!-- combinations: made by a test -->\n", "<!-- end of combinations -->\n"];
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let [start, end] = MARKS.map(|mark| page.find(mark).expect("the page has both marks"));
    let made = format!("{}{}{}{}", &page[..start], MARKS[0], documented(), &page[end..]);
    if std::env::var_os("GIRIH_UPDATE").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let is_fresh = std::fs::read_to_string(&path).unwrap() == made;
    let remedy = "GIRIH_UPDATE=1 cargo test -p girih-trainer --test training documentation_shows";
    assert!(is_fresh, "the table of combinations is stale: run `{remedy}`");
}

/// Single changes of a combination, which reach every row of the table by four of them.
const CHANGES: [fn(&mut Combination); 36] = [
    |c| c.in_time = true,
    |c| c.task = TaskKind::Links,
    |c| c.task = TaskKind::Triples,
    |c| c.model = ModelKind::Sgc,
    |c| c.model = ModelKind::Rgcn,
    |c| c.model = ModelKind::Ngcn,
    |c| c.model = ModelKind::LightGcn,
    |c| c.model = ModelKind::Embedding,
    |c| c.batch = BatchKind::Neighbor,
    |c| c.batch = BatchKind::Cluster,
    |c| (c.replace, c.reads_neighbors_once) = (true, true),
    |c| c.has_typed_fan_out = true,
    |c| c.norm = NormKind::Batch,
    |c| c.score_by = Some(ScoreBy::Layers),
    |c| c.score_by = Some(ScoreBy::Samples),
    |c| c.precision = Dtype::Bf16,
    |c| c.model = ModelKind::Gine,
    |c| c.has_edge_features = true,
    |c| c.has_edge_labels = true,
    |c| c.codec = true,
    |c| c.features_from = Some(FeaturesFrom::OneHot),
    |c| c.features_from = Some(FeaturesFrom::Embedding(4)),
    |c| c.feature_cache = Cache::Same,
    |c| c.feature_cache = Cache::Spread,
    |c| c.topology_cache = Cache::Same,
    |c| c.topology_cache = Cache::Spread,
    |c| c.plans_caches = true,
    |c| c.reorders = true,
    |c| c.n_ranks = Some(2),
    |c| c.placement = Some(GraphPlacement::Replicated),
    |c| c.placement = Some(GraphPlacement::SplitFeatures),
    |c| c.placement = Some(GraphPlacement::Patches),
    |c| c.scheme = None,
    |c| c.scheme = Some(Scheme::TwoD),
    |c| c.device = Some(DeviceKind::Cpu),
    |c| c.is_dry_run = true,
];

/// All combinations that some changes from `first` on, at most `n_changes`, make of `asked`.
fn changed(asked: Combination, first: usize, n_changes: usize, see: &mut dyn FnMut(&Combination)) {
    see(&asked);
    for (at, change) in CHANGES.iter().enumerate().skip(first).filter(|_| n_changes > 0) {
        let mut next = asked;
        change(&mut next);
        changed(next, at + 1, n_changes - 1, see);
    }
}

#[test]
fn every_row_of_the_table_refuses_something_and_its_texts_are_filled() {
    let mut seen = BTreeMap::new();
    changed(Combination::of(&TrainConfig::default()), 0, 4, &mut |asked| {
        if let Err(reason) = supported(asked) {
            seen.entry((reason.why, reason.is_usage)).or_insert_with(|| reason.to_string());
        }
    });
    assert_eq!(seen.keys().copied().collect::<BTreeSet<_>>(), reasons().collect(), "{seen:#?}");
    assert!(seen.values().all(|text| !text.contains('{') && !text.contains("  ")), "{seen:#?}");
}
