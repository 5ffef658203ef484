//! Tests of measured rates that need no GPU.

use girih_graph_format::{Coo, Duplicates};

use super::exchanges::{SLOWDOWN_MAX, scattered, slowdown};
use super::*;

fn ring(n: usize) -> Csr {
    let (from, to) = (0..n as u32).map(|v| (v, (v + 1) % n as u32)).unzip();
    Coo::new(n, n, from, to, None).unwrap().to_csr(Duplicates::Merge).unwrap()
}

#[test]
fn a_slowdown_is_told_from_noise() {
    assert_eq!(slowdown(2.0, 1.0, 2.25), 0.25);
    assert_eq!(slowdown(2.0, 1.0, 1.9), 0.0);
    assert_eq!(slowdown(2.0, 1.0, 9.0), SLOWDOWN_MAX);
}

#[test]
fn copies_win_in_doubt() {
    let [sent, copied] = [GpuTransport::Nccl, GpuTransport::Peer].map(|by| with_safety_margin(Some(by), 1.0));
    assert!(copied < sent && with_safety_margin(None, 1.0) == copied);
    assert!(with_safety_margin(Some(GpuTransport::Nccl), 1.0) < with_safety_margin(Some(GpuTransport::Peer), 1.5));
}

#[test]
fn scattered_entries_are_a_matrix() {
    let matrix = scattered(1000, 16);
    assert!(matrix.validate().is_ok() && matrix.nnz() > 15_000, "{} entries", matrix.nnz());
}

#[test]
fn a_share_is_found_for_what_a_plan_takes() {
    let planned = |share: f64| Ok(3.0 / share);
    assert!((where_it_takes(4.0, STREAM_SHARES, planned).unwrap() - 0.75).abs() < 1e-6);
    assert!((where_it_takes(1.0, STREAM_SHARES, planned).unwrap() - 1.0).abs() < 1e-6, "no more than a copy");
    assert!((where_it_takes(90.0, STREAM_SHARES, planned).unwrap() - 0.2).abs() < 1e-6, "no less than a fifth of it");
}

/// Epoch time depends on the rate of passes, and the fit recovers that rate from a planned time.
#[test]
fn epochs_without_a_graph_say_what_passes_reach() {
    let some = without_edges(FEATURES, Labels::Single { n_classes: CLASSES, classes: vec![0; NODES] }).unwrap();
    let (config, sizes) = (without_graph(Dtype::F32), DataSizes::of(&some));
    let planned = |share: f64| -> Result<f64, PlannerError> {
        let rates = GpuRates { stream_bytes: share * 4e12, ..HardwareProfile::h200().gpu };
        Ok(Plan::on_device(&config, &sizes, PlanDevice::Gpu(Some(rates)))?.epoch_seconds)
    };
    let seconds = planned(0.7).unwrap();
    assert!((where_it_takes(seconds, STREAM_SHARES, planned).unwrap() - 0.7).abs() < 1e-3);
    assert!(planned(0.5).unwrap() > 1.1 * seconds, "passes are much of it");
}

#[test]
fn products_are_timed_at_the_widths_of_the_session() {
    let some = without_edges(100, Labels::Single { n_classes: 47, classes: vec![0; 9] }).unwrap();
    let hidden = |hidden| {
        let usual = without_graph(Dtype::F32);
        widths(&some, &TrainConfig { model: ModelConfig { hidden, ..usual.model.clone() }, ..usual })
    };
    assert_eq!(hidden(128), [16, 32, 47, 64, 100, 128, 256]);
    assert_eq!(hidden(80), [16, 32, 47, 64, 80, 100, 128, 256]);
    assert_eq!(hidden(512), [16, 32, 47, 64, 100, 128, 256]);
    assert!(hidden(80).len() <= EntrySeconds::MOST);
}

#[test]
fn a_single_block_is_one_that_has_entries() {
    let (graph, panels) = (ring(40), [0..10, 10..20, 20..30, 30..40]);
    let back = graph.transposed();
    let [nnz, nnz_back] = [&graph, &back].map(|graph| block_nnz(graph, &panels));
    for (i, panel) in panels.iter().enumerate() {
        let (i_next, next) = ((i + 1) % 4, &panels[(i + 1) % 4]);
        let found = block(&graph, panel, &panels[fullest(i, &nnz[i])]);
        assert_eq!(found, block(&graph, panel, next), "an edge leads to the next");
        let before = block(&back, next, &panels[fullest(i_next, &nnz_back[i_next])]);
        assert_eq!(before.nnz(), 1, "and one comes from the panel before");
    }
}

#[test]
fn a_part_fits_and_the_whole_is_taken_where_it_does() {
    let graph = ring(1000);
    assert!(part_that_fits(&graph, usize::MAX).is_none());
    let operand = 2 * 1024 * 1000;
    let part = part_that_fits(&graph, operand + operand / 2).unwrap();
    assert_eq!(part.n_cols(), 1000);
    assert!((400..600).contains(&part.n_rows()), "{} rows", part.n_rows());
    assert_eq!(part_that_fits(&graph, 0).unwrap().n_rows(), 1);
}

#[test]
fn an_entry_takes_what_passes_leave() {
    let passes = 300.0 * 64.0 / 1e9;
    assert!((entry_seconds(passes + 1e-5, 100, passes) - 1e-7).abs() < 1e-12);
    assert!(entry_seconds(passes / 2.0, 100, passes) > 0.0, "never nothing");
}
