//! `codecs`: accuracy that compressed features cost, and speed of codecs.
//!
//! There are two kinds of cases per data set. `DATA/codec/CODEC` measures a codec: one thread encodes all rows, and
//! decodes some by id. `DATA/MODEL/CODEC` measures training: runs share seeds and splits with runs without a codec,
//! as in Ma et al. 2024.
//!
//! GraphSAGE trains with every codec, other networks with `topk:8` (`topk:16` for at most 128 features), on real data
//! also with `int8` and principal components. Rates are in bytes of `f32`.

use std::collections::BTreeMap;

use girih_compress::{CodecSpec, CompressedFeatures, GROUP, RowSource, SampleOptions, draw_sample, fit, mean_cosine};
use girih_compute::Cpu;
use girih_datasets::{Dataset, Features};
use girih_graph_format::{Matrix, NodeId};
use girih_random::{Key, purpose};
use girih_trainer::{BatchKind, Metric, ModelKind, TrainConfig};

use super::setup::Setup;
use super::trainings::{Trained, configured, on_batches};
use crate::timing::{Contestant, Protocol, compete};
use crate::{Case, Error, Goal, Report, graphs};

/// Correlated features with the widths of Reddit and MAG240M. A network without neighbors reaches about the accuracy
/// known from the real ones: 70 and 52 %, and 6 to 11 points less from codes (Ma et al. 2024).
const GRAPHS: [&str; 2] = [
    "synth:reddit@0.05,degree=50,factors=64,signal=12,stray=0.25",
    "synth:mag240m@0.00005,degree=20,factors=64,signal=24,stray=0.4,train=0.5,val=0.1",
];
/// Number of rows in one gather, about the sources of a batch.
const N_GATHERED: usize = 1 << 14;
/// Compression ratios, `f32` features over codes, at which the code book is compared with principal components.
const RATIOS: [u32; 5] = [8, 16, 32, 64, 128];
/// Accuracy that a network may lose at the ratio of the paper, in points.
const POINTS: f64 = 1.0;

/// Maximum number of principal components for bags of words: each row of thousands of words is multiplied with all.
const COMPONENTS_MAX: u32 = 64;

/// Networks and kinds of batches that are trained with some codecs; the first one with every codec.
const TRAINED: [(ModelKind, BatchKind); 4] = [
    (ModelKind::Sage, BatchKind::Full),
    (ModelKind::Gat, BatchKind::Full),
    (ModelKind::Gcn, BatchKind::Cluster),
    (ModelKind::Mlp, BatchKind::Full),
];

/// Adds the cases of each data set.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let default = if setup.small { vec![graphs::SMALL.to_owned()] } else { GRAPHS.map(str::to_owned).to_vec() };
    let specs = if setup.graphs.is_empty() { &default[..] } else { &setup.graphs[..] };
    let mut described = Vec::new();
    for spec in specs {
        let dataset = graphs::load_with_splits(spec, setup.runs as usize)?;
        described.push(graphs::describe(&dataset));
        let width = dataset.n_features();
        let codecs = if dataset.generated { Codecs::of(width) } else { Codecs::few(width) };
        for &codec in &codecs.all {
            report.cases.push(measure(&dataset, codec, setup.protocol)?);
        }
        compare(setup, &dataset, &codecs, report)?;
    }
    report.graph = Some(described.join("; "));
    Ok(())
}

/// Codecs for features of a given width.
struct Codecs {
    /// Codec of the paper.
    paper: CodecSpec,
    /// Codecs that every network is trained with.
    compared: Vec<CodecSpec>,
    /// Ratio, code book, and principal components with the same number of bytes, for each ratio that the width
    /// allows.
    equal: Vec<(u32, CodecSpec, CodecSpec)>,
    /// All codecs above, and others.
    all: Vec<CodecSpec>,
}

impl Codecs {
    /// Codecs for bags of words: that of the paper, others with at most its size, and one close to the original
    /// features. Learned codecs are of little use here, and take long with thousands of words.
    fn few(width: usize) -> Self {
        let paper = Self::of(width).paper;
        let (k, bytes) = (paper.setting().unwrap_or(1), paper.row_bytes(width) as u32);
        let compared = vec![paper, CodecSpec::Pca((bytes / 2).min(COMPONENTS_MAX)), CodecSpec::Int8];
        let all = [&compared[..], &[CodecSpec::TopkResidual(k), CodecSpec::Pq(bytes)]].concat();
        Self { paper, compared, equal: Vec::new(), all }
    }

