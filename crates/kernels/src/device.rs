//! [`Device`]: a GPU, its stream, and the kernels compiled for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::{self, CUdevice_attribute, CUresult};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, DeviceRepr, DriverError, LaunchConfig, result,
};

use crate::abi::BLOCK;
use crate::blas::{Blas, WORKSPACE, Workspace};
use crate::buffer::Buffer;
use crate::compile::{Defines, Source, compile, compiler_version};
use crate::driver::Driver;
use crate::error::{KernelError, Kind};
use crate::libraries;
use crate::lt::Lt;
use crate::pool::{self, MemoryPool};
use crate::staging::Staging;

/// Compute capability of Ampere. Kernels need nothing newer, except variants chosen by the capability at hand.
const OLDEST_CAPABILITY: (i32, i32) = (8, 0);

/// A GPU. Work goes to one stream, in the order of calls; the host waits only where results are downloaded.
pub struct Device {
    context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    /// Libraries of dense products; opened on first use, because they take memory.
    dense_libraries: OnceLock<DenseLibraries>,
    capability: (i32, i32),
    n_sms: usize,
    /// Compiled modules. Each device made by [`beside`](Self::beside) has its own, because loading one may wait for
    /// work of another.
    modules: Mutex<HashMap<(Source, Defines), Module>>,
    pub(crate) staging: Staging,
    /// Pool of a guest; `None` for the default pool of the GPU.
    pool: Option<GuestPool>,
}

/// Pool of a guest.
#[derive(Clone)]
struct GuestPool {
    pool: Arc<MemoryPool>,
    /// Whether memory that is dropped serves the stream again without the driver.
    reuses: bool,
}

/// NVIDIA's libraries for dense products, all on one stream.
pub(crate) struct DenseLibraries {
    pub(crate) blas: Blas,
    /// cuBLASLt; `None` where it is not installed.
    pub(crate) lt: Option<Lt>,
}

impl DenseLibraries {
    /// Opens both on the stream of a device, with one workspace.
    fn open(device: &Device) -> Result<Self, KernelError> {
        let workspace = device.allocate::<u8>(WORKSPACE);
        let workspace: Workspace =
            workspace.map(Arc::new).map_err(KernelError::driver("cannot allocate the workspace of dense products"))?;
        let stream = &device.stream;
        let lt = Lt::new(stream, Arc::clone(&workspace));
        Ok(Self { blas: Blas::new(Arc::clone(stream), workspace)?, lt })
    }
}

/// Compiled source, and the kernels of it in use.
struct Module {
    code: Arc<CudaModule>,
    kernels: HashMap<String, CudaFunction>,
}

impl Device {
    /// Opens a GPU by its ordinal.
    ///
    /// # Errors
    /// When the driver, the compiler or cuBLAS is missing or does not suit the others, there is no such GPU, or it is
    /// too old.
    pub fn open(ordinal: usize) -> Result<Self, KernelError> {
        let context = checked_context(ordinal)?;
        pool::keep_freed_memory(&context)
            .map_err(KernelError::driver("cannot set up the memory pool of the CUDA device"))?;
        let stream = context.new_stream().map_err(KernelError::driver("cannot make a CUDA stream"))?;
        Self::on(context, stream, None)
    }

