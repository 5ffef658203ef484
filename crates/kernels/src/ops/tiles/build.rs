//! `cuda/tiling.cu`: the search for the dense blocks of a pattern, and their division into spans.

use std::cmp::Reverse;

use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use girih_compute::scratch::COUNTS_BYTES_MAX;
use girih_compute::{ComputeError, Shape};
use girih_graph_format::BlockLayout;

use super::SPANS_PER_PROCESSOR;
use crate::abi::{BLOCK, BlockSearch, WorkItem};
use crate::buffer::Buffer;
use crate::compile::Source;
use crate::cuda::Cuda;
use crate::matrix::{Blocks, CudaCsr, Split, TileCache, Tiles, Work};
use crate::ops::tiles_paper::shares;

impl Cuda {
    /// Builds the blocks of at least `least` entries, and the rest of a pattern; `None` if it has no such block.
    pub(super) fn build_tiles(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        least: u32,
    ) -> Result<Option<Tiles>, ComputeError> {
        let (layout, rows) = (self.block_kernel.layout(), csr.shape.rows);
        let (search, config, _counts) = self.search(operation, csr, layout, least)?;
        let n_rows = rows.div_ceil(layout.rows());
        let (blocks, outside) = self.count_blocks(operation, layout, search, config, (n_rows, rows))?;
        let (first, rest_indptr) = (ends::<u32>(&blocks), ends::<u64>(&outside));
        let (n_blocks, n_rest) = (first[n_rows] as usize, rest_indptr[rows] as usize);
        let coverage = 1.0 - n_rest as f64 / csr.nnz as f64;
        let threshold = f64::from(least) / (layout.rows() * layout.cols()) as f64;
        tracing::debug!("{n_blocks} blocks of {least} entries or more hold {:.1} % of {}", 100.0 * coverage, csr.nnz);
        if n_blocks == 0 {
            return Ok(None);
        }
        let mut columns = self.scratch::<u32>(operation, n_blocks)?;
        let mut bits = self.scratch::<u32>(operation, n_blocks * layout.n_words())?;
        self.device.stream.memset_zeros(&mut bits).map_err(Self::failed(operation))?;
        let mut rest_indices = self.scratch::<u32>(operation, n_rest)?;
        let (first_on_device, indptr) =
            (self.upload_list(operation, &first)?, self.upload_list(operation, &rest_indptr)?);
        let kernel = self.tiling_kernel(operation, "fill_blocks", layout)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&search).arg(&first_on_device).arg(&mut columns).arg(&mut bits).arg(&indptr).arg(&mut rest_indices);
        // SAFETY: as in `count_blocks`, whose counts give the number of blocks and of other entries of each row.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        let hubs = self.upload_hubs(operation, &rest_indptr)?;
        let rest = CudaCsr {
            shape: csr.shape,
            nnz: n_rest,
            indptr,
            indices: rest_indices,
            values: None,
            positions: None,
            hubs,
            tiles: TileCache::default(),
        };
        let blocks = self.blocks(operation, layout, (&first, first_on_device), columns, bits)?;
        Ok(Some(Tiles { rest, blocks, split: Split { entries_min: least, threshold, n_blocks, coverage } }))
    }

    /// Builds blocks from their columns and bitmaps, and divides them into work items. `first` holds the first block
    /// of each row of blocks.
    pub(in crate::ops) fn blocks(
        &self,
        operation: &'static str,
        layout: BlockLayout,
        (first, first_on_device): (&[u32], Buffer<u32>),
        columns: Buffer<u32>,
        bits: Buffer<u32>,
    ) -> Result<Blocks, ComputeError> {
        let n_sms = self.device.n_sms();
        let (work, n_slots, slots) = match layout {
            BlockLayout::Fragments => {
                let (spans, slots) = spans(first, n_sms);
                (Work::Spans(self.upload_list(operation, &spans)?), spans.len(), slots)
            }
            BlockLayout::Tiles => {
                let (shares, slots) = shares(first, n_sms);
                (Work::Shares(self.upload_list(operation, &shares)?), shares.len(), slots)
            }
        };
        let (n, n_rows) = (first.last().map_or(0, |&end| end as usize), first.len() - 1);
        let n_windows = first.windows(2).filter(|ends| ends[0] < ends[1]).count();
        let slots = self.upload_list(operation, &slots)?;
        Ok(Blocks { layout, n, n_rows, n_windows, first: first_on_device, columns, bits, work, slots, n_slots })
    }

    /// Arguments, launch and counters of kernels that search for blocks of `least` entries.
    pub(in crate::ops) fn search(
        &self,
        operation: &'static str,
        csr: &CudaCsr,
        layout: BlockLayout,
        least: u32,
    ) -> Result<(BlockSearch, LaunchConfig, Buffer<u32>), ComputeError> {
        let Shape { rows, cols } = csr.shape;
        let (n_rows, n_panels) = (rows.div_ceil(layout.rows()), cols.div_ceil(layout.cols()));
        let at_once = n_rows.min(8 * self.device.n_sms()).min(COUNTS_BYTES_MAX / (4 * n_panels)).max(1);
        let counts = self.scratch::<u32>(operation, at_once * n_panels)?;
        let search = BlockSearch {
            indptr: self.pointer(Some(&csr.indptr)),
            indices: self.pointer(Some(&csr.indices)),
            n_rows: rows as u64,
            n_panels: n_panels as u64,
            least,
            padding: 0,
            counts: self.pointer(Some(&counts)),
        };
        let config = LaunchConfig { grid_dim: (at_once as u32, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 };
        Ok((search, config, counts))
    }

    /// Kernel of `cuda/tiling.cu` for blocks of a layout.
    pub(in crate::ops) fn tiling_kernel(
        &self,
        operation: &'static str,
        name: &str,
        layout: BlockLayout,
    ) -> Result<CudaFunction, ComputeError> {
        let defines = vec![("ROWS", layout.rows().to_string()), ("PANEL", layout.cols().to_string())];
        self.variant(operation, Source::TILING, name, &defines)
    }

    /// Number of blocks of each window, and number of entries of each row outside of blocks.
    fn count_blocks(
        &self,
        operation: &'static str,
        layout: BlockLayout,
        search: BlockSearch,
        config: LaunchConfig,
        (n_windows, n_rows): (usize, usize),
    ) -> Result<(Vec<u32>, Vec<u32>), ComputeError> {
        let mut blocks = self.scratch::<u32>(operation, n_windows)?;
        let mut rest = self.scratch::<u32>(operation, n_rows)?;
        let kernel = self.tiling_kernel(operation, "count_blocks", layout)?;
        let mut launch = self.device.stream.launch_builder(&kernel);
        launch.arg(&search).arg(&mut blocks).arg(&mut rest);
        // SAFETY: the search holds a pattern, and a number for each panel and each thread block; results have a number
        // for each window and each row.
        unsafe { launch.launch(config) }.map_err(Self::failed(operation))?;
        let read = |list: &Buffer<u32>, n: usize| self.read(operation, &list.slice(..n));
        Ok((read(&blocks, n_windows)?, read(&rest, n_rows)?))
    }
}

