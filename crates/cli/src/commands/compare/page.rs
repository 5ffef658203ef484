//! Page of `girih compare`: tables, and the curves of all sessions over one another.

use super::folder::RunFolder;
use super::{Comparison, NONE};
use crate::curves::Measure;
use crate::page::{Chart, Series, escape, figures, note, page, section};

/// The page.
pub fn of(folders: &[RunFolder], compared: &Comparison<'_>) -> String {
    let charts: String =
        Measure::ALL.into_iter().filter_map(|measure| chart(folders, measure)).map(|c| c.html()).collect();
    let about = note(
        "Scores are those of the best epoch of each run: mean and deviation over runs. Curves are means over runs, and bands \
         reach from the lowest to the highest run. s/epoch: the median of the training steps.",
    );
    let settings = match compared.settings.is_empty() {
        true => note("All settings are equal."),
        false => {
            figures(&compared.settings_header(), compared.settings_rows())
                + &note(&format!("{NONE}: the setting is not given, or the model does not read it."))
        }
    };
    let data = compared.common_data().map_or(String::new(), |data| format!("<p>All on {}.</p>", escape(data)));
    let body = section("Sessions", &(data + &figures(&compared.header(), compared.rows()) + &about))
        + &section("Settings that differ", &settings)
        + &format!("<div class=\"columns\">{charts}</div>");
    page("Training sessions compared", &body)
}

/// Chart of a measure with a curve for each session; `None` if none has it.
fn chart(folders: &[RunFolder], measure: Measure) -> Option<Chart> {
    let is_f1 = folders.iter().all(|folder| folder.multi_label);
    let (title, is_share) = title(measure, is_f1);
    let curve = |(colour, folder): (usize, &RunFolder)| Series {
        name: folder.name.clone(),
        colour,
        points: folder.curves.points(measure),
    };
    let chart = Chart {
        title: title.to_owned(),
        is_share,
        series: folders.iter().enumerate().map(curve).collect(),
        marks: None,
    };
    chart.has_points().then_some(chart)
}

/// Title of a measure's chart, and whether it is shown in percent. `is_f1`: accuracies are micro-F1.
fn title(measure: Measure, is_f1: bool) -> (&'static str, bool) {
    match (measure, is_f1) {
        (Measure::TrainLoss, _) => ("Training loss", false),
        (Measure::ValLoss, _) => ("Validation loss", false),
        (Measure::TestLoss, _) => ("Test loss", false),
        (Measure::TrainAccuracy, false) => ("Training accuracy", true),
        (Measure::ValAccuracy, false) => ("Validation accuracy", true),
        (Measure::TestAccuracy, false) => ("Test accuracy", true),
        (Measure::TrainAccuracy, true) => ("Training micro-F1", true),
        (Measure::ValAccuracy, true) => ("Validation micro-F1", true),
        (Measure::TestAccuracy, true) => ("Test micro-F1", true),
        (Measure::ValRocAuc, _) => ("Validation ROC-AUC", true),
        (Measure::TestRocAuc, _) => ("Test ROC-AUC", true),
        (Measure::RecallAt20, _) => ("Recall@20", false),
        (Measure::NdcgAt20, _) => ("NDCG@20", false),
        (Measure::ValMrr, _) => ("Validation mean reciprocal rank", true),
        (Measure::TestMrr, _) => ("Test mean reciprocal rank", true),
        (Measure::StepsMs, _) => ("Milliseconds of an epoch's steps", false),
    }
}
