//! cuSPARSE, NVIDIA's library of sparse products: what girih's own are held against on its devices.
//!
//! It is looked for when a suite runs; nothing is linked. [`CuSparse`] is the library on the first device,
//! [`Adjacency`] a pattern with values of one, because cuSPARSE knows no matrix without values, [`Operands`] a width of
//! the product, and [`Product`] the product by one [`Algorithm`], prepared as far as the library prepares.

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

/// The factors of `out = 1·A·X + 0·out`.
static ALPHA: f32 = 1.0;
static BETA: f32 = 0.0;
const AS_IT_IS: sys::cusparseOperation_t = sys::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;
/// Sums are in `f32` whatever is stored.
const SUMS: sys::cudaDataType = sys::cudaDataType::CUDA_R_32F;

/// A way in which cuSPARSE multiplies compressed rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Whichever the library takes unless it is told.
    Default,
    /// `CUSPARSE_SPMM_CSR_ALG1`.
    Csr1,
    /// `CUSPARSE_SPMM_CSR_ALG2`.
    Csr2,
    /// `CUSPARSE_SPMM_CSR_ALG3`.
    Csr3,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Default, Self::Csr1, Self::Csr2, Self::Csr3];

    /// The name in records.
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

/// The library on the first device, with a stream of its own.
pub struct CuSparse {
    stream: Arc<CudaStream>,
    handle: sys::cusparseHandle_t,
}

impl CuSparse {
    /// Looks for the library; `None` where the system's loader does not find it, or what it needs.
    ///
    /// # Errors
    /// When the library is there and fails, or there is no device.
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

    /// The pattern of `graph` on the device, with values of one.
    ///
    /// # Errors
    /// When 32-bit offsets do not reach its entries, or the device's memory does not suffice.
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

    /// Numbers on the device; in bf16 their upper halves, which is all of a number that bf16 can hold.
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
        // SAFETY: the handle was made by `open` and is destroyed here alone. A failure leaves nothing to do.
        let _ = unsafe { result::destroy(self.handle) };
    }
}

/// A pattern with values of one.
pub struct Adjacency<'l> {
    cusparse: &'l CuSparse,
    /// Rows, columns, entries.
    shape: [i64; 3],
    indptr: CudaSlice<i32>,
    indices: CudaSlice<u32>,
    values: CudaSlice<u8>,
    dtype: Dtype,
}

impl Adjacency<'_> {
    /// The operand `x` of `width` columns, stored as the values are, and memory for the result. Numbers of `x` have to
    /// be representable: bf16 cuts off the rest.
    ///
    /// # Errors
    /// When the device's memory does not suffice.
    ///
    /// # Panics
    /// When `x` has not a row for each column of the pattern.
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

/// A pattern with an operand and a result; all algorithms write the same result.
pub struct Operands<'a> {
    adjacency: &'a Adjacency<'a>,
    width: usize,
    x: CudaSlice<u8>,
    out: CudaSlice<u8>,
}

impl Operands<'_> {
    /// The product by every algorithm that takes these operands; what refuses them is named on standard error.
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

    /// The rows of the result that `rows` names, one after the other.
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

/// A function of the library that takes a product's handle, operands, factors and working memory.
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

/// A product by one algorithm, prepared: descriptors, working memory and what the library finds out beforehand. Each
/// has a sparse descriptor of its own, because preparing for an algorithm changes it.
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

    /// Makes the descriptors; those that are made when one fails are destroyed with the product.
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
        // SAFETY: handle and descriptors are alive, factors are of the type of sums, and nothing is computed.
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
        // SAFETY: as in `work_bytes`; the working memory has the size that was asked for. Descriptors and what they
        // refer to live as long as the product, and all that reads or writes them is put on the library's one stream.
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

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Asks the device for the product, and does not wait for it.
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
    /// Destroys the descriptors that were made. Work that is still on the stream does not need them: they live on the
    /// host.
    fn drop(&mut self) {
        if !self.a.is_null() {
            // SAFETY: it was made by `describe` and is destroyed here alone. A failure leaves nothing to do.
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
