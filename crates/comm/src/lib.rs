//! Collective operations of ranks.
