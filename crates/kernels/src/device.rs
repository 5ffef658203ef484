//! [`Device`]: a card, the stream that work is put on, and the kernels that were compiled for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::sys::CUdevice_attribute;
use cudarc::driver::{CudaContext, CudaEvent, CudaFunction, CudaModule, CudaStream, DriverError, LaunchConfig, result};
use girih_comm::CommError;
use girih_compute::ComputeError;

use crate::blas::DenseLibraries;
use crate::compile::{Defines, Source, compile, compiler_version};
use crate::driver::{Driver, explain};
use crate::error::{KernelError, Kind};
use crate::libraries;
use crate::nccl::{Peers, link_of};
use crate::pool;
use crate::staging::Staging;

/// Threads of a block where nothing else is said.
pub(crate) const BLOCK: u32 = 256;

/// Ampere: kernels ask for nothing newer, but for what they choose by the capability at hand.
const OLDEST_CAPABILITY: (i32, i32) = (8, 0);

/// A card. Work goes to one stream, in the order of calls; the host waits only where results are downloaded.
pub struct Device {
    context: Arc<CudaContext>,
    pub(crate) stream: Arc<CudaStream>,
    /// Opened by the first dense product that wants them, because they take memory.
    dense_libraries: OnceLock<DenseLibraries>,
    capability: (i32, i32),
    processors: usize,
    /// Each of those who work [beside](Self::beside) has its own: loading one may wait for what another has asked for.
    modules: Mutex<HashMap<(Source, Defines), Module>>,
    /// Made by the first upload that is large.
    staging: Mutex<Option<Staging>>,
    /// The ranks that it works with, if there are others.
    peers: OnceLock<Arc<Peers>>,
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
    /// When the driver, the compiler or cuBLAS is missing or does not suit the others, there is no such card, or it is
    /// too old.
    pub fn open(ordinal: usize) -> Result<Self, KernelError> {
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
        pool::keep_freed_memory(&context)
            .map_err(KernelError::driver("cannot set up the memory pool of the CUDA device"))?;
        let stream = context.new_stream().map_err(KernelError::driver("cannot make a CUDA stream"))?;
        let number =
            |attribute| context.attribute(attribute).map_err(KernelError::driver("cannot ask the CUDA device"));
        let processors = number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize;
        let (dense_libraries, modules, staging, peers) =
            (OnceLock::new(), Mutex::default(), Mutex::default(), OnceLock::new());
        Ok(Self { context, stream, dense_libraries, capability, processors, modules, staging, peers })
    }

    /// How the first `n_cards` read each other's memory: a number for each pair, by readers, which tells kinds of links
    /// apart; `None` where one cannot, or is not there.
    ///
    /// # Errors
    /// When the driver is missing, or does not answer.
    pub fn links(n_cards: usize) -> Result<Vec<Option<i32>>, KernelError> {
        Driver::load()?;
        let n_here = count()?;
        let link = |reader: usize, owner: usize| {
            if reader.max(owner) >= n_here {
                return Ok(None);
            }
            let card = |ordinal: usize| result::device::get(ordinal as i32);
            link_of(card(reader)?, card(owner)?)
        };
        let pairs = (0..n_cards).flat_map(|reader| (0..n_cards).map(move |owner| (reader, owner)));
        let links = pairs.filter(|(reader, owner)| reader != owner).map(|(reader, owner)| link(reader, owner));
        links.collect::<Result<_, _>>().map_err(KernelError::driver("cannot ask the CUDA devices for their links"))
    }

    /// The same card, for work that goes on beside what is put on this one's stream: with a stream of its own, and
    /// kernels. Whatever is used on both, one stream has to wait for the other before.
    pub(crate) fn beside(&self) -> Result<Self, DriverError> {
        Ok(Self {
            context: Arc::clone(&self.context),
            stream: self.urgent_stream()?,
            dense_libraries: OnceLock::new(),
            capability: self.capability,
            processors: self.processors,
            modules: Mutex::default(),
            staging: Mutex::default(),
            peers: self.peers.clone(),
        })
    }

    /// A stream whose launches come before those of others that wait: for what brings the next batch, which is little
    /// and is waited for.
    pub(crate) fn urgent_stream(&self) -> Result<Arc<CudaStream>, DriverError> {
        self.context.bind_to_thread()?;
        let (_, first) = result::stream::get_priority_range()?;
        self.context.new_stream_with_priority(first)
    }

    /// What the card is called.
    #[must_use]
    pub fn name(&self) -> String {
        name_of(&self.context)
    }

    /// What tells the card from all others.
    pub(crate) fn uuid(&self) -> Result<[u8; 16], DriverError> {
        Ok(self.context.uuid()?.bytes.map(|byte| byte as u8))
    }

    /// Takes note of the ranks that it works with from now on.
    pub(crate) fn join(&self, peers: Arc<Peers>) {
        assert!(self.peers.set(peers).is_ok(), "a device joins ranks once");
    }

