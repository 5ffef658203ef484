//! Pictures of graphs as blocks ([`heat`]); those as pixels are `girih_reorder::spy`.

pub mod heat;
