//! Batches on ranks that hold the whole graph, patches of it, or patches of the features.

use super::*;

#[test]
fn ranks_train_what_one_rank_does() {
    let dataset = planted("nodes=300");
    let neighbor = || BatchConfig { fanout: vec![4, 3], ..batches(BatchKind::Neighbor) };
    // Each rank draws whole layers, and keeps the part that its seeds need.
    let layer = |replace| BatchConfig { fanout: vec![40, 60], replace, ..batches(BatchKind::Layer) };
    let of_neighbors = LAYERED.map(|kind| (kind, neighbor()));
    let of_layers = [(ModelKind::Gcn, layer(true)), (ModelKind::Sage, layer(false))];
    for (kind, batch) in of_neighbors.into_iter().chain(of_layers) {
        let config = TrainConfig { batch, batch_size: Some(25), ..plain(kind, 3) };
        let expected = trained(&dataset, &config);
        for n_ranks in [2, 4, 30] {
            let folder = tempfile::tempdir().unwrap();
            let session = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
            let mut observe = |_: Event<'_>| Control::Continue;
            TrainJob::new(dataset.clone(), &config, &ranks(n_ranks), &session, &mut observe)
                .on_threads(Cpu::new)
                .unwrap();
            let found = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
            let difference = largest_difference(&expected, &found);
            assert!(difference < 2e-5, "{kind:?}, {n_ranks} ranks: parameters differ by {difference}");
            assert_eq!(expected.progress.n_steps, found.progress.n_steps);
        }
    }
}

#[test]
fn ranks_share_the_subgraphs_of_a_step() {
    let dataset = planted("nodes=300");
    let cluster = BatchConfig { clusters: Some(11), clusters_per_batch: Some(1), ..batches(BatchKind::Cluster) };
    let saint = |saint| BatchConfig { saint, ..batches(BatchKind::Saint) };
    for (kind, batch) in [
        (ModelKind::Gcn, cluster.clone()),
        (ModelKind::Gat, cluster.clone()),
        (ModelKind::Appnp, cluster),
        (ModelKind::Sage, saint(SaintKind::Node)),
        (ModelKind::Gcn, saint(SaintKind::Edge)),
        (ModelKind::Gin, saint(SaintKind::Walk)),
    ] {
        // The last step of an epoch has fewer subgraphs than ranks.
        let batch_size = (batch.kind == BatchKind::Saint).then_some(25);
        let batch = BatchConfig { subgraphs_per_step: 5, ..batch };
        let config = TrainConfig { batch, batch_size, ..plain(kind, 3) };
        let expected = trained(&dataset, &config);
        let one_each = BatchConfig { subgraphs_per_step: 1, ..config.batch.clone() };
        let one_each = trained(&dataset, &TrainConfig { batch: one_each, ..config.clone() });
        let n_steps = one_each.progress.n_steps / 3;
        assert_eq!(expected.progress.n_steps, 3 * n_steps.div_ceil(5));
        assert!(largest_difference(&expected, &one_each) > 1e-3, "{kind:?}: other steps");
        for n_ranks in [2, 5] {
            let found = trained_on_ranks(&dataset, &config, &ranks(n_ranks));
            let difference = largest_difference(&expected, &found);
            assert!(difference < 2e-5, "{kind:?}, {n_ranks} ranks: parameters differ by {difference}");
            assert_eq!(expected.progress.n_steps, found.progress.n_steps);
            let (loss, of_ranks) = (expected.progress.train_loss, found.progress.train_loss);
            assert!((loss - of_ranks).abs() < 1e-5 * loss.abs(), "{kind:?}: {of_ranks} instead of {loss}");
        }
    }
}

/// Trains on ranks and loads the last checkpoint.
fn trained_on_ranks(dataset: &Dataset, config: &TrainConfig, ranks: &RankOptions) -> Checkpoint {
    let folder = tempfile::tempdir().unwrap();
    let session = SessionOptions { checkpoints: Some(folder.path().to_owned()), ..SessionOptions::default() };
    let mut observe = |_: Event<'_>| Control::Continue;
    TrainJob::new(dataset.clone(), config, ranks, &session, &mut observe).on_threads(Cpu::new).unwrap();
    Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap()
}

/// Options for ranks that each hold a patch.
fn patches(n_ranks: usize) -> RankOptions {
    RankOptions { layout: GraphPlacement::Patches, ..ranks(n_ranks) }
}

/// Options for ranks that each hold the whole graph and a patch of the features.
fn split_features(n_ranks: usize) -> RankOptions {
    RankOptions { layout: GraphPlacement::SplitFeatures, ..ranks(n_ranks) }
}

