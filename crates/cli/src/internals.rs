//! Items inside of the program that tests check directly, by subject. A law that a run of the program shows is tested on
//! the program.

/// Command line, its help and its flags of other tools.
pub mod args {
    pub use crate::args::{Cli, Command, Device, FOREIGN, HELP, Help, command};
}

/// Data, devices and settings that flags name.
pub mod context {
    pub use crate::context::gpus::device_of;
    pub use crate::context::reading::{add, shown_splits};
    pub use crate::context::settings::{resolve, to_toml};
}

/// Predictions of memory.
pub mod plan {
    pub use crate::context::device_memory::DeviceMemory;
    pub use crate::plan::layouts::check_patches;
    pub use crate::plan::memory::{ON_ONE, Session, check_host_with, copied_graph};
}

/// Progress of long work.
pub mod progress {
    pub use crate::commands::train::observer::Lines;
    pub use crate::progress::{INTERVAL, Pace, readable};
}

/// Messages and results.
pub mod output {
    pub use crate::commands::doctor::{LABEL_WIDTH, WIDTH, wrapped};
    pub use crate::messages::{directive, line};
    pub use crate::output::{Results, as_written, escaped, ms};
}

/// Files of a training session: its curve and its report.
pub mod session {
    pub use crate::commands::train::timeline::of_rank;
    pub use crate::curves::{CurvePoint, Curves, Measure};
    pub use crate::dates::utc;
    pub use crate::history::History;
    pub use crate::page::report::Report;
    pub use crate::point::Point;
    pub use crate::scores::{NodeScore, Subset, percent_or};
}

/// Pictures of graphs.
pub mod plots {
    pub use crate::plots::heat;
}

/// Words of command lines: paths, and quotes for a shell.
pub mod words {
    pub use crate::paths::{check, make_parents};
    pub use crate::shell::{quoted, resuming};
}
