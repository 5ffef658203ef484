//! Trains a GCN on a planted graph, whose nodes are in an order from outside.
//!
//! ```text
//! cargo run -- [SPEC]
//! ```

use girih_compute::Cpu;
use girih_datasets::{LoadOptions, load};
use girih_reorder::Reorder;
use girih_trainer::{Control, SessionOptions, TrainConfig, train};
use own_order::BreadthFirst;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let spec = std::env::args().nth(1).unwrap_or_else(|| "synth:planted,nodes=2000,degree=10".to_owned());
    let dataset = load(&spec, &LoadOptions::default())?;
    let order = BreadthFirst.order(&dataset.graph)?;
    let dataset = dataset.permuted(&order)?;
    let config = TrainConfig { epochs: 100, ..TrainConfig::default() };
    let outcome = train(&Cpu::new(), dataset, &config, &SessionOptions::default(), &mut |_| Control::Continue)?;
    let accuracy = outcome.runs[0].best.test_accuracy.unwrap_or(0.0);
    println!("order {}, test {:.1} %", BreadthFirst.name(), 100.0 * accuracy);
    Ok(())
}
