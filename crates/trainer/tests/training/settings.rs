//! Settings are written as they are read, compared by name, and refused by name where nothing reads them.

use girih_features::{CacheShares, HostReads, Hotness};
use girih_graph_format::Degrees;
use girih_trainer::{
    Aggregator, Arrangement, BatchConfig, BatchKind, CacheConfig, Decay, Metric, ModelConfig, ModelKind, NormKind,
    OptimizerConfig, OptimizerKind, Schedule, SelfWeight, TrainConfig, differences,
};

#[test]
fn settings_that_differ_are_named_with_both_values() {
    let before = TrainConfig::default();
    assert_eq!(differences(&before, &before), Vec::<String>::new());
    let model = ModelConfig { hidden: 9, ..before.model.clone() };
    let now = TrainConfig { model, epochs: 7, patience: Some(3), ..before.clone() };
    assert_eq!(differences(&before, &now), ["model.hidden 9 (was 16)", "epochs 7 (was 200)", "patience 3 (was none)"]);
    let other = TrainConfig::for_model(ModelKind::Gat);
    assert!(differences(&before, &other).contains(&"model.kind gat (was gcn)".to_owned()));
}

#[test]
fn read_settings_are_those_that_change_something() {
    let names = |config: &TrainConfig, section: &str| {
        let settings = config.read_settings();
        settings[section].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    let gcn = TrainConfig::for_model(ModelKind::Gcn);
    let mut of_gcn = names(&gcn, "model");
    of_gcn.sort();
    assert_eq!(of_gcn, ["aggregate_once", "dropout", "hidden", "jump", "kind", "layers", "norm", "residual"]);
    let sgd = OptimizerConfig { kind: OptimizerKind::Sgd, ..OptimizerConfig::default() };
    let sgd = names(&TrainConfig { optimizer: sgd, ..gcn.clone() }, "optimizer");
    assert!(sgd.contains(&"momentum".to_owned()) && !sgd.contains(&"beta1".to_owned()), "{sgd:?}");
    assert!(gcn.read_settings().contains_key("metric"));
    let recommender = TrainConfig::for_model(ModelKind::LightGcn);
    assert!(!recommender.read_settings().contains_key("metric"));
    assert!(!names(&recommender, "model").contains(&"dropout".to_owned()));
    assert!(!names(&recommender, "optimizer").contains(&"decay".to_owned()));
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 5], ..BatchConfig::default() };
    let mut of_batch = names(&TrainConfig { batch, ..gcn.clone() }, "batch");
    of_batch.sort();
    assert_eq!(of_batch, ["fanout", "kind", "prefetch", "replace"]);
    // A setting that is left out has no effect: validation refuses other values of it.
    for kind in ModelKind::ALL {
        let config = TrainConfig::for_model(kind);
        let read = names(&config, "model");
        assert_eq!(read.contains(&"heads".to_owned()), kind.has_heads(), "{kind:?}");
        let other = TrainConfig { model: ModelConfig { heads: 3, ..config.model.clone() }, ..config };
        assert_eq!(other.validate().is_ok(), kind.has_heads(), "{kind:?}");
    }
}

#[test]
fn arrangements_are_readable() {
    assert_eq!(Arrangement::of_one(false).to_string(), "one rank on cpu");
    let two = Arrangement { device: "cuda".to_owned(), ranks: 2, division: "--partition 1d".to_owned() };
    assert_eq!(two.to_string(), "2 ranks on cuda (--partition 1d)");
}

