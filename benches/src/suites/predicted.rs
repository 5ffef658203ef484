//! [`Predictions`]: epoch times predicted by the planner, compared with measured ones.

use girih_comm::GpuTransport;
use girih_datasets::Dataset;
use girih_kernels::{Cuda, Device};
use girih_partition::Cuts;
use girih_planner::{Estimate, HardwareProfile, Planner, measure};
use girih_trainer::distributed::{Network, RankOptions, RankPlanner, SymbolicGraph};
use girih_trainer::{DataSizes, PlanDevice, TrainConfig};

use crate::{Case, Error, Goal};

/// Accepted error of a prediction, and accepted slowdown of a chosen plan over the best one, as shares.
const OFF_AT_MOST: f64 = 0.2;
const WORSE_AT_MOST: f64 = 0.05;
/// Accepted excess of an epoch over its lower bound (computation or exchanges), as a share.
const ABOVE_AT_MOST: f64 = 0.2;

/// Hardware profiles of the GPUs here, and the outcomes of predictions.
pub(super) struct Predictions {
    /// Hardware profiles, by transport.
    figures: Vec<(GpuTransport, HardwareProfile)>,
    /// Plans that compete with each other.
    outcomes: Vec<Outcome>,
}

/// Milliseconds of an epoch of a plan.
struct Outcome {
    /// Session of the plan; plans with the same group compete.
    group: String,
    measured: f64,
    predicted: f64,
    /// Predicted value by which the planner chooses.
    chosen_by: f64,
    /// Lower bound of the epoch.
    bound: f64,
}

/// Planned session on the GPUs here.
pub(super) struct Predicted {
    config: TrainConfig,
    sizes: DataSizes,
    graph: SymbolicGraph,
    by_transport: Vec<OnGpus>,
}

/// Devices and network with which ranks compute and exchange.
struct OnGpus {
    transport: GpuTransport,
    devices: Vec<PlanDevice>,
    network: Network,
}

impl Predictions {
    /// Measures the GPUs with each transport.
    pub(super) fn new(n_gpus: usize, transports: &[GpuTransport]) -> Result<Self, Error> {
        // A device joins ranks only once, so each transport is measured with newly opened devices.
        let of = |&transport: &GpuTransport| {
            let gpus = (0..n_gpus).map(|i| Ok(Cuda::new(Device::open(i)?))).collect::<Result<Vec<_>, Error>>()?;
            Ok((transport, measure::figures(&gpus, transport)?))
        };
        Ok(Self { figures: transports.iter().map(of).collect::<Result<_, Error>>()?, outcomes: Vec::new() })
    }

    /// Measures the rates of a session on a GPU; `ranks` is the number of ranks and the division of nodes.
    pub(super) fn of(&self, dataset: &Dataset, config: &TrainConfig, ranks: (usize, Cuts)) -> Result<Predicted, Error> {
        let cuda = Cuda::new(Device::open(0)?).storing(config.precision);
        let rates = measure::session(&cuda, (dataset, config), true, ranks)?;
        let sizes = DataSizes::of(dataset);
        let graph = SymbolicGraph::of(&dataset.graph, config, &sizes)?;
        let of_session = |(by, figures): &(GpuTransport, HardwareProfile)| OnGpus {
            transport: *by,
            devices: figures.devices_of(&rates),
            network: figures.host(),
        };
        let by_transport = self.figures.iter().map(of_session).collect();
        Ok(Predicted { config: config.clone(), sizes, graph, by_transport })
    }

    /// Compares a prediction with a measurement; plans of one `group` compete.
    pub(super) fn beside(
        &mut self,
        case: Case,
        group: &str,
        (transport, predicted): (GpuTransport, &Estimate),
    ) -> Case {
        let (measured, predicted, bound) = (1e3 * case.time.median_s, predicted.epoch_ms, predicted.bound_ms);
        let chosen_by = measure::with_safety_margin(Some(transport), predicted);
        self.outcomes.push(Outcome { group: group.to_owned(), measured, predicted, chosen_by, bound });
        let case = case.with("predicted_ms", predicted).with("predicted_over_measured", predicted / measured);
        case.with("bound_ms", bound).with("x_bound", measured / bound)
    }

    /// Goals: largest error of a prediction, largest slowdown of the chosen plan over the best one, and largest
    /// excess of a session's best plan over its lower bound.
    pub(super) fn goals(&self) -> [Goal; 3] {
        let best = |group: &str| self.least(group, |outcome| outcome.measured);
        let worst = |share: &dyn Fn(&Outcome) -> f64| self.outcomes.iter().map(share).fold(0.0, f64::max);
        let off = worst(&|outcome| (outcome.predicted / outcome.measured - 1.0).abs());
        let worse = worst(&|outcome| {
            self.least(&outcome.group, |outcome| outcome.chosen_by).measured / best(&outcome.group).measured - 1.0
        });
        let above = worst(&|outcome| best(&outcome.group).measured / best(&outcome.group).bound - 1.0);
        [
            Goal::at_most("prediction of an epoch, share off at most", off, OFF_AT_MOST),
            Goal::at_most("plan that is chosen, share slower than the best", worse, WORSE_AT_MOST),
            Goal::at_most("best plan of a session, share above its bound", above, ABOVE_AT_MOST),
        ]
    }

    /// Plan of a group with the least value of `of`.
    fn least(&self, group: &str, of: fn(&Outcome) -> f64) -> &Outcome {
        let plans = self.outcomes.iter().filter(|outcome| outcome.group == group);
        plans.min_by(|a, b| of(a).total_cmp(&of(b))).expect("a group of at least one")
    }
}

impl Predicted {
    /// Estimate of an epoch on ranks with these options.
    pub(super) fn estimate(&self, ranks: &RankOptions) -> Result<Estimate, Error> {
        let Self { config, sizes: data, graph, by_transport } = self;
        let transport = ranks.transport.unwrap_or_default();
        let gpus = by_transport.iter().find(|gpus| gpus.transport == transport);
        let OnGpus { devices, network, .. } = gpus.ok_or_else(|| format!("{transport} was not measured"))?;
        let planner = RankPlanner { config, data, graph, devices, network: *network };
        Ok(Planner { ranks: planner, free_bytes: None }.estimate(ranks)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_look_at_the_worst_prediction_and_the_worst_choice() {
        let outcome = |group: &str, predicted, measured, bound| Outcome {
            group: group.to_owned(),
            measured,
            predicted,
            chosen_by: predicted,
            bound,
        };
        let outcomes = vec![outcome("a", 1.0, 1.1, 0.5), outcome("a", 1.2, 1.0, 0.8), outcome("b", 2.0, 2.0, 1.9)];
        let predictions = Predictions { figures: Vec::new(), outcomes };
        let [off, worse, above] = predictions.goals();
        // In the first group, the second plan is the best.
        assert!((above.found - 0.25).abs() < 1e-9 && !above.is_met, "{above:?}");
        assert!((off.found - 0.2).abs() < 1e-9, "{off:?}");
        assert!((worse.found - 0.1).abs() < 1e-9 && !worse.is_met, "{worse:?}");
    }
}
