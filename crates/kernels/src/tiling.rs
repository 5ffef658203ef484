//! Options of block products: [`BlockKernel`], and [`Tiling`], the choice of blocks.

use std::fmt;
use std::str::FromStr;

use girih_graph_format::BlockLayout;

use crate::device::has_wgmma;

/// Kernel that multiplies blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKernel {
    /// `wgmma` of compute capability 9.0: `cuda/tiles.cu`.
    Wgmma,
    /// `mma.sync` of all supported GPUs: `cuda/tiles_mma.cu`.
    Mma,
    /// Without tensor cores, in tiles of 32 × 32, one warp for each: paper A's algorithm 3, `cuda/tiles_paper.cu`.
    Paper,
}

impl BlockKernel {
    /// Fastest kernel of a GPU.
    pub(crate) fn of(capability: (i32, i32)) -> Self {
        if Self::Wgmma.runs_on(capability) { Self::Wgmma } else { Self::Mma }
    }

    /// Whether supported GPUs of a capability have its instructions.
    pub(crate) fn runs_on(self, capability: (i32, i32)) -> bool {
        match self {
            Self::Wgmma => has_wgmma(capability),
            Self::Mma | Self::Paper => true,
        }
    }

    /// Layout of the blocks that it multiplies.
    #[must_use]
    pub fn layout(self) -> BlockLayout {
        match self {
            Self::Wgmma | Self::Mma => BlockLayout::Fragments,
            Self::Paper => BlockLayout::Tiles,
        }
    }
}

impl fmt::Display for BlockKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Wgmma => "wgmma",
            Self::Mma => "mma",
            Self::Paper => "paper",
        })
    }
}

impl FromStr for BlockKernel {
    type Err = String;

    /// Parses `wgmma`, `mma` or `paper`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wgmma" => Ok(Self::Wgmma),
            "mma" => Ok(Self::Mma),
            "paper" => Ok(Self::Paper),
            _ => Err("neither wgmma, mma, nor paper".to_owned()),
        }
    }
}

/// Choice of the adjacency blocks that tensor cores multiply.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Tiling {
    /// Blocks that are faster on tensor cores, of adjacencies that are large enough.
    #[default]
    Auto,
    /// No blocks.
    Never,
    /// Blocks with at least this share of their places filled, from 0 to 1.
    From(f64),
}

/// Number of entries for a share of a block's places; at least one.
pub(crate) fn entries_of(share: f64, layout: BlockLayout) -> u32 {
    ((share * (layout.rows() * layout.cols()) as f64).ceil() as u32).max(1)
}

impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => write!(f, "auto"),
            Self::Never => write!(f, "never"),
            Self::From(share) => write!(f, "{share}"),
        }
    }
}

impl FromStr for Tiling {
    type Err = String;

    /// Parses `auto`, `never`, or a share between zero and one.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "never" => Ok(Self::Never),
            share => match share.parse() {
                Ok(share) if (0.0..=1.0).contains(&share) => Ok(Self::From(share)),
                _ => Err("neither auto, never, nor a share between 0 and 1".to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read() {
        assert_eq!("auto".parse(), Ok(Tiling::Auto));
        assert_eq!("never".parse(), Ok(Tiling::Never));
        assert_eq!("0.05".parse(), Ok(Tiling::From(0.05)));
        assert_eq!(Tiling::From(0.05).to_string().parse(), Ok(Tiling::From(0.05)));
        for wrong in ["", "5 %", "-0.1", "1.5", "NaN"] {
            assert!(wrong.parse::<Tiling>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn gpus_multiply_by_what_they_have() {
        for (capability, kernel) in [
            ((8, 0), BlockKernel::Mma),
            ((8, 9), BlockKernel::Mma),
            ((9, 0), BlockKernel::Wgmma),
            ((12, 0), BlockKernel::Mma),
        ] {
            assert_eq!(BlockKernel::of(capability), kernel, "{capability:?}");
        }
        for kernel in [BlockKernel::Wgmma, BlockKernel::Mma, BlockKernel::Paper] {
            assert_eq!(kernel.to_string().parse(), Ok(kernel));
        }
        assert!("cuda".parse::<BlockKernel>().is_err());
    }
}