    /// The ranks that it works with.
    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.peers.get().map(|peers| &**peers)
    }

    /// Waits until all that was asked of the device is done.
    ///
    /// # Errors
    /// When the device fails, or a rank that it works with.
    pub(crate) fn wait(&self, operation: &'static str) -> Result<(), ComputeError> {
        self.until(operation, || self.stream.synchronize(), |peers| peers.wait(operation, &self.stream))
    }

    /// Waits until the device has come to an event.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub(crate) fn wait_for(&self, operation: &'static str, event: &CudaEvent) -> Result<(), ComputeError> {
        self.until(operation, || event.synchronize(), |peers| peers.wait_for(operation, event))
    }

    /// Waits alone, or among the ranks that it works with.
    fn until(
        &self,
        operation: &'static str,
        alone: impl FnOnce() -> Result<(), DriverError>,
        among: impl FnOnce(&Peers) -> Result<(), CommError>,
    ) -> Result<(), ComputeError> {
        match self.peers() {
            None => alone().map_err(|error| ComputeError::device(operation, explain(error.0))),
            Some(peers) => among(peers).map_err(|error| ComputeError::device(operation, error.to_string())),
        }
    }

    /// A stream that is waited for before what it uses is given back.
    pub(crate) fn ending(&self, stream: &Arc<CudaStream>) -> Ending {
        Ending { stream: Arc::clone(stream), peers: self.peers.get().cloned() }
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
            Ok((free + pool::kept_bytes(&self.context)?, all))
        };
        ask().map_err(KernelError::driver("cannot ask for free memory"))
    }

    /// What NVIDIA's libraries multiply dense matrices with.
    pub(crate) fn dense_libraries(&self) -> Result<&DenseLibraries, KernelError> {
        if let Some(open) = self.dense_libraries.get() {
            return Ok(open);
        }
        let opened = DenseLibraries::open(&self.stream)?;
        Ok(self.dense_libraries.get_or_init(|| opened))
    }

    /// Buffers of uploads, if there are any that nobody uses.
    pub(crate) fn take_staging(&self) -> Option<Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps buffers of uploads for the next one.
    pub(crate) fn keep_staging(&self, staging: Staging) {
        *self.staging.lock().unwrap_or_else(PoisonError::into_inner) = Some(staging);
    }

    /// Bytes that were freed here and are kept for later.
    pub(crate) fn kept_bytes(&self) -> Result<usize, KernelError> {
        pool::kept_bytes(&self.context).map_err(KernelError::driver("cannot ask for kept memory"))
    }

    /// Bytes of memory that nobody has asked for.
    pub(crate) fn unused_bytes(&self) -> Result<usize, KernelError> {
        let (unused, _) = self.context.mem_get_info().map_err(KernelError::driver("cannot ask for free memory"))?;
        Ok(unused)
    }

    /// The most bytes that this process had allocated on the card at once since the last
    /// [`reset_peak`](Self::reset_peak); zero on a card that does not count.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn peak_bytes(&self) -> Result<u64, KernelError> {
        pool::peak_bytes(&self.context).map_err(KernelError::driver("cannot ask for the most memory in use"))
    }

    /// Lets [`peak_bytes`](Self::peak_bytes) start again from what is allocated now.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn reset_peak(&self) -> Result<(), KernelError> {
        pool::reset_peak(&self.context).map_err(KernelError::driver("cannot reset the most memory in use"))
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

/// A stream that uses what will be given back.
pub(crate) struct Ending {
    stream: Arc<CudaStream>,
    peers: Option<Arc<Peers>>,
}

impl Ending {
    pub(crate) fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// The ranks that the device works with.
    pub(crate) fn peers(&self) -> Option<&Peers> {
        self.peers.as_deref()
    }

    /// Waits until the stream is done; what it waits for without end, a rank that has failed, is called off.
    pub(crate) fn wait(&self) {
        // After a failure of the device nothing helps, and nothing is lost.
        let ended = self.peers.as_ref().map(|peers| peers.wait("ending", &self.stream));
        if !matches!(ended, Some(Ok(()))) {
            let _ = self.stream.synchronize();
        }
    }
}

/// Cards that the driver, which is loaded, lets this process see.
pub(crate) fn count() -> Result<usize, KernelError> {
    let count = CudaContext::device_count().map_err(KernelError::driver("cannot count CUDA devices"))?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// The context of a card that there is.
pub(crate) fn open_context(ordinal: usize) -> Result<Arc<CudaContext>, KernelError> {
    let count = count()?;
    if ordinal >= count {
        let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
        return Err(Kind::NoDevice { ordinal, count, visible }.into());
    }
    CudaContext::new(ordinal).map_err(KernelError::driver("cannot open the CUDA device"))
}

/// What a card is called.
pub(crate) fn name_of(context: &CudaContext) -> String {
    context.name().unwrap_or_else(|_| "CUDA device".to_owned())
}

/// Whether cards of a capability have `wgmma`, which one generation has.
pub(crate) fn has_wgmma(capability: (i32, i32)) -> bool {
    capability == (9, 0)
}

/// Refuses a card without the instructions that kernels are written in: `mma` on bf16 and asynchronous copies.
pub(crate) fn check_capability(card: &str, capability: (i32, i32)) -> Result<(), KernelError> {
    if capability < OLDEST_CAPABILITY {
        return Err(Kind::OldCard { card: card.to_owned(), capability }.into());
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_before_ampere_are_refused_by_name() {
        for (capability, accepted) in
            [((7, 5), false), ((6, 1), false), ((8, 0), true), ((9, 0), true), ((12, 0), true)]
        {
            let checked = check_capability("Some card", capability);
            assert_eq!(checked.is_ok(), accepted, "{capability:?}");
            assert!(checked.is_ok() || checked.unwrap_err().to_string().contains("Some card"));
        }
    }
}
