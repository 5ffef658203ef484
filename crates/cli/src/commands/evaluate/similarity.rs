//! `girih evaluate --similarity`: effect of feature compression on every layer.

use girih_trainer::Similarity;

use crate::args::{CodecChoice, EvaluateArgs};
use crate::context::data::load_with_warnings;
use crate::context::device::{choose, on_backend};
use crate::context::settings::data_of;
use crate::context::trained::{best_checkpoint, describe};
use crate::error::CliError;

/// Prints mean cosines between layer outputs on the original features and on their codes.
pub fn report(args: &EvaluateArgs) -> Result<(), CliError> {
    let chosen = match args.codec {
        Some(CodecChoice::None) => {
            let message = "--similarity compares features with their codes: name a codec, or leave --codec out for that of the training";
            return Err(CliError::Usage(message.to_owned()));
        }
        chosen => chosen.and_then(CodecChoice::codec),
    };
    let checkpoint = best_checkpoint(&args.checkpoint)?;
    let config = &checkpoint.progress.config;
    let backend = choose(&args.device, config.precision)?;
    let data = data_of(&args.checkpoint, &args.data)?;
    let dataset = load_with_warnings(&data, &data.options(config.seed, config.runs as usize))?;
    let mut results = describe(&checkpoint, &backend.name());
    let found = on_backend!(&backend, backend => girih_trainer::similarity(backend, dataset, &checkpoint, chosen))?;
    let Similarity { codec, inputs, initial, trained } = found;
    let shown = |layers: &[f64]| layers.iter().map(|cosine| format!("{cosine:.4}")).collect::<Vec<_>>().join(", ");
    let (before, after) = (shown(&initial), shown(&trained));
    results
        .add("codec", codec.to_string(), "Codec", codec.to_string())
        .add("cosine_inputs", inputs, "Cosine of inputs", format!("{inputs:.4}"))
        .add("cosine_layers_initial", initial, "Cosines of layers, before training", before)
        .add("cosine_layers_trained", trained, "Cosines of layers, trained", after);
    results.print(args.output.json);
    Ok(())
}
