//! [`ConfusionMatrix`]: labelled nodes by class and prediction.

use girih_datasets::UNLABELLED;
use girih_graph_format::NodeId;

/// Counts of labelled nodes (classes × classes): a row for each class, a column for each predicted class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfusionMatrix {
    n_classes: usize,
    counts: Vec<u64>,
}

impl ConfusionMatrix {
    /// Maximum number of classes: all ranks add up their matrices.
    pub const CLASSES_MAX: usize = 256;

    /// Matrix of one predicted class per node, on `rows`. Nodes without a label are ignored. `None` for more than
    /// [`CLASSES_MAX`](Self::CLASSES_MAX) classes.
    #[must_use]
    pub fn of_classes(n_classes: usize, predicted: &[u32], classes: &[u32], rows: &[NodeId]) -> Option<Self> {
        (n_classes <= Self::CLASSES_MAX).then(|| {
            let mut counts = vec![0; n_classes * n_classes];
            let labelled = rows.iter().map(|&v| v as usize).filter(|&v| classes[v] != UNLABELLED);
            labelled.for_each(|v| counts[classes[v] as usize * n_classes + predicted[v] as usize] += 1);
            Self { n_classes, counts }
        })
    }

    /// Number of classes.
    #[must_use]
    pub fn n_classes(&self) -> usize {
        self.n_classes
    }

    /// Number of nodes of a class by predicted class.
    ///
    /// # Panics
    /// When there is no such class.
    #[must_use]
    pub fn row(&self, class: usize) -> &[u64] {
        &self.counts[class * self.n_classes..(class + 1) * self.n_classes]
    }

    /// All counts, by rows.
    pub(crate) fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// Matrix with other counts, those of all ranks.
    pub(crate) fn with_counts(self, counts: Vec<u64>) -> Self {
        Self { counts, ..self }
    }
}
