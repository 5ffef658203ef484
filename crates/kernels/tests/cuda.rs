//! The suite that every backend passes, on the first CUDA device. Without one the test says so and passes, unless
//! `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

use girih_compute::testing::check_backend;
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
fn a_card_that_is_not_there_is_named() {
    let Err(error) = Device::open(4095) else { panic!("no machine has so many cards") };
    let message = error.to_string();
    assert!(message.contains("no CUDA") || message.contains("cuBLAS") || message.contains("4095"), "{message}");
}
