//! [`Lt`]: dense products by cuBLASLt, with a bias in the same pass.
//!
//! Products that cuBLASLt does not take, or all where it is not installed, go to cuBLAS and a pass. So do
//! activations. Its rectifier is documented as `max(x, 0)`, which may turn NaN into zero and hide a diverging model.
//!
//! An algorithm is chosen once for all products of nearly the same shape ([`Product::class`]). The choice takes the
//! host a tenth of a millisecond, which cuBLAS spends on every new shape, and mini-batches differ in their numbers of
//! rows. The choice depends on the shape alone, so that a run gives the same bits again.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use cudarc::driver::{CudaStream, DevicePtr};
use girih_compute::Dtype;

use crate::blas::{WORKSPACE, Workspace};

/// Shape and types for which an algorithm is chosen. cuBLASLt is column-major, so `rows` are the columns of a
/// row-major result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Product {
    pub(crate) rows: u64,
    pub(crate) cols: u64,
    pub(crate) depth: u64,
    /// Whether the first and the second operand are read transposed.
    pub(crate) transposed: [bool; 2],
    /// Elements from column to column, of both operands and of the result.
    pub(crate) pitches: [u64; 3],
    /// Element type of both operands.
    pub(crate) operands: Dtype,
    /// Element type of the result and the bias.
    pub(crate) out: Dtype,
    /// Whether a bias is added.
    pub(crate) has_bias: bool,
    /// Bytes that all addresses are a multiple of, by [`alignment`].
    pub(crate) alignment: u32,
}

/// Alignment of allocations in bytes, which cuBLASLt expects unless told otherwise.
const OF_ALLOCATIONS: u32 = 256;
/// Alignment in bytes of the widest loads.
const OF_LOADS: u32 = 16;

/// Alignment of some addresses in bytes, as far as it matters: that of allocations, of the widest loads, or of elements.
pub(crate) fn alignment(addresses: &[u64]) -> u32 {
    let is_aligned = |bytes: u32| addresses.iter().all(|address| address % u64::from(bytes) == 0);
    let found = [OF_ALLOCATIONS, OF_LOADS].into_iter().find(|&bytes| is_aligned(bytes));
    found.unwrap_or(size_of::<u16>() as u32)
}

/// Longest side that is not rounded for the class.
const EXACT: u64 = 512;

impl Product {
    /// Class of products that use one algorithm. Sides that vary from batch to batch are rounded up; contiguous
    /// sides, which pitches depend on, stay.
    fn class(self) -> Self {
        let [ta, tb] = self.transposed;
        let cols = if tb { self.cols } else { rounded(self.cols) };
        let depth = if !ta && tb { rounded(self.depth) } else { self.depth };
        Self { cols, depth, ..self }
    }
}

/// Side rounded up by at most an eighth.
fn rounded(side: u64) -> u64 {
    if side <= EXACT { side } else { side.next_multiple_of(side.next_power_of_two() / 16) }
}

/// Device addresses of the matrices of a product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operands {
    pub(crate) a: u64,
    pub(crate) b: u64,
    /// Address of one number for each of `rows`; zero without a bias.
    pub(crate) bias: u64,
    pub(crate) out: u64,
}

/// cuBLASLt on a stream.
pub(crate) struct Lt {
    stream: Arc<CudaStream>,
    handle: sys::cublasLtHandle_t,
    workspace: Workspace,
    /// Algorithm of each class of products; `None` for products that cuBLASLt does not offer.
    plans: Mutex<HashMap<Product, Option<Plan>>>,
}

// SAFETY: cuBLASLt takes a handle from any thread, also from several at once.
unsafe impl Send for Lt {}
// SAFETY: as above; descriptors, which are not safe to share, are used under the lock of `plans`.
unsafe impl Sync for Lt {}

impl Lt {
    /// Opens cuBLASLt on a stream; `None` where it is not installed or does not start.
    pub(crate) fn new(stream: &Arc<CudaStream>, workspace: Workspace) -> Option<Self> {
        // SAFETY: this looks for a library and calls nothing in it.
        if !unsafe { sys::is_culib_present() } {
            tracing::debug!("there is no cuBLASLt: biases are added in passes of their own");
            return None;
        }
        stream.context().bind_to_thread().ok()?;
        let handle = result::create_handle().ok()?;
        Some(Self { stream: Arc::clone(stream), handle, workspace, plans: Mutex::default() })
    }

