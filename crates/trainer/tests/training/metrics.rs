//! Metrics are their definitions, and long sequences of values are thinned evenly.

use girih_datasets::UNLABELLED;
use girih_graph_format::Matrix;
use girih_trainer::{
    Confusion, ConfusionMatrix, Ranking, Thinned, accuracy, average_precision, f1_scores, hits_at, mean_over_labels,
    mean_reciprocal_rank, n_left_out, roc_auc,
};
use proptest::prelude::*;

#[test]
fn accuracy_counts_only_labelled_rows() {
    let classes = [0, 1, UNLABELLED, 2];
    assert_eq!(accuracy(&[0, 0, 5, 2], &classes, &[0, 1, 2, 3]), Some(2.0 / 3.0));
    assert_eq!(accuracy(&[0, 0, 5, 2], &classes, &[2]), None);
}

/// Worked by hand: class 0 has tp 1, fn 1; class 1 tp 1, fp 1; class 2 never occurs.
#[test]
fn f1_of_a_small_case() {
    let f1 = f1_scores(3, &[0, 1, 1], &[0, 0, 1], &[0, 1, 2]).unwrap();
    assert_eq!(f1.n_absent, 1);
    assert!((f1.micro - 2.0 / 3.0).abs() < 1e-12);
    assert!((f1.macro_ - (2.0 / 3.0 + 2.0 / 3.0) / 3.0).abs() < 1e-12);
}

/// Nodes of a class are its row of the matrix, correct ones its diagonal, predictions its column.
#[test]
fn a_confusion_matrix_agrees_with_the_scores_of_each_class() {
    let (predicted, classes) = ([0, 1, 1, 2, 2, 0, 1], [0, 0, 1, 2, 1, UNLABELLED, 2]);
    let rows = [0, 1, 2, 3, 4, 5, 6];
    let matrix = ConfusionMatrix::of_classes(4, &predicted, &classes, &rows).unwrap();
    assert_eq!(
        (0..4).map(|class| matrix.row(class)).collect::<Vec<_>>(),
        [[1, 1, 0, 0], [0, 1, 1, 0], [0, 1, 1, 0], [0, 0, 0, 0]]
    );
    let confusion = Confusion::of_classes(4, &predicted, &classes, &rows);
    let scores = confusion.of_each_class();
    for (class, scores) in scores.iter().enumerate() {
        let predicted: u64 = (0..4).map(|row| matrix.row(row)[class]).sum();
        let (correct, nodes) = (matrix.row(class)[class], matrix.row(class).iter().sum::<u64>());
        assert_eq!(scores.n_nodes, nodes);
        let share = |all: u64| (all > 0).then(|| correct as f64 / all as f64);
        assert_eq!((scores.precision, scores.recall), (share(predicted), share(nodes)), "class {class}");
    }
    let mean = scores.iter().map(|scores| scores.f1.unwrap_or(0.0)).sum::<f64>() / 4.0;
    assert!((confusion.f1().unwrap().macro_ - mean).abs() < 1e-12);
    assert_eq!(ConfusionMatrix::of_classes(ConfusionMatrix::CLASSES_MAX + 1, &[0], &[0], &[0]), None);
}

#[test]
fn multi_label_f1_counts_every_decision() {
    let logits = Matrix::new(2, 2, vec![1.0, -1.0, 2.0, 3.0]).unwrap();
    let targets = Matrix::new(2, 2, vec![1.0, 1.0, 0.0, 1.0]).unwrap();
    let f1 = Confusion::of_logits(&logits, &targets, &[0, 1]).f1().unwrap();
    assert!((f1.micro - 4.0 / 6.0).abs() < 1e-12);
}

#[test]
fn f1_without_a_positive_label_or_prediction_is_undefined() {
    let (logits, targets) = (Matrix::new(1, 2, vec![-1.0, -2.0]).unwrap(), Matrix::new(1, 2, vec![0.0; 2]).unwrap());
    assert_eq!(Confusion::of_logits(&logits, &targets, &[0]).f1(), None);
    assert_eq!(f1_scores(3, &[0], &[UNLABELLED], &[0]), None);
    let predicted = Matrix::new(1, 2, vec![1.0, -2.0]).unwrap();
    assert_eq!(Confusion::of_logits(&predicted, &targets, &[0]).f1().unwrap().micro, 0.0);
}

/// ROC-AUC by its definition, over all pairs of a positive and a negative.
fn pairs_won(scores: &[f32], labels: &[bool]) -> Option<f64> {
    let (mut won, mut pairs) = (0.0, 0.0);
    for (i, _) in labels.iter().enumerate().filter(|(_, label)| **label) {
        for (j, _) in labels.iter().enumerate().filter(|(_, label)| !**label) {
            pairs += 1.0;
            won += if scores[i] > scores[j] { 1.0 } else { 0.5 * f64::from(u8::from(scores[i] == scores[j])) };
        }
    }
    (pairs > 0.0).then(|| won / pairs)
}

