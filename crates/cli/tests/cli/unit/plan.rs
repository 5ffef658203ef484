//! Predictions of memory.

use std::time::Duration;

use girih_cli::internals::plan::{DeviceMemory, ON_ONE, Session, check_host_with, check_patches, copied_graph};
use girih_compute::Dtype;
use girih_datasets::{Dataset, LoadOptions, load};
use girih_graph_format::Csr;
use girih_machine::memory::{Free, Limit};
use girih_partition::{Exchange, ProcessGrid, Scheme, Stages};
use girih_trainer::distributed::{GraphPlacement, RankOptions};
use girih_trainer::{BatchConfig, BatchKind, DataSizes, ModelConfig, ModelKind, Plan, TrainConfig};

fn session() -> Session {
    let sizes = DataSizes { n_train: 500_000, ..DataSizes::undirected(1_000_000, 20_000_000, 100, 40) };
    Session { sizes, rows: None, reserved: 0 }
}

/// Only full batches copy a mapped graph, and a copy larger than the free memory is refused.
#[test]
fn copies_of_mapped_graphs_are_counted() {
    let graph = Csr::new(100, 100, (0..=100).collect::<Vec<u64>>(), vec![0u32; 100], None).unwrap();
    let owned = Dataset::new("small", graph, None, None, Vec::new()).unwrap();
    let home = tempfile::tempdir().unwrap();
    owned.save(&home.path().join("small")).unwrap();
    let options = LoadOptions::default();
    let mapped = load(home.path().join("small").to_str().unwrap(), &options).unwrap();
    let full = TrainConfig::default();
    let batch = BatchConfig { kind: BatchKind::Neighbor, ..BatchConfig::default() };
    let sampled = TrainConfig { batch, ..full.clone() };
    assert_eq!(copied_graph(&owned, &full), 0);
    assert_eq!(copied_graph(&mapped, &sampled), 0);
    assert_eq!(copied_graph(&mapped, &full), owned.graph.n_bytes());
    let free = |bytes| Free { bytes, limit: Limit::Machine };
    let refused = check_host_with(free(1000), &mapped, &full).unwrap_err().to_string();
    assert!(refused.contains("a copy of its 100 edges") && refused.contains("--batch neighbor"), "{refused}");
    check_host_with(free(1 << 40), &mapped, &full).unwrap();
}

fn config() -> TrainConfig {
    let model = ModelConfig { hidden: 512, ..ModelConfig::default() };
    TrainConfig { model, ..TrainConfig::default() }
}

fn needed(config: &TrainConfig) -> u64 {
    Plan::on_cuda(config, &session().sizes).unwrap().device_bytes()
}

fn refused(free: u64) -> String {
    let device_memory = DeviceMemory { device: "Some GPU".to_owned(), free };
    session().check(&device_memory, &session().plan(&config()).unwrap(), &config(), ON_ONE).unwrap_err().to_string()
}

#[test]
fn a_plan_that_fits_is_not_refused() {
    let (config, plan) = (config(), session().plan(&config()).unwrap());
    let device_memory = |free| DeviceMemory { device: "Some GPU".to_owned(), free };
    assert!(session().check(&device_memory(plan.device_bytes()), &plan, &config, ON_ONE).is_ok());
    assert!(session().check(&device_memory(plan.device_bytes() - 1), &plan, &config, ON_ONE).is_err());
}

#[test]
fn a_refusal_names_bytes_and_what_would_fit() {
    let (all, half) = (needed(&config()), needed(&TrainConfig { precision: Dtype::Bf16, ..config() }));
    assert!(half < all);
    let message = refused(all - 1);
    for part in [&*format!("{all} bytes"), &format!("{} bytes", all - 1), "Some GPU", "--precision bf16 fits"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
    let narrow = refused(half - 1);
    assert!(!narrow.contains("--precision bf16 fits") && narrow.contains("--hidden "), "{narrow}");
    assert!(narrow.contains("--device cpu"), "{narrow}");
    let hopeless = refused(1 << 20);
    assert!(!hopeless.contains(" fits") && hopeless.contains("--device cpu"), "{hopeless}");
}

#[test]
fn the_width_that_is_named_fits() {
    let free = needed(&config()) / 2;
    let message = refused(free);
    let hidden = message.split("--hidden ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let model = ModelConfig { hidden: hidden.parse().unwrap(), ..config().model };
    assert!(needed(&TrainConfig { model, ..config() }) <= free, "{message}");
}

#[test]
fn patches_that_do_not_fit_are_refused_with_bytes_and_what_helps() {
    let dataset = load("synth:planted,nodes=3000,degree=8", &LoadOptions::default()).unwrap();
    let grid = ProcessGrid::new(Scheme::OneD, 2, 1).unwrap();
    let ranks = RankOptions::new(grid, Exchange::Rows, Duration::from_secs(9));
    let ranks = RankOptions { layout: GraphPlacement::Patches, stages: Stages::Parts(1), ..ranks };
    let batch = BatchConfig { kind: BatchKind::Neighbor, fanout: vec![5, 4], ..BatchConfig::default() };
    let config = TrainConfig { batch, batch_size: Some(64), ..TrainConfig::for_model(ModelKind::Sage) };
    assert!(check_patches(&ranks, 80 << 30, &dataset, &config).is_ok());
    let message = check_patches(&ranks, 1 << 30, &dataset, &config).unwrap_err().to_string();
    for part in ["--layout patches over 2 ranks", "1073741824 bytes", "--batch-size", "more ranks"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
}
