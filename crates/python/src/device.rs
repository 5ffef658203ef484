//! Backend that a `device` argument names.

use girih_compute::{Cpu, Dtype};
#[cfg(feature = "cuda")]
use girih_kernels::{Cuda, Device as Gpu};

/// `device` of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    Auto,
    Cpu,
    Cuda(usize),
}

impl std::str::FromStr for Device {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let ordinal = |text: &str| text.parse().map(Self::Cuda).ok();
        let device = match name {
            "auto" => Some(Self::Auto),
            "cpu" => Some(Self::Cpu),
            "cuda" => Some(Self::Cuda(0)),
            other => other.strip_prefix("cuda:").and_then(ordinal),
        };
        device.ok_or_else(|| format!("no device {name:?}; there are \"auto\", \"cpu\", \"cuda\" and \"cuda:N\""))
    }
}

/// Backend of a device.
pub enum Backend {
    Cpu(Cpu),
    #[cfg(feature = "cuda")]
    Cuda(Box<Cuda>),
}

/// Evaluates an expression with the backend.
macro_rules! on_backend {
    ($backend:expr, $name:ident => $work:expr) => {
        match $backend {
            $crate::device::Backend::Cpu($name) => $work,
            #[cfg(feature = "cuda")]
            $crate::device::Backend::Cuda($name) => {
                let $name = &**$name;
                $work
            }
        }
    };
}
pub(crate) use on_backend;

impl Backend {
    /// Opens a device that stores rows as `precision`. `Auto` is the first GPU, or the CPU where there is none.
    pub fn open(device: Device, precision: Dtype) -> Result<Self, String> {
        match device {
            Device::Cpu => Ok(Self::Cpu(Cpu::new().gathering(precision))),
            Device::Cuda(ordinal) => Self::open_gpu(ordinal, precision),
            Device::Auto => Self::open_gpu(0, precision).or_else(|_| Ok(Self::Cpu(Cpu::new().gathering(precision)))),
        }
    }

    #[cfg(feature = "cuda")]
    fn open_gpu(ordinal: usize, precision: Dtype) -> Result<Self, String> {
        let gpu = Gpu::open(ordinal).map_err(|error| error.to_string())?;
        Ok(Self::Cuda(Box::new(Cuda::new(gpu).storing(precision))))
    }

    #[cfg(not(feature = "cuda"))]
    fn open_gpu(ordinal: usize, _: Dtype) -> Result<Self, String> {
        Err(format!("this build of girih has no CUDA, and so no cuda:{ordinal}; take device=\"cpu\""))
    }
}
