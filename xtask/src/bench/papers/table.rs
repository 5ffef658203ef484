//! Form of a paper's tables: figures as printed, and where girih's figures are.

use crate::results::record::Case;

/// Published paper.
#[derive(Clone, Copy)]
pub struct Paper {
    /// Letter in the ids of its tables.
    pub letter: &'static str,
    /// Authors, subject, journal, year.
    pub about: &'static str,
    /// GPU of its figures.
    pub gpu: &'static str,
}

/// Table or figure of a paper that girih's suites can rebuild.
pub struct Table {
    /// The paper.
    pub paper: Paper,
    /// Id on the command line.
    pub id: &'static str,
    /// Number in the paper, contents and unit.
    pub title: &'static str,
    /// Differences between the paper's figures and girih's.
    pub note: &'static str,
    /// Columns of figures.
    pub columns: &'static [Column],
    /// Rows.
    pub rows: &'static [Row],
    /// Commands that record girih's figures again.
    pub commands: &'static [&'static str],
}

/// Column of figures.
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// Suites whose records have girih's figures; none if no suite measures them.
    pub suites: &'static [&'static str],
    /// Figure of a case.
    pub value: Value,
}

/// Figure of a case.
#[derive(Clone, Copy)]
pub enum Value {
    /// Median time in seconds.
    Seconds,
    /// Median time in milliseconds.
    Ms,
    /// Metric with this name.
    Metric(&'static str),
}

/// Row of a table.
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// Pattern of the SPEC of girih's graph, in which `*` is any text.
    pub graph: &'static str,
    /// Figures of the paper for each column, as printed; empty where it has none.
    pub theirs: &'static [&'static str],
    /// Pattern of girih's case for each column; empty without one.
    pub cases: &'static [&'static str],
}

impl Row {
    /// Row with figures and patterns for each column.
    pub(super) const fn new(
        name: &'static str,
        graph: &'static str,
        theirs: &'static [&'static str],
        cases: &'static [&'static str],
    ) -> Self {
        Self { name, graph, theirs, cases }
    }
}

impl Value {
    /// Figure of a case; `None` if it lacks the metric.
    pub fn of(self, case: &Case) -> Option<f64> {
        match self {
            Self::Seconds => Some(case.time.median_s),
            Self::Ms => Some(1e3 * case.time.median_s),
            Self::Metric(name) => case.metrics.get(name).copied().flatten(),
        }
    }
}