/// Average precision by its definition, over all positives.
fn precisions(scores: &[f32], labels: &[bool]) -> Option<f64> {
    let positives: Vec<usize> = (0..labels.len()).filter(|&i| labels[i]).collect();
    let precision = |&i: &usize| {
        let above: Vec<usize> = (0..scores.len()).filter(|&j| scores[j] >= scores[i]).collect();
        above.iter().filter(|&&j| labels[j]).count() as f64 / above.len() as f64
    };
    let sum: f64 = positives.iter().map(precision).sum();
    (!positives.is_empty()).then(|| sum / positives.len() as f64)
}

fn close(a: Option<f64>, b: Option<f64>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-9,
        (a, b) => a == b,
    }
}

proptest! {
    #[test]
    fn metrics_are_their_definitions(cases in prop::collection::vec((0u8..20, any::<bool>()), 0..60), k in 1usize..10) {
        let scores: Vec<f32> = cases.iter().map(|case| f32::from(case.0) - 10.0).collect();
        let labels: Vec<bool> = cases.iter().map(|case| case.1).collect();
        prop_assert!(close(roc_auc(&scores, &labels), pairs_won(&scores, &labels)));
        prop_assert!(close(average_precision(&scores, &labels), precisions(&scores, &labels)));
        let of = |wanted| -> Vec<f32> { (0..scores.len()).filter(|&i| labels[i] == wanted).map(|i| scores[i]).collect() };
        let (positives, negatives) = (of(true), of(false));
        let beaten = |score: f32| negatives.iter().filter(|&&negative| negative >= score).count() < k;
        let hits = positives.iter().filter(|&&score| beaten(score)).count() as f64;
        let expected = (!positives.is_empty()).then(|| hits / positives.len() as f64);
        prop_assert!(close(hits_at(k, &positives, &negatives), expected));
        let count = |which: &dyn Fn(f32) -> bool| negatives.iter().filter(|&&negative| which(negative)).count() as f64;
        let rank = |score: f32| 1.0 + count(&|other| other > score) + 0.5 * count(&|other| other == score);
        let sum: f64 = positives.iter().map(|&score| 1.0 / rank(score)).sum();
        let expected = (!positives.is_empty()).then(|| sum / positives.len() as f64);
        prop_assert!(close(mean_reciprocal_rank(&positives, &negatives), expected));
    }
}

#[test]
fn labels_without_both_answers_are_left_out_of_the_mean() {
    let values = [[false, true], [true, true]].map(|labels| roc_auc(&[1.0, 2.0], &labels));
    assert_eq!(values, [Some(1.0), None]);
    assert_eq!((mean_over_labels(&values), n_left_out(&values)), (Some(1.0), 1));
}

/// Small case, computed by hand: of three wanted items, two are at ranks one and four.
#[test]
fn scores_of_a_small_case() {
    let ranking = Ranking::of_user(&[7, 1, 2, 9, 3], &[5, 7, 9]).unwrap();
    let best = 1.0 + 1.0 / 3f64.log2() + 0.5;
    assert_eq!((ranking.recall_at_20, ranking.precision_at_20, ranking.hits_at_20), (2.0 / 3.0, 0.1, 1.0));
    assert!((ranking.ndcg_at_20 - (1.0 + 1.0 / 5f64.log2()) / best).abs() < 1e-12);
}

#[test]
fn only_the_first_twenty_count_and_users_without_wishes_are_left_out() {
    let ranked: Vec<u32> = (0..30).collect();
    let late = Ranking::of_user(&ranked, &[20]).unwrap();
    assert_eq!(late, Ranking::default());
    let all: Vec<u32> = (0..25).collect();
    let full = Ranking::of_user(&ranked, &all).unwrap();
    assert_eq!((full.recall_at_20, full.ndcg_at_20, full.precision_at_20), (0.8, 1.0, 1.0));
    assert_eq!(Ranking::of_user(&ranked, &[]), None);
    assert_eq!(Ranking::mean([late, full].into_iter()).unwrap().recall_at_20, 0.4);
    assert_eq!(Ranking::mean(std::iter::empty()), None);
}

#[test]
fn every_kth_value_is_kept_and_all_are_counted() {
    /// Most values that are kept.
    const MAX: usize = 4096;
    let mut thinned = Thinned::default();
    for n in 0..5 * MAX {
        thinned.push(n);
        assert!(thinned.len() == n + 1 && !thinned.is_empty() && thinned.iter().len() <= MAX);
        if n < MAX {
            assert_eq!(thinned.iter().len(), n + 1);
        }
    }
    assert!(thinned.iter().copied().eq((0..5 * MAX).step_by(8)));
}
