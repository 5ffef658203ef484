//! `girih compare`: training sessions side by side.

mod folder;
mod page;

use std::io::Write as _;

use girih_graph_format::file;
use girih_trainer::MeanStd;
use serde_json::{Map, Value, json};

use self::folder::{DATA, RunFolder};
use crate::args::CompareArgs;
use crate::error::CliError;
use crate::output::{Results, percent, print_line};
use crate::paths;

/// Reads the folders, prints them side by side, and writes the page.
pub fn run(args: &CompareArgs) -> Result<(), CliError> {
    args.out.iter().try_for_each(|path| paths::check(path))?;
    let folders = args.runs.iter().map(|path| RunFolder::read(path)).collect::<Result<Vec<_>, _>>()?;
    let compared = Comparison::of(&folders);
    let mut results = Results::default();
    results
        .add_hidden("runs", folders.iter().map(RunFolder::to_json).collect::<Vec<_>>())
        .add_hidden("settings", compared.settings_json());
    if !args.output.json {
        if let Some(data) = compared.common_data() {
            print_line(&format!("all on {data}\n"));
        }
        print_table(&compared.header(), &compared.rows());
        if !compared.settings.is_empty() {
            print_line("");
            print_table(&compared.settings_header(), &compared.settings_rows());
        }
    }
    if let Some(path) = &args.out {
        paths::make_parents(path)?;
        let page = page::of(&folders, &compared);
        file::write_file(path, |out| Ok(out.write_all(page.as_bytes())?))?;
        results.add("out", path.display().to_string(), "\nWritten to", path.display().to_string());
    }
    results.print(args.output.json);
    Ok(())
}

/// Tables of sessions: a row each, and the settings that differ.
struct Comparison<'f> {
    folders: &'f [RunFolder],
    /// Scores that any session has: key and title.
    scores: Vec<(&'static str, &'static str)>,
    /// Settings that differ, with the value of each session, if it reads the setting.
    settings: Vec<(String, Vec<Option<String>>)>,
}

impl<'f> Comparison<'f> {
    fn of(folders: &'f [RunFolder]) -> Self {
        let mut scores: Vec<(&str, &str)> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for folder in folders {
            for score in &folder.scores {
                if scores.iter().all(|(key, _)| *key != score.key) {
                    scores.push((score.key, score.title));
                }
            }
            names.extend(
                folder
                    .settings
                    .iter()
                    .map(|(name, _)| name.clone())
                    .filter(|name| !names.contains(name))
                    .collect::<Vec<_>>(),
            );
        }
        let of_all = |name: String| {
            let values: Vec<Option<String>> = folders.iter().map(|folder| folder.setting(&name)).collect();
            (name, values)
        };
        let differ = |(_, values): &(String, Vec<Option<String>>)| values.iter().any(|value| *value != values[0]);
        let settings = names.into_iter().map(of_all).filter(differ).collect();
        Self { folders, scores, settings }
    }

    fn header(&self) -> Vec<&'static str> {
        let scores = self.scores.iter().map(|(_, title)| *title);
        ["folder", "model", "runs"].into_iter().chain(scores).chain(["best epoch", "epochs", "s/epoch"]).collect()
    }

    /// A row for each session.
    fn rows(&self) -> Vec<Vec<String>> {
        self.folders.iter().map(|folder| self.row(folder)).collect()
    }

    fn row(&self, folder: &RunFolder) -> Vec<String> {
        let mut row = vec![folder.name.clone(), folder.model.clone(), folder.n_runs.to_string()];
        for (key, _) in &self.scores {
            let found = folder.scores.iter().find(|score| score.key == *key);
            row.push(found.map_or(NONE.to_owned(), |score| shown(score.over_runs, folder.n_runs, score.is_share)));
        }
        row.push(folder.best_epoch.map_or(NONE.to_owned(), |epoch| format!("{}", (10.0 * epoch.mean).round() / 10.0)));
        row.push(if folder.is_finished { folder.epochs.to_string() } else { format!("{}, unfinished", folder.epochs) });
        row.push(folder.epoch_seconds.map_or(NONE.to_owned(), |seconds| format!("{seconds:.4}")));
        row
    }

    /// Data of all sessions, if they are the same. Otherwise the data are among the settings that differ.
    fn common_data(&self) -> Option<&str> {
        let first = self.folders.first()?;
        self.settings.iter().all(|(name, _)| name != DATA).then_some(&first.data)
    }

    fn settings_header(&self) -> Vec<&str> {
        ["setting"].into_iter().chain(self.folders.iter().map(|folder| folder.name.as_str())).collect()
    }

    fn settings_rows(&self) -> Vec<Vec<String>> {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| NONE.to_owned());
        let row = |(name, values): &(String, Vec<Option<String>>)| {
            std::iter::once(name.clone()).chain(values.iter().map(shown)).collect()
        };
        self.settings.iter().map(row).collect()
    }

    /// Settings that differ, by name: a list with the value of each session, null where it does not read the setting.
    fn settings_json(&self) -> Value {
        Value::Object(self.settings.iter().map(|(name, values)| (name.clone(), json!(values))).collect::<Map<_, _>>())
    }
}

/// Cell without a value.
const NONE: &str = "–";

/// Mean and, over several runs, deviation.
fn shown(MeanStd { mean, std }: MeanStd, n_runs: usize, is_share: bool) -> String {
    match (is_share, n_runs) {
        (true, 1) => percent(mean),
        (true, _) => format!("{:.2} ± {:.2} %", 100.0 * mean, 100.0 * std),
        (false, 1) => format!("{mean:.4}"),
        (false, _) => format!("{mean:.4} ± {std:.4}"),
    }
}

/// Prints a table with aligned columns.
fn print_table(header: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([header[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells.zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        print_line(padded.join("  ").trim_end());
    };
    line(&mut header.iter().copied());
    rows.iter().for_each(|row| line(&mut row.iter().map(String::as_str)));
}
