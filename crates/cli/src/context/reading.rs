//! Notes from reading data, for people and for programs: data that are unused, made up or doubtful.

use girih_graph_format::Notes;
use serde_json::{Map, Value, json};

use crate::output::Results;

/// Warns about unused or doubtful data, in commands whose table does not list them.
pub fn warn_of(notes: &Notes) {
    notes.not_used_line().into_iter().chain(notes.warnings.iter().cloned()).for_each(|line| tracing::warn!("{line}"));
}

/// Sizes of the splits in one line: `140 train, 500 val, 1000 test`.
pub fn shown_splits(splits: &[[usize; 3]]) -> String {
    let Some([train, val, test]) = splits.first() else { return "none".to_owned() };
    let sizes = format!("{train} train, {val} val, {test} test");
    match splits.len() {
        1 => sizes,
        n if splits.iter().all(|split| split == &splits[0]) => format!("{n} of {sizes} each"),
        n => format!("{n}, the first of {sizes}"),
    }
}

/// Adds the sizes of splits and the notes from reading.
pub fn add(results: &mut Results, splits: &[[usize; 3]], notes: &Notes) {
    let made_up: Vec<&str> = notes.made_up.iter().map(|made| made.text.as_str()).collect();
    let not_used = notes.not_used_line().unwrap_or_default();
    results
        .add("splits", splits_json(splits), "Splits", shown_splits(splits))
        .add("made_up", made_up_json(notes), "Made up", made_up.join("\n"))
        .add("not_used", not_used_json(notes), "Not used", not_used.trim_start_matches("not used: "))
        .add("warnings", notes.warnings.clone(), "Warnings", notes.warnings.join("\n"));
}

/// As [`add`], for programs alone: people have already seen the notes.
pub fn add_hidden(results: &mut Results, splits: &[[usize; 3]], notes: &Notes) {
    results
        .add_hidden("splits", splits_json(splits))
        .add_hidden("made_up", made_up_json(notes))
        .add_hidden("not_used", not_used_json(notes))
        .add_hidden("warnings", notes.warnings.clone());
}

fn splits_json(splits: &[[usize; 3]]) -> Value {
    splits.iter().map(|[train, val, test]| json!({ "train": train, "val": val, "test": test })).collect()
}

fn made_up_json(notes: &Notes) -> Value {
    let one = |made: &girih_graph_format::MadeUp| {
        let counts = made.counts.iter().map(|&(key, n)| (key.to_owned(), json!(n)));
        let told = [("kind".to_owned(), json!(made.kind)), ("text".to_owned(), json!(made.text))];
        Value::Object(told.into_iter().chain(counts).collect::<Map<_, _>>())
    };
    notes.made_up.iter().map(one).collect()
}

fn not_used_json(notes: &Notes) -> Value {
    notes.not_used.iter().map(|entry| json!({ "what": entry.what, "why": entry.why })).collect()
}
