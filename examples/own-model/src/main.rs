//! Trains GCNII on a planted graph, and applies its checkpoint.
//!
//! ```text
//! cargo run -- [SPEC] [FOLDER]
//! ```

use std::path::PathBuf;

use girih_compute::Cpu;
use girih_datasets::{LoadOptions, load};
use girih_trainer::{
    Checkpoint, Control, Event, SessionOptions, TrainConfig, apply_model, checkpoint_path, train_model,
};
use own_model::Gcnii;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let spec = arguments.next().unwrap_or_else(|| "synth:planted,nodes=2000,degree=10".to_owned());
    let folder = arguments.next().map_or_else(|| std::env::temp_dir().join("girih-own-model"), PathBuf::from);
    let (cpu, model) = (Cpu::new(), Gcnii::default());
    let config = TrainConfig { epochs: 60, ..TrainConfig::default() };
    let dataset = load(&spec, &LoadOptions::default())?;

    let options = SessionOptions { checkpoints: Some(folder.clone()), resume: true, ..SessionOptions::default() };
    train_model(&cpu, dataset.clone(), &model, &config, &options, &mut |event| {
        if let Event::Epoch { report, .. } = event
            && report.epoch.is_multiple_of(10)
        {
            println!("epoch {:>3}  loss {:.4}", report.epoch, report.train_loss);
        }
        Control::Continue
    })?;

    let checkpoint = Checkpoint::load(&checkpoint_path(&folder, 0))?;
    let (scores, _, logits) = apply_model(&cpu, dataset, &model, &checkpoint)?;
    println!("test {:.1} %, {} logits", 100.0 * scores.test_accuracy.unwrap_or(0.0), logits.n_rows());
    Ok(())
}