    /// Codecs for other features. The paper's ratio is 16 for narrow features (128 in Papers100M), otherwise that of
    /// `k = 8`.
    fn of(width: usize) -> Self {
        let n_groups = width.div_ceil(GROUP) as u32;
        let bytes = |k: u32| CodecSpec::Topk(k).row_bytes(width) as u32;
        let k = if width <= GROUP / 2 { 16 } else { 8 };
        let paper = CodecSpec::Topk(k);
        let with_ratio = |ratio: u32| {
            let k = ((4 * width) as f64 / f64::from(2 * n_groups * ratio)).round() as u32;
            (1..=128).contains(&k).then(|| (ratio, CodecSpec::Topk(k), CodecSpec::Pca(bytes(k) / 2)))
        };
        let equal: Vec<_> = RATIOS.into_iter().filter_map(with_ratio).filter(|(.., pca)| fits(*pca, width)).collect();
        let mut all = vec![paper, CodecSpec::TopkResidual(k), CodecSpec::Pca(bytes(k) / 2), CodecSpec::Pq(bytes(k))];
        all.extend([CodecSpec::Int4, CodecSpec::Int8, CodecSpec::Bf16, CodecSpec::F16]);
        let others: Vec<_> =
            equal.iter().flat_map(|&(_, topk, pca)| [topk, pca]).filter(|c| !all.contains(c)).collect();
        all.extend(others);
        Self { paper, compared: vec![paper], equal, all }
    }
}

/// Whether the width allows the codec: there are at most as many principal components as features.
fn fits(codec: CodecSpec, width: usize) -> bool {
    codec.setting().is_none_or(|n| n as usize <= width)
}

/// Case of one codec on the features of a data set, on one thread.
fn measure(dataset: &Dataset, codec: CodecSpec, protocol: Protocol) -> Result<Case, Error> {
    let rows = match dataset.features.as_ref().ok_or("data without features has nothing to compress")? {
        Features::Compressed(_) => return Err("features that are compressed already cannot be compared".into()),
        features => features.rows(),
    };
    let fitted = fit(codec, &draw_sample(rows, SampleOptions::default())?, 0)?;
    let (row_bytes, name) = (fitted.row_bytes(), format!("{}/codec/{codec}", dataset.name));
    let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    threads.install(|| {
        let (dense, features) = (some_rows(rows)?, CompressedFeatures::encode(fitted, rows)?);
        let ids = scattered(features.n_rows());
        let (mut codes, mut gathered) = (vec![0; dense.n_rows() * row_bytes], vec![0.0; ids.len() * features.width()]);
        let contestants = vec![
            Contestant::new("encode", || features.codec().encode_rows(0, dense.data(), &mut codes)),
            Contestant::new("gather", || features.gather(&ids, &mut gathered)),
        ];
        let times = compete(protocol, contestants)?;
        let (encode, gather) = (times[0].1, times[1].1);
        let gigabytes = |n_rows: usize| (4 * n_rows * features.width()) as f64 / 1e9;
        Ok(Case::new(name, encode)
            .with("row_bytes", row_bytes as f64)
            .with("ratio", (4 * features.width()) as f64 / row_bytes as f64)
            .with("cosine", mean_cosine(rows, &features)?)
            .with("encode_gb_s", gigabytes(dense.n_rows()) / encode.median_s)
            .with("gather_gb_s", gigabytes(ids.len()) / gather.median_s))
    })
}

/// First rows of a source.
fn some_rows(rows: &dyn RowSource) -> Result<Matrix, Error> {
    let n_rows = rows.n_rows().min(N_GATHERED);
    let mut values = vec![0.0; n_rows * rows.width()];
    rows.read_rows(0, &mut values)?;
    Ok(Matrix::new(n_rows, rows.width(), values)?)
}

/// Row ids in random order.
fn scattered(n_rows: usize) -> Vec<NodeId> {
    let mut stream = Key::new(1, purpose::GENERATOR).stream(0, 0);
    (0..N_GATHERED).map(|_| stream.below(n_rows as u64) as NodeId).collect()
}

/// Trains every network without a codec and with the compared codecs, and the first network with all codecs.
fn compare(setup: &Setup, dataset: &Dataset, codecs: &Codecs, report: &mut Report) -> Result<(), Error> {
    let mut lost = BTreeMap::new();
    for (i, (model, batch)) in TRAINED.into_iter().enumerate() {
        let plain = on_batches(dataset, configured(setup, dataset, model), batch);
        let expected = Trained::with(&Cpu::new(), dataset, &plain)?;
        let name = |codec: &str| format!("{}/{}/{codec}", dataset.name, model.name());
        report.cases.push(expected.case(name("none"), Metric::Accuracy)?);
        let chosen = if i == 0 { &codecs.all[..] } else { &codecs.compared };
        for &codec in chosen {
            let found = Trained::with(&Cpu::new(), dataset, &TrainConfig { codec: Some(codec), ..plain.clone() })?;
            let difference = found.minus(&expected, Metric::Accuracy)?;
            let case = found.case(name(&codec.to_string()), Metric::Accuracy)?;
            report.cases.push(
                case.with("beside_none_points", difference.points).with("beside_none_error_points", difference.error),
            );
            lost.insert((model.name(), codec.to_string()), -difference.points);
        }
    }
    add_goals(&dataset.name, codecs, &lost, report);
    Ok(())
}

