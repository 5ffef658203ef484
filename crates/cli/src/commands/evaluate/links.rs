//! `girih evaluate` of a link predictor.

use girih_trainer::LinkScores;

use crate::args::EvaluateArgs;
use crate::context::trained::Loaded;
use crate::error::CliError;
use crate::scores::{Undefined, percent_or};

/// Prints how well the embeddings separate held-out links from other pairs.
pub fn evaluate(loaded: Loaded, args: &EvaluateArgs) -> Result<(), CliError> {
    let mut results = loaded.describe();
    let scores = loaded.embed()?.scores;
    let percent = |value: Option<f64>, why: &'static str| percent_or(value, Some(why));
    const NO_TEST: &str = "no test links";
    const NO_VAL: &str = "no validation links";
    let rank = |of: fn(&LinkScores) -> f64| scores.links.as_ref().map(of);
    let (precision, hits, mrr) = (rank(|l| l.average_precision), rank(|l| l.hits_at_20), rank(|l| l.mrr));
    results
        .add("test_roc_auc", scores.test_roc_auc, "Test ROC-AUC", percent(scores.test_roc_auc, NO_TEST))
        .add("val_roc_auc", scores.val_roc_auc, "Validation ROC-AUC", percent(scores.val_roc_auc, NO_VAL))
        .add("test_average_precision", precision, "Test average precision", percent(precision, NO_TEST))
        .add("test_hits_at_20", hits, "Test hits@20", percent(hits, NO_TEST))
        .add("test_mrr", mrr, "Test mean reciprocal rank", percent(mrr, NO_TEST))
        .add_hidden("val_loss", scores.val_loss)
        .add("test_loss", scores.test_loss, "Test loss", scores.test_loss.map_or(String::new(), |l| format!("{l:.4}")));
    let mut undefined = Undefined::default();
    for key in ["test_roc_auc", "test_average_precision", "test_hits_at_20", "test_mrr"] {
        undefined.note(key, scores.links.is_none().then_some(NO_TEST));
    }
    undefined.note("val_roc_auc", scores.val_roc_auc.is_none().then_some(NO_VAL));
    undefined.add_to(&mut results);
    results.print(args.output.json);
    Ok(())
}
