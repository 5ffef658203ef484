//! Container of 512 MB, as a memory cgroup: work that does not fit is refused with a message, and no process is
//! killed.
//!
//! The tests need root and writable cgroups, version 1 or 2; otherwise they report that they are skipped.

#![cfg(target_os = "linux")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::girih::{Finished, SMALL, Workspace, command, says, within};

/// Memory of the container in bytes, swap included.
const LIMIT: u64 = 512_000_000;

/// Memory cgroup.
struct Container(PathBuf);

impl Container {
    /// Cgroup with [`LIMIT`]; `None` if this machine cannot create one.
    fn new() -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("girih-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // Version 1 has a hierarchy for memory; in version 2, limits are files of the single hierarchy.
        for (hierarchy, limits) in [
            ("/sys/fs/cgroup/memory", &["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]),
            ("/sys/fs/cgroup", &["memory.max", "memory.swap.max"]),
        ] {
            let container = Self(Path::new(hierarchy).join(&name));
            let set = |file: &str, bytes: u64| fs::write(container.0.join(file), bytes.to_string()).is_ok();
            if fs::create_dir(&container.0).is_ok() && set(limits[0], LIMIT) {
                // Limits memory with swap; not every kernel counts swap.
                set(limits[1], if limits[1] == "memory.swap.max" { 0 } else { LIMIT });
                return Some(container);
            }
        }
        println!("skipped: memory cgroups need root, and a controller that is given to this one");
        None
    }

    /// Runs the binary in the cgroup.
    fn run(&self, args: &[&str]) -> Finished {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs"));
        Finished::new(within(shell, &command(args)).output().unwrap())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The kernel may still be releasing the last process.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

/// Writes compressed text of `n` megabytes of `line`s, which takes a thousandth of that on disk.
fn bomb(path: &Path, head: &str, line: &str, n: usize) {
    let gzip = |text: &str| {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        out.write_all(text.as_bytes()).unwrap();
        out.finish().unwrap()
    };
    let member = gzip(&line.repeat((1 << 20) / line.len()));
    // A file with several gzip members contains the text of all.
    let bytes = [gzip(head), member.repeat(n)].concat();
    assert!(bytes.len() < 2 << 20, "{} bytes", bytes.len());
    fs::write(path, bytes).unwrap();
}

#[test]
fn text_that_unpacks_to_more_than_the_container_is_refused() {
    let Some(container) = Container::new() else { return };
    let work = Workspace::new();
    for (name, head, line) in [
        ("edges.csv.gz", "source,target\n", "1,2\n"),
        ("edges.txt.gz", "", "1 2\n"),
        ("edges.tsv.gz", "", "123\t456\n"),
        ("matrix.mtx.gz", "%%MatrixMarket matrix coordinate pattern general\n9 9 60000000\n", "1 2\n"),
        ("graph.metis.gz", "1 0\n", "\n"),
    ] {
        bomb(&work.path(name), head, line, 700);
        for command in ["stats", "train"] {
            let message = container.run(&[command, &work.arg(name)]).refused(1);
            assert!(says(&message, name), "{command}: {message}");
        }
    }
}

#[test]
fn arrays_that_unpack_to_more_than_the_container_are_refused() {
    let Some(container) = Container::new() else { return };
    let work = Workspace::new();
    archive_bomb(&work.path("graph.npz"), 700 << 20);
    let message = container.run(&["stats", &work.arg("graph.npz")]).refused(1);
    assert!(says(&message, "graph.npz"), "{message}");
}

/// Writes a compressed `.npz` whose features are `bytes` zero bytes.
fn archive_bomb(path: &Path, bytes: usize) {
    const COLUMNS: usize = 100;
    let header = |shape: String, kind: &str| {
        let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        let padded = format!("{text:117}\n");
        [b"\x93NUMPY\x01\x00", &(padded.len() as u16).to_le_bytes()[..], padded.as_bytes()].concat()
    };
    let mut out = zip::ZipWriter::new(fs::File::create(path).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    out.start_file("edge_index.npy", options).unwrap();
    out.write_all(&[header("(2, 4)".to_owned(), "<i8"), vec![0; 64]].concat()).unwrap();
    out.start_file("x.npy", options).unwrap();
    let rows = bytes / (4 * COLUMNS);
    out.write_all(&header(format!("({rows}, {COLUMNS})"), "<f4")).unwrap();
    let row = vec![0; 4 * COLUMNS];
    (0..rows).for_each(|_| out.write_all(&row).unwrap());
    out.finish().unwrap();
    assert!(fs::metadata(path).unwrap().len() < 2 << 20);
}

#[test]
fn work_that_does_not_fit_is_refused_and_what_fits_is_done() {
    let Some(container) = Container::new() else { return };
    let work = Workspace::new();
    container.run(&["train", SMALL, "--epochs", "2", "--out", &work.arg("out")]).ok();
    let large = "synth:planted,nodes=200000,degree=10,features=64,classes=8";
    for flags in
        [&["--hidden", "4096"][..], &["--layers", "40", "--hidden", "256"], &["--model", "gat", "--hidden", "4096"]]
    {
        let message = container.run(&[&["train", large, "--epochs", "1"], flags].concat()).refused(1);
        assert!(says(&message, "needs"), "{flags:?}: {message}");
    }
    for args in [
        &["generate", "planted,nodes=3000000,degree=40,features=256"][..],
        &["generate", "planted,nodes=300000,degree=400,features=16"],
    ] {
        let finished = container.run(&[args, &["--out", &work.arg("large")]].concat());
        assert!(finished.code.is_some(), "{args:?} was killed: {}", finished.err);
        if finished.code != Some(0) {
            assert!(finished.err.contains("memory") || finished.err.contains("bytes"), "{}", finished.err);
        }
    }
}
