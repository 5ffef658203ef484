//! Benchmark of codecs on one thread: encoding, compared with simpler ways to find equal positions; decoding rows by
//! id; sums over neighbors. Throughput counts the bytes of the features as `f32`.
//!
//! `cargo bench -p girih-compress`

use std::hint::black_box;
use std::ops::ControlFlow;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use girih_compress::{Aggregate, CodecSpec, CompressedFeatures, FeatureCodec, GROUP, fit};
use girih_graph_format::Matrix;
use girih_random::{Key, purpose};

/// Width of the features of MAG240M.
const WIDTH: usize = 768;
/// 50 MB: larger than caches.
const N_ROWS: usize = 1 << 14;
/// Number of rows of a gather, and number of neighbors of a node in an aggregation.
const N_GATHERED: usize = 1 << 13;
const N_NEIGHBORS: usize = 10;

fn features() -> Matrix {
    let mut stream = Key::new(1, purpose::GENERATOR).stream(0, 0);
    let values: Vec<f32> = (0..N_ROWS * WIDTH).map(|_| stream.normal()).collect();
    Matrix::new(N_ROWS, WIDTH, values).expect("a value for each place")
}

/// Packs every value with its position into a number; a value that comes first has the larger number.
fn pack(group: &[f32]) -> [u64; GROUP] {
    std::array::from_fn(|place| {
        let bits = (group[place] + 0.0).to_bits();
        let ordered = bits ^ ((bits as i32 >> 31) as u32 | 1 << 31);
        u64::from(ordered) << 8 | (GROUP - 1 - place) as u64
    })
}

fn sorted(group: &[f32], k: usize, code: &mut [u8]) {
    let mut packed = pack(group);
    packed.sort_unstable_by(|a, b| b.cmp(a));
    for i in 0..k {
        code[i] = u8::MAX - packed[i] as u8;
        code[k + i] = u8::MAX - packed[GROUP - 1 - i] as u8;
    }
}

fn selected(group: &[f32], k: usize, code: &mut [u8]) {
    let mut packed = pack(group);
    packed.select_nth_unstable_by(k, |a, b| b.cmp(a));
    packed[..k].sort_unstable_by(|a, b| b.cmp(a));
    packed[k..].select_nth_unstable_by(GROUP - 2 * k - 1, |a, b| b.cmp(a));
    packed[GROUP - k..].sort_unstable();
    for i in 0..k {
        code[i] = u8::MAX - packed[i] as u8;
        code[k + i] = u8::MAX - packed[GROUP - k + i] as u8;
    }
}

fn positions(c: &mut Criterion) {
    let rows = features();
    let mut group = c.benchmark_group("positions, k = 8");
    group.throughput(Throughput::Bytes(4 * (N_ROWS * WIDTH) as u64)).sample_size(10);
    let codec = fit(CodecSpec::Topk(8), &rows, 0).expect("features that suit");
    let mut expected = vec![0; N_ROWS * codec.row_bytes()];
    codec.encode_rows(0, rows.data(), &mut expected).expect("finite features");
    for (name, find) in [("sort", sorted as fn(&[f32], usize, &mut [u8])), ("select_nth_unstable", selected)] {
        let mut codes = vec![0; expected.len()];
        let mut groups = || {
            rows.data().chunks(GROUP).zip(codes.chunks_mut(16)).for_each(|(group, code)| find(group, 8, code));
        };
        groups();
        group.bench_function(name, |b| b.iter(&mut groups));
        assert!(codes == expected, "{name} finds other positions");
    }
    group.finish();
}

fn encode(c: &mut Criterion) {
    let rows = features();
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Bytes(4 * (N_ROWS * WIDTH) as u64)).sample_size(10);
    let specs = ["topk:1", "topk:4", "topk:8", "topk:16", "topk:32", "topk:64", "topk:128", "topk-residual:8"];
    let peers = ["f16", "bf16", "int8", "int4", "pca:24", "pq:48"];
    for spec in specs.into_iter().chain(peers) {
        let codec = fitted(spec, &rows);
        let mut codes = vec![0; N_ROWS * codec.row_bytes()];
        group.bench_function(spec, |b| {
            b.iter(|| codec.encode_rows(0, black_box(rows.data()), &mut codes).expect("finite features"));
        });
    }
    group.finish();
}

fn fitted(spec: &str, rows: &Matrix) -> Box<dyn FeatureCodec> {
    let sample = Matrix::new(2048, WIDTH, rows.data()[..2048 * WIDTH].to_vec()).expect("the first rows");
    fit(spec.parse().expect("a codec"), &sample, 0).expect("features that suit")
}

/// Row ids in random order.
fn scattered(n: usize) -> Vec<u32> {
    let mut stream = Key::new(2, purpose::GENERATOR).stream(0, 0);
    (0..n).map(|_| stream.below(N_ROWS as u64) as u32).collect()
}

fn decode(c: &mut Criterion) {
    let rows = features();
    let (ids, edges) = (scattered(N_GATHERED), scattered(N_GATHERED * N_NEIGHBORS));
    for spec in ["topk:8", "topk-residual:8", "f16", "int8", "int4", "pca:24", "pq:48"] {
        let store = CompressedFeatures::encode(fitted(spec, &rows), &rows).expect("finite features");
        let mut out = vec![0.0; N_GATHERED * WIDTH];
        let mut group = c.benchmark_group("gather, bytes of output");
        group.throughput(Throughput::Bytes(4 * out.len() as u64)).sample_size(10);
        group
            .bench_function(spec, |b| b.iter(|| store.gather(black_box(&ids), &mut out).expect("rows that are there")));
        group.finish();

        let mut group = c.benchmark_group("mean of 10 neighbors, bytes of rows not decoded");
        group.throughput(Throughput::Bytes((4 * edges.len() * WIDTH) as u64)).sample_size(10);
        let neighbors = |v: usize| &edges[v * N_NEIGHBORS..(v + 1) * N_NEIGHBORS];
        group.bench_function(spec, |b| {
            b.iter(|| store.aggregate(Aggregate::Mean, neighbors, &mut out).expect("rows that are there"));
        });
        group.finish();
    }
}

fn to_file(c: &mut Criterion) {
    let rows = features();
    let folder = tempfile::tempdir().expect("a folder");
    let codec = fitted("topk:8", &rows);
    let mut group = c.benchmark_group("encode to a file");
    group.throughput(Throughput::Bytes(4 * (N_ROWS * WIDTH) as u64)).sample_size(10);
    let go_on = |_| ControlFlow::Continue(());
    group.bench_function("topk:8", |b| {
        let write = |()| girih_compress::encode_to_file(&folder.path().join("x"), &*codec, &rows, &go_on);
        b.iter_batched(|| (), write, BatchSize::PerIteration);
    });
    group.finish();
}

/// Uses one thread, so that results are per core.
fn on_one_thread(c: &mut Criterion) {
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().expect("no threads were started yet");
    positions(c);
    encode(c);
    decode(c);
    to_file(c);
}

criterion_group!(benches, on_one_thread);
criterion_main!(benches);
