//! Common test suite of all backends, on the CPU.

use girih_compute::{Cpu, Dtype, testing};

#[test]
fn agrees_with_the_reference() {
    testing::check_backend(&Cpu::new());
}

#[test]
fn the_number_of_threads_does_not_show() {
    testing::check_thread_independence(&Cpu::new());
    testing::check_thread_independence(&Cpu::new().gathering(Dtype::Bf16));
}
