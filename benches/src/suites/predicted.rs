//! [`Predictions`]: what the planner says of epochs, beside what they take.

use girih_comm::CardTransport;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, Device};
use girih_planner::{Figures, Planner, measure};
use girih_trainer::distributed::{PaperGraph, RankOptions, RankPlanner};
use girih_trainer::{DataSizes, PlanDevice, TrainConfig};

use crate::{Case, Error, Goal};

/// Predictions are good within a fifth, choices within a twentieth of the best.
const OFF_AT_MOST: f64 = 0.2;
const WORSE_AT_MOST: f64 = 0.05;

/// The figures of the cards here, and how predictions came out.
pub(super) struct Predictions {
    /// By what carries rows.
    figures: Vec<(CardTransport, Figures)>,
    /// Plans that could be chosen between, by group: predicted and measured milliseconds.
    outcomes: Vec<(String, f64, f64)>,
}

/// One session on the cards here, planned.
pub(super) struct Predicted {
    config: TrainConfig,
    sizes: DataSizes,
    graph: PaperGraph,
    figures: Vec<(CardTransport, Figures)>,
}

impl Predictions {
    /// Measures the cards, unless that was done before.
    pub(super) fn new(n_cards: usize, transports: &[CardTransport]) -> Result<Self, Error> {
        // A device joins ranks once, and each transport is measured by ranks of its own.
        let of = |&transport: &CardTransport| {
            let cards = (0..n_cards).map(|i| Ok(Cuda::new(Device::open(i)?))).collect::<Result<Vec<_>, Error>>()?;
            Ok((transport, measure::figures(&cards, transport)?))
        };
        Ok(Self { figures: transports.iter().map(of).collect::<Result<_, Error>>()?, outcomes: Vec::new() })
    }

    /// Measures the products of a graph, and plans a session on it.
    pub(super) fn of(&self, dataset: &Dataset, config: &TrainConfig) -> Result<Predicted, Error> {
        let cuda = Cuda::new(Device::open(0)?).storing(config.precision);
        let entries = measure::entries(&cuda, &dataset.graph, config.precision)?;
        let sizes = DataSizes::of(dataset);
        let graph = PaperGraph::of(&dataset.graph, config, &sizes)?;
        let with_entries = |(by, figures): &(CardTransport, Figures)| (*by, figures.clone().with_entries(entries));
        let figures = self.figures.iter().map(with_entries).collect();
        Ok(Predicted { config: config.clone(), sizes, graph, figures })
    }

    /// Puts a prediction beside a measurement; plans of one `group` compete.
    pub(super) fn beside(&mut self, case: Case, group: &str, predicted_ms: f64) -> Case {
        let measured_ms = 1e3 * case.time.median_s;
        self.outcomes.push((group.to_owned(), predicted_ms, measured_ms));
        case.with("predicted_ms", predicted_ms).with("predicted_over_measured", predicted_ms / measured_ms)
    }

    /// How far predictions are off at most, and how much slower what they would choose is than the best.
    pub(super) fn goals(&self) -> [Goal; 2] {
        let off = self.outcomes.iter().map(|(_, predicted, measured)| (predicted / measured - 1.0).abs());
        let worse = self.outcomes.iter().map(|(group, ..)| {
            let plans = || self.outcomes.iter().filter(|outcome| outcome.0 == *group);
            let chosen = plans().min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0.0, |chosen| chosen.2);
            chosen / plans().map(|plan| plan.2).fold(f64::INFINITY, f64::min) - 1.0
        });
        [
            Goal::at_most("prediction of an epoch, share off at most", off.fold(0.0, f64::max), OFF_AT_MOST),
            Goal::at_most("plan that is chosen, share slower than the best", worse.fold(0.0, f64::max), WORSE_AT_MOST),
        ]
    }
}

impl Predicted {
    /// Milliseconds of an epoch on ranks that share the work so.
    pub(super) fn epoch_ms(&self, ranks: &RankOptions) -> Result<f64, Error> {
        let Self { config, sizes: data, graph, figures } = self;
        let figures = figures.iter().find(|(by, _)| *by == ranks.transport);
        let (_, figures) = figures.ok_or_else(|| format!("{} was not measured", ranks.transport))?;
        let device = PlanDevice::Card(Some(figures.card));
        let planner = RankPlanner { config, data, graph, device, network: figures.host() };
        Ok(Planner { ranks: planner, free_bytes: None }.forecast(ranks)?.epoch_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_look_at_the_worst_prediction_and_the_worst_choice() {
        let outcome = |group: &str, predicted, measured| (group.to_owned(), predicted, measured);
        let outcomes = vec![outcome("a", 1.0, 1.1), outcome("a", 1.2, 1.0), outcome("b", 2.0, 2.0)];
        let predictions = Predictions { figures: Vec::new(), outcomes };
        let [off, worse] = predictions.goals();
        assert!((off.found - 0.2).abs() < 1e-9, "{off:?}");
        assert!((worse.found - 0.1).abs() < 1e-9 && !worse.is_met, "{worse:?}");
    }
}
