//! Encodes features that are generated on the fly, of any size, and prints time and peak memory.
//!
//! `cargo run --release -p girih-compress --example stream -- FILE GIGABYTES [CODEC] [WIDTH]`; after an interruption,
//! the same command resumes.

use std::error::Error;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

use girih_compress::{
    CodecSpec, CompressedFeatures, ErrorReport, GeneratedRows, RowSource, SampleOptions, draw_sample, encode_to_file,
    fit,
};
use girih_graph_format::file::Verify;
use girih_machine::memory;
use girih_random::{Key, purpose};

/// Number of noise values; rows are cut from them at random offsets, as drawing every value would take longer than
/// encoding.
const NOISE: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let usage = "FILE GIGABYTES [CODEC] [WIDTH]";
    let path = PathBuf::from(arguments.next().ok_or(usage)?);
    let gigabytes: f64 = arguments.next().ok_or(usage)?.parse()?;
    let spec: CodecSpec = arguments.next().as_deref().unwrap_or("topk:8").parse()?;
    let width: usize = arguments.next().as_deref().unwrap_or("768").parse()?;

    let key = Key::new(1, purpose::GENERATOR);
    let mut stream = key.child(0).stream(0, 0);
    let noise: Vec<f32> = (0..NOISE).map(|_| stream.normal()).collect();
    let n_rows = (gigabytes * 1e9 / (4 * width) as f64) as usize;
    let source = GeneratedRows::new(n_rows, width, 1, |row, values| {
        let place = key.block(row as u64, 1)[0] as usize % (NOISE - width);
        values.copy_from_slice(&noise[place..place + width]);
    });
    println!("{n_rows} rows of {width} features, {gigabytes} GB as f32");

    let start = Instant::now();
    let sample = draw_sample(&source, SampleOptions::default())?;
    let codec = fit(spec, &sample, 0)?;
    println!(
        "fitted {} in {:.2} s: {:?}",
        codec.spec(),
        start.elapsed().as_secs_f64(),
        ErrorReport::measure(&*codec, &sample)?
    );
    drop(sample);

    let start = Instant::now();
    let encoded = encode_to_file(&path, &*codec, &source, &|_| ControlFlow::Continue(()))?;
    let seconds = start.elapsed().as_secs_f64();
    let bytes = 4 * (source.n_rows() * source.width()) as u64;
    println!(
        "encoded in {seconds:.2} s, {:.2} GB/s; {} rows were there already; the store has {} bytes, 1/{:.1}",
        bytes as f64 / seconds / 1e9,
        encoded.rows_resumed,
        encoded.file_bytes,
        bytes as f64 / encoded.file_bytes as f64
    );
    if let Some(peak) = memory::peak_bytes() {
        println!("peak memory {} MiB", peak >> 20);
    }

    let start = Instant::now();
    CompressedFeatures::open(&path, Verify::Full)?;
    println!("opened and verified in {:.2} s", start.elapsed().as_secs_f64());
    Ok(())
}
