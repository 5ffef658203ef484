//! [`Device`]: a card, the stream that work is put on, and the kernels that were compiled for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublas::CudaBlas;
use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{self, CudaContext, CudaFunction, CudaModule, CudaStream, DriverError, LaunchConfig};

use crate::compile::{Defines, Source, compile};
use crate::error::{KernelError, Kind};
use crate::lt::Lt;

/// Threads of a block where nothing else is said.
pub(crate) const BLOCK: u32 = 256;

/// A card. Work goes to one stream, in the order of calls; the host waits only where results are downloaded.
pub struct Device {
    context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    pub(crate) blas: CudaBlas,
    /// `None` where it is not installed.
    pub(crate) lt: Option<Lt>,
    capability: (i32, i32),
    processors: usize,
    modules: Mutex<HashMap<(Source, Defines), Module>>,
}

/// A source as it was compiled, and those of its kernels that were asked for.
struct Module {
    code: Arc<CudaModule>,
    kernels: HashMap<String, CudaFunction>,
}

impl Device {
    /// Opens a card by its number.
    ///
    /// # Errors
    /// When there is no driver, no compiler, no cuBLAS or no such card.
    pub fn open(ordinal: usize) -> Result<Self, KernelError> {
        check_libraries()?;
        let count = CudaContext::device_count().map_err(KernelError::driver("cannot count CUDA devices"))?;
        if ordinal as i64 >= i64::from(count) {
            return Err(Kind::NoDevice { ordinal, count }.into());
        }
        let context = CudaContext::new(ordinal).map_err(KernelError::driver("cannot open the CUDA device"))?;
        // SAFETY: all work goes to one stream, so that no buffer is used on two.
        unsafe { context.disable_event_tracking() };
        keep_freed_memory(&context).map_err(KernelError::driver("cannot set up the memory pool of the CUDA device"))?;
        let stream = context.new_stream().map_err(KernelError::driver("cannot make a CUDA stream"))?;
        let blas = CudaBlas::new(Arc::clone(&stream)).map_err(|error| Kind::Blas(error.to_string()))?;
        keep_sums_in_f32(&blas)?;
        let lt = Lt::new(&stream);
        let capability = context.compute_capability().map_err(KernelError::driver("cannot ask the CUDA device"))?;
        let processors = context.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
        let processors = processors.map_err(KernelError::driver("cannot ask the CUDA device"))? as usize;
        Ok(Self { context, stream, blas, lt, capability, processors, modules: Mutex::default() })
    }

    /// What the card is called.
    #[must_use]
    pub fn name(&self) -> String {
        self.context.name().unwrap_or_else(|_| "CUDA device".to_owned())
    }

    /// Major and minor number of what the card can compute.
    #[must_use]
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// How many processors work side by side.
    pub(crate) fn processors(&self) -> usize {
        self.processors
    }

    /// Bytes of memory: free, among them what was freed here and is kept for later, and in all.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn memory(&self) -> Result<(usize, usize), KernelError> {
        let ask = || -> Result<(usize, usize), DriverError> {
            let (free, all) = self.context.mem_get_info()?;
            Ok((free + kept_bytes(&self.context)?, all))
        };
        ask().map_err(KernelError::driver("cannot ask for free memory"))
    }

    /// A kernel of a source, compiled with `defines` when it is first asked for.
    pub(crate) fn kernel(&self, source: Source, name: &str, defines: &Defines) -> Result<CudaFunction, KernelError> {
        let mut modules = self.modules.lock().unwrap_or_else(PoisonError::into_inner);
        let module = match modules.entry((source, defines.clone())) {
            Entry::Occupied(module) => module.into_mut(),
            Entry::Vacant(place) => {
                let code = compile(source, defines, self.capability)?;
                let code = self.context.load_module(code).map_err(KernelError::driver("cannot load kernels"))?;
                place.insert(Module { code, kernels: HashMap::new() })
            }
        };
        if let Some(kernel) = module.kernels.get(name) {
            return Ok(kernel.clone());
        }
        let kernel = module.code.load_function(name).map_err(KernelError::driver("a kernel is not in its source"))?;
        module.kernels.insert(name.to_owned(), kernel.clone());
        Ok(kernel)
    }
}