/// Offsets of consecutive lists of the given lengths, with the end of the last.
fn ends<T: Copy + Default + std::ops::Add<Output = T> + From<u32>>(lengths: &[u32]) -> Vec<T> {
    let mut end = T::default();
    let ends = lengths.iter().map(|&length| {
        end = end + T::from(length);
        end
    });
    std::iter::once(T::default()).chain(ends).collect()
}

/// Cuts the blocks of each window into spans, one for each slot, and sorts them by falling length. `first` holds the
/// first block of each window. Also returns the first slot of each window, and one more.
fn spans(first: &[u32], n_cpus: usize) -> (Vec<WorkItem>, Vec<u32>) {
    let n_blocks = first.last().copied().unwrap_or(0) as usize;
    let most = n_blocks.div_ceil(n_cpus * SPANS_PER_PROCESSOR).max(16) as u32;
    let (mut spans, mut slots) = (Vec::new(), vec![0]);
    for ends in first.windows(2) {
        let n_spans = (ends[1] - ends[0]).div_ceil(most);
        for i in 0..n_spans {
            // Spans of even length: the last one is not a remnant.
            let cut = |i: u32| ends[0] + (u64::from(ends[1] - ends[0]) * u64::from(i) / u64::from(n_spans)) as u32;
            spans.push(WorkItem { slot: spans.len() as u32, first: cut(i), last: cut(i + 1), padding: 0 });
        }
        slots.push(spans.len() as u32);
    }
    spans.sort_by_key(|span| Reverse(span.last - span.first));
    (spans, slots)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Every block is in one span, spans are no longer than their fair share, and slots are those of the window.
        #[test]
        fn spans_share_out_all_blocks(lengths in prop::collection::vec(0_u32..400, 1..40), n_cpus in 1_usize..8) {
            let first = ends::<u32>(&lengths);
            let (mut spans, slots) = spans(&first, n_cpus);
            prop_assert!(spans.is_sorted_by_key(|span| Reverse(span.last - span.first)));
            spans.sort_by_key(|span| span.slot);
            let n_blocks = first[lengths.len()];
            let most = (n_blocks as usize).div_ceil(n_cpus * SPANS_PER_PROCESSOR).max(16) as u32;
            for (window, slots) in slots.windows(2).enumerate() {
                let of_window = &spans[slots[0] as usize..slots[1] as usize];
                let mut next = first[window];
                for span in of_window {
                    prop_assert!(span.first == next && span.last > next && span.last - span.first <= most);
                    next = span.last;
                }
                prop_assert_eq!(next, first[window + 1]);
            }
            prop_assert_eq!(spans.len(), slots[lengths.len()] as usize);
        }
    }
}
