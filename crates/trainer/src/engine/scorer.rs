//! [`Scorer`]: evaluation of mini-batch runs, for any task.

use girih_compute::Backend;

use super::report::{Scores, TestReport};
use super::state::RunState;
use crate::TrainError;
use crate::models::Model;

/// A model and the data that it is scored on: the full graph, without sampling.
pub(crate) trait Scorer<'a, B: Backend> {
    /// The model.
    fn model(&self) -> &dyn Model<B>;

    /// As [`Run::check_trains`](crate::Run::check_trains).
    fn check_trains(&self) -> Result<(), TrainError> {
        Ok(())
    }

    /// As [`Run::has_validation`](crate::Run::has_validation).
    fn has_validation(&self) -> bool;

    /// Whether ranks that each hold all data evaluate together, instead of one rank for all.
    fn is_shared(&self) -> bool {
        false
    }

    /// As [`Run::evaluate`](crate::Run::evaluate).
    fn evaluate(&self, state: &mut RunState<'a, B>) -> Result<Scores, TrainError>;

    /// As [`Run::test_report`](crate::Run::test_report).
    fn test_report(&self, state: &mut RunState<'a, B>) -> Result<Option<TestReport>, TrainError>;

    /// As [`Run::wire_error`](crate::Run::wire_error).
    fn wire_error(&self, _state: &mut RunState<'a, B>) -> Result<Option<f64>, TrainError> {
        Ok(None)
    }
}