    /// Opens a GPU for work beside another library, such as PyTorch: results are in the order of that library's
    /// stream, and memory comes from a pool of its own. `stream` is the handle of the driver; 0 is the legacy default
    /// stream, and 2 that of each thread.
    ///
    /// # Safety
    /// The stream has to live as long as the device and all memory that comes from it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub unsafe fn guest(ordinal: usize, stream: u64, pool: &Arc<MemoryPool>) -> Result<Self, KernelError> {
        let context = checked_context(ordinal)?;
        // SAFETY: the caller vouches for the stream.
        let stream = unsafe { context.wrap_borrowed_stream(stream as sys::CUstream) };
        Self::on(context, stream, Some(GuestPool { pool: Arc::clone(pool), reuses: true }))
    }

    fn on(context: Arc<CudaContext>, stream: Arc<CudaStream>, pool: Option<GuestPool>) -> Result<Self, KernelError> {
        const ASKING: &str = "cannot ask the CUDA device";
        let capability = context.compute_capability().map_err(KernelError::driver(ASKING))?;
        let number = |attribute| context.attribute(attribute).map_err(KernelError::driver(ASKING));
        let n_sms = number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize;
        let (dense_libraries, modules, staging) = (OnceLock::new(), Mutex::default(), Staging::default());
        Ok(Self { context, stream, dense_libraries, capability, n_sms, modules, staging, pool })
    }

    /// Allocates uninitialised memory in the order of the stream. A guest without memory first returns to the GPU what
    /// its pool keeps.
    pub(crate) fn allocate<T: DeviceRepr>(&self, len: usize) -> Result<Buffer<T>, DriverError> {
        let Some(GuestPool { pool, reuses }) = &self.pool else {
            // SAFETY: every bit pattern is a value of what devices read; callers write before they read.
            return unsafe { self.stream.alloc(len) }.map(Buffer::from);
        };
        let allocate = || pool.allocate(&self.stream, len, *reuses);
        match allocate() {
            Err(DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                let _ = pool.trim();
                allocate()
            }
            allocated => allocated,
        }
    }

    /// Links by which the first `n_gpus` GPUs read each other's memory: one number for each ordered pair, by reader.
    /// Equal numbers mean equal kinds of links; `None` if a GPU cannot read the other, or is missing.
    ///
    /// # Errors
    /// When the driver is missing, or does not answer.
    pub fn links(n_gpus: usize) -> Result<Vec<Option<i32>>, KernelError> {
        Driver::load()?;
        let n_here = count()?;
        let link = |reader: usize, owner: usize| {
            if reader.max(owner) >= n_here {
                return Ok(None);
            }
            let gpu = |ordinal: usize| result::device::get(ordinal as i32);
            link_of(gpu(reader)?, gpu(owner)?)
        };
        let pairs = (0..n_gpus).flat_map(|reader| (0..n_gpus).map(move |owner| (reader, owner)));
        let links = pairs.filter(|(reader, owner)| reader != owner).map(|(reader, owner)| link(reader, owner));
        links.collect::<Result<_, _>>().map_err(KernelError::driver("cannot ask the CUDA devices for their links"))
    }

    /// Creates a second device on the same GPU for concurrent work, with its own stream and kernels. Where both use
    /// the same memory, one stream has to wait for the other before.
    pub(crate) fn beside(&self) -> Result<Self, DriverError> {
        Ok(Self {
            context: Arc::clone(&self.context),
            stream: self.urgent_stream()?,
            dense_libraries: OnceLock::new(),
            capability: self.capability,
            n_sms: self.n_sms,
            modules: Mutex::default(),
            staging: Staging::default(),
            // Its stream ends with it.
            pool: self.pool.clone().map(|pool| GuestPool { reuses: false, ..pool }),
        })
    }

    /// Creates a stream of the highest priority. It serves the prefetch of the next batch, which is little work that
    /// others wait for.
    pub(crate) fn urgent_stream(&self) -> Result<Arc<CudaStream>, DriverError> {
        self.context.bind_to_thread()?;
        let (_, first) = result::stream::get_priority_range()?;
        self.context.new_stream_with_priority(first)
    }

    /// Name of the GPU.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(&self.context)
    }

    /// UUID of the GPU.
    pub(crate) fn uuid(&self) -> Result<[u8; 16], DriverError> {
        Ok(self.context.uuid()?.bytes.map(|byte| byte as u8))
    }

    /// Compute capability: major and minor number.
    #[must_use]
    pub fn capability(&self) -> (i32, i32) {
        self.capability
    }

    /// Number of SMs.
    pub(crate) fn n_sms(&self) -> usize {
        self.n_sms
    }

    /// Bytes of memory: free, which includes memory freed here and kept by the pool, and total.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn memory(&self) -> Result<(usize, usize), KernelError> {
        let (free, all) = self.context.mem_get_info().map_err(KernelError::driver("cannot ask for free memory"))?;
        Ok((free + self.kept_bytes()?, all))
    }

    /// cuBLAS and cuBLASLt, opened on first use.
    pub(crate) fn dense_libraries(&self) -> Result<&DenseLibraries, KernelError> {
        if let Some(open) = self.dense_libraries.get() {
            return Ok(open);
        }
        let opened = DenseLibraries::open(self)?;
        Ok(self.dense_libraries.get_or_init(|| opened))
    }

    /// Bytes that were freed here and are kept by the pool.
    pub(crate) fn kept_bytes(&self) -> Result<usize, KernelError> {
        let Some(GuestPool { pool, .. }) = &self.pool else {
            return pool::kept_bytes(&self.context).map_err(KernelError::driver("cannot ask for kept memory"));
        };
        let (used, reserved) = pool.bytes()?;
        Ok(reserved.saturating_sub(used) as usize)
    }

    /// Bytes of memory that are not allocated.
    pub(crate) fn unused_bytes(&self) -> Result<usize, KernelError> {
        let (unused, _) = self.context.mem_get_info().map_err(KernelError::driver("cannot ask for free memory"))?;
        Ok(unused)
    }

    /// Peak bytes allocated by this process on the GPU since the last [`reset_peak`](Self::reset_peak); zero on a GPU
    /// that does not count.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn peak_bytes(&self) -> Result<u64, KernelError> {
        pool::peak_bytes(&self.context).map_err(KernelError::driver("cannot ask for the most memory in use"))
    }

    /// Resets [`peak_bytes`](Self::peak_bytes) to the bytes allocated now.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn reset_peak(&self) -> Result<(), KernelError> {
        pool::reset_peak(&self.context).map_err(KernelError::driver("cannot reset the most memory in use"))
    }

    /// Kernel of a source, compiled with `defines` on first use.
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

