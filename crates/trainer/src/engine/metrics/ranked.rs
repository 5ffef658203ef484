//! Metrics of scores against binary labels: how well scores rank the positives before the negatives.

/// Metric of scores against binary labels; `None` where it is not defined.
pub type RankedMetric = fn(&[f32], &[bool]) -> Option<f64>;

/// Area under the receiver operating characteristic: the share of pairs of a positive and a negative in which the
/// positive has the larger score. Equal scores count half. `None` without a positive or without a negative.
///
/// # Panics
/// When the numbers of scores and labels differ.
#[must_use]
pub fn roc_auc(scores: &[f32], labels: &[bool]) -> Option<f64> {
    assert_eq!(scores.len(), labels.len(), "a label for each score");
    let order = falling(scores);
    let n_positive = labels.iter().filter(|&&label| label).count() as f64;
    let n_negative = labels.len() as f64 - n_positive;
    // Number of positives before the current group; each wins against the group's negatives.
    let (mut positives, mut won) = (0.0, 0.0);
    for group in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let equal = group.iter().filter(|&&i| labels[i]).count() as f64;
        let negatives = group.len() as f64 - equal;
        won += negatives * (positives + 0.5 * equal);
        positives += equal;
    }
    (n_positive > 0.0 && n_negative > 0.0).then(|| won / (n_positive * n_negative))
}

/// Average precision: the mean over positives of the precision among all scores at least as large. `None` without a
/// positive.
///
/// # Panics
/// When the numbers of scores and labels differ.
#[must_use]
pub fn average_precision(scores: &[f32], labels: &[bool]) -> Option<f64> {
    assert_eq!(scores.len(), labels.len(), "a label for each score");
    let order = falling(scores);
    let (mut seen, mut positives, mut sum) = (0.0, 0.0, 0.0);
    for group in order.chunk_by(|&a, &b| scores[a] == scores[b]) {
        let equal = group.iter().filter(|&&i| labels[i]).count() as f64;
        seen += group.len() as f64;
        positives += equal;
        sum += equal * positives / seen;
    }
    (positives > 0.0).then(|| sum / positives)
}

/// Hits@k for link prediction (Hu et al., NeurIPS 2020): the share of positives with a larger score than the `k`-th
/// best negative. With fewer than `k` negatives every positive is a hit. `None` without a positive.
///
/// # Panics
/// When `k` is zero.
#[must_use]
pub fn hits_at(k: usize, positives: &[f32], negatives: &[f32]) -> Option<f64> {
    assert!(k > 0, "hits@k counts from the first negative");
    let mut negatives = negatives.to_vec();
    let bar = (k <= negatives.len()).then(|| *negatives.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a)).1);
    let hits = positives.iter().filter(|&&score| bar.is_none_or(|bar| score > bar)).count();
    (!positives.is_empty()).then(|| hits as f64 / positives.len() as f64)
}

/// Mean reciprocal rank of the positives among all negatives, with ranks from 1. Half of the negatives with an equal
/// score come before (Hu et al., NeurIPS 2020). `None` without a positive.
#[must_use]
pub fn mean_reciprocal_rank(positives: &[f32], negatives: &[f32]) -> Option<f64> {
    let mut negatives = negatives.to_vec();
    negatives.sort_unstable_by(|a, b| b.total_cmp(a));
    let reciprocal = |&score: &f32| {
        let above = negatives.partition_point(|&negative| negative > score);
        let equal = negatives[above..].partition_point(|&negative| negative == score);
        1.0 / (1.0 + above as f64 + 0.5 * equal as f64)
    };
    (!positives.is_empty()).then(|| positives.iter().map(reciprocal).sum::<f64>() / positives.len() as f64)
}

/// Positions sorted by descending score.
fn falling(scores: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order
}

/// Number of labels for which the metric is not defined; [`mean_over_labels`] ignores these.
#[must_use]
pub fn n_left_out(values: &[Option<f64>]) -> usize {
    values.iter().filter(|value| value.is_none()).count()
}

/// Mean over the labels for which the metric is defined; `None` without any.
#[must_use]
pub fn mean_over_labels(values: &[Option<f64>]) -> Option<f64> {
    let defined: Vec<f64> = values.iter().flatten().copied().collect();
    (!defined.is_empty()).then(|| defined.iter().sum::<f64>() / defined.len() as f64)
}
