//! `girih evaluate`: scores a trained model on a data set.

mod links;
mod ogb;
mod recommend;
mod similarity;
mod triples;

use girih_trainer::{ExecutionPlan, Scores, TestReport, mean_over_labels, n_left_out};

use crate::args::{EvaluateArgs, OutputArgs, RankArgs};
use crate::context::trained::{Applied, Loaded, together};
use crate::context::world::LaunchContext;
use crate::error::CliError;
use crate::output::{Results, percent};
use crate::scores::{NodeScore, Subset, Undefined, percent_or};

/// Scores the best checkpoint on the data.
pub fn run(args: &EvaluateArgs) -> Result<(), CliError> {
    if args.similarity {
        let one = "--similarity works in one process: leave --ranks, --gpus and launchers out";
        return alone(&args.ranks, one, || similarity::report(args));
    }
    together(&args.ranks, |world, ranks| {
        let loaded =
            Loaded::new(&args.data, &args.checkpoint, (&args.device, &args.ranks), args.codec, (world, ranks))?;
        if args.ogb {
            return ogb::evaluate(loaded, args.output);
        }
        match loaded.engine()? {
            ExecutionPlan::Recommend => return recommend::evaluate(loaded, args),
            ExecutionPlan::Triples => return triples::evaluate(loaded, args),
            ExecutionPlan::Links => return links::evaluate(loaded, args),
            _ => {}
        }
        let (is_primary, name) = (loaded.is_primary, loaded.data.outline().name);
        let applied = loaded.apply(None)?;
        let Scores { train_accuracy, val_accuracy, test_accuracy, .. } = applied.scores;
        if [train_accuracy, val_accuracy, test_accuracy].iter().all(Option::is_none) {
            return Err(CliError::Other(format!(
                "{name}: no node of the split has a label, so that there is no score; `girih predict` writes predictions without labels"
            )));
        }
        if is_primary {
            print(applied, args.output);
        }
        Ok(())
    })
}

/// Runs `work` in a single process; with several ranks, fails with the given reason.
fn alone(args: &RankArgs, why: &str, work: impl FnOnce() -> Result<(), CliError>) -> Result<(), CliError> {
    let place = LaunchContext::of(args)?;
    place.refuse_several(why)?;
    match place.options(args)? {
        Some(_) => Err(CliError::Usage(why.to_owned())),
        None => work(),
    }
}

/// Prints the scores of a classifier.
fn print(applied: Applied, output: OutputArgs) {
    let four = |value: Option<f64>| value.map_or(String::new(), |v| format!("{v:.4}"));
    let Applied { description: mut results, scores, test, multi_label } = applied;
    let classes = NodeScore::of_classes(multi_label);
    let (micro, macro_) = (test.f1.map(|f1| f1.micro), test.f1.map(|f1| f1.macro_));
    let mut undefined = Undefined::default();
    let titles = match classes {
        NodeScore::MicroF1 => ["Test micro-F1", "Validation micro-F1", "Training micro-F1"],
        _ => ["Test accuracy", "Validation accuracy", "Training accuracy"],
    };
    let parts = [("test_accuracy", Subset::Test), ("val_accuracy", Subset::Val), ("train_accuracy", Subset::Train)];
    for ((key, part), title) in parts.into_iter().zip(titles) {
        let (value, why) = (classes.value(&scores, part), classes.why_undefined(&scores, part));
        results.add(key, value, title, percent_or(value, why));
        undefined.note(key, why);
    }
    results
        .add_hidden("accuracy_is", classes.key())
        .add("test_f1_micro", micro, "Test F1, micro", four(micro))
        .add("test_f1_macro", macro_, "Test F1, macro", four(macro_))
        .add_hidden("test_f1_classes_absent", test.f1.map(|f1| f1.n_absent))
        .add_hidden("val_loss", scores.val_loss)
        .add("test_loss", scores.test_loss, "Test loss", four(scores.test_loss));
    add_ranked(&mut results, (&test, scores.test_loss.is_some()), &mut undefined);
    undefined.add_to(&mut results);
    results.print(output.json);
}

/// Ranking metrics (ROC-AUC, average precision): their mean over labels and, with several labels, each label's value.
fn add_ranked(results: &mut Results, (test, has_nodes): (&TestReport, bool), undefined: &mut Undefined) {
    let metrics = [
        (
            ["test_roc_auc", "test_roc_auc_per_label"],
            ["Test ROC-AUC", "of each label"],
            (&test.roc_auc, "one class only"),
        ),
        (
            ["test_average_precision", "test_average_precision_per_label"],
            ["Test average precision", "of each label"],
            (&test.average_precision, "no positives"),
        ),
    ];
    for ([key, key_of_each], [title, title_of_each], (values, why)) in metrics {
        // There are no values for more than two classes.
        if values.is_empty() {
            continue;
        }
        let mean = mean_over_labels(values);
        let why = mean.is_none().then_some(if has_nodes { why } else { "no test nodes with a label" });
        let left_out = match n_left_out(values) {
            n if n > 0 && mean.is_some() => format!(" ({n} of {} labels left out: undefined for them)", values.len()),
            _ => String::new(),
        };
        results.add(key, mean, title, format!("{}{left_out}", percent_or(mean, why)));
        undefined.note(key, why);
        if values.len() > 1 {
            let shown = |value: &Option<f64>| value.map_or("–".to_owned(), percent);
            let each: Vec<String> = values.iter().map(shown).collect();
            results.add(key_of_each, values.clone(), title_of_each, each.join("  "));
        }
    }
}
