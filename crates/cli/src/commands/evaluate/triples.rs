//! `girih evaluate` of rows that score triples.

use girih_trainer::EntityRanks;

use crate::args::EvaluateArgs;
use crate::context::trained::Loaded;
use crate::error::CliError;
use crate::scores::{Undefined, percent_or};

/// Prints how far ahead the right entities of held-out triples rank.
pub fn evaluate(loaded: Loaded, args: &EvaluateArgs) -> Result<(), CliError> {
    let mut results = loaded.describe();
    let decoder = loaded.checkpoint.progress.config.triples.decoder.name();
    results.add("decoder", decoder, "Decoder", decoder);
    let scores = loaded.score_triples()?;
    let triples = scores.triples.unwrap_or_default();
    const NO_TEST: &str = "no test triples";
    const NO_VAL: &str = "no validation triples";
    let test = |of: fn(&EntityRanks) -> f64| triples.test.as_ref().map(of);
    let (val, unseen) = (scores.val_mrr(), triples.unseen_entities);
    let mut undefined = Undefined::default();
    for (key, value, title, why) in [
        ("test_mrr", test(|r| r.mrr), "Test mean reciprocal rank", NO_TEST),
        ("test_hits_at_1", test(|r| r.hits_at_1), "Test hits@1", NO_TEST),
        ("test_hits_at_3", test(|r| r.hits_at_3), "Test hits@3", NO_TEST),
        ("test_hits_at_10", test(|r| r.hits_at_10), "Test hits@10", NO_TEST),
        ("val_mrr", val, "Validation mean reciprocal rank", NO_VAL),
    ] {
        results.add(key, value, title, percent_or(value, Some(why)));
        undefined.note(key, value.is_none().then_some(why));
    }
    results.add("unseen_entities", unseen, "Entities unseen in training", unseen.to_string());
    undefined.add_to(&mut results);
    results.print(args.output.json);
    Ok(())
}
