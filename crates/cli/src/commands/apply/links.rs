//! `girih evaluate` and `girih predict` of a link predictor.

use girih_graph_format::file;
use girih_trainer::LinkScores;

use super::Loaded;
use crate::args::{EvaluateArgs, PredictArgs};
use crate::error::CliError;
use crate::paths;
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

/// Writes the embedding of every node.
pub fn predict(loaded: Loaded, args: &PredictArgs) -> Result<(), CliError> {
    if args.logits {
        let message = "a link predictor has no logits: leave --logits out, and the embeddings of the nodes are written";
        return Err(CliError::Other(message.to_owned()));
    }
    let mut results = loaded.describe();
    let embeddings = loaded.embed()?.embeddings;
    paths::make_parents(&args.out)?;
    let (n_rows, n_cols) = (embeddings.n_rows(), embeddings.n_cols());
    file::write_npy(&args.out, &[n_rows, n_cols], embeddings.data())?;
    let out = args.out.display().to_string();
    results
        .add("nodes", n_rows, "Nodes", n_rows.to_string())
        .add("kind", "embeddings", "Values", format!("embeddings of {n_cols} columns"))
        .add("out", out.as_str(), "Written to", out.as_str());
    results.print(args.output.json);
    Ok(())
}
