//! Combinations that flags ask for, checked by the trainer's table of supported ones.

use girih_reorder::OrderKind;
use girih_trainer::distributed::RankOptions;
use girih_trainer::{CachePlan, Combination, ExecutionPlan, TrainConfig, TrainError, supported};

use crate::args::{PartitionChoice, TrainArgs};
use crate::error::CliError;

/// Combination that `girih train` is asked for, on ranks if there are any, without the placement that flags name. The
/// device is not known yet.
pub fn of_training(args: &TrainArgs, config: &TrainConfig, ranks: Option<&RankOptions>) -> Combination {
    let one = match args.settings.tiers.tier_memory {
        Some(_) => CachePlan::combination(config),
        None => Combination::of(config),
    };
    let asked = ranks.map_or(one, |ranks| one.on_ranks(ranks));
    let is_auto = ranks.is_some() && args.ranks.partition.partition == PartitionChoice::Auto;
    Combination { reorders: args.reorder != OrderKind::None, scheme: asked.scheme.filter(|_| !is_auto), ..asked }
}

/// The combination with the placement that flags name.
pub fn placed(args: &TrainArgs, asked: Combination) -> Combination {
    Combination { placement: args.layout.map(Into::into), ..asked }
}

/// Engine that runs the combination.
///
/// # Errors
/// When it is not supported. Flags that contradict each other are wrong usage.
pub fn execution(asked: &Combination) -> Result<ExecutionPlan, CliError> {
    supported(asked).map_err(|reason| match reason.is_usage {
        true => CliError::Usage(reason.to_string()),
        false => TrainError::from(reason).into(),
    })
}
