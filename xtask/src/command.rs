//! Runs cargo, the same one that the caller uses.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::Deserialize;

/// The cargo that runs this program, so that a selected toolchain stays selected.
fn program() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Runs cargo in `root` with `arguments` and additional environment variables. Its output is not redirected.
///
/// # Errors
/// When cargo cannot be started or fails.
pub fn cargo(root: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Result<(), String> {
    let mut cargo = Command::new(program());
    cargo.args(arguments).envs(environment.iter().copied()).current_dir(root);
    finish(cargo, &format!("cargo {}", arguments.join(" ")), "is cargo installed?")
}

/// Runs a command to its end; the error suggests `remedy` if it cannot be started.
///
/// # Errors
/// When it cannot be started or fails; the error calls it `name`.
pub fn finish(mut command: Command, name: &str, remedy: &str) -> Result<(), String> {
    let status = command.status().map_err(|e| format!("{name}: {e}; {remedy}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}")) }
}

/// Standard output of cargo.
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

/// Part of the output of `cargo metadata`.
#[derive(Deserialize)]
pub struct Metadata {
    /// Packages of the workspace.
    pub packages: Vec<Package>,
    /// Folder of what cargo builds.
    pub target_directory: String,
}

/// Package of the workspace.
#[derive(Deserialize)]
pub struct Package {
    pub name: String,
    /// Features, with those that each enables.
    pub features: BTreeMap<String, Vec<String>>,
}

/// Metadata of the workspace in `root`.
///
/// # Errors
/// When cargo cannot be started or fails.
pub fn metadata(root: &Path) -> Result<Metadata, String> {
    let output = cargo_output(root, &["metadata", "--no-deps", "--format-version", "1"])?;
    serde_json::from_slice(&output).map_err(|e| format!("cargo metadata: {e}"))
}

/// Output of `program --version`; `None` if it cannot be started.
pub fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").stderr(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
