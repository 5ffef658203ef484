//! [`GpuTransport`]: transport of rows between GPUs.

use std::fmt;
use std::str::FromStr;

use crate::CommError;

/// Transport of rows of matrices and patches between ranks on GPUs. Sums use NCCL with either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuTransport {
    /// NCCL, whose kernels send and receive, also between processes and hosts.
    #[default]
    Nccl,
    /// Peer access: each GPU reads from the memory of the others. Requires GPUs of one process that can access each
    /// other's memory. Copy engines copy rows of matrices; kernels read rows of patches in place.
    Peer,
}

impl GpuTransport {
    /// All transports.
    pub const ALL: [Self; 2] = [Self::Nccl, Self::Peer];
}

impl fmt::Display for GpuTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nccl => "nccl",
            Self::Peer => "peer",
        })
    }
}

impl FromStr for GpuTransport {
    type Err = CommError;

    fn from_str(text: &str) -> Result<Self, CommError> {
        match text {
            "nccl" => Ok(Self::Nccl),
            "peer" => Ok(Self::Peer),
            _ => {
                let what = format!("{text:?} is no transport; choose one of nccl, peer");
                Err(CommError::Operand { operation: "choosing a transport", what })
            }
        }
    }
}
