//! `gpu-profile`: one product on a CUDA device per node order, choice of blocks and storage type, between marks for
//! profilers. With `--ncu`, NVIDIA's profiler counts moved bytes and L2 hits, before and after reordering, as in
//! figure 8 of Miao et al. 2023.
//!
//! The suite runs itself under the profiler, which lists kernels. A kernel that no product uses separates the
//! products.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;

use cudarc::driver::{profiler_start, profiler_stop};
use girih_compute::prelude::*;
use girih_compute::{Dtype, Shape};
use girih_kernels::{Cuda, CudaMatrix, Tiling};
use girih_reorder::OrderKind;

use super::gpu::{self, Order, Product};
use super::gpu_fullbatch::hidden;
use super::setup::{DTYPES, Setup};
use crate::timing::Summary;
use crate::{Case, Error, Report, graphs};

/// Orders before and after reordering.
const ORDERS: [OrderKind; 2] = [OrderKind::None, OrderKind::Community];
/// Rows only, and with dense blocks.
const TILINGS: [Tiling; 2] = [Tiling::Never, Tiling::Auto];
/// Graph; features are not needed.
const GRAPH: &str = "synth:reddit,features=0";
/// Kernel before each product.
const MARK: &str = "add_scaled";

/// Adds a case for each product and, with a profiler, for each of its kernels.
pub(super) fn run(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    match &setup.ncu {
        None => run_products(setup, report),
        Some(ncu) => run_profiled(ncu, setup, report),
    }
}

/// Runs every product once for warm-up, then once between marks.
fn run_products(setup: &Setup, report: &mut Report) -> Result<(), Error> {
    let mut cuda = gpu::open_device(report)?;
    let spec = setup.graph_or(GRAPH);
    let dataset = graphs::load(spec)?;
    report.graph = Some(graphs::describe(&dataset));
    let graph = dataset.graph.with_values(None)?;
    let mut mark = Mark::new(&cuda)?;
    for &kind in setup.orders_or(&ORDERS) {
        let order = Order::find(kind, &graph)?;
        let ordered =
            order.permutation.as_ref().map_or(Cow::Borrowed(&graph), |order| Cow::Owned(graph.permuted(order)));
        for &tiling in setup.tilings_or(&TILINGS) {
            for dtype in DTYPES {
                cuda = cuda.tiling(tiling);
                let mut product = Product::new(&cuda, &ordered, hidden(setup, spec), dtype)?;
                product.seconds()?;
                let coverage = cuda.split(&product.sparse).map_or(0.0, |split| split.coverage);
                let seconds = mark.around(&cuda, || product.seconds())?;
                let name = format!("{kind}/{tiling}/{}", dtype.name());
                report.cases.push(Case::new(name, Summary::of(&[seconds])).with("coverage", coverage));
            }
        }
    }
    Ok(())
}

/// Operands of the mark that a profiler sees before a product.
struct Mark {
    x: CudaMatrix,
    out: CudaMatrix,
}

impl Mark {
    fn new(cuda: &Cuda) -> Result<Self, Error> {
        let zero = || cuda.zeros(Shape::new(1, 1), Dtype::F32);
        let mut mark = Self { x: zero()?, out: zero()? };
        mark.set(cuda)?;
        Ok(mark)
    }

    /// Launches the kernel [`MARK`], and no other.
    fn set(&mut self, cuda: &Cuda) -> Result<(), Error> {
        Ok(cuda.add_scaled(1.0, &self.x, &mut self.out)?)
    }

    /// Restricts profilers to the mark and `work`.
    fn around(&mut self, cuda: &Cuda, work: impl FnOnce() -> Result<f64, Error>) -> Result<f64, Error> {
        cuda.synchronize()?;
        profiler_start()?;
        self.set(cuda)?;
        let seconds = work()?;
        cuda.synchronize()?;
        profiler_stop()?;
        Ok(seconds)
    }
}

/// Runs this program under the profiler, and adds its counts to the products' cases.
fn run_profiled(ncu: &Path, setup: &Setup, report: &mut Report) -> Result<(), Error> {
    // The scope releases the device before the other process needs it.
    let copy_gb_s = {
        gpu::open_device(report)?;
        report.device.as_ref().map_or(0.0, |device| device.copy_gb_s)
    };
    let folder = tempfile::tempdir()?;
    let (record, list) = (folder.path().join("record.json"), folder.path().join("kernels.csv"));
    let status = Command::new(ncu)
        .args(PROFILER)
        .arg(METRICS.map(|(name, _)| name).join(","))
        .arg("--log-file")
        .arg(&list)
        .arg(std::env::current_exe()?)
        .args(arguments(setup, &record))
        .status()
        .map_err(|e| format!("{}: {e}; --ncu takes the path of NVIDIA's profiler of kernels", ncu.display()))?;
    if !status.success() {
        let said = fs::read_to_string(&list).unwrap_or_default();
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("==ERROR==")).collect();
        return Err(format!("{}: {status}\n{}", ncu.display(), errors.join("\n")).into());
    }
    let products = Report::read(&record)?;
    let kernels = Kernel::list(&fs::read_to_string(&list)?).map_err(|e| format!("{}: {e}", ncu.display()))?;
    report.cases = counted(&products.cases, &kernels, copy_gb_s)?;
    report.graph = products.graph;
    Ok(())
}