#[test]
fn ranks_with_patches_train_what_one_rank_trains() {
    let dataset = planted("nodes=300");
    for kind in LAYERED {
        let batch = BatchConfig { fanout: vec![4, 3], ..batches(BatchKind::Neighbor) };
        let config = TrainConfig { batch, batch_size: Some(25), ..plain(kind, 3) };
        let expected = trained(&dataset, &config);
        for n_ranks in [1, 3, 4] {
            let found = trained_on_ranks(&dataset, &config, &patches(n_ranks));
            let difference = largest_difference(&expected, &found);
            assert!(difference < 2e-5, "{kind:?}, {n_ranks} ranks: parameters differ by {difference}");
            let scores = |checkpoint: &Checkpoint| checkpoint.progress.last.unwrap().test_accuracy;
            assert_eq!(scores(&found), scores(&expected), "{kind:?}, {n_ranks} ranks");
            // A rank with the whole graph samples the same as the owners of its rows.
            let split = trained_on_ranks(&dataset, &config, &split_features(n_ranks));
            assert_eq!(split.params, found.params, "{kind:?}, {n_ranks} ranks");
        }
    }
}

#[test]
fn batches_of_patches_do_not_depend_on_how_far_they_are_made_ahead() {
    let dataset = planted("nodes=300");
    let ahead = |prefetch: usize| {
        let batch = BatchConfig { fanout: vec![4, 3], prefetch, ..batches(BatchKind::Neighbor) };
        let config = TrainConfig { batch, batch_size: Some(25), ..config(ModelKind::Gat, 3) };
        trained_on_ranks(&dataset, &config, &patches(3))
    };
    let between_steps = ahead(0);
    for prefetch in [1, 2, 64] {
        let found = ahead(prefetch);
        assert_eq!(between_steps.params, found.params, "{prefetch} ahead");
    }
}

#[test]
fn ranks_with_patches_stop_together_in_the_middle_of_an_epoch_and_go_on() {
    let dataset = planted("nodes=300");
    let batch = BatchConfig { fanout: vec![4, 3], prefetch: 3, ..batches(BatchKind::Neighbor) };
    let config = TrainConfig { batch, batch_size: Some(25), ..config(ModelKind::Sage, 3) };
    let (held, folder) = (patches(3), tempfile::tempdir().unwrap());
    let expected = trained_on_ranks(&dataset, &config, &held);
    let checkpoints = Some(folder.path().to_owned());
    let session = SessionOptions { checkpoints, resume: true, ..SessionOptions::default() };
    let mut n_sessions = 0;
    loop {
        let mut n_batches = 0;
        let mut observe = |event: Event<'_>| {
            n_batches += usize::from(matches!(event, Event::Batch { .. } | Event::Epoch { .. }));
            if n_batches >= 2 { Control::Stop } else { Control::Continue }
        };
        let job = TrainJob::new(dataset.clone(), &config, &held, &session, &mut observe);
        n_sessions += 1;
        if !job.on_threads(Cpu::new).unwrap().stopped {
            break;
        }
        assert!(n_sessions < 200, "it never ends");
    }
    assert!(n_sessions > 3, "it stopped several times");
    let found = Checkpoint::load(&checkpoint_path(folder.path(), 0)).unwrap();
    assert_eq!(expected.params, found.params);
}

#[test]
fn rows_of_patches_travel_rounded_where_they_are_stored_so() {
    let dataset = planted("nodes=300");
    let batch = BatchConfig { fanout: vec![4, 3], ..batches(BatchKind::Neighbor) };
    let exact = TrainConfig { batch, batch_size: Some(25), ..plain(ModelKind::Sage, 3) };
    let codes = TrainConfig { codec: "bf16".parse().ok(), ..exact.clone() };
    let rounding = RankOptions { wire: Dtype::Bf16, ..patches(3) };
    let (whole, rounded) = (trained(&dataset, &codes), trained_on_ranks(&dataset, &exact, &rounding));
    assert!(largest_difference(&whole, &rounded) < 2e-5, "as with codes of bf16");
    assert!(largest_difference(&trained(&dataset, &exact), &rounded) > 1e-4, "not as without");
    let stored = TrainConfig { precision: Dtype::Bf16, ..exact };
    let difference = largest_difference(&trained(&dataset, &stored), &trained_on_ranks(&dataset, &stored, &patches(3)));
    assert!(difference < 1e-3, "as stored: {difference}");
}

#[test]
fn codes_travel_as_codes() {
    let dataset = planted("nodes=300");
    let batch = BatchConfig { fanout: vec![4, 3], ..batches(BatchKind::Neighbor) };
    let codec = Some("f16".parse().unwrap());
    let config = TrainConfig { batch, batch_size: Some(25), codec, ..plain(ModelKind::Gcn, 2) };
    let expected = trained(&dataset, &config);
    for ranks in [patches(3), split_features(3)] {
        let difference = largest_difference(&expected, &trained_on_ranks(&dataset, &config, &ranks));
        assert!(difference < 2e-5, "{}: parameters differ by {difference}", ranks.layout.name());
    }
}

