//! Constants that kernels and their launches share, so that no number stands twice.
//!
//! The compiler of kernels gets each one as a macro with the prefix `ABI_`: at run time from `compile.rs`, and for
//! `cargo xtask kernels` from this file, which therefore imports nothing.

/// Defines constants, and [`FLAGS`] from all of them.
macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:literal;)*) => {
        $($(#[$doc])* pub(crate) const $name: $type = $value;)*

        /// Flags that define all constants for the compiler of kernels, like `-DABI_BLOCK=256`.
        pub(crate) const FLAGS: &[&str] = &[$(concat!("-DABI_", stringify!($name), "=", $value)),*];
    };
}

constants! {
    /// Default number of threads of a block.
    BLOCK: u32 = 256;
    /// Threads of a large block: for a hub, for sums of columns in a fixed order, for copies over the bus.
    LARGE_BLOCK: u32 = 1024;
    /// Alignment of rows in elements: it suits every load, whatever the element type.
    WIDE: usize = 8;
    /// Number of the activation that changes nothing.
    IDENTITY: u32 = 0;
    /// Number of the rectifier.
    RELU: u32 = 1;
    /// Number of the exponential linear unit.
    ELU: u32 = 2;
    /// Number of the Gaussian error linear unit among element-wise functions.
    GELU: u32 = 0;
    /// Number of the sigmoid among element-wise functions.
    SIGMOID: u32 = 1;
    /// Factor of the Gaussian error linear unit, `Function::GELU_SCALE`.
    GELU_SCALE: f32 = 0.797_884_6;
    /// Factor of its cube, `Function::GELU_CUBE`.
    GELU_CUBE: f32 = 0.044_715;
    /// Rows that a thread reads before it writes the first, in passes over columns.
    ROWS_OF_THREAD: usize = 4;
    /// Side of the block that finishes sums of columns: so many columns by so many partial sums.
    FINISH: u32 = 32;
    /// Most parameters of a launch of an optimiser.
    UPDATES_MAX: usize = 64;

    /// Entries of a segment of a hub.
    SEGMENT: u64 = 1024;
    /// Threads of a block of a sparse product.
    SPMM_BLOCK: u32 = 64;
    /// Ids that the lanes of a group hold together, if a group has fewer lanes.
    SPMM_IDS: usize = 8;
    /// Stride of the search for the largest element of an operand: it reads one element in so many.
    SAMPLED: usize = 16;
    /// Columns of a warp whose lanes take four each.
    WARP_COLUMNS: usize = 128;
    /// Lanes of a row, or of a column, of a transpose.
    TRANSPOSE_LANES: usize = 8;
    /// Longest column of a transpose that is sorted as one; longer ones are sorted in pieces.
    TRANSPOSE_SHORT: usize = 128;

    /// Rows of a window, which is a row of blocks for tensor cores.
    WINDOW: usize = 256;
    /// Columns of a block for tensor cores.
    PANEL: usize = 64;
    /// Candidate shares of filled places from which blocks are used.
    N_CANDIDATES: usize = 5;
    /// Panels in flight to a thread block of `mma`.
    MMA_STAGES: usize = 4;
    /// Most columns for which the registers of `mma` suffice for two thread blocks per SM.
    MMA_NARROW: usize = 64;
    /// Blocks in flight to a thread block of `wgmma`.
    WGMMA_STAGES: usize = 8;
    /// Threads of a warpgroup.
    WARPGROUP: u32 = 128;
    /// Warpgroups of a thread block of `wgmma` that multiply; one more fetches.
    WGMMA_GROUPS: u32 = 2;
    /// Rows, and columns, of a tile of `tiles_paper.cu`.
    PAPER_TILE: usize = 32;

    /// Bytes of the summed dimension in a stage of a dense product, for each row.
    GEMM_DEPTH_BYTES: usize = 128;
    /// Stages of shared memory of a dense product by `mma`.
    GEMM_STAGES: usize = 3;
    /// Stages of shared memory of a dense product by `wgmma`.
    GEMM_WARPGROUP_STAGES: usize = 4;

    /// Units of 16 bytes that a thread copies at a time.
    UNITS_OF_THREAD: usize = 4;
    /// Bit that marks host addresses in lists of addresses of rows.
    ON_HOST_BIT: u32 = 63;
    /// Columns of a group of codes.
    CODE_GROUP: usize = 256;

    /// Rows, and threads, of a block that draws with a thread for each row.
    DRAW_ROWS: u32 = 128;
    /// Rows of a block that draws with several lanes for each row.
    DRAW_ROWS_MANY: u32 = 32;
    /// Bit of a sampled batch with more edges than its memory holds.
    TOO_MANY_EDGES: u64 = 1;
    /// Bit of a sampled batch with more nodes than its memory holds.
    TOO_MANY_NODES: u64 = 2;
    /// Bit of a sampled batch with a seed that is listed twice.
    SEED_TWICE: u64 = 4;
}
