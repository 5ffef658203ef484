//! `cargo xtask dist --archive`: one `.tar.gz` with girih for a machine without Rust.
//!
//! The program is linked with glibc dynamically: a static program, such as one for musl, cannot load CUDA's libraries at
//! run time. The oldest glibc that has all its symbols is part of the archive's name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{command, gpu};

/// Files of the repository that go into the archive.
const FILES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// Mark of a version of glibc's symbols.
const MARK: &[u8] = b"GLIBC_";

/// Writes the archive below `out`: of `program`, or of a release build of girih. Returns its path.
///
/// # Errors
/// When girih does not build or run, or a file cannot be read or written.
pub fn write(root: &Path, out: &Path, program: Option<&Path>) -> Result<PathBuf, String> {
    let program = match program {
        Some(program) => program.to_owned(),
        None => gpu::release_build(root, "girih-cli", "girih")?,
    };
    let bytes = fs::read(&program).map_err(|e| format!("{}: {e}", program.display()))?;
    let Some((major, minor)) = oldest_glibc(&bytes) else {
        return Err(format!("{}: no symbols of glibc: archives are for Linux with glibc", program.display()));
    };
    let name = format!("girih-{}-{}-linux-glibc{major}.{minor}", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    let folder = out.join(&name);
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    fs::copy(&program, folder.join("girih")).map_err(failed)?;
    for file in FILES {
        fs::copy(root.join(file), folder.join(file)).map_err(failed)?;
    }
    gpu::write_scripts(&folder)?;
    let archive = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    // Equal files give equal bytes.
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--use-compress-program=gzip -n",
    ]);
    tar.arg("--create").arg("--file").arg(&archive).arg("--directory").arg(out).arg(&name);
    command::finish(tar, "tar", "install GNU tar and gzip")?;
    println!("made {}; it needs Linux with glibc {major}.{minor} or newer and libgcc", archive.display());
    Ok(archive)
}

/// Newest version of glibc that a program's symbols name: the oldest one that it runs on.
fn oldest_glibc(program: &[u8]) -> Option<(u32, u32)> {
    let versions = program.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK).filter_map(|(at, _)| {
        let text: Vec<u8> = program[at + MARK.len()..].iter().copied().take_while(|byte| *byte != 0).take(16).collect();
        let text = String::from_utf8(text).ok()?;
        let mut numbers = text.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_PRIVATE\0GLIBC_2.9\0GLIBC_";
        assert_eq!(oldest_glibc(program), Some((2, 34)));
        assert_eq!(oldest_glibc(b"static"), None);
    }

    /// Any program that prints its scripts can be packed; here it is a shell script with a symbol's name in it.
    #[test]
    fn an_archive_has_program_pages_and_licences() {
        use std::os::unix::fs::PermissionsExt;

        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let out = std::env::temp_dir().join(format!("girih-archive-{}", std::process::id()));
        fs::create_dir_all(&out).unwrap();
        let program = out.join("program");
        fs::write(&program, b"#!/bin/sh\n: \"GLIBC_2.17\0\"\nmkdir -p \"$4\" && : >\"$4/$2\"\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let archive = write(root, &out, Some(&program)).unwrap();
        assert!(archive.to_string_lossy().ends_with("linux-glibc2.17.tar.gz"), "{}", archive.display());
        let list = Command::new("tar").arg("--list").arg("--file").arg(&archive).output().unwrap().stdout;
        let list = String::from_utf8(list).unwrap();
        for name in ["girih", "LICENSE-MIT", "LICENSE-APACHE", "README.md", "completions/bash", "man/man"] {
            assert!(list.lines().any(|line| line.ends_with(&format!("/{name}"))), "{name} in {list}");
        }
        fs::remove_dir_all(&out).unwrap();
    }
}
