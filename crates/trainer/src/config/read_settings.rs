//! [`TrainConfig::read_settings`]: settings that have an effect.

use serde_json::{Map, Value};

use super::{TaskKind, TrainConfig};

impl TrainConfig {
    /// Settings that network, optimiser, batches and task read, in the names and sections of files. A setting that is
    /// not given is left out.
    #[must_use]
    pub fn read_settings(&self) -> Map<String, Value> {
        let mut settings = match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            other => unreachable!("a configuration is a table: {other:?}"),
        };
        for (name, value) in &mut settings {
            if let Value::Object(section) = value {
                section.retain(|setting, value| self.reads(name, setting) && is_given(value));
            }
        }
        settings.retain(|name, value| self.reads("", name) && is_given(value));
        settings
    }

    /// Whether anything reads a setting of a section; outside of sections, the section is empty.
    fn reads(&self, section: &str, setting: &str) -> bool {
        let recommends = self.model.kind.is_recommender();
        match (section, setting) {
            ("model", _) => self.model.reads(setting),
            ("optimizer", "decay") => !recommends,
            ("optimizer", _) => self.optimizer.reads(setting),
            ("batch", _) => self.batch.reads(setting),
            ("", "metric") => !recommends && self.task != TaskKind::Links,
            _ => true,
        }
    }
}

/// Whether a setting has a value of its own: null and the empty list stand for none.
fn is_given(value: &Value) -> bool {
    !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty())
}
