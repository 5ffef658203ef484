//! [`ComputeError`]: the error of an operation that was refused or failed.

use crate::Shape;

/// Reason why a backend refused an operation, or why the operation failed.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct ComputeError(Box<Kind>);

#[derive(Debug, thiserror::Error)]
enum Kind {
    #[error("{operation}: {operand} is {found}, expected {expected}")]
    Shape { operation: &'static str, operand: &'static str, found: Shape, expected: Shape },
    #[error("{operation}: {what}")]
    Argument { operation: &'static str, what: String },
    #[error(
        "out of memory: {what} needs {needed} bytes, but the device has {available} free; a smaller width, bf16 or a device \
         with more memory helps"
    )]
    Memory { what: String, needed: u64, available: u64 },
    #[error("{operation} failed on the device: {message}")]
    Device { operation: &'static str, message: String },
}

impl ComputeError {
    /// Error for an operand whose shape does not fit the others.
    #[must_use]
    pub fn shape(operation: &'static str, operand: &'static str, found: Shape, expected: Shape) -> Self {
        Self(Box::new(Kind::Shape { operation, operand, found, expected }))
    }

    /// Error for an argument that the operation cannot take.
    pub fn argument(operation: &'static str, what: impl Into<String>) -> Self {
        Self(Box::new(Kind::Argument { operation, what: what.into() }))
    }

    /// Error for a lack of memory on the device. `needed` and `available` are bytes.
    pub fn memory(what: impl Into<String>, needed: u64, available: u64) -> Self {
        Self(Box::new(Kind::Memory { what: what.into(), needed, available }))
    }

    /// Whether memory of the device did not suffice.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(*self.0, Kind::Memory { .. })
    }

    /// Whether the device failed, rather than an argument was refused.
    #[must_use]
    pub fn is_device_failure(&self) -> bool {
        matches!(*self.0, Kind::Device { .. })
    }

    /// Error for a failure that the device reported.
    pub fn device(operation: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Kind::Device { operation, message: message.into() }))
    }
}
