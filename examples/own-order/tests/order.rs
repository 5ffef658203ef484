//! An order from outside names every node once, and training on it learns as much.

use girih_compute::Cpu;
use girih_datasets::{Dataset, LoadOptions, load};
use girih_reorder::{Blockwise, Reorder};
use girih_trainer::{Control, SessionOptions, TrainConfig, train};
use own_order::BreadthFirst;

fn dataset() -> Dataset {
    load("synth:planted,nodes=400,degree=10,features=24,classes=3", &LoadOptions::default()).unwrap()
}

fn loss_and_accuracy(dataset: Dataset) -> (f32, f64) {
    let model = girih_trainer::ModelConfig { dropout: 0.0, ..girih_trainer::ModelConfig::default() };
    let config = TrainConfig { epochs: 30, model, ..TrainConfig::default() };
    let options = SessionOptions::default();
    let outcome = train(&Cpu::new(), dataset, &config, &options, &mut |_| Control::Continue).unwrap();
    (outcome.runs[0].train_loss, outcome.runs[0].last.test_accuracy.unwrap().into())
}

#[test]
fn training_does_not_depend_on_the_order() {
    let order = BreadthFirst.order(&dataset().graph).unwrap();
    assert_ne!(order.new_of_old(), (0..400).collect::<Vec<u32>>());
    let (loss, accuracy) = loss_and_accuracy(dataset());
    let (found_loss, found_accuracy) = loss_and_accuracy(dataset().permuted(&order).unwrap());
    // The same sums in another order.
    assert!((loss - found_loss).abs() < 1e-3 * loss, "{loss}, reordered {found_loss}");
    assert!((accuracy - found_accuracy).abs() < 0.03, "{accuracy}, reordered {found_accuracy}");
}

/// Orders of girih take it as an inner order.
#[test]
fn it_works_inside_of_blocks() {
    let graph = dataset().graph;
    let order = Blockwise { blocks: 4, inner: BreadthFirst }.order(&graph).unwrap();
    let block = |node: usize| node / 100;
    assert!(order.new_of_old().iter().enumerate().all(|(old, &new)| block(old) == block(new as usize)));
}

/// The laws of girih's own orders.
#[test]
fn it_keeps_the_laws_of_orders() {
    girih_reorder::testing::check_order(&BreadthFirst);
}
