//! Notes of data and model as they are shown: what is not used, made up or doubtful.

use girih_graph_format::Notes;
use serde_json::{Value, json};

/// Lines for people: what was made up, what is not used, and doubts.
pub fn lines(notes: &Notes) -> Vec<String> {
    let made_up = notes.made_up.iter().map(|made| made.text.clone());
    let warnings = notes.warnings.iter().map(|warning| format!("warning: {warning}"));
    made_up.chain(notes.not_used_line()).chain(warnings).collect()
}

/// Notes as JSON, for programs.
pub fn to_json(notes: &Notes) -> Value {
    let not_used: Vec<Value> = notes.not_used.iter().map(|n| json!({"what": n.what, "why": n.why})).collect();
    let made_up = notes.made_up.iter().map(|made| {
        let counts: serde_json::Map<String, Value> =
            made.counts.iter().map(|(name, n)| ((*name).to_owned(), (*n).into())).collect();
        json!({"kind": made.kind, "text": made.text, "counts": counts})
    });
    json!({"not_used": not_used, "made_up": made_up.collect::<Vec<_>>(), "warnings": notes.warnings})
}
