//! `girih train`.

mod facts;
mod observer;
mod outputs;
mod settings;

use girih_compute::Backend;
use girih_datasets::load;
use girih_trainer::SessionOptions;

use self::facts::Facts;
use self::observer::Observer;
use self::outputs::OutputFolder;
use super::{backend, plan};
use crate::args::TrainArgs;
use crate::error::CliError;

/// Trains, reports, and writes the output folder.
pub fn run(args: &TrainArgs) -> Result<(), CliError> {
    let (spec, config) = settings::resolve(args)?;
    config.validate()?;
    let options = args.data.options(config.seed, config.runs as usize);
    if args.plan {
        return plan::run(&spec, &options, &config, args.output);
    }
    let outputs = args.out.as_deref().map(|path| OutputFolder::new(path, &spec, &config, args.resume)).transpose()?;
    let backend = backend(&args.device, config.precision)?;
    let dataset = load(&spec, &options)?;
    let facts = Facts::of(&dataset, &spec, &config, backend.name());
    if !args.output.json {
        eprintln!("{}", facts.headline());
    }
    let session = SessionOptions {
        checkpoints: args.out.clone(),
        checkpoint_every: args.checkpoint_every,
        resume: args.resume,
        writes: true,
    };
    let mut observer = Observer::new(&config, args.output.json, outputs.clone())?;
    let outcome = girih_trainer::train(&backend, dataset, &config, &session, &mut |event| observer.observe(&event));
    let history = observer.finish()?;
    let outcome = outcome?;
    let results = facts.results(&config, &outcome);
    if let Some(outputs) = &outputs {
        outputs.finish(&facts.title(), &results, history.points())?;
    }
    if !args.output.json && outcome.stopped {
        eprintln!("stopped after the epoch{}", if outputs.is_some() { "; continue with --resume" } else { "" });
    }
    results.print(args.output.json);
    if !args.output.json {
        print_next_steps(args, outputs.as_ref());
    }
    Ok(())
}

fn print_next_steps(args: &TrainArgs, outputs: Option<&OutputFolder>) {
    if let Some(outputs) = outputs {
        eprintln!("\nwritten to {}: report.html, config.toml, metrics.jsonl, checkpoints", outputs.path().display());
    } else if args.data.data.is_none() && args.config.is_none() {
        eprintln!(
            "\nnext: --model sage or mlp to compare, --data PATH for your own graph, --runs 5 for a deviation,\n      \
             --out DIR to keep checkpoints and curves; `girih train --help` lists everything"
        );
    }
}