#[test]
fn tiers_are_written_as_they_are_read() {
    let every = |every_gpu| Some(CacheShares { every_gpu, one_gpu: 0.0 });
    let spread = Some(CacheShares { every_gpu: 0.25, one_gpu: 0.5 });
    let all = [
        CacheConfig::default(),
        CacheConfig { features: every(0.2), ..CacheConfig::default() },
        CacheConfig {
            features: every(0.0),
            topology: spread,
            hotness: Hotness::PageRank,
            host_reads: HostReads::InPlace,
        },
    ];
    for tiers in all {
        let text = toml::to_string(&tiers).unwrap();
        assert_eq!(toml::from_str::<CacheConfig>(&text).unwrap(), tiers, "{text}");
        let json = serde_json::to_string(&tiers).unwrap();
        assert_eq!(serde_json::from_str::<CacheConfig>(&json).unwrap(), tiers, "{json}");
    }
    for text in ["features = \"0.9,0.9\"", "hotness = \"warm\"", "host_reads = \"mapped\"", "topolgy = 0.2"] {
        assert!(toml::from_str::<CacheConfig>(text).is_err(), "{text}");
    }
    let checked = |tiers| {
        let batch = BatchConfig { kind: BatchKind::Neighbor, ..BatchConfig::default() };
        TrainConfig { tiers, batch, ..TrainConfig::for_model(ModelKind::Sage) }.validate()
    };
    let wrong = CacheConfig { topology: every(1.5), ..CacheConfig::default() };
    let idle = CacheConfig { hotness: Hotness::PageRank, ..CacheConfig::default() };
    let nothing = CacheConfig { topology: every(0.5), host_reads: HostReads::Staged, ..CacheConfig::default() };
    for (refused, setting) in [(wrong, "tiers.topology"), (idle, "tiers.hotness"), (nothing, "tiers.host_reads")] {
        let message = checked(refused).unwrap_err().to_string();
        assert!(message.contains(&format!("`{setting}`")), "{message}");
    }
    assert!(all.into_iter().all(|tiers| checked(tiers).is_ok()));
}
/// Configuration of a network with one changed setting.
fn with(kind: ModelKind, change: impl FnOnce(&mut ModelConfig)) -> TrainConfig {
    let mut config = TrainConfig::for_model(kind);
    change(&mut config.model);
    config
}

#[test]
fn the_table_of_networks_is_complete() {
    let unknown = serde_json::from_str::<ModelKind>("\"\"").unwrap_err().to_string();
    // Settings that files leave out while they are the default.
    let (normalization, self_weight) = (Degrees::Absolute, SelfWeight::None);
    let settings = ModelConfig { normalization, bases: 1, blocks: 1, self_weight, ..ModelConfig::default() };
    let fields = serde_json::to_value(settings).unwrap();
    assert_eq!(unknown.split('`').count() / 2, ModelKind::ALL.len() + 1, "{unknown}");
    for kind in ModelKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(kind.name().parse::<ModelKind>().unwrap(), kind);
        assert_eq!(TrainConfig::for_model(kind).model.kind, kind);
        assert!(kind.properties().settings.iter().all(|name| fields.get(name).is_some()), "{}", kind.name());
    }
    let message = "gnc".parse::<ModelKind>().unwrap_err().to_string();
    assert!(message.contains("`gnc`") && message.contains("lightgcn or embedding"), "{message}");
}

#[test]
fn what_a_network_does_not_read_is_refused_by_name() {
    use ModelKind::{Appnp, Gat, Gcn, Gin, LightGcn, Mlp, Ngcn, Sage, Sgc};
    /// A setting, a change of it, networks that read it, and networks that ignore it.
    type Case<'c> = (&'c str, fn(&mut ModelConfig), &'c [ModelKind], &'c [ModelKind]);
    let settings: [Case<'_>; 10] = [
        ("heads", |m| m.heads = 3, &[Gat], &[Gcn, Sage, Mlp]),
        ("out_heads", |m| m.out_heads = 3, &[Gat], &[Gin, Appnp]),
        ("attention_dropout", |m| m.attention_dropout = Some(0.3), &[Gat], &[Gcn, LightGcn]),
        ("hops", |m| m.hops = 3, &[Ngcn, Appnp], &[Gcn, Sgc]),
        ("teleport", |m| m.teleport = 0.3, &[Appnp], &[Ngcn]),
        ("mixing", |m| m.mixing = false, &[Ngcn], &[Appnp]),
        ("aggregator", |m| m.aggregator = Aggregator::Pool, &[Sage], &[Gcn, Gat]),
        ("residual", |m| m.residual = true, &[Gcn, Gat, Gin], &[Sage, Mlp]),
        ("norm", |m| m.norm = NormKind::Layer, &[Gcn, Gat, Gin], &[Sgc, Ngcn]),
        ("aggregate_once", |m| m.aggregate_once = false, &[Gcn, Sgc], &[LightGcn]),
    ];
    for (setting, change, readers, others) in settings {
        for &kind in readers {
            assert!(with(kind, change).validate().is_ok(), "{} reads {setting}", kind.name());
        }
        for &kind in others {
            let message = with(kind, change).validate().unwrap_err().to_string();
            assert!(message.contains(&format!("`{setting}`")) && message.contains(kind.name()), "{message}");
        }
    }
}

