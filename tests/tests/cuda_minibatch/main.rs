//! Compares training on mini-batches on a CUDA device, rows of sampled blocks and whole runs, with the CPU. Without a
//! device the tests report that and pass, unless `GIRIH_REQUIRE_GPU` is set: `cargo xtask gpu-test` sets it.

mod blocks;
mod features;
mod training;
