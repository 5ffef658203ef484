//! Messages for users whose machine does not suit `--device cuda`: a fake driver and fake GPUs fail in every way.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::girih::{Finished, SMALL, Workspace, command, girih, names_in, says};

/// Three libraries built from `fake_cuda.c`.
struct Fake {
    _folder: tempfile::TempDir,
    /// Folder of the driver, for the loader's search path.
    driver: PathBuf,
    /// Virtual environment with the other libraries.
    python: PathBuf,
}

static FAKE: LazyLock<Fake> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let (driver, python) = (folder.path().join("driver"), folder.path().join("python"));
    let libraries = python.join("lib/python3.12/site-packages/nvidia/cu13/lib");
    std::fs::create_dir_all(&driver).unwrap();
    std::fs::create_dir_all(&libraries).unwrap();
    build(&driver.join("libcuda.so.1"));
    // The loader looks for this name first, which a real driver may also have.
    std::fs::copy(driver.join("libcuda.so.1"), driver.join("libcuda.so")).unwrap();
    build(&libraries.join("libnvrtc.so.13"));
    build(&libraries.join("libcublas.so.13"));
    Fake { _folder: folder, driver, python }
});

/// Builds `fake_cuda.c` as a library that identifies itself by its file's name.
fn build(library: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/fake_cuda.c");
    let name = library.file_name().unwrap().to_str().unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-w"]).arg(format!("-Wl,-soname,{name}")).arg("-o").arg(library).arg(source);
    assert!(compiler.status().expect("a C compiler").success());
}

/// Runs the binary with the fake driver and, in a virtual environment, the fake libraries.
fn on_fake(args: &[&str], environment: &[(&str, &str)]) -> Finished {
    let mut command = command(args);
    command.env("LD_LIBRARY_PATH", &FAKE.driver).env("VIRTUAL_ENV", &FAKE.python);
    for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES"] {
        command.env_remove(variable);
    }
    command.envs(environment.iter().copied());
    Finished::new(command.output().expect("the binary starts"))
}

/// Whether real CUDA is present, so that its absence cannot be tested.
fn is_here() -> bool {
    let here = Path::new("/proc/driver/nvidia/version").exists() || Path::new("/usr/local/cuda").exists();
    if here {
        println!("skipped: this machine has CUDA");
    }
    here
}

/// Message of a training session on a CUDA device that is refused and leaves no files behind.
fn refused(device: &str, environment: &[(&str, &str)]) -> String {
    refused_with(&["--device", device], environment)
}

/// As [`refused`], but with the given flags.
fn refused_with(flags: &[&str], environment: &[(&str, &str)]) -> String {
    let work = Workspace::new();
    let args = ["train", "--data", SMALL, "--out", &work.arg("out")];
    let message = on_fake(&[&args, flags].concat(), environment).refused(1);
    assert!(names_in(work.folder()).is_empty(), "a refusal leaves nothing behind");
    message
}

fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(says(message, part), "no {part} in {message}");
    }
}

#[test]
fn a_machine_without_a_driver_is_told_so() {
    if is_here() {
        return;
    }
    let message = girih(&["train", "--data", SMALL, "--device", "cuda"]).refused(1);
    assert_says(&message, &["NVIDIA's driver (libcuda.so.1) was not found", "install NVIDIA's driver", "--device cpu"]);
    let auto = girih(&["train", "--data", SMALL, "--epochs", "1", "--json"]).ok();
    assert!(!auto.err.contains("CUDA") && !auto.err.contains("NVIDIA"), "nobody misses a GPU: {}", auto.err);
}

#[test]
fn blocks_for_tensor_cores_are_refused_where_the_cpu_computes() {
    // With a driver that is too old, `auto` uses the CPU.
    for device in ["cpu", "auto"] {
        let args = ["train", "--data", SMALL, "--device", device, "--density-threshold", "0.05"];
        let message = on_fake(&args, &[("FAKE_DRIVER", "12020")]).refused(1);
        assert_says(&message, &["--density-threshold", "--device cuda"]);
    }
}