/// Number of GPUs that the loaded driver lets this process see.
pub(crate) fn count() -> Result<usize, KernelError> {
    let count = CudaContext::device_count().map_err(KernelError::driver("cannot count CUDA devices"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Opens the context of an existing GPU.
pub(crate) fn open_context(ordinal: usize) -> Result<Arc<CudaContext>, KernelError> {
    let count = count()?;
    if ordinal >= count {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        return Err(Kind::NoDevice { ordinal, count, visible }.into());
    }
    CudaContext::new(ordinal).map_err(KernelError::driver("cannot open the CUDA device"))
}

/// Opens the context of a GPU on which kernels can be compiled and run.
fn checked_context(ordinal: usize) -> Result<Arc<CudaContext>, KernelError> {
    let driver = Driver::load()?;
    libraries::COMPILER.load()?;
    let compiler = compiler_version();
    driver.check(compiler, &format!("libnvrtc {compiler}"))?;
    libraries::BLAS.load()?;
    let context = open_context(ordinal)?;
    let capability = context.compute_capability().map_err(KernelError::driver("cannot ask the CUDA device"))?;
    check_capability(&name_of(&context), capability)?;
    // SAFETY: all work goes to one stream, so that no buffer is used on two.
    unsafe { context.disable_event_tracking() };
    Ok(context)
}

/// Runs `work`, and then makes the context current again that was so in this thread. Other libraries find their GPU by
/// the current context.
pub fn keeping_context<T>(work: impl FnOnce() -> T) -> T {
    static HAS_DRIVER: OnceLock<bool> = OnceLock::new();
    if !HAS_DRIVER.get_or_init(|| Driver::load().is_ok()) {
        return work();
    }
    let before = result::ctx::get_current().ok().flatten();
    let done = work();
    // SAFETY: the context was current, and is one that another library keeps; null is none.
    let _ = unsafe { result::ctx::set_current(before.unwrap_or(std::ptr::null_mut())) };
    done
}

/// Name of a GPU.
pub(crate) fn name_of(context: &CudaContext) -> String {
    context.name().unwrap_or_else(|_| "CUDA device".to_owned())
}

/// Whether GPUs of a capability have `wgmma`; only one generation does.
pub(crate) fn has_wgmma(capability: (i32, i32)) -> bool {
    capability == (9, 0)
}

/// Performance rank, by the driver, of the link by which a GPU reads another one's memory; `None` where it cannot.
pub(crate) fn link_of(reader: sys::CUdevice, owner: sys::CUdevice) -> Result<Option<i32>, DriverError> {
    let (mut can, mut rank) = (0, 0);
    // SAFETY: both are devices, and the function writes a number.
    unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, reader, owner) }.result()?;
    if can == 0 {
        return Ok(None);
    }
    let attribute = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
    // SAFETY: as above.
    unsafe { sys::cuDeviceGetP2PAttribute(&raw mut rank, attribute, reader, owner) }.result()?;
    Ok(Some(rank))
}

/// Whether a stream has done all work that was put on it.
pub(crate) fn is_done(stream: &CudaStream) -> Result<bool, DriverError> {
    stream.context().bind_to_thread()?;
    // SAFETY: the stream is alive, and its context is bound.
    match unsafe { sys::cuStreamQuery(stream.cu_stream()) } {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        answer => answer.result().map(|()| true),
    }
}

/// Whether work on a stream is pending. After a failure of the device none is, nor ever will be.
pub(crate) fn is_busy(stream: &CudaStream) -> bool {
    matches!(is_done(stream), Ok(false))
}

/// Fails for a GPU without the instructions that all kernels use: `mma` on bf16 and asynchronous copies.
pub(crate) fn check_capability(gpu: &str, capability: (i32, i32)) -> Result<(), KernelError> {
    if capability < OLDEST_CAPABILITY {
        return Err(Kind::OldGpu { gpu: gpu.to_owned(), capability }.into());
    }
    Ok(())
}

/// Launch with a thread for each of `n` work items. The grid is limited; kernels stride over the rest.
pub(crate) fn threads_for(n: usize) -> LaunchConfig {
    let blocks = n.div_ceil(BLOCK as usize).clamp(1, 1 << 20) as u32;
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (BLOCK, 1, 1), shared_mem_bytes: 0 }
}

/// Launch with a warp for each of `n` work items, limited as [`threads_for`].
pub(crate) fn warps_for(n: usize) -> LaunchConfig {
    threads_for(n.saturating_mul(32))
}

/// Launch of `n` blocks, at least one.
pub(crate) fn blocks(n: u64, threads: u32) -> LaunchConfig {
    let n = n.clamp(1, i32::MAX as u64) as u32;
    LaunchConfig { grid_dim: (n, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus_before_ampere_are_refused_by_name() {
        for (capability, accepted) in
            [((7, 5), false), ((6, 1), false), ((8, 0), true), ((9, 0), true), ((12, 0), true)]
        {
            let checked = check_capability("Some GPU", capability);
            assert_eq!(checked.is_ok(), accepted, "{capability:?}");
            assert!(checked.is_ok() || checked.unwrap_err().to_string().contains("Some GPU"));
        }
    }
}
