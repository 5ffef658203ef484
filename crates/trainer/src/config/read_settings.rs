//! [`TrainConfig::read_settings`]: settings that have an effect.

use serde_json::{Map, Value};

use super::{TaskKind, TrainConfig};

impl TrainConfig {
    /// Settings that network, optimiser and task read, in the names and sections of files. A setting that is not
    /// given is left out.
    #[must_use]
    pub fn read_settings(&self) -> Map<String, Value> {
        let mut settings = match serde_json::to_value(self) {
            Ok(Value::Object(settings)) => settings,
            other => unreachable!("a configuration is a table: {other:?}"),
        };
        let recommends = self.model.kind.is_recommender();
        retain(&mut settings, "model", |name| self.model.reads(name));
        retain(&mut settings, "optimizer", |name| self.optimizer.reads(name) && !(recommends && name == "decay"));
        if recommends || self.task == TaskKind::Links {
            settings.remove("metric");
        }
        settings.retain(|_, value| !value.is_null());
        settings
    }
}

/// Keeps the settings of a section that are read and given.
fn retain(settings: &mut Map<String, Value>, section: &str, is_read: impl Fn(&str) -> bool) {
    if let Some(Value::Object(section)) = settings.get_mut(section) {
        section.retain(|name, value| is_read(name) && !value.is_null());
    }
}
