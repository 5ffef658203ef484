//! `girih-benches`: runs one suite, prints its table and writes its record. `cargo xtask bench` builds and runs it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::builder::PossibleValue;
use clap::{Parser, ValueEnum};
use girih_benches::suites::{DeviceKind, Setup, Suite};
use girih_benches::timing::Protocol;
use girih_benches::whole::WholeRun;
use girih_benches::{Error, Report, folder, graphs, regression, table};
use girih_comm::GpuTransport;
use girih_kernels::{BlockKernel, Tiling};
use girih_machine::{Ceilings, Machine};
use girih_reorder::OrderKind;

/// Measures girih and the ceilings of this machine.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", version)]
struct Arguments {
    /// Suite to run, or all of one device.
    suite: Selection,
    /// Device whose suites run (`all` only).
    #[arg(long, value_enum, default_value = "cpu")]
    device: DeviceKind,
    /// SPEC of the graph, as for `girih train --data`.
    #[arg(long, visible_alias = "data", value_name = "SPEC", help = graph_help())]
    graph: Vec<String>,
    /// Quick run on small operands, to see that everything works.
    #[arg(long, visible_alias = "quick")]
    small: bool,
    /// Timed runs of each case, after one untimed run.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Threads; all cores unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// Earlier record to compare with: a last column shows the speedup of each case since then. With `all`, a record
    /// of `all`: cases that are slower beyond the tolerance fail the run.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Fail if the least time of a case exceeds that of the baseline by more than this share, or if a case is missing
    /// [default: 50 with all, otherwise none]
    #[arg(long, value_name = "PERCENT", requires = "baseline", value_parser = percent)]
    tolerance: Option<f64>,
    /// File of the record [default: benches/record/SUITE-COMMIT.json].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Orders of nodes, as `girih reorder` names them; device suites run with each of them [default: community;
    /// gpu-ablation all that look at the graph, gpu-profile none and community]
    #[arg(long, visible_alias = "orders", value_name = "ORDER,…", value_delimiter = ',')]
    order: Vec<OrderKind>,
    /// Python interpreter with DGL; its cases alternate with girih's (suites spmm, fullbatch, sampling and minibatch;
    /// lightgcn and gpu-fullbatch need PyTorch alone).
    #[arg(long, value_name = "PYTHON")]
    peer: Option<PathBuf>,
    /// Blocks that tensor cores multiply, as for `girih train`; the suites gpu-spmm, gpu-ablation and gpu-profile run
    /// with each of them. gpu-spmm compares the first one with cuSPARSE [default: auto; gpu-ablation
    /// never,0.02,0.05,0.1,auto, gpu-profile never,auto]
    #[arg(long, value_name = "SHARE,…", value_delimiter = ',')]
    density_threshold: Vec<Tiling>,
    /// Training runs of each configuration, each with its own seed (suites batches, codecs and gpu-accuracy)
    /// [default: 20; 1 with --small]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    runs: Option<u16>,
    /// NVIDIA's kernel profiler, `ncu`, under which the suite gpu-profile then runs itself.
    #[arg(long, value_name = "PROGRAM")]
    ncu: Option<PathBuf>,
    /// Also record timelines of devices, and write them to this folder (suite gpu-ranks).
    #[arg(long, value_name = "DIR")]
    timelines: Option<PathBuf>,
    /// Kernels that multiply blocks in the suite gpu-spmm: wgmma, mma, or paper (tiles of 32 × 32 without tensor
    /// cores) [default: the fastest one of the GPU].
    #[arg(long, value_name = "KERNEL,…", value_delimiter = ',')]
    kernel: Vec<BlockKernel>,
    /// Width of the hidden layer (suites gpu-fullbatch, gpu-ablation, gpu-profile) [default: that of published runs:
    /// 64 on synth:products, else 128]
    #[arg(long, value_name = "N")]
    hidden: Option<usize>,
    /// Folder of the documents into which the suite scaling writes its table and plot.
    #[arg(long, value_name = "DIR")]
    docs: Option<PathBuf>,
    /// Layers of the network (suite gpu-ranks) [default: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    layers: Option<u8>,
    /// Transports between devices, nccl or peer, to compare (suite gpu-ranks) [default: nccl]
    #[arg(long, value_name = "TRANSPORT,…", value_delimiter = ',')]
    transport: Vec<GpuTransport>,
    /// Training variant to run, by the name of its case (in gpu-ranks, the part from the partition on); may be
    /// repeated (suites gpu-minibatch, gpu-large and gpu-ranks) [default: all]
    #[arg(long, value_name = "NAME")]
    way: Vec<String>,
}

fn graph_help() -> String {
    format!(
        "SPEC of the graph, as for `girih train --data`; several for the suites batches and gpu-accuracy [default: {}; on devices {}]",
        graphs::DEFAULT,
        graphs::FULL
    )
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Suite, or all of one device.
#[derive(Clone, Copy)]
enum Selection {
    All,
    One(Suite),
}

static SELECTIONS: LazyLock<Vec<Selection>> = LazyLock::new(|| {
    let suites = Suite::value_variants().iter().copied().map(Selection::One);
    std::iter::once(Selection::All).chain(suites).collect()
});

impl ValueEnum for Selection {
    fn value_variants<'a>() -> &'a [Self] {
        &SELECTIONS
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            Self::All => Some(PossibleValue::new(WholeRun::NAME).help("Every suite of one device, into one record")),
            Self::One(suite) => suite.to_possible_value(),
        }
    }
}

