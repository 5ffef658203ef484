//! `girih evaluate` of a recommender.

use girih_trainer::Ranking;

use crate::args::EvaluateArgs;
use crate::context::trained::Loaded;
use crate::error::CliError;
use crate::scores::Undefined;

/// Prints how well the top-ranked items agree with the test items.
pub fn evaluate(loaded: Loaded, args: &EvaluateArgs) -> Result<(), CliError> {
    let (mut results, is_primary) = (loaded.describe(), loaded.is_primary);
    let recommendations = loaded.recommend()?;
    if !is_primary {
        return Ok(());
    }
    let ranking = recommendations.scores.ranking;
    let score = |of: fn(&Ranking) -> f64| ranking.as_ref().map(of);
    const NO_TEST: &str = "no test items";
    let shown = |value: Option<f64>| value.map_or(format!("undefined: {NO_TEST}"), |v| format!("{v:.4}"));
    let (recall, ndcg) = (score(|r| r.recall_at_20), score(|r| r.ndcg_at_20));
    let (precision, hits) = (score(|r| r.precision_at_20), score(|r| r.hits_at_20));
    results
        .add("recall_at_20", recall, "Recall@20", shown(recall))
        .add("ndcg_at_20", ndcg, "NDCG@20", shown(ndcg))
        .add("precision_at_20", precision, "Precision@20", shown(precision))
        .add("hits_at_20", hits, "Users served", shown(hits));
    let mut undefined = Undefined::default();
    for key in ["recall_at_20", "ndcg_at_20", "precision_at_20", "hits_at_20"] {
        undefined.note(key, ranking.is_none().then_some(NO_TEST));
    }
    undefined.add_to(&mut results);
    results.print(args.output.json);
    Ok(())
}