/// Arguments of the profiler, followed by the names of its metrics. Caches are empty before every kernel.
const PROFILER: [&str; 9] = [
    "--profile-from-start",
    "off",
    "--clock-control",
    "none",
    "--csv",
    "--page",
    "raw",
    "--print-units=base",
    "--metrics",
];

/// Metrics of the profiler, with the units in which it may report them.
const METRICS: [(&str, &[&str]); 5] = [
    ("gpu__time_duration.sum", &["ns", "nsecond"]),
    ("dram__bytes_read.sum", &["byte"]),
    ("dram__bytes_write.sum", &["byte"]),
    ("lts__t_sectors.sum", &["sector"]),
    ("lts__t_sector_hit_rate.pct", &["%"]),
];

/// Arguments with which this program runs the same products, and writes its record to `record`.
fn arguments(setup: &Setup, record: &Path) -> Vec<OsString> {
    fn joined<T: ToString>(values: &[T]) -> String {
        values.iter().map(T::to_string).collect::<Vec<_>>().join(",")
    }
    let mut arguments: Vec<OsString> = vec!["gpu-profile".into(), "--out".into(), record.into()];
    let mut give = |flag: &str, value: &str| arguments.extend([flag, value].map(|text| OsStr::new(text).to_owned()));
    give("--threads", &rayon::current_num_threads().to_string());
    setup.graphs.iter().for_each(|graph| give("--graph", graph));
    give("--order", &joined(setup.orders_or(&ORDERS)));
    give("--density-threshold", &joined(setup.tilings_or(&TILINGS)));
    if let Some(hidden) = setup.hidden {
        give("--hidden", &hidden.to_string());
    }
    if setup.small {
        arguments.push("--small".into());
    }
    arguments
}

/// Counts of the profiler for a kernel, or their sums over several.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kernel {
    name: String,
    seconds: f64,
    read_bytes: f64,
    written_bytes: f64,
    sectors: f64,
    /// Sectors that were found in the L2 cache.
    hits: f64,
}

impl Kernel {
    /// Parses the profiler's table: a line of names, one of units, and one per kernel. Messages may precede it.
    fn list(text: &str) -> Result<Vec<Self>, Error> {
        let mut lines = text.lines().skip_while(|line| !line.starts_with("\"ID\"")).map(fields);
        let names = lines.next().ok_or_else(|| format!("no table of kernels, but: {}", text.trim()))?;
        let units = lines.next().ok_or("a table of kernels without units")?;
        let column = |name: &str| {
            names.iter().position(|found| found == name).ok_or_else(|| format!("no {name} in the table of kernels"))
        };
        let kernel_name = column("Kernel Name")?;
        let mut columns = [0; METRICS.len()];
        for (at, (metric, accepted)) in columns.iter_mut().zip(METRICS) {
            *at = column(metric)?;
            let unit = units.get(*at).map_or("", String::as_str);
            if !accepted.contains(&unit) {
                return Err(format!("{metric} is in {unit:?}, expected {}", accepted.join(" or ")).into());
            }
        }
        lines.filter(|line| line.len() == names.len()).map(|line| Self::read(&line, kernel_name, columns)).collect()
    }

    fn read(line: &[String], name: usize, columns: [usize; METRICS.len()]) -> Result<Self, Error> {
        let number = |column: usize| -> Result<f64, Error> {
            // Digits are grouped by commas.
            let digits = line[column].replace(',', "");
            digits.parse().map_err(|_| format!("{}: {:?} is no number", line[name], line[column]).into())
        };
        let [nanoseconds, read_bytes, written_bytes, sectors, percent] = columns.map(number);
        let sectors = sectors?;
        Ok(Self {
            name: line[name].split('(').next().unwrap_or_default().to_owned(),
            seconds: nanoseconds? / 1e9,
            read_bytes: read_bytes?,
            written_bytes: written_bytes?,
            sectors,
            hits: sectors * percent? / 100.0,
        })
    }

    fn sum(kernels: &[Self]) -> Self {
        let sum = |what: fn(&Self) -> f64| kernels.iter().map(what).sum();
        Self {
            name: String::new(),
            seconds: sum(|k| k.seconds),
            read_bytes: sum(|k| k.read_bytes),
            written_bytes: sum(|k| k.written_bytes),
            sectors: sum(|k| k.sectors),
            hits: sum(|k| k.hits),
        }
    }