#[test]
fn what_nothing_else_reads_is_refused_by_name_too() {
    let sgd = || TrainConfig {
        optimizer: OptimizerConfig { kind: OptimizerKind::Sgd, ..OptimizerConfig::default() },
        ..TrainConfig::default()
    };
    let (adam, recommender) = (TrainConfig::default, || TrainConfig::for_model(ModelKind::LightGcn));
    /// A setting, a change of it, a configuration that reads it, and one that ignores it.
    type Case<'c> = (&'c str, fn(&mut TrainConfig), &'c dyn Fn() -> TrainConfig, &'c dyn Fn() -> TrainConfig);
    let cases: [Case<'_>; 4] = [
        ("momentum", |config| config.optimizer.momentum = 0.5, &sgd, &adam),
        ("beta2", |config| config.optimizer.beta2 = 0.99, &adam, &sgd),
        ("decay", |config| config.optimizer.decay = Decay::All, &adam, &recommender),
        ("metric", |config| config.metric = Metric::RocAuc, &sgd, &recommender),
    ];
    for (setting, change, reads, ignores) in cases {
        let changed = |mut config: TrainConfig| {
            change(&mut config);
            config.validate().map_err(|error| error.to_string())
        };
        assert_eq!(changed(reads()), Ok(()), "{setting}");
        let message = changed(ignores()).unwrap_err();
        assert!(message.contains(&format!("`{setting}`")), "{message}");
    }
}

/// Files of models of girih have no word of it, so that earlier and later programs read each other's.
#[test]
fn a_model_from_outside_is_written_by_name_and_a_model_of_girih_as_before() {
    let inside = serde_json::to_string(&ModelConfig::default()).unwrap();
    assert!(!inside.contains("own"), "{inside}");
    let outside = ModelConfig { layers: 4, ..ModelConfig::from_outside("gcnii", serde_json::json!({ "alpha": 0.1 })) };
    let text = serde_json::to_string(&outside).unwrap();
    assert!(text.ends_with(r#""own":{"name":"gcnii","settings":{"alpha":0.1}}}"#), "{text}");
    let read: ModelConfig = serde_json::from_str(&text).unwrap();
    assert_eq!((read.name(), &read), ("gcnii", &outside));
    let nameless = r#"{"own": {"name": ""}}"#;
    for (refused, setting) in [
        (ModelConfig { kind: ModelKind::Gat, ..outside }, "kind"),
        (serde_json::from_str(nameless).unwrap(), "own.name"),
    ] {
        let message = TrainConfig { model: refused, ..TrainConfig::default() }.validate().unwrap_err().to_string();
        assert!(message.contains(setting), "{message}");
    }
}

#[test]
fn schedules_start_high_and_end_low() {
    let with = |schedule, warmup| OptimizerConfig { lr: 1.0, schedule, warmup, ..OptimizerConfig::default() };
    let cosine = with(Schedule::Cosine {}, 0);
    assert_eq!(cosine.lr_at(0, 100), 1.0);
    assert!((cosine.lr_at(50, 100) - 0.5).abs() < 1e-6);
    assert!(cosine.lr_at(99, 100) < 0.001);
    let step = with(Schedule::Step { every: 10, factor: 0.5 }, 0);
    assert_eq!([step.lr_at(9, 100), step.lr_at(10, 100), step.lr_at(20, 100)], [1.0, 0.5, 0.25]);
    let warm = with(Schedule::Constant {}, 4);
    let rates: Vec<f64> = (0..6).map(|e| warm.lr_at(e, 100)).collect();
    assert!(rates.windows(2).all(|w| w[0] <= w[1]) && rates[0] == 0.2 && rates[4] == 1.0, "{rates:?}");
}
