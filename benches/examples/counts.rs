//! Small fixed programs of CPU kernels, whose instructions `cargo xtask bench counts` counts under callgrind.
//!
//! `counts NAME` runs one of them on one thread; without a name it lists them. Operands are made and caches are warmed
//! first: only [`counted_work`] counts.

use girih_benches::{Error, graphs};
use girih_compress::{CodecSpec, CompressedFeatures, SampleOptions, draw_sample, fit};
use girih_compute::prelude::*;
use girih_compute::{Cpu, Dropout, Dtype, Epilogue, Shape, SparseOperand, Transpose};
use girih_graph_format::{Csr, Matrix, NodeId, Norm};
use girih_random::Key;
use girih_sampling::relabel::Relabel;
use girih_sampling::{DrawKey, NeighborOptions, NeighborSampler, Sampler};

/// Graph whose operands fit every last-level cache, so that plans do not depend on the machine.
const GRAPH: &str = "synth:planted,nodes=2000,degree=16,features=8,classes=4";
/// Rows of dense operands.
const ROWS: usize = 2048;
const WIDTH: usize = 64;
const FAN_OUT: &str = "10,5";
const N_SEEDS: usize = 256;

/// Work that can be repeated.
type Work = Box<dyn FnMut() -> Result<(), Error>>;
/// Program: its name, and its work with all operands made.
type Program = (&'static str, fn() -> Result<Work, Error>);

const PROGRAMS: [Program; 14] = [
    ("spmm/f32", || spmm(Dtype::F32)),
    ("spmm/bf16", || spmm(Dtype::Bf16)),
    ("gemm/nn", || gemm(Transpose::No)),
    ("gemm/tn", || gemm(Transpose::Yes)),
    ("gather", gather),
    ("softmax-cross-entropy", softmax_cross_entropy),
    ("segment-softmax", segment_softmax),
    ("dropout", dropout),
    ("codec/topk:8/encode", || encode(CodecSpec::Topk(8))),
    ("codec/topk:8/gather", || decode(CodecSpec::Topk(8))),
    ("codec/int8/gather", || decode(CodecSpec::Int8)),
    ("relabel/to-block", || sample(Relabel::ToBlock)),
    ("relabel/fused", || sample(Relabel::Fused)),
    ("sample/rank", || sample(Relabel::Rank)),
];

fn main() -> Result<(), Error> {
    // The main thread is the only worker, so that no thread waits and spins.
    rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build_global()?;
    let Some(name) = std::env::args().nth(1) else {
        PROGRAMS.iter().for_each(|(name, _)| println!("{name}"));
        return Ok(());
    };
    let program = PROGRAMS.iter().find(|(known, _)| *known == name);
    let mut work = program.ok_or_else(|| format!("no program is called '{name}'"))?.1()?;
    work()?;
    counted_work(&mut work)
}

/// Runs the work; the profiler counts inside of this function alone, and knows it by its name.
#[inline(never)]
fn counted_work(work: &mut Work) -> Result<(), Error> {
    work()
}

fn graph() -> Result<Csr, Error> {
    Ok(graphs::load(GRAPH)?.graph)
}

fn ramp(rows: usize, cols: usize) -> Result<Matrix, Error> {
    let values: Vec<f32> = (0..rows * cols).map(|i| (i % 251) as f32 / 251.0 - 0.5).collect();
    Ok(Matrix::new(rows, cols, values)?)
}

/// Ids of all rows, scattered: 1237 and the number of rows have no common factor, so that each occurs once.
fn scattered() -> Vec<u32> {
    (0..ROWS as u32).map(|i| (i * 1237) % ROWS as u32).collect()
}

fn sparse(backend: &Cpu, csr: &Csr) -> Result<<Cpu as Memory>::Sparse, Error> {
    let scales = csr.scales(Norm::Symmetric);
    Ok(backend.upload_sparse(&SparseOperand { csr, scales, symmetric: true, names: None })?)
}

fn spmm(dtype: Dtype) -> Result<Work, Error> {
    let (backend, csr) = (Cpu::default(), graph()?);
    let sparse = sparse(&backend, &csr)?;
    let x = backend.upload(&ramp(csr.n_cols(), WIDTH)?, dtype)?;
    let mut out = backend.zeros(Shape::new(csr.n_rows(), WIDTH), Dtype::F32)?;
    Ok(Box::new(move || Ok(backend.spmm((&sparse, Transpose::No), None, &x, Epilogue::default(), &mut out)?)))
}

fn gemm(of_x: Transpose) -> Result<Work, Error> {
    const COLS: usize = 128;
    let backend = Cpu::default();
    let x = backend.upload(&ramp(ROWS, COLS)?, Dtype::F32)?;
    let (inner, rows) = if of_x == Transpose::No { (COLS, ROWS) } else { (ROWS, COLS) };
    let w = backend.upload(&ramp(inner, WIDTH)?, Dtype::F32)?;
    let mut out = backend.zeros(Shape::new(rows, WIDTH), Dtype::F32)?;
    Ok(Box::new(move || Ok(backend.gemm((&x, of_x), None, (&w, Transpose::No), Epilogue::default(), &mut out)?)))
}

fn gather() -> Result<Work, Error> {
    let backend = Cpu::default();
    let x = backend.upload(&ramp(ROWS, WIDTH)?, Dtype::F32)?;
    let ids = backend.upload_ids(&scattered())?;
    let mut out = backend.zeros(Shape::new(ROWS, WIDTH), Dtype::F32)?;
    Ok(Box::new(move || Ok(backend.gather_rows(&x, &ids, &mut out)?)))
}

fn softmax_cross_entropy() -> Result<Work, Error> {
    const CLASSES: usize = 41;
    let backend = Cpu::default();
    let logits = backend.upload(&ramp(ROWS, CLASSES)?, Dtype::F32)?;
    let classes = backend.upload_ids(&(0..ROWS).map(|row| (row % CLASSES) as u32).collect::<Vec<_>>())?;
    let rows = backend.upload_ids(&scattered())?;
    let mut grad = backend.zeros(Shape::new(ROWS, CLASSES), Dtype::F32)?;
    let mut loss = backend.zeros(Shape::new(1, 1), Dtype::F32)?;
    Ok(Box::new(move || Ok(backend.softmax_cross_entropy(&logits, &classes, &rows, Some(&mut grad), &mut loss)?)))
}

fn segment_softmax() -> Result<Work, Error> {
    const HEADS: usize = 8;
    let (backend, csr) = (Cpu::default(), graph()?);
    let sparse = sparse(&backend, &csr)?;
    let mut scores = backend.upload(&ramp(csr.nnz(), HEADS)?, Dtype::F32)?;
    Ok(Box::new(move || Ok(backend.segment_softmax(&sparse, &mut scores)?)))
}

fn dropout() -> Result<Work, Error> {
    let (backend, dropout) = (Cpu::default(), Dropout::new(0.5, Key::new(1, 1)));
    let x = backend.upload(&ramp(ROWS, WIDTH)?, Dtype::F32)?;
    let mut out = backend.zeros(Shape::new(ROWS, WIDTH), Dtype::F32)?;
    Ok(Box::new(move || Ok(backend.dropout(&x, dropout, &mut out)?)))
}

/// Rows with the codes of a codec that was fitted to them.
fn coded(codec: CodecSpec) -> Result<(Matrix, CompressedFeatures), Error> {
    let rows = ramp(ROWS, 4 * WIDTH)?;
    let fitted = fit(codec, &draw_sample(&rows, SampleOptions::default())?, 0)?;
    let features = CompressedFeatures::encode(fitted, &rows)?;
    Ok((rows, features))
}

fn encode(codec: CodecSpec) -> Result<Work, Error> {
    let (rows, features) = coded(codec)?;
    let mut codes = vec![0; ROWS * features.codec().row_bytes()];
    Ok(Box::new(move || Ok(features.codec().encode_rows(0, rows.data(), &mut codes)?)))
}

fn decode(codec: CodecSpec) -> Result<Work, Error> {
    let (_, features) = coded(codec)?;
    let (ids, mut out) = (scattered(), vec![0.0; ROWS * features.width()]);
    Ok(Box::new(move || Ok(features.gather(&ids, &mut out)?)))
}

fn sample(relabel: Relabel) -> Result<Work, Error> {
    let graph = graph()?;
    let sampler = NeighborSampler::new(FAN_OUT.parse()?, NeighborOptions { relabel, ..NeighborOptions::default() })?;
    let seeds: Vec<NodeId> = (0..N_SEEDS as NodeId).map(|i| 7 * i).collect();
    Ok(Box::new(move || {
        let batch = sampler.sample(&graph, &seeds, DrawKey::new(1, 0, 0))?;
        if batch.n_edges() == 0 { Err("no edge was drawn".into()) } else { Ok(()) }
    }))
}