/// Adds goals: networks that read neighbors lose little, and less than the one that does not. The code book loses
/// less than principal components of the same size.
fn add_goals(data: &str, codecs: &Codecs, lost: &BTreeMap<(&str, String), f64>, report: &mut Report) {
    let of = |model: ModelKind, codec: CodecSpec| lost[&(model.name(), codec.to_string())];
    let paper = codecs.paper;
    let mlp = of(ModelKind::Mlp, paper);
    for (model, _) in TRAINED.into_iter().filter(|(model, _)| *model != ModelKind::Mlp) {
        let points = of(model, paper);
        report.goals.push(Goal::at_most(format!("{data}/{}: points lost with {paper}", model.name()), points, POINTS));
        let what = format!("{data}/{}: points lost with {paper}, beside those of the MLP", model.name());
        report.goals.push(Goal::at_most(what, points, mlp));
    }
    for &(ratio, topk, pca) in &codecs.equal {
        let what = format!("{data}/sage: points lost with {topk} beside {pca}, ratio {ratio}");
        report.goals.push(Goal::at_most(what, of(ModelKind::Sage, topk), of(ModelKind::Sage, pca)));
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use girih_machine::Ceilings;

    use super::*;

    #[test]
    fn ratios_are_those_of_the_paper() {
        for (width, paper, ratio) in [(602, "topk:8", 50.2), (768, "topk:8", 64.0), (128, "topk:16", 16.0)] {
            let codec = Codecs::of(width).paper;
            assert_eq!(codec.to_string(), paper);
            assert!(((4 * width) as f64 / codec.row_bytes(width) as f64 - ratio).abs() < 0.05);
        }
        for (ratio, topk, pca) in Codecs::of(602).equal {
            assert_eq!(topk.row_bytes(602), pca.row_bytes(602));
            let found = 4.0 * 602.0 / topk.row_bytes(602) as f64;
            assert!((found / f64::from(ratio) - 1.0).abs() < 0.2, "{topk}: {found}");
        }
    }

    #[test]
    fn bags_of_words_meet_components_of_no_more_bytes() {
        for (width, compared) in [(767, ["topk:8", "pca:24", "int8"]), (8415, ["topk:8", "pca:64", "int8"])] {
            let codecs = Codecs::few(width);
            assert_eq!(codecs.compared.iter().map(ToString::to_string).collect::<Vec<_>>(), compared);
            assert!(codecs.compared.iter().all(|codec| codecs.all.contains(codec)));
            assert!(codecs.all.contains(&CodecSpec::TopkResidual(8)));
        }
    }

    #[test]
    fn networks_are_scored_beside_those_on_features_as_they_are() {
        let spec = "synth:planted,nodes=300,degree=10,features=40,classes=3,factors=8";
        let dataset = graphs::load_with_splits(spec, 1).unwrap();
        let mut report = Report::new("codecs", Path::new("/"), Ceilings::default());
        let codecs = Codecs::of(dataset.n_features());
        let measured = measure(&dataset, CodecSpec::F16, Protocol { warm_up: 1, repeats: 2 }).unwrap();
        assert!(measured.metrics["cosine"] > 0.999 && measured.metrics["ratio"] == 2.0, "{measured:?}");
        compare(&Setup { runs: 1, ..Setup::default() }, &dataset, &codecs, &mut report).unwrap();
        let named = |name: &str| {
            let name = format!("{}/{name}", dataset.name);
            report.cases.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("no case {name}"))
        };
        assert!(named("sage/none").metrics["accuracy_percent"] > 60.0);
        assert!(named("sage/f16").metrics["beside_none_points"].abs() < 5.0);
        assert!(named("mlp/topk:16").metrics.contains_key("beside_none_error_points"));
        let goal = report.goals.iter().find(|goal| {
            goal.what.contains("gat: points lost with topk:16 ") || goal.what.ends_with("gat: points lost with topk:16")
        });
        assert_eq!(goal.expect("a goal of the network").found, -named("gat/topk:16").metrics["beside_none_points"]);
    }
}
