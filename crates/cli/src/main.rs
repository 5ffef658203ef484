//! The program `girih`. Its code is the library beside it, so that a test build compiles it once.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    girih_cli::run()
}
