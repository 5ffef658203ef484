//! [`KernelError`]: why there is no device, or why it failed.

use cudarc::driver::DriverError;

/// Why a device could not be opened, or what it reported.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct KernelError(#[from] Kind);

#[derive(Debug, thiserror::Error)]
pub(crate) enum Kind {
    #[error("no {library} was found: {remedy}")]
    Missing { library: &'static str, remedy: &'static str },
    #[error("there is no CUDA device {ordinal}: {count} found")]
    NoDevice { ordinal: usize, count: i32 },
    #[error("{what}: {source}")]
    Driver { what: &'static str, source: DriverError },
    #[error("the kernels of {source_name} do not compile for {arch}:\n{log}")]
    Compile { source_name: &'static str, arch: String, log: String },
    #[error("cuBLAS: {0}")]
    Blas(String),
}

impl KernelError {
    pub(crate) fn driver(what: &'static str) -> impl FnOnce(DriverError) -> Self {
        move |source| Kind::Driver { what, source }.into()
    }
}