#[test]
fn a_missing_library_is_named_with_where_it_was_looked_for() {
    if is_here() {
        return;
    }
    let elsewhere = Workspace::new();
    let message = refused("cuda", &[("VIRTUAL_ENV", &elsewhere.arg("venv")), ("CUDA_HOME", "/nowhere")]);
    let looked = [&*elsewhere.arg("venv/lib/python*/site-packages/nvidia/*/lib"), "/nowhere/lib64"];
    assert_says(&message, &["libnvrtc.so.13", looked[0], looked[1], "LD_LIBRARY_PATH", "nvidia-cuda-nvrtc"]);
}

#[test]
fn an_old_driver_is_refused_and_missed() {
    let old = [("FAKE_DRIVER", "12020")];
    assert_says(&refused("cuda", &old), &["too old", "CUDA 12.2", "CUDA 13.0", "580.65.06", "--device cpu"]);
    let auto = on_fake(&["train", "--data", SMALL, "--epochs", "1", "--json"], &old).ok();
    assert!(auto.err.contains("computing on the CPU") && auto.err.contains("12.2"), "{}", auto.err);
}

#[test]
fn a_driver_that_does_not_start_says_why() {
    assert_says(&refused("cuda", &[("FAKE_INIT", "803")]), &["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart"]);
    assert_says(&refused("cuda", &[("FAKE_INIT", "100")]), &["there is no NVIDIA GPU", "nvidia-smi"]);
    let hidden = [("FAKE_INIT", "100"), ("CUDA_VISIBLE_DEVICES", "-1")];
    assert_says(&refused("cuda", &hidden), &["CUDA_VISIBLE_DEVICES is `-1`"]);
}

#[test]
fn a_gpu_that_is_not_there_or_too_old_is_refused() {
    assert_says(&refused("cuda:7", &[]), &["no CUDA device 7", "the only one is cuda:0", "girih doctor"]);
    assert_says(&refused("cuda:2", &[("FAKE_GPUS", "2")]), &["no CUDA device 2", "cuda:0 to cuda:1"]);
    let old = refused("cuda", &[("FAKE_MAJOR", "7")]);
    assert_says(&old, &["Fake GPU has compute capability 7.0", "8.0 (Ampere)"]);
}

/// Fake GPUs whose memory accepts all writes.
const WORKING: [(&str, &str); 2] = [("FAKE_FREE", "64000000000"), ("FAKE_ALLOC", "0")];

#[test]
fn fewer_gpus_than_are_asked_for_are_refused() {
    let message = refused_with(&["--gpus", "2"], &WORKING);
    assert_says(&message, &["2 ranks want a device each", "no CUDA device 1", "the only one is cuda:0"]);
    let message = refused_with(&["--gpus", "2", "--batch", "neighbor"], &WORKING);
    assert_says(&message, &["2 ranks want a device each", "no CUDA device 1"]);
}

#[test]
fn gpus_without_nccl_are_told_what_to_install() {
    if is_here() {
        return;
    }
    let message = refused_with(&["--gpus", "2"], &[&WORKING[..], &[("FAKE_GPUS", "2")]].concat());
    assert_says(&message, &["libnccl.so.2", "nvidia-nccl-cu13"]);
}

#[test]
fn memory_that_the_host_does_not_pin_is_named_with_bytes() {
    let flags = ["--device", "cuda", "--batch", "neighbor", "--feature-cache", "0"];
    let message = refused_with(&flags, &[&WORKING[..], &[("FAKE_PINNED", "2")]].concat());
    // Size of 600 rows with 24 features.
    assert_says(&message, &["cannot pin 57600 bytes", "ulimit -l", "leave the cache out"]);
}

#[test]
fn training_that_does_not_fit_is_refused_before_any_upload() {
    // An allocation would fail with another message.
    let message = refused("cuda", &[("FAKE_ALLOC", "700")]);
    assert_says(&message, &["training needs", "Fake GPU has 977 KiB (1000000 bytes) free", "--device cpu"]);
}

