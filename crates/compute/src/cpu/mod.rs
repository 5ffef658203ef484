//! [`Cpu`]: backend on all cores of the machine, through rayon's current pool.
//!
//! `ops` passes typed slices of operands to the modules that compute:
//!
//! - `spmm`, `gemm`: products, which take most of the time; `panels`, `schedule`, `sparse` and `simd` serve them.
//! - `elementwise`, `columns`, `rows`, `top_k`, `loss`, `bpr`, `optim`: memory-bound passes over matrices.
//! - `relations`: products of rows that have types.
//! - `segment_max`, `segment_lstm`: aggregations other than sums, over the same patterns.
//! - `matrix`, `element`, `chunks`: storage, its element types, and chunks of fixed size, so that results do not
//!   depend on the number of threads.

mod attention;
mod bpr;
mod chunks;
mod columns;
mod element;
mod elementwise;
mod entries;
mod epilogue;
mod exp;
mod functions;
mod gemm;
mod heads;
mod loss;
mod machine;
mod mask;
mod matrix;
mod normalize;
mod ops;
mod optim;
mod panels;
mod prefetch;
mod relations;
mod rows;
mod schedule;
mod scratch;
mod segment_lstm;
mod segment_max;
mod simd;
mod sparse;
mod spmm;
mod top_k;

#[cfg(feature = "testing")]
use girih_machine::Hierarchy;

use self::machine::Machine;
pub use self::matrix::CpuMatrix;
#[cfg(feature = "testing")]
use self::simd::Isa;
pub use self::sparse::CpuSparse;
pub use self::spmm::CpuTiles;
use crate::checks::IdRange;
use crate::{Backend, Dtype};

/// CPU backend.
#[derive(Debug)]
pub struct Cpu {
    machine: Machine,
}

impl Cpu {
    /// Creates the backend, and detects instruction set and cache sizes.
    #[must_use]
    pub fn new() -> Self {
        Self { machine: Machine::detect() }
    }

    /// Creates the backend, with `storage` as the type of gathered rows for `f32` operands of sparse products. With
    /// [`Dtype::Bf16`], each row times its right factor is rounded once, on its way into a panel. Half the bytes then
    /// travel from cache and memory. Sums, results and all other operations stay `f32`. Operands stored as bf16 are
    /// always gathered as bf16.
    #[must_use]
    pub fn gathering(mut self, storage: Dtype) -> Self {
        self.machine.gathered = storage;
        self
    }

    /// Backends that run the kernels of each instruction set of this machine, the best one first, and choose panels
    /// as for the given caches.
    #[cfg(feature = "testing")]
    pub(crate) fn of_instruction_sets(caches: &Hierarchy) -> impl Iterator<Item = Self> {
        Isa::all().map(|isa| Self { machine: Machine::new(isa, caches.clone()) })
    }

    /// Name of the vector instruction set that the kernels use.
    #[must_use]
    pub fn instruction_set(&self) -> &'static str {
        self.machine.isa.name()
    }
}

impl Default for Cpu {
    fn default() -> Self {
        Self::new()
    }
}

/// List of 32-bit integers in main memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuIds {
    ids: Vec<u32>,
    range: IdRange,
}

impl Backend for Cpu {
    type Recording = ();
}