#[test]
fn edges_may_have_weights_wherever_the_graph_lies() {
    let dataset = planted("nodes=300");
    let weights: Vec<f32> = (0..dataset.graph.nnz()).map(|edge| 0.5 + (edge % 7) as f32 / 4.0).collect();
    let graph = dataset.graph.clone().with_values(Some(weights.into())).unwrap();
    // Some nodes have self-loops, none of weight one.
    let looped = graph.with_self_loops().filtered(|row, column| row != column as usize || row % 3 == 0);
    let weights =
        looped.values().unwrap().iter().map(|weight| if *weight == 1.0 { 0.8 } else { *weight }).collect::<Vec<_>>();
    let looped = looped.with_values(Some(weights.into())).unwrap();
    for (graph, kind) in [(graph, ModelKind::Gcn), (looped.clone(), ModelKind::Gcn), (looped, ModelKind::Sage)] {
        let dataset = Dataset { graph, ..dataset.clone() };
        let batch = BatchConfig { fanout: vec![4, 3], ..batches(BatchKind::Neighbor) };
        let config = TrainConfig { batch, batch_size: Some(25), ..plain(kind, 3) };
        let expected = trained(&dataset, &config);
        for n_ranks in [1, 3] {
            let [cut, split] =
                [patches(n_ranks), split_features(n_ranks)].map(|ranks| trained_on_ranks(&dataset, &config, &ranks));
            let difference = largest_difference(&expected, &cut);
            assert!(difference < 2e-5, "{n_ranks} ranks: parameters differ by {difference}");
            assert_eq!(largest_difference(&cut, &split), 0.0, "{n_ranks} ranks");
        }
    }
}

#[test]
fn unsupported_settings_of_patches_are_refused() {
    let dense = planted("nodes=300");
    let sampled = TrainConfig { batch: batches(BatchKind::Neighbor), ..config(ModelKind::Gcn, 1) };
    let full = TrainConfig { batch: BatchConfig::default(), ..sampled.clone() };
    let by_layers = BatchConfig { score_by: Some(ScoreBy::Layers), ..sampled.batch.clone() };
    let by_layers = TrainConfig { batch: by_layers, ..sampled.clone() };
    let (half, none) = ("0.5".parse().ok(), CacheConfig::default());
    let far = TrainConfig { tiers: CacheConfig { features: half, ..none }, ..sampled.clone() };
    let far_codes = TrainConfig { codec: "f16".parse().ok(), ..far.clone() };
    let topology = TrainConfig { tiers: CacheConfig { topology: half, ..none }, ..sampled.clone() };
    let shared = TrainConfig { tiers: CacheConfig { features: "0,0.5".parse().ok(), ..none }, ..sampled.clone() };
    let (cut, split) = (patches(2), split_features(2));
    for (ranks, dataset, config, told) in [
        (&cut, dense.clone(), &by_layers, "--score-by layers with --layout patches"),
        (&cut, dense.clone(), &far, "--topology-cache with --layout patches"),
        (&cut, dense.clone(), &far_codes, "--topology-cache with --layout patches"),
        (&cut, dense.clone(), &topology, "--topology-cache with --layout patches"),
        (&cut, with_bags_of_words(&dense), &sampled, "features are sparse"),
        (&cut, dense.clone(), &full, "--partition divides the graph of full batches"),
        (
            &split,
            dense.clone(),
            &by_layers,
            "with --layout split-features is not supported: ranks that hold a part of the graph score",
        ),
        (&split, dense.clone(), &shared, "a second share of --feature-cache with --layout split-features"),
        (&split, dense.clone(), &far, "--feature-cache on the CPU"),
        (&split, with_bags_of_words(&dense), &sampled, "features are sparse"),
        (&split, dense.clone(), &full, "--partition divides the graph of full batches"),
    ] {
        let session = SessionOptions::default();
        let mut observe = |_: Event<'_>| Control::Continue;
        let refused = TrainJob::new(dataset, config, ranks, &session, &mut observe).on_threads(Cpu::new);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
}

/// Options for ranks that each hold the whole graph.
fn ranks(n_ranks: usize) -> RankOptions {
    let grid = ProcessGrid::new(Scheme::OneD, n_ranks, 1).unwrap();
    RankOptions::new(grid, Exchange::Auto, Duration::from_secs(60))
}

#[test]
fn ranks_refuse_batches_that_they_cannot_share() {
    let dataset = planted("nodes=300");
    let of = |batch| TrainConfig { batch, ..config(ModelKind::Gcn, 1) };
    let mut moments = of(batches(BatchKind::Neighbor));
    moments.model.norm = NormKind::Batch;
    let cluster = of(BatchConfig { subgraphs_per_step: 3, ..batches(BatchKind::Cluster) });
    let wrong = [
        (of(batches(BatchKind::Saint)), ranks(2), "--subgraphs-per-step 2"),
        (cluster.clone(), ranks(4), "--subgraphs-per-step 4"),
        (cluster.clone(), patches(2), "--layout replicated"),
        (cluster, split_features(2), "give --batch neighbor"),
        (of(batches(BatchKind::Layer)), patches(2), "give --batch neighbor"),
        (moments, ranks(2), "give --norm layer"),
    ];
    for (config, ranks, told) in wrong {
        let session = SessionOptions::default();
        let mut observe = |_: Event<'_>| Control::Continue;
        let refused = TrainJob::new(dataset.clone(), &config, &ranks, &session, &mut observe).on_threads(Cpu::new);
        let message = refused.unwrap_err().to_string();
        assert!(message.contains(told), "{message}");
    }
}
