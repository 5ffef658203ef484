//! [`Unread`]: a setting that has no effect, the test for default values, and lists of names.

/// Whether a setting has its default value.
pub(super) fn is_default<T: Default + PartialEq>(setting: &T) -> bool {
    *setting == T::default()
}

/// Names in a sentence: `a, b and c`.
pub(crate) fn joined(names: impl IntoIterator<Item: Into<String>>, last: &str) -> String {
    let mut names: Vec<String> = names.into_iter().map(Into::into).collect();
    match (names.pop(), names.is_empty()) {
        (Some(end), false) => format!("{} {last} {end}", names.join(", ")),
        (end, _) => end.unwrap_or_default(),
    }
}

/// A setting that has no effect.
pub(super) struct Unread {
    /// Name of the setting.
    pub(super) setting: &'static str,
    /// Network, optimiser or task that ignores the setting; `readers` use it.
    pub(super) by: &'static str,
    /// Networks or optimisers that read the setting.
    pub(super) readers: String,
}

impl Unread {
    /// First setting that `by` ignores and that differs from its usual value. Tuples: (read or usual, setting,
    /// readers).
    pub(super) fn first(by: &'static str, settings: &[(bool, &'static str, &'static str)]) -> Option<Self> {
        let &(_, setting, readers) = settings.iter().find(|(is_read_or_usual, ..)| !is_read_or_usual)?;
        Some(Self { setting, by, readers: readers.to_owned() })
    }
}
