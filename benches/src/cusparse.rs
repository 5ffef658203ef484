//! cuSPARSE, NVIDIA's library of sparse products, as the reference for girih's products on GPUs.
//!
//! The library is loaded at run time; nothing is linked. [`CuSparse`] is the library on the first device.
//! [`Adjacency`] is a pattern with values of one, because cuSPARSE has no matrices without values. [`Operands`] fixes
//! the width of the product. [`Product`] is the product by one [`Algorithm`], with the library's preprocessing done.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::cusparse::{result, sys};
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr};
use girih_compute::Dtype;
use girih_graph_format::Csr;
use rayon::prelude::*;

use crate::Error;

/// Factors of `out = 1·A·X + 0·out`.
static ALPHA: f32 = 1.0;
static BETA: f32 = 0.0;
const AS_IT_IS: sys::cusparseOperation_t = sys::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;
/// Sums are in `f32` for every storage type.
const SUMS: sys::cudaDataType = sys::cudaDataType::CUDA_R_32F;

/// Algorithm by which cuSPARSE multiplies a CSR matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// The library's default.
    Default,
    /// `CUSPARSE_SPMM_CSR_ALG1`.
    Csr1,
    /// `CUSPARSE_SPMM_CSR_ALG2`.
    Csr2,
    /// `CUSPARSE_SPMM_CSR_ALG3`.
    Csr3,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 4] = [Self::Default, Self::Csr1, Self::Csr2, Self::Csr3];

    /// Name in records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Csr1 => "csr_alg1",
            Self::Csr2 => "csr_alg2",
            Self::Csr3 => "csr_alg3",
        }
    }

    fn code(self) -> sys::cusparseSpMMAlg_t {
        match self {
            Self::Default => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_ALG_DEFAULT,
            Self::Csr1 => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG1,
            Self::Csr2 => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG2,
            Self::Csr3 => sys::cusparseSpMMAlg_t::CUSPARSE_SPMM_CSR_ALG3,
        }
    }
}

/// The library on the first device, with its own stream.
pub struct CuSparse {
    stream: Arc<CudaStream>,
    handle: sys::cusparseHandle_t,
}

impl CuSparse {
    /// Loads the library. `None` if the system's loader does not find it, or a library that it needs.
    ///
    /// # Errors
    /// When the library is present and fails, or there is no device.
    pub fn open() -> Result<Option<Self>, Error> {
        // SAFETY: this looks for a library and calls nothing in it.
        if !unsafe { sys::is_culib_present() } {
            return Ok(None);
        }
        let stream = CudaContext::new(0)?.new_stream()?;
        let handle = result::create().map_err(|error| format!("cuSPARSE: cusparseCreate: {:?}", error.0))?;
        let library = Self { stream, handle };
        // SAFETY: the handle was just made, and the stream lives as long as it does.
        let status = unsafe { sys::cusparseSetStream(handle, library.stream.cu_stream().cast()) };
        checked("cusparseSetStream", status)?;
        Ok(Some(library))
    }

    /// Pattern of `graph` on the device, with values of one.
    ///
    /// # Errors
    /// When the number of entries exceeds 32-bit offsets, or device memory does not suffice.
    pub fn adjacency(&self, graph: &Csr, dtype: Dtype) -> Result<Adjacency<'_>, Error> {
        let offsets: Result<Vec<i32>, _> = graph.indptr().iter().map(|&offset| i32::try_from(offset)).collect();
        let offsets = offsets.map_err(|_| format!("cuSPARSE: {} entries are beyond 32-bit offsets", graph.nnz()))?;
        Ok(Adjacency {
            cusparse: self,
            shape: [graph.n_rows() as i64, graph.n_cols() as i64, graph.nnz() as i64],
            indptr: self.stream.clone_htod(&offsets)?,
            indices: self.stream.clone_htod(graph.indices())?,
            values: self.upload(&vec![1.0; graph.nnz()], dtype)?,
            dtype,
        })
    }

    /// Uploads values. In bf16 only their upper halves are kept, so values must be representable in bf16.
    fn upload(&self, values: &[f32], dtype: Dtype) -> Result<CudaSlice<u8>, Error> {
        Ok(match dtype {
            Dtype::F32 => self.stream.clone_htod(bytemuck::cast_slice::<_, u8>(values))?,
            Dtype::Bf16 => {
                let halves: Vec<u16> = values.par_iter().map(|value| (value.to_bits() >> 16) as u16).collect();
                self.stream.clone_htod(bytemuck::cast_slice::<_, u8>(&halves))?
            }
        })
    }
}

impl Drop for CuSparse {
    fn drop(&mut self) {
        // SAFETY: `open` created the handle, and it is destroyed only here. A failure has no remedy.
        let _ = unsafe { result::destroy(self.handle) };
    }
}

