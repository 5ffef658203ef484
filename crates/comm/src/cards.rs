//! [`CardTransport`]: what carries rows between cards.

use std::fmt;
use std::str::FromStr;

use crate::CommError;

/// What carries rows of matrices, and of patches, between ranks on cards. Sums are NCCL's either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CardTransport {
    /// NCCL, whose kernels send and receive: between processes and hosts, too.
    #[default]
    Nccl,
    /// Each card takes what it wants from the memory of the others: for cards of one process that can read each other's
    /// memory. Its copy engines copy rows of matrices; its kernels read rows of patches in place.
    Peer,
}

impl CardTransport {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Nccl, Self::Peer];
}

impl fmt::Display for CardTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nccl => "nccl",
            Self::Peer => "peer",
        })
    }
}

impl FromStr for CardTransport {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for transport in CardTransport::ALL {
            assert_eq!(transport.to_string().parse(), Ok(transport));
        }
        let message = "shared".parse::<CardTransport>().unwrap_err().to_string();
        assert!(message.contains("\"shared\"") && message.contains("peer"), "{message}");
    }
}
