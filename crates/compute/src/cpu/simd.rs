//! [`Isa`]: the vector instruction set of this machine, detected once at run time.
//!
//! Kernels are written once over [`pulp::Simd`] and compiled for each instruction set. The choice is made once for a
//! whole block of rows, so that its cost is negligible.

use pulp::{Arch, Scalar128b, Simd, WithSimd};

/// Instruction set that this machine supports: AVX-512, AVX2 with FMA, NEON, or plain 128-bit arithmetic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isa {
    /// Detected on this CPU.
    Native(Arch),
    /// Portable fallback for every CPU.
    Portable,
}

impl Isa {
    /// Best instruction set of this machine.
    pub(crate) fn detect() -> Self {
        match Arch::new() {
            Arch::Scalar => Self::Portable,
            arch => Self::Native(arch),
        }
    }

    /// Every instruction set that this machine supports, so that tests also reach kernels that it would not choose.
    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        let mut all = vec![Self::detect(), Self::Portable];
        #[cfg(target_arch = "x86_64")]
        all.extend(pulp::x86::V3::try_new().map(|v3| Self::Native(Arch::V3(v3))));
        all
    }

    /// Runs a kernel with this instruction set.
    #[inline]
    pub(crate) fn run<K: WithSimd>(self, kernel: K) -> K::Output {
        match self {
            Self::Native(arch) => arch.dispatch(kernel),
            Self::Portable => Scalar128b.vectorize(kernel),
        }
    }

    /// Common name of the instruction set.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Native(Arch::V4(_)) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Self::Native(Arch::V3(_)) => "AVX2 with FMA",
            #[cfg(target_arch = "aarch64")]
            Self::Native(Arch::Neon(_)) => "NEON",
            _ => "128-bit",
        }
    }

    /// Number of 32-bit words in one vector.
    pub(crate) fn lanes(self) -> usize {
        struct Lanes;
        impl WithSimd for Lanes {
            type Output = usize;

            #[inline(always)]
            fn with_simd<S: Simd>(self, _: S) -> usize {
                S::U32_LANES
            }
        }
        self.run(Lanes)
    }
}
