//! Generic code for a backend, compiled where the backend is known first.
//!
//! Test builds optimise little (`opt-level` 1). The compiler then shares instances of generic functions between crates:
//! a crate, such as the command line or a test program, takes those that a crate below it has compiled. Other builds
//! have no such sharing, and leave this module out.

use std::hint::black_box;

use girih_compute::Cpu;
use girih_features::MiniBatchBackend;

use crate::distributed::{RankJob, TrainJob};
use crate::{apply, embed, recommend, similarity, train};

/// Makes the compiler instantiate all functions that callers start, for the backend `B`.
pub fn instantiate<B: MiniBatchBackend>() {
    black_box((train::<B> as *const (), apply::<B> as *const (), recommend::<B> as *const ()));
    black_box((embed::<B> as *const (), similarity::<B> as *const ()));
    black_box(<TrainJob<'_, '_> as RankJob>::on_rank::<B> as *const ());
}

/// Instances for the CPU.
pub fn on_the_cpu() {
    instantiate::<Cpu>();
}
