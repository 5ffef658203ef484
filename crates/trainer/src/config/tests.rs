//! Tests of settings that are refused.

use girih_partition::Scheme;

use super::*;

/// Configuration of a network with one changed setting.
fn with(kind: ModelKind, change: impl FnOnce(&mut ModelConfig)) -> TrainConfig {
    let mut config = TrainConfig::for_model(kind);
    change(&mut config.model);
    config
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

/// Single changes of a combination, which reach every row of the table by four of them.
const CHANGES: [fn(&mut Combination); 27] = [
    |c| c.task = TaskKind::Links,
    |c| c.model = ModelKind::Sgc,
    |c| c.model = ModelKind::Ngcn,
    |c| c.model = ModelKind::LightGcn,
    |c| c.batch = BatchKind::Neighbor,
    |c| c.batch = BatchKind::Cluster,
    |c| (c.replace, c.reads_neighbors_once) = (true, true),
    |c| c.norm = NormKind::Batch,
    |c| c.score_by = Some(ScoreBy::Layers),
    |c| c.precision = Dtype::Bf16,
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
    let mut seen = std::collections::BTreeMap::new();
    changed(Combination::of(&TrainConfig::default()), 0, 4, &mut |asked| {
        if let Err(reason) = supported(asked) {
            seen.entry((reason.why, reason.is_usage)).or_insert_with(|| reason.to_string());
        }
    });
    assert_eq!(seen.len(), supported::n_reasons(), "{seen:#?}");
    assert!(seen.values().all(|text| !text.contains('{') && !text.contains("  ")), "{seen:#?}");
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
