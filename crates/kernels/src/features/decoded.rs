//! [`Decoded`]: a store of codes, which are also summed without decoding them.

use girih_compute::{ComputeError, Shape, Transpose, checks};
use girih_features::{FeatureStore, Pending, PendingSums, RowSums};

use super::code_book::CodeSums;
use super::in_place::IN_DEVICE;
use super::request::{RowBuffers, StoredRows, Wanted, address};
use super::row_checks::{OPERATION, check_dtypes, check_first};
use super::row_launch::RowLaunch;
use super::store::{Gather, Store};
use crate::Cuda;
use crate::abi::{GatherIndex, RowSource};
use crate::buffer::Buffer;
use crate::matrix::{CudaIds, CudaMatrix, CudaSparse};

/// Store of codes around any rows; see the module.
pub(super) struct Decoded<S> {
    pub(super) store: Store<S>,
    /// Copies codes without decoding them.
    pub(super) copy: RowLaunch,
    pub(super) sums: CodeSums,
    /// Codes in memory of the device, which are summed where they are. Others are brought, each once.
    pub(super) resident: Option<RowSource>,
    pub(super) codes: RowBuffers,
}

impl<S: StoredRows> FeatureStore<Cuda> for Decoded<S> {
    fn gather_async<'s>(
        &'s self,
        cuda: &Cuda,
        ids: &CudaIds,
        before: Option<(&CudaIds, &CudaMatrix)>,
        out: &mut CudaMatrix,
    ) -> Result<Pending<'s>, ComputeError> {
        self.store.gather_async(cuda, ids, before, out)
    }

    fn sums(&self) -> Option<&dyn RowSums<Cuda>> {
        Some(self)
    }
}

impl<S: StoredRows> RowSums<Cuda> for Decoded<S> {
    fn gather_async<'s>(&'s self, cuda: &Cuda, ids: &CudaIds) -> Result<Box<dyn PendingSums<Cuda> + 's>, ComputeError> {
        let n = ids.range.len;
        checks::gather_rows(self.store.shape(), ids.range, Shape::new(n, self.store.result.0))?;
        if self.resident.is_some() {
            return Ok(Box::new(PendingCodes { of: self, gather: None, codes: None }));
        }
        let codes = if n > 0 { Some(self.codes.take(cuda, n)?) } else { None };
        let (wanted, to) = (Wanted::All(cuda.pointer(Some(&ids.ids)), n), codes.as_ref().map_or(0, address));
        // SAFETY: ids were checked to be rows, and there is space for each; the caller keeps them.
        let gather = Some(unsafe { self.store.begin(cuda, wanted, (&self.copy, to), None) }?);
        Ok(Box::new(PendingCodes { of: self, gather, codes }))
    }
}

/// Codes of a batch under way, unless they are resident.
struct PendingCodes<'s, S: StoredRows> {
    of: &'s Decoded<S>,
    /// Before the codes, which are freed after it.
    gather: Option<Gather<'s, S>>,
    codes: Option<Buffer<u8>>,
}

impl<S: StoredRows> PendingSums<Cuda> for PendingCodes<'_, S> {
    fn wait(
        self: Box<Self>,
        cuda: &Cuda,
        (block, ids): (&CudaSparse, &CudaIds),
        own: Option<&mut CudaMatrix>,
        sums: &mut CudaMatrix,
    ) -> Result<(), ComputeError> {
        let Self { of, mut gather, codes } = *self;
        gather.as_mut().map_or(Ok(()), Gather::finish)?;
        of.check_sums((block, ids), own.as_deref(), sums)?;
        // Without ids nothing is read.
        let here = || (of.resident.unwrap_or_else(|| of.codes.source(0)), cuda.pointer(Some(&ids.ids)));
        let (rows, ids) = codes.as_ref().map_or_else(here, |codes| (of.codes.source(address(codes)), 0));
        if let Some(own) = own.filter(|own| !own.shape.is_empty()) {
            let (names, to) = (GatherIndex::of(ids), (cuda.pointer(Some(&own.data)), own.shape.rows as u64));
            // SAFETY: ids are rows, or there is one for each; codes were checked; `own` has no more rows than there
            // are.
            unsafe { of.store.write.put(&cuda.device.stream, IN_DEVICE, rows, names, to) }
                .map_err(Cuda::failed(OPERATION))?;
        }
        if !sums.shape.is_empty() {
            // SAFETY: as above; the block has a column for each id.
            unsafe { of.sums.put(cuda, OPERATION, block, (rows, ids), sums) }?;
        }
        of.codes.give(codes);
        Ok(())
    }
}

impl<S: StoredRows> Decoded<S> {
    /// Checks the outputs of a request for sums: the product with a block, and the first rows.
    fn check_sums(
        &self,
        (block, ids): (&CudaSparse, &CudaIds),
        own: Option<&CudaMatrix>,
        sums: &CudaMatrix,
    ) -> Result<(), ComputeError> {
        let (cols, dtype) = self.store.result;
        let (n, block) = (ids.range.len, block.forward.shape);
        checks::spmm((block, Transpose::No), 0, None, Shape::new(n, cols), None, sums.shape)?;
        own.map_or(Ok(()), |own| check_first(own.shape, Shape::new(n, cols)))?;
        own.into_iter().chain([sums]).try_for_each(|out| check_dtypes(OPERATION, dtype, out.dtype))
    }
}
