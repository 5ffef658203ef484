//! `girih-benches`: runs one suite, prints its table and writes its record. `cargo xtask bench` builds and runs it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use girih_benches::suites::{Setup, Suite};
use girih_benches::timing::Protocol;
use girih_benches::{Error, Report, folder, graphs, table};
use girih_comm::GpuTransport;
use girih_kernels::{BlockKernel, Tiling};
use girih_machine::{Ceilings, Machine};
use girih_reorder::OrderKind;

/// Measures girih and the ceilings of this machine.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench", version)]
struct Arguments {
    /// Suite to run.
    suite: Suite,
    /// SPEC of the graph, as for `girih train --data`.
    #[arg(long, visible_alias = "data", value_name = "SPEC", help = graph_help())]
    graph: Vec<String>,
    /// Quick run on small operands, to see that everything works.
    #[arg(long)]
    small: bool,
    /// Timed runs of each case, after one untimed run.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    repeats: u16,
    /// Threads; all cores unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// Earlier record to compare with: a last column shows the speedup of each case since then.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
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
    /// Training runs of each configuration, each with its own seed (suites batches and gpu-accuracy)
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,
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
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Error> {
    rayon::ThreadPoolBuilder::new().num_threads(arguments.threads.unwrap_or(0)).build_global()?;
    let baseline = arguments.baseline.as_deref().map(Report::read).transpose()?;
    let benches = folder();
    let ceilings = Ceilings::measure(&Machine::here())?;
    let mut report = Report::new(arguments.suite.name(), &benches, ceilings).kept_at(arguments.out, &benches);
    let setup = Setup {
        graphs: arguments.graph,
        small: arguments.small,
        protocol: Protocol { warm_up: 1, repeats: arguments.repeats.into() },
        orders: arguments.order,
        hidden: arguments.hidden,
        layers: arguments.layers.map(usize::from),
        tilings: arguments.density_threshold,
        kernels: arguments.kernel,
        peer: arguments.peer,
        runs: arguments.runs.into(),
        ncu: arguments.ncu,
        docs: arguments.docs,
        timelines: arguments.timelines,
        transports: arguments.transport,
        ways: arguments.way,
    };
    arguments.suite.run(&setup, &mut report)?;
    print!("{}", table::render(&report, baseline.as_ref()));
    if let Some(path) = report.finish()? {
        println!("\nrecord   {}", path.display());
    }
    Ok(())
}