#[test]
fn an_allocation_that_fails_says_what_was_asked_for_and_what_was_free() {
    let message = refused("cuda", &[("FAKE_FREE", "64000000000")]);
    assert_says(&message, &["out of memory", "a matrix of", "bytes", "64000000000 free"]);
}

#[test]
fn a_gpu_that_fails_ends_training_with_one_message() {
    let broken = [("FAKE_FREE", "64000000000"), ("FAKE_ALLOC", "214")];
    assert_says(
        &refused("cuda", &broken),
        &["failed on the device", "CUDA_ERROR_ECC_UNCORRECTABLE", "nvidia-smi -q -d ECC"],
    );
    let broken = [("FAKE_FREE", "64000000000"), ("FAKE_ALLOC", "700")];
    assert_says(&refused("cuda", &broken), &["CUDA_ERROR_ILLEGAL_ADDRESS", "start again"]);
}

#[test]
fn the_doctor_finds_libraries_of_the_virtual_environment() {
    let result = on_fake(&["doctor", "--json"], &[("FAKE_GPUS", "2")]).ok().result();
    assert_eq!(result["cuda"], true, "{result}");
    for name in ["libnvrtc.so.13", "libcublas.so.13"] {
        let library = &result["cuda_libraries"][name];
        let found = library["text"].as_str().unwrap().contains(FAKE.python.to_str().unwrap());
        assert!(library["ok"] == true && (found || is_here()), "{library}");
    }
    let nccl = &result["cuda_libraries"]["libnccl.so.2"];
    assert!(nccl["ok"] == true || nccl["text"].as_str().unwrap().ends_with("or use one GPU"), "{nccl}");
    assert!(result["cuda_driver"].as_str().unwrap().contains("CUDA 13.0"), "{result}");
    let gpus = result["cuda_gpus"].as_array().unwrap();
    assert_eq!(gpus.len(), 2);
    let text = gpus[1]["text"].as_str().unwrap();
    assert!(text.starts_with("cuda:1, Fake GPU, compute capability 9.0, 977 KiB free of 64.0 GiB"), "{text}");
}

#[test]
fn the_doctor_names_each_piece_that_is_missing() {
    let result = on_fake(&["doctor", "--json"], &[("FAKE_DRIVER", "12040")]).ok().result();
    assert_eq!(result["cuda"], false);
    assert!(result["cuda_driver"].as_str().unwrap().contains("too old"), "{result}");
    assert_eq!(result["cuda_libraries"]["libnvrtc.so.13"]["ok"], true, "each piece is looked at by itself");
    assert_eq!(result["cuda_gpus"].as_array().unwrap().len(), 0);
}

#[test]
fn a_plan_is_made_for_a_gpu_that_is_not_here() {
    let plan = |extra: &[&str]| girih(&[&["train", "--data", SMALL, "--plan", "--json"], extra].concat());
    let result = plan(&["--memory", "80GB"]).ok().result();
    assert_eq!(result["available_bytes"], 80_000_000_000u64);
    assert_eq!(result["fits"], true);
    let (needed, peak) = (result["needed_bytes"].as_u64().unwrap(), result["predicted_peak_bytes"].as_u64().unwrap());
    assert!(needed > peak && result.get("predicted_epoch_ms").is_none(), "{result}");

    let small = plan(&["--memory", "1MB", "--device", "cuda"]);
    assert_eq!(small.code, Some(1));
    assert_eq!((&small.events()[0]["event"], &small.events()[0]["fits"]), (&"result".into(), &false.into()));
    assert!(small.err.contains("training needs"), "{}", small.err);

    let cpu = plan(&["--memory", "2GiB", "--device", "cpu"]).ok().result();
    assert_eq!(cpu["available_bytes"], 2u64 << 30);
    assert!(girih(&["train", "--memory", "1GB"]).refused(2).contains("--plan"));
    assert!(plan(&["--memory", "much"]).refused(2).contains("80GB"));
}
