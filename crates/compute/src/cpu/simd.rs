//! [`Isa`]: the vector instruction set of this machine, detected once at run time.
//!
//! Kernels are written once over [`pulp::Simd`] and compiled for each instruction set. The choice is made once for a
//! whole block of rows, so that its cost is negligible.

#[cfg(target_arch = "aarch64")]
use pulp::aarch64::Neon;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use pulp::{Scalar128b, Simd, WithSimd};

/// Instruction set that this machine supports. Each variant is one copy of the machine code of all kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Isa {
    /// AVX-512, detected on this CPU.
    #[cfg(target_arch = "x86_64")]
    Avx512(V4),
    /// AVX2 with FMA, detected on this CPU.
    #[cfg(target_arch = "x86_64")]
    Avx2(V3),
    /// NEON, detected on this CPU.
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    /// Plain 128-bit arithmetic, for every CPU.
    Portable,
}

impl Isa {
    /// Every instruction set that this machine supports, the best one first.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        #[cfg(target_arch = "x86_64")]
        let native = V4::try_new().map(Self::Avx512).into_iter().chain(V3::try_new().map(Self::Avx2));
        #[cfg(target_arch = "aarch64")]
        let native = Neon::try_new().map(Self::Neon).into_iter();
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let native = std::iter::empty();
        native.chain([Self::Portable])
    }

    /// Best instruction set of this machine.
    pub(crate) fn detect() -> Self {
        Self::all().next().unwrap_or(Self::Portable)
    }

    /// Runs a kernel with this instruction set.
    #[inline]
    pub(crate) fn run<K: WithSimd>(self, kernel: K) -> K::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(simd) => Simd::vectorize(simd, kernel),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(simd) => Simd::vectorize(simd, kernel),
            #[cfg(target_arch = "aarch64")]
            Self::Neon(simd) => Simd::vectorize(simd, kernel),
            Self::Portable => Scalar128b.vectorize(kernel),
        }
    }

    /// Common name of the instruction set.
    pub(crate) fn name(self) -> &'static str {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(_) => "AVX-512",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(_) => "AVX2 with FMA",
            #[cfg(target_arch = "aarch64")]
            Self::Neon(_) => "NEON",
            Self::Portable => "128-bit",
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
