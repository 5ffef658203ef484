//! Products of rows that have types on the GPU: composed of other operations, one type after the other.

use girih_compute::RelationOps;

use crate::Cuda;

impl RelationOps for Cuda {}