/// A thread for each of `n` pieces of work, at most as many blocks as a grid may have; kernels stride over the rest.
pub(crate) fn threads_for(n: usize) -> LaunchConfig {
    let blocks = n.div_ceil(BLOCK as usize).clamp(1, 1 << 20) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }
}

/// A warp for each of `n` pieces of work, likewise.
pub(crate) fn warps_for(n: usize) -> LaunchConfig {
    threads_for(n.saturating_mul(32))
}

/// Allocations follow the stream, as frees do, and come from the device's pool of memory. By default it returns what was
/// freed whenever the host waits, so that every step would ask the system anew.
fn keep_freed_memory(context: &CudaContext) -> Result<(), DriverError> {
    if !context.has_async_alloc() {
        return Ok(());
    }
    let mut all = u64::MAX;
    // SAFETY: the device is that of a context, it has a pool, and the attribute is a 64-bit number, which is read before the
    // call returns.
    unsafe {
        let pool = driver::result::device::get_default_mem_pool(context.cu_device())?;
        let threshold = driver::sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        driver::result::mem_pool::set_attribute(pool, threshold, ptr::from_mut(&mut all).cast())
    }
}

/// Bytes that the pool keeps and nobody uses.
fn kept_bytes(context: &CudaContext) -> Result<usize, DriverError> {
    use driver::sys::CUmemPool_attribute::{CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_CURRENT};
    if !context.has_async_alloc() {
        return Ok(0);
    }
    let ask = |attribute| -> Result<u64, DriverError> {
        let mut bytes = 0u64;
        // SAFETY: the device is that of a context, it has a pool, and the attribute is a 64-bit number.
        unsafe {
            let pool = driver::result::device::get_default_mem_pool(context.cu_device())?;
            driver::result::mem_pool::get_attribute(pool, attribute, ptr::from_mut(&mut bytes).cast())?;
        }
        Ok(bytes)
    };
    let (reserved, used) = (ask(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?, ask(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?);
    Ok(reserved.saturating_sub(used) as usize)
}

/// Products of bf16 are summed in f32 throughout, also where several blocks share a sum; f32 is not rounded to fewer bits,
/// which is cuBLAS's default unless a process asks otherwise.
fn keep_sums_in_f32(blas: &CudaBlas) -> Result<(), KernelError> {
    use cudarc::cublas::sys;
    let mode = sys::cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    // SAFETY: the handle lives as long as `blas`.
    let status = unsafe { sys::cublasSetMathMode(*blas.handle(), mode) };
    status.result().map_err(|error| Kind::Blas(error.to_string()).into())
}

/// Says what is missing instead of failing inside a call.
fn check_libraries() -> Result<(), KernelError> {
    // SAFETY: these look for a library and call nothing in it.
    let (driver, compiler, blas) = unsafe {
        (
            driver::sys::is_culib_present(),
            cudarc::nvrtc::sys::is_culib_present(),
            cudarc::cublas::sys::is_culib_present(),
        )
    };
    let missing = |library, remedy| Err(Kind::Missing { library, remedy }.into());
    match (driver, compiler, blas) {
        (false, ..) => missing("CUDA driver (libcuda)", "install NVIDIA's driver, or use --device cpu"),
        (_, false, _) => missing("CUDA compiler (libnvrtc)", "install CUDA 13, or set LD_LIBRARY_PATH to where it is"),
        (.., false) => missing("cuBLAS (libcublas)", "install CUDA 13, or set LD_LIBRARY_PATH to where it is"),
        _ => Ok(()),
    }
}
