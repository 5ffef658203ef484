//! [`Machine`]: properties of the CPU that kernels need, and their reusable buffers.

use girih_machine::Hierarchy;

use super::scratch::Scratch;
use super::simd::Isa;
use crate::Dtype;

/// CPU of this machine, with scratch memory.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Instruction set of the kernels.
    pub(crate) isa: Isa,
    /// Caches and memory.
    pub(crate) hierarchy: Hierarchy,
    /// Storage type to which `f32` operands of sparse products are rounded while they are packed.
    pub(crate) gathered: Dtype,
    /// Buffers for panels, partial sums and converted blocks.
    pub(crate) scratch: Scratch,
}

impl Machine {
    /// Detects this machine.
    pub(crate) fn detect() -> Self {
        Self::new(Isa::detect(), Hierarchy::of_cpu(&girih_machine::Machine::here()))
    }

    /// Machine with the given instruction set and caches.
    pub(crate) fn new(isa: Isa, hierarchy: Hierarchy) -> Self {
        Self { isa, hierarchy, gathered: Dtype::F32, scratch: Scratch::default() }
    }
}
