//! The suite that every backend passes, on the first CUDA device. Without one the test says so and passes, unless
//! `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

use std::time::Instant;

use girih_compute::testing::check_backend;
use girih_compute::{Backend, Dtype, Shape};
use girih_graph_format::Matrix;
use girih_kernels::{Cuda, Device, Tiling};

fn device() -> Option<Device> {
    match Device::open(0) {
        Ok(device) => Some(device),
        Err(error) if std::env::var_os("GIRIH_REQUIRE_GPU").is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

#[test]
fn cuda_computes_what_the_reference_does() {
    let Some(device) = device() else { return };
    check_backend(&Cuda::new(device));
}

#[test]
fn blocks_change_no_operation() {
    let Some(device) = device() else { return };
    // Every block with an entry goes to the tensor cores.
    check_backend(&Cuda::new(device).tiling(Tiling::From(0.0)));
}

#[test]
fn what_is_large_arrives_whole() {
    let Some(device) = device() else { return };
    let cuda = Cuda::new(device);
    // More than pinned buffers hold at once, in rows that do not divide them.
    let (rows, cols) = (45_000, 1001);
    let values: Vec<f32> = (0..rows * cols).map(|i| (i % 8191) as f32 - 4000.0).collect();
    let host = Matrix::new(rows, cols, values).unwrap();
    let mut matrix = cuda.upload(&host, Dtype::F32).unwrap();
    assert!(cuda.download(&matrix).unwrap().data() == host.data());
    let other = Matrix::new(rows, cols, host.data().iter().map(|x| x + 0.5).collect::<Vec<_>>()).unwrap();
    cuda.write(&other, &mut matrix).unwrap();
    assert!(cuda.download(&matrix).unwrap().data() == other.data(), "what was there is overwritten");
    let rounded = cuda.download(&cuda.upload(&host, Dtype::Bf16).unwrap()).unwrap();
    assert!(rounded.data().iter().zip(host.data()).all(|(found, x)| (found - x).abs() <= x.abs() / 256.0));
}

#[test]
fn the_device_takes_as_long_as_its_memory_allows() {
    let Some(device) = device() else { return };
    let cuda = Cuda::new(device);
    let ceiling = cuda.copy_gb_s().unwrap();
    assert!((10.0..100_000.0).contains(&ceiling), "{ceiling} GB/s");
    let shape = Shape::new(1 << 18, 1 << 10);
    let (x, mut out) = (cuda.zeros(shape, Dtype::F32).unwrap(), cuda.zeros(shape, Dtype::F32).unwrap());
    // Once before: kernels are compiled when they are first used.
    cuda.add_scaled(1.0, &x, &mut out).unwrap();
    let start = Instant::now();
    let seconds = cuda.elapsed(|| cuda.add_scaled(1.0, &x, &mut out)).unwrap();
    assert!(seconds <= start.elapsed().as_secs_f64(), "the device's clock counts what the host waits for");
    let gb_s = 3.0 * (shape.len() * size_of::<f32>()) as f64 / seconds / 1e9;
    assert!(gb_s < 2.0 * ceiling, "{gb_s} GB/s where copies reach {ceiling}");
}

#[test]
fn a_card_that_is_not_there_is_named() {
    let Err(error) = Device::open(4095) else { panic!("no machine has so many cards") };
    let message = error.to_string();
    assert!(message.contains("was not found") || message.contains("4095"), "{message}");
}