/// Pattern with values of one.
pub struct Adjacency<'l> {
    cusparse: &'l CuSparse,
    /// Number of rows, columns and entries.
    shape: [i64; 3],
    indptr: CudaSlice<i32>,
    indices: CudaSlice<u32>,
    values: CudaSlice<u8>,
    dtype: Dtype,
}

impl Adjacency<'_> {
    /// Operand `x` with `width` columns, stored like the values, and memory for the result. Values of `x` must be
    /// representable: bf16 truncates the rest.
    ///
    /// # Errors
    /// When device memory does not suffice.
    ///
    /// # Panics
    /// When `x` does not have one row per column of the pattern.
    pub fn operands(&self, x: &[f32], width: usize) -> Result<Operands<'_>, Error> {
        let [n_rows, n_cols, _] = self.shape;
        assert_eq!(x.len(), n_cols as usize * width, "a row of the operand for each column of the pattern");
        let cusparse = self.cusparse;
        let out = cusparse.stream.alloc_zeros(n_rows as usize * width * self.dtype.n_bytes())?;
        Ok(Operands { adjacency: self, width, x: cusparse.upload(x, self.dtype)?, out })
    }

    fn stream(&self) -> &Arc<CudaStream> {
        &self.cusparse.stream
    }

    fn element(&self) -> sys::cudaDataType {
        match self.dtype {
            Dtype::F32 => sys::cudaDataType::CUDA_R_32F,
            Dtype::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        }
    }
}

/// Pattern with an operand and a result. All algorithms write to the same result.
pub struct Operands<'a> {
    adjacency: &'a Adjacency<'a>,
    width: usize,
    x: CudaSlice<u8>,
    out: CudaSlice<u8>,
}

impl Operands<'_> {
    /// Product by every algorithm that accepts these operands. A refusal is printed on standard error.
    ///
    /// # Errors
    /// When the device fails.
    pub fn products(&self) -> Result<Vec<Product<'_>>, Error> {
        let mut products = Vec::new();
        for algorithm in Algorithm::ALL {
            match Product::prepare(self, algorithm) {
                Ok(product) => products.push(product),
                Err(error) => eprintln!("{} at width {}: {error}", algorithm.name(), self.width),
            }
        }
        self.adjacency.stream().synchronize()?;
        Ok(products)
    }

    /// Concatenated rows of the result, selected by `rows`.
    ///
    /// # Errors
    /// When the device fails.
    pub fn rows(&self, rows: &[u32]) -> Result<Vec<f32>, Error> {
        let row_bytes = self.width * self.adjacency.dtype.n_bytes();
        let mut bytes = vec![0u8; rows.len() * row_bytes];
        for (&row, bytes) in rows.iter().zip(bytes.chunks_exact_mut(row_bytes)) {
            let start = row as usize * row_bytes;
            self.adjacency.stream().memcpy_dtoh(&self.out.slice(start..start + row_bytes), bytes)?;
        }
        self.adjacency.stream().synchronize()?;
        Ok(match self.adjacency.dtype {
            Dtype::F32 => bytemuck::pod_collect_to_vec(&bytes),
            Dtype::Bf16 => {
                let halves: Vec<u16> = bytemuck::pod_collect_to_vec(&bytes);
                halves.into_iter().map(|half| f32::from_bits(u32::from(half) << 16)).collect()
            }
        })
    }

    fn pointer<T>(&self, slice: &CudaSlice<T>) -> *mut c_void {
        slice.device_ptr(self.adjacency.stream()).0 as *mut c_void
    }
}

/// Function of the library that takes a product's handle, operands, factors and working memory.
type OfProduct = unsafe fn(
    sys::cusparseHandle_t,
    sys::cusparseOperation_t,
    sys::cusparseOperation_t,
    *const c_void,
    sys::cusparseConstSpMatDescr_t,
    sys::cusparseConstDnMatDescr_t,
    *const c_void,
    sys::cusparseDnMatDescr_t,
    sys::cudaDataType,
    sys::cusparseSpMMAlg_t,
    *mut c_void,
) -> sys::cusparseStatus_t;

/// Product by one algorithm, prepared: descriptors, working memory and the library's preprocessing. Each product has
/// its own sparse descriptor, because the preprocessing for an algorithm changes it.
pub struct Product<'o> {
    operands: &'o Operands<'o>,
    algorithm: Algorithm,
    a: sys::cusparseSpMatDescr_t,
    x: sys::cusparseDnMatDescr_t,
    out: sys::cusparseDnMatDescr_t,
    work: CudaSlice<u8>,
}

impl<'o> Product<'o> {
    fn prepare(operands: &'o Operands<'o>, algorithm: Algorithm) -> Result<Self, Error> {
        let work = operands.adjacency.stream().alloc_zeros(1)?;
        let (a, x, out) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let mut product = Self { operands, algorithm, a, x, out, work };
        product.describe()?;
        let n_bytes = product.work_bytes()?;
        product.work = operands.adjacency.stream().alloc_zeros(n_bytes.max(1))?;
        product.call("cusparseSpMM_preprocess", sys::cusparseSpMM_preprocess)?;
        product.run()?;
        Ok(product)
    }

