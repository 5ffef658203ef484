//! [`Notes`]: record of data that reading left out, made up or found doubtful.

/// Record of one reading: every deviation from the contents of the file.
///
/// Readers add to it; programs print it. An empty record means that all contents were used, and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Files, arrays, columns, header lines and keys that exist and are not used.
    pub not_used: Vec<NotUsed>,
    /// Values that no file holds: drawn splits, merged or mirrored edges, added nodes, made features.
    pub made_up: Vec<MadeUp>,
    /// Readable input that may not be what its user means.
    pub warnings: Vec<String>,
}

/// Item that exists and is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotUsed {
    /// Name as the user knows it, such as `edge_attr.npy` or `column 4 (time)`.
    pub what: String,
    /// Reason in a few words, such as `edge features`.
    pub why: String,
}

/// Record of values that no file holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeUp {
    /// Kind for programs, in snake case: `merged_edges`, `drawn_split` and so on.
    pub kind: &'static str,
    /// Description for people: what was made, how many, and the rule.
    pub text: String,
    /// Named numbers for programs.
    pub counts: Vec<(&'static str, u64)>,
}

impl Notes {
    /// Records an item that is not used; `why` may be empty.
    pub fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.not_used.push(NotUsed { what: what.into(), why: why.into() });
    }

    /// Records values that no file holds.
    pub fn make_up(&mut self, kind: &'static str, text: impl Into<String>, counts: &[(&'static str, u64)]) {
        self.made_up.push(MadeUp { kind, text: text.into(), counts: counts.to_vec() });
    }

    /// Records a warning.
    pub fn warn(&mut self, message: impl Into<String>) {
        self.warnings.push(message.into());
    }

    /// Adds the record of another reading.
    pub fn append(&mut self, other: Self) {
        self.not_used.extend(other.not_used);
        self.made_up.extend(other.made_up);
        self.warnings.extend(other.warnings);
    }

    /// Whether all contents were used, and nothing else.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// One line that names everything not used, `not used: a: why; b`; `None` if everything is used.
    #[must_use]
    pub fn not_used_line(&self) -> Option<String> {
        let one = |NotUsed { what, why }: &NotUsed| match why.as_str() {
            "" => what.clone(),
            why => format!("{what}: {why}"),
        };
        let all: Vec<String> = self.not_used.iter().map(one).collect();
        (!all.is_empty()).then(|| format!("not used: {}", all.join("; ")))
    }
}
