//! [`Arrangement`]: device and ranks that a run trains on, and [`differences`] of two configurations.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TrainConfig;

/// Device and ranks: the bits of a run depend only on these, data and configuration, not on the number of threads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrangement {
    /// Kind of device: `cpu` or `cuda`.
    pub device: String,
    /// Number of ranks.
    pub ranks: usize,
    /// Partition of the work over ranks, as flags; empty for one rank.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub division: String,
}

impl Arrangement {
    /// A single rank, on a GPU if the device has its own memory, else on a CPU.
    #[must_use]
    pub fn of_one(has_own_memory: bool) -> Self {
        Self { device: if has_own_memory { "cuda" } else { "cpu" }.to_owned(), ranks: 1, division: String::new() }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, ranks, division } = self;
        match ranks {
            1 => write!(f, "one rank on {device}"),
            _ => write!(f, "{ranks} ranks on {device} ({division})"),
        }
    }
}

/// Settings that differ, one text each, as in `model.hidden 9 (was 16)`, in the order of configuration files.
#[must_use]
pub fn differences(before: &TrainConfig, now: &TrainConfig) -> Vec<String> {
    let mut found = Vec::new();
    let value = |config: &TrainConfig| serde_json::to_value(config).expect("settings are numbers and names");
    compare("", &value(before), &value(now), &mut found);
    found
}

fn compare(path: &str, before: &Value, now: &Value, found: &mut Vec<String>) {
    if let (Value::Object(before), Value::Object(now)) = (before, now) {
        let added = now.keys().filter(|key| !before.contains_key(*key));
        for key in before.keys().chain(added) {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            let of = |table: &serde_json::Map<String, Value>| table.get(key).cloned().unwrap_or(Value::Null);
            compare(&path, &of(before), &of(now), found);
        }
    } else if before != now {
        found.push(format!("{path} {} (was {})", in_words(now), in_words(before)));
    }
}

fn in_words(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