    /// Creates the descriptors. If one fails, the others are destroyed with the product.
    fn describe(&mut self) -> Result<(), Error> {
        let operands = self.operands;
        let adjacency = operands.adjacency;
        let ([n_rows, n_cols, nnz], width, element) = (adjacency.shape, operands.width as i64, adjacency.element());
        let index = sys::cusparseIndexType_t::CUSPARSE_INDEX_32I;
        let base = sys::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
        let (indptr, indices) = (operands.pointer(&adjacency.indptr), operands.pointer(&adjacency.indices));
        let values = operands.pointer(&adjacency.values);
        // SAFETY: the arrays hold `n_rows + 1` offsets and `nnz` indices and values of the types that are named; they
        // and the product borrow from the same operands, which outlive the descriptor.
        let status = unsafe {
            sys::cusparseCreateCsr(
                &raw mut self.a,
                n_rows,
                n_cols,
                nnz,
                indptr,
                indices,
                values,
                index,
                index,
                base,
                element,
            )
        };
        checked("cusparseCreateCsr", status)?;
        let row_major = sys::cusparseOrder_t::CUSPARSE_ORDER_ROW;
        for (matrix, rows, data) in [(&mut self.x, n_cols, &operands.x), (&mut self.out, n_rows, &operands.out)] {
            let data = operands.pointer(data);
            // SAFETY: the array holds `rows × width` such elements, row after row, and outlives the descriptor.
            let status =
                unsafe { sys::cusparseCreateDnMat(&raw mut *matrix, rows, width, width, data, element, row_major) };
            checked("cusparseCreateDnMat", status)?;
        }
        Ok(())
    }

    /// Bytes of working memory.
    fn work_bytes(&self) -> Result<usize, Error> {
        let mut n_bytes = 0;
        // SAFETY: handle and descriptors are alive, factors have the type of sums, and nothing is computed.
        let status = unsafe {
            sys::cusparseSpMM_bufferSize(
                self.handle(),
                AS_IT_IS,
                AS_IT_IS,
                (&raw const ALPHA).cast(),
                self.a.cast_const(),
                self.x.cast_const(),
                (&raw const BETA).cast(),
                self.out,
                SUMS,
                self.algorithm.code(),
                &raw mut n_bytes,
            )
        };
        checked("cusparseSpMM_bufferSize", status)?;
        Ok(n_bytes)
    }

    /// Calls one of the two functions that take the prepared operands and working memory.
    fn call(&self, name: &str, function: OfProduct) -> Result<(), Error> {
        // SAFETY: as in `work_bytes`; the working memory has the requested size. Descriptors and the arrays that they
        // refer to live as long as the product. All readers and writers are on the library's only stream.
        let status = unsafe {
            function(
                self.handle(),
                AS_IT_IS,
                AS_IT_IS,
                (&raw const ALPHA).cast(),
                self.a.cast_const(),
                self.x.cast_const(),
                (&raw const BETA).cast(),
                self.out,
                SUMS,
                self.algorithm.code(),
                self.operands.pointer(&self.work),
            )
        };
        checked(name, status)
    }

    /// Algorithm of the product.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Launches the product without waiting for it.
    ///
    /// # Errors
    /// When the library refuses.
    pub fn run(&self) -> Result<(), Error> {
        self.call("cusparseSpMM", sys::cusparseSpMM)
    }

    /// Seconds of one product by the device's clock.
    ///
    /// # Errors
    /// When the library refuses or the device fails.
    pub fn seconds(&self) -> Result<f64, Error> {
        let stream = self.operands.adjacency.stream();
        let event = || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
        stream.synchronize()?;
        let start = event()?;
        self.run()?;
        Ok(f64::from(start.elapsed_ms(&event()?)?) / 1e3)
    }

    fn handle(&self) -> sys::cusparseHandle_t {
        self.operands.adjacency.cusparse.handle
    }
}

impl Drop for Product<'_> {
    /// Destroys the existing descriptors. Pending work on the stream does not need them: they live on the host.
    fn drop(&mut self) {
        if !self.a.is_null() {
            // SAFETY: `describe` created it, and it is destroyed only here. A failure has no remedy.
            let _ = unsafe { sys::cusparseDestroySpMat(self.a.cast_const()) };
        }
        for matrix in [self.x, self.out].into_iter().filter(|matrix| !matrix.is_null()) {
            // SAFETY: as above.
            let _ = unsafe { sys::cusparseDestroyDnMat(matrix.cast_const()) };
        }
    }
}

fn checked(what: &str, status: sys::cusparseStatus_t) -> Result<(), Error> {
    status.result().map_err(|error| format!("cuSPARSE: {what}: {:?}", error.0).into())
}