    /// Puts `out = alpha · op(a)·op(b) + beta · out + bias` on the stream. Returns `false` and does nothing where
    /// cuBLASLt does not offer the product.
    ///
    /// # Safety
    /// The addresses are those of matrices of the shapes, pitches, types and alignment that `product` names, or of rows of
    /// them. The matrices live until all work is done that was put on the stream before they are freed.
    /// `out` may be written, and overlaps none of the others.
    pub(crate) unsafe fn multiply(
        &self,
        product: Product,
        (alpha, beta): (f32, f32),
        operands: Operands,
    ) -> Result<bool, CublasError> {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let class = product.class();
        let Some(plan) = plans.entry(class).or_insert_with(|| self.plan(class, operands.bias)) else {
            return Ok(false);
        };
        // SAFETY: the caller vouches for the matrices, and the plan is for products like this one.
        match unsafe { self.launch(plan, product, (alpha, beta), operands) } {
            Ok(()) => Ok(true),
            // The heuristic offered an algorithm that does not run.
            Err(CublasError(
                sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED | sys::cublasStatus_t::CUBLAS_STATUS_INVALID_VALUE,
            )) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// # Safety
    /// As [`multiply`](Self::multiply), for a product of the class of the plan.
    unsafe fn launch(
        &self,
        plan: &mut Plan,
        product: Product,
        (alpha, beta): (f32, f32),
        operands: Operands,
    ) -> Result<(), CublasError> {
        if product.has_bias {
            plan.desc.set_bias(operands.bias)?;
        }
        let Layouts { a, b, out } = Layouts::of(product)?;
        let (workspace, _guard) = self.workspace.device_ptr(&self.stream);
        // SAFETY: the caller vouches for the matrices; descriptors are those of the product and alive; the workspace is
        // as large as the algorithm was chosen for, and used by one product at a time, because all are on one stream;
        // alpha and beta are numbers on the host and are read before the call returns; cuBLASLt checks that the
        // algorithm suits the product.
        unsafe {
            result::matmul(
                self.handle,
                plan.desc.0,
                ptr::from_ref(&alpha).cast(),
                ptr::from_ref(&beta).cast(),
                operands.a as *const c_void,
                a.0,
                operands.b as *const c_void,
                b.0,
                operands.out as *const c_void,
                out.0,
                operands.out as *mut c_void,
                out.0,
                &raw const plan.algorithm,
                workspace as *mut c_void,
                WORKSPACE,
                self.stream.cu_stream().cast(),
            )
        }
    }

    /// Algorithm by cuBLASLt's heuristic; `None` if it offers none.
    fn plan(&self, product: Product, bias: u64) -> Option<Plan> {
        let plan = Plan::new(self.handle, product, bias);
        if let Err(error) = &plan {
            tracing::debug!("cuBLASLt does not offer {product:?}: {error}");
        }
        plan.ok()
    }
}

impl Drop for Lt {
    fn drop(&mut self) {
        let _ = self.stream.context().bind_to_thread();
        // SAFETY: the handle is freed once, here; descriptors do not refer to it.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

/// Algorithm and descriptor of a class of products, chosen by cuBLASLt's heuristic.
struct Plan {
    desc: Desc,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

impl Plan {
    /// Chooses an algorithm for a bias at any address with the alignment of `bias`; the heuristic asks for one.
    fn new(handle: sys::cublasLtHandle_t, product: Product, bias: u64) -> Result<Self, CublasError> {
        let (mut desc, Layouts { a, b, out }) = (Desc::new(product)?, Layouts::of(product)?);
        if product.has_bias {
            desc.set_bias(bias)?;
        }
        let preference = Preference::new(product.alignment)?;
        // SAFETY: all descriptors are alive.
        let found = unsafe { result::get_matmul_algo_heuristic(handle, desc.0, a.0, b.0, out.0, out.0, preference.0)? };
        Ok(Self { desc, algorithm: found.algo })
    }
}

/// Descriptors of the matrices of a product.
struct Layouts {
    a: Layout,
    b: Layout,
    out: Layout,
}

impl Layouts {
    fn of(product: Product) -> Result<Self, CublasError> {
        let Product { rows, cols, depth, transposed: [ta, tb], pitches, operands, out, .. } = product;
        let layout = |dtype, (rows, cols): (u64, u64), pitch: u64, transposed: bool| {
            let (rows, cols) = if transposed { (cols, rows) } else { (rows, cols) };
            result::create_matrix_layout(data_type(dtype), rows, cols, pitch as i64).map(Layout)
        };
        Ok(Self {
            a: layout(operands, (rows, depth), pitches[0], ta)?,
            b: layout(operands, (depth, cols), pitches[1], tb)?,
            out: layout(out, (rows, cols), pitches[2], false)?,
        })
    }
}

/// Descriptor of a product. Sums are in f32; f32 operands are not rounded to fewer bits, which would be another
/// compute type.
struct Desc(sys::cublasLtMatmulDesc_t);

impl Desc {
    fn new(Product { transposed: [ta, tb], has_bias, .. }: Product) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulDescAttributes_t::{
            CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSB,
        };
        let (compute, scale) = (sys::cublasComputeType_t::CUBLAS_COMPUTE_32F, sys::cudaDataType::CUDA_R_32F);
        let mut desc = Self(result::create_matmul_desc(compute, scale)?);
        // `CUBLAS_OP_T` is 1 and `CUBLAS_OP_N` is 0.
        desc.set(CUBLASLT_MATMUL_DESC_TRANSA, &i32::from(ta))?;
        desc.set(CUBLASLT_MATMUL_DESC_TRANSB, &i32::from(tb))?;
        if has_bias {
            desc.set(CUBLASLT_MATMUL_DESC_EPILOGUE, &(sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS as u32))?;
        }
        Ok(desc)
    }

    fn set_bias(&mut self, bias: u64) -> Result<(), CublasError> {
        self.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)
    }

    fn set<T>(&mut self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<(), CublasError> {
        // SAFETY: the descriptor is alive, and the value is copied before the call returns.
        unsafe { result::set_matmul_desc_attribute(self.0, attribute, ptr::from_ref(value).cast(), size_of::<T>()) }
    }
}

impl Drop for Desc {
    fn drop(&mut self) {
        // SAFETY: it is freed once, here.
        let _ = unsafe { result::destroy_matmul_desc(self.0) };
    }
}

/// Descriptor of a matrix.
struct Layout(sys::cublasLtMatrixLayout_t);

impl Drop for Layout {
    fn drop(&mut self) {
        // SAFETY: it is freed once, here.
        let _ = unsafe { result::destroy_matrix_layout(self.0) };
    }
}

/// Limits of the heuristic: algorithms use no more than the workspace, and blocks that share a sum add it in f32 and
/// in a fixed order.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new(alignment: u32) -> Result<Self, CublasError> {
        use sys::cublasLtMatmulPreferenceAttributes_t::{
            CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        };
        let preference = Self(result::create_matmul_pref()?);
        let scheme = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
        preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme)?;
        for of_matrix in [
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
        ] {
            preference.set(of_matrix, &alignment)?;
        }
        Ok(preference)
    }

    fn set<T>(&self, attribute: sys::cublasLtMatmulPreferenceAttributes_t, value: &T) -> Result<(), CublasError> {
        // SAFETY: the preference is alive, and the value is copied before the call returns.
        unsafe { result::set_matmul_pref_attribute(self.0, attribute, ptr::from_ref(value).cast(), size_of::<T>()) }
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: it is freed once, here.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

fn data_type(dtype: Dtype) -> sys::cudaDataType {
    match dtype {
        Dtype::F32 => sys::cudaDataType::CUDA_R_32F,
        Dtype::Bf16 => sys::cudaDataType::CUDA_R_16BF,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_that_of_the_least_aligned_address() {
        assert_eq!(alignment(&[512, 0, 1 << 20]), 256);
        assert_eq!(alignment(&[512, 48]), 16);
        assert_eq!(alignment(&[512, 8]), 2);
    }

    #[test]
    fn products_of_a_class_differ_in_what_varies_from_batch_to_batch() {
        let product = |(rows, cols, depth), transposed| Product {
            rows,
            cols,
            depth,
            transposed,
            pitches: [rows, depth, rows],
            operands: Dtype::Bf16,
            out: Dtype::Bf16,
            has_bias: false,
            alignment: 256,
        };
        let class = |sides, transposed| {
            let class = product(sides, transposed).class();
            (class.rows, class.cols, class.depth)
        };
        // Rows of a batch; its gradient; the gradient of a weight, which is summed over the batch.
        assert_eq!(class((256, 150_001, 602), [false, false]), (256, 163_840, 602));
        assert_eq!(class((602, 150_001, 256), [true, false]), (602, 163_840, 256));
        assert_eq!(class((256, 602, 150_001), [false, true]), (256, 602, 163_840));
        assert_eq!(class((256, 500, 7), [false, false]), (256, 500, 7));
        for side in 1..5000 {
            let rounded = rounded(side);
            assert!(side <= rounded && 8 * rounded <= 9 * side && self::rounded(rounded) == rounded, "{side}");
        }
    }
}
