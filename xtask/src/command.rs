//! Running cargo as the caller's cargo.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// The cargo that runs this program, so that a chosen toolchain stays chosen.
fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs cargo in `root` with `arguments` and further environment variables, its output going where ours goes.
///
/// # Errors
/// When cargo cannot be started or fails.
pub fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let mut cargo = Command::new(program());
    cargo.args(arguments).envs(environment.iter().copied()).current_dir(root);
    finish(cargo, &format!("cargo {}", arguments.join(" ")), "is cargo installed?")
}

/// Runs a command to its end; `remedy` helps where it cannot be started.
///
/// # Errors
/// When it cannot be started or fails; the error calls it `name`.
pub fn finish(mut command: Command, name: &str, remedy: &str) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{name}: {e}; {remedy}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// What cargo prints on standard output.
///
/// # Errors
/// When cargo cannot be started or fails.
pub fn cargo_output(root: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program())
        .args(arguments)
        .current_dir(root)
        .output()
        .map_err(|e| format!("cargo {}: {e}; is cargo installed?", arguments.join(" ")))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cargo {}: {}\n{stderr}", arguments.join(" "), output.status));
    }
    Ok(output.stdout)
}

/// What a program says of its version on standard output, if it can be started.
pub fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