/// Tolerance of `all`, in percent. Least times of small operands differ by less from run to run on a shared machine.
const TOLERANCE_PERCENT: f64 = 50.0;
/// Training runs of a configuration, and those of a quick run.
const RUNS: u16 = 20;
const RUNS_SMALL: u16 = 1;

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
    value.ok_or_else(|| "a tolerance is a number of percent, zero or more".to_owned())
}

impl Arguments {
    fn setup(&self) -> Setup {
        let runs = self.runs.unwrap_or(if self.small { RUNS_SMALL } else { RUNS });
        Setup {
            graphs: self.graph.clone(),
            small: self.small,
            protocol: Protocol { warm_up: 1, repeats: self.repeats.into() },
            orders: self.order.clone(),
            hidden: self.hidden,
            layers: self.layers.map(usize::from),
            tilings: self.density_threshold.clone(),
            kernels: self.kernel.clone(),
            peer: self.peer.clone(),
            runs: runs.into(),
            ncu: self.ncu.clone(),
            docs: self.docs.clone(),
            timelines: self.timelines.clone(),
            transports: self.transport.clone(),
            ways: self.way.clone(),
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    rayon::ThreadPoolBuilder::new().num_threads(arguments.threads.unwrap_or(0)).build_global()?;
    match arguments.suite {
        Selection::All => run_all(arguments),
        Selection::One(suite) => run_suite(suite, arguments),
    }
}

fn run_suite(suite: Suite, arguments: &Arguments) -> Result<(), Error> {
    let baseline = arguments.baseline.as_deref().map(Report::read).transpose()?;
    let (benches, machine) = (folder(), Machine::here());
    let ceilings = Ceilings::measure(&machine)?;
    if let (Some(then), Some(_)) = (&baseline, arguments.tolerance) {
        regression::check_machine((&machine, ceilings.threads), (&then.machine, then.ceilings.threads))?;
    }
    let mut report = Report::new(suite.name(), &benches, ceilings).kept_at(arguments.out.clone(), &benches);
    suite.run(&arguments.setup(), &mut report)?;
    print!("{}", table::render(&report, baseline.as_ref()));
    if let Some(path) = report.finish()? {
        println!("\nrecord   {}", path.display());
    }
    let (Some(then), Some(tolerance)) = (&baseline, arguments.tolerance) else { return Ok(()) };
    regression::fail_on(&regression::regressions(&report, then, tolerance)?, tolerance)
}

fn run_all(arguments: &Arguments) -> Result<(), Error> {
    if !arguments.graph.is_empty() {
        return Err("`all` runs each suite on its own graph; leave out --graph, or name one suite".into());
    }
    let baseline = arguments.baseline.as_deref().map(WholeRun::read).transpose()?;
    let benches = folder();
    let mut whole = WholeRun::new(arguments.device, arguments.small, &benches);
    let ceilings = Ceilings::measure(&whole.machine)?;
    if let Some(then) = &baseline {
        whole.check_baseline(then, &ceilings)?;
    }
    let path = arguments.out.clone().unwrap_or_else(|| whole.default_path(&benches));
    whole.run(&arguments.setup(), &ceilings, &path)?;
    print!("{}", whole.summary());
    println!("\nrecord   {}", path.display());
    whole.check_suites()?;
    let Some(then) = &baseline else { return Ok(()) };
    let tolerance = arguments.tolerance.unwrap_or(TOLERANCE_PERCENT);
    regression::fail_on(&whole.regressions(then, tolerance)?, tolerance)
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use girih_documented::{Shown, shown};

    use super::*;

    /// Arguments that `cargo xtask bench` does not pass on.
    const OF_XTASK: [&str; 3] = ["paper", "page", "counts"];

    /// Arguments of this program that a page shows; a suite is meant by `SUITE`.
    fn arguments(shown: &Shown) -> Option<Vec<String>> {
        let [bench, arguments @ ..] = shown.cargo("xtask")? else { return None };
        let is_passed = bench == "bench" && !arguments.first().is_some_and(|first| OF_XTASK.contains(&&**first));
        let named = |word: &String| if word == "SUITE" { "spmm".to_owned() } else { word.clone() };
        is_passed.then(|| arguments.iter().map(named).collect())
    }

    #[test]
    fn documented_commands_parse() {
        let (mut n_found, mut wrong) = (0, Vec::new());
        for shown in shown() {
            let Some(arguments) = arguments(&shown) else { continue };
            n_found += 1;
            let Err(error) = Arguments::try_parse_from([&["bench".to_owned()], &arguments[..]].concat()) else {
                continue;
            };
            let is_cut = shown.block.is_none() && error.kind() == ErrorKind::MissingRequiredArgument;
            if !is_cut && error.kind() != ErrorKind::DisplayHelp {
                wrong.push(format!("{shown}\n{error}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(n_found > 15, "{n_found} commands: the pages are not where they were");
    }
}
