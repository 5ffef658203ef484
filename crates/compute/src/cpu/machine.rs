//! [`Machine`]: what kernels need to know about the processor, and the buffers that they reuse.

use girih_machine::Hierarchy;

use super::scratch::Scratch;
use super::simd::Isa;
use crate::Dtype;

/// The processor at hand, with scratch memory.
#[derive(Debug)]
pub(crate) struct Machine {
    /// The instruction set of kernels.
    pub(crate) isa: Isa,
    /// Caches and memory.
    pub(crate) hierarchy: Hierarchy,
    /// The storage that `f32` operands of sparse products are rounded to while they are packed.
    pub(crate) gathered: Dtype,
    /// Buffers for panels, partial sums and converted blocks.
    pub(crate) scratch: Scratch,
}

impl Machine {
    /// This machine.
    pub(crate) fn detect() -> Self {
        Self::new(Isa::detect(), Hierarchy::of_processor(&girih_machine::Machine::here()))
    }

    /// A machine with the given instruction set and caches.
    pub(crate) fn new(isa: Isa, hierarchy: Hierarchy) -> Self {
        Self { isa, hierarchy, gathered: Dtype::F32, scratch: Scratch::default() }
    }
}
