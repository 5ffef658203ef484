//! [`OwnModel`]: name and settings of a model from outside, as checkpoints record them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name and settings of a model from outside, which a [`BuildModel`](crate::BuildModel) builds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OwnModel {
    /// Name in messages and checkpoints.
    pub name: String,
    /// Settings that the builder reads; null for none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub settings: Value,
}