    fn case(&self, name: String, copy_gb_s: f64) -> Case {
        let gb_s = (self.read_bytes + self.written_bytes) / self.seconds / 1e9;
        Case::new(name, Summary::of(&[self.seconds]))
            .with("memory_read_mb", self.read_bytes / 1e6)
            .with("memory_written_mb", self.written_bytes / 1e6)
            .with("memory_gb_s", gb_s)
            .with("memory_of_copy", gb_s / copy_gb_s)
            .with("l2_mb", self.sectors * SECTOR_BYTES / 1e6)
            .with("l2_hit_percent", 100.0 * self.hits / self.sectors.max(1.0))
    }
}

/// Sector size of the L2 cache in bytes.
const SECTOR_BYTES: f64 = 32.0;

/// Fields of a line in which every field is quoted.
fn fields(line: &str) -> Vec<String> {
    let inside = line.trim().strip_prefix('"').and_then(|line| line.strip_suffix('"'));
    inside.unwrap_or_default().split("\",\"").map(str::to_owned).collect()
}

/// Case for each product with the sums over its kernels, and case for each kernel.
fn counted(products: &[Case], kernels: &[Kernel], copy_gb_s: f64) -> Result<Vec<Case>, Error> {
    // There is no product before the first mark.
    let of_products: Vec<&[Kernel]> = kernels.split(|kernel| kernel.name == MARK).skip(1).collect();
    if of_products.len() != products.len() || of_products.iter().any(|kernels| kernels.is_empty()) {
        return Err(format!(
            "the profiler saw {} products in {} kernels, but {} were run: it may have been kept from looking at some",
            of_products.len(),
            kernels.len(),
            products.len()
        )
        .into());
    }
    let mut cases = Vec::new();
    for (product, kernels) in products.iter().zip(of_products) {
        let mut whole = Kernel::sum(kernels).case(product.name.clone(), copy_gb_s);
        whole.metrics.extend(product.metrics.clone());
        cases.push(whole);
        for (i, kernel) in kernels.iter().enumerate() {
            cases.push(kernel.case(format!("{}/{}-{}", product.name, i + 1, kernel.name), copy_gb_s));
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"==PROF== Connected to process 7 (girih-benches)
"ID","Process ID","Kernel Name","Grid Size","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum","lts__t_sector_hit_rate.pct","lts__t_sectors.sum"
"","","","","byte","byte","ns","%","sector"
"0","7","add_scaled","(1, 1, 1)","32","0","1,000","0","4"
"1","7","tile_sums","(132, 1, 1)","3,000,000","1,000,000","1,000,000","50","1,000,000"
"2","7","gather(const float *, int)","(9, 1, 1)","5,000,000","1,000,000","3,000,000","90.00","3,000,000"
"#;

    #[test]
    fn products_are_the_kernels_behind_a_mark() {
        let product = Case::new("community/auto/bf16", Summary::of(&[9.0])).with("coverage", 0.5);
        let cases = counted(&[product], &Kernel::list(LIST).unwrap(), 5.0).unwrap();
        let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names, ["community/auto/bf16", "community/auto/bf16/1-tile_sums", "community/auto/bf16/2-gather"]);
        assert_eq!(cases[0].time.median_s, 0.004);
        assert_eq!(cases[0].metrics["l2_hit_percent"], 80.0, "by sectors, not by kernels");
        assert_eq!((cases[0].metrics["memory_gb_s"], cases[0].metrics["memory_of_copy"]), (2.5, 0.5));
        assert_eq!((cases[0].metrics["coverage"], cases[2].metrics["l2_mb"]), (0.5, 96.0));
    }

    #[test]
    fn a_list_that_lacks_something_is_refused() {
        let error = |text: &str| Kernel::list(text).unwrap_err().to_string();
        assert!(error("==ERROR== ERR_NVGPUCTRPERM").contains("ERR_NVGPUCTRPERM"));
        assert!(error(&LIST.replace("lts__t_sectors.sum", "other")).contains("lts__t_sectors.sum"));
        assert!(error(&LIST.replace("\"ns\"", "\"us\"")).contains("\"us\""), "another unit");
        let unseen = counted(&[], &Kernel::list(LIST).unwrap(), 1.0).unwrap_err().to_string();
        assert!(unseen.contains("1 products") && unseen.contains("but 0 were run"), "{unseen}");
    }

    #[test]
    fn the_same_products_run_under_the_profiler() {
        let setup = Setup { graphs: vec!["folder".to_owned()], hidden: Some(64), small: true, ..Setup::default() };
        let arguments: Vec<String> =
            arguments(&setup, Path::new("/r")).into_iter().map(|text| text.into_string().unwrap()).collect();
        let joined = arguments.join(" ");
        assert!(joined.starts_with("gpu-profile --out /r --threads "), "{joined}");
        assert!(
            joined
                .ends_with("--graph folder --order none,community --density-threshold never,auto --hidden 64 --small"),
            "{joined}"
        );
    }
}
