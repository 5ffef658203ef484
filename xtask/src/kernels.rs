//! `cargo xtask kernels`: compiles every CUDA source with nvcc for every architecture, and lists resources of
//! kernels.
//!
//! At run time kernels are compiled for the present GPU. This command finds compile errors without a GPU, and shows
//! registers and spills. A source lists its element types in a line `// Elements: X, Y`. It is compiled with `f32`
//! for all of them, with `bf16` for each alone, and with `bf16` for all. Other sources list their constants in lines
//! `// Constants: A=1 B=2`, one per variant. All get the constants of `crates/kernels/src/abi/constants.rs`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[expect(dead_code, reason = "the compiler takes all constants as flags")]
#[path = "../../crates/kernels/src/abi/constants.rs"]
mod abi;

/// Architectures with their own machine code; the last one also as PTX, for future GPUs.
const ARCHITECTURES: [&str; 3] = ["80", "90a", "100"];
const LINE_OF_ELEMENTS: &str = "// Elements: ";
const LINE_OF_CONSTANTS: &str = "// Constants: ";
/// Python packages of the compiler and its dependencies.
const PACKAGES: [&str; 5] =
    ["nvidia-cuda-nvcc", "nvidia-nvvm", "nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl"];
const VERSION: &str = "13.0.*";

/// Resources of a kernel: the maximum over all its variants.
#[derive(Clone, Copy, Default)]
struct Resources {
    registers: u32,
    spilled_bytes: u32,
}

/// Architectures that variants of a source are compiled for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scope {
    /// All, for every variant.
    Full,
    /// All for the first variant, and one for each further variant, in turns: half the time.
    Turns,
}

impl Scope {
    /// Positions in [`ARCHITECTURES`] for the variant with this number.
    fn architectures(self, variant: usize) -> std::ops::Range<usize> {
        let turn = variant % ARCHITECTURES.len();
        if self == Self::Full || variant == 0 { 0..ARCHITECTURES.len() } else { turn..turn + 1 }
    }
}

/// Variant of a source: its flags and the positions of its architectures.
struct Job<'s> {
    source: &'s Path,
    defines: Vec<String>,
    architectures: std::ops::Range<usize>,
}

/// Compiles all sources and prints a table. With `install`, fetches a missing compiler with pip into `target/`.
///
/// # Errors
/// When there is no compiler, or a source does not compile.
pub fn run(root: &Path, install: bool, scope: Scope) -> Result<(), String> {
    let nvcc = find(root, install)?;
    let folder = root.join("crates/kernels/cuda");
    let mut sources: Vec<PathBuf> = fs::read_dir(&folder)
        .map_err(|e| format!("{}: {e}", folder.display()))?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
        .collect();
    sources.sort();
    let mut jobs = Vec::new();
    for source in &sources {
        let text = fs::read_to_string(source).map_err(|e| format!("{}: {e}", source.display()))?;
        let job = |(at, defines)| Job { source, defines, architectures: scope.architectures(at) };
        jobs.extend(variants(&text).into_iter().enumerate().map(job));
    }
    let logs = compile_all(&nvcc, &jobs)?;
    println!("{:<18} {:<36} {:>9} {:>8}", "source", "kernel", "registers", "spilled");
    for source in &sources {
        let mut all: BTreeMap<String, Resources> = BTreeMap::new();
        for (_, log) in jobs.iter().zip(&logs).filter(|(job, _)| job.source == source) {
            add_needs(log, &mut all);
        }
        let name = source.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        for (kernel, needs) in all {
            println!("{name:<18} {kernel:<36} {:>9} {:>8}", needs.registers, needs.spilled_bytes);
        }
    }
    Ok(())
}

/// Compiler flags of a source, one list per variant.
fn variants(text: &str) -> Vec<Vec<String>> {
    let constants = text.lines().filter_map(|line| line.strip_prefix(LINE_OF_CONSTANTS));
    let constants: Vec<Vec<String>> =
        constants.map(|line| line.split_whitespace().map(|constant| format!("-D{constant}")).collect()).collect();
    if !constants.is_empty() {
        return constants;
    }
    let names = text.lines().find_map(|line| line.strip_prefix(LINE_OF_ELEMENTS)).unwrap_or("");
    let names: Vec<&str> = names.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let with = |is_bf16: &dyn Fn(usize) -> bool| -> Vec<String> {
        let element = |(i, name): (usize, &&str)| format!("-D{name}={}", if is_bf16(i) { "bf16" } else { "float" });
        names.iter().enumerate().map(element).collect()
    };
    let mut all = vec![with(&|_| false)];
    all.extend((0..names.len()).map(|alone| with(&|i| i == alone)));
    if names.len() > 1 {
        all.push(with(&|_| true));
    }
    all
}

/// Compiles sources with flags, as many at once as there are cores. Returns the output of the compiler for each.
fn compile_all(nvcc: &Path, jobs: &[Job<'_>]) -> Result<Vec<String>, String> {
    let n_cores = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let take = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        jobs.get(number).map(|job| (number, job))
    };
    let work = || -> Result<Vec<(usize, String)>, String> {
        let mut logs = Vec::new();
        while let Some((number, job)) = take() {
            logs.push((number, compile(nvcc, job, number)?));
        }
        Ok(logs)
    };
    let logs: Result<Vec<_>, String> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".to_owned()))).collect()
    });
    let mut logs = logs?.concat();
    logs.sort_by_key(|(number, _)| *number);
    Ok(logs.into_iter().map(|(_, log)| log).collect())
}

fn compile(nvcc: &Path, job: &Job<'_>, number: usize) -> Result<String, String> {
    let Job { source, defines, architectures } = job;
    let output = temporary(source, number);
    let [.., last] = ARCHITECTURES;
    let chosen = &ARCHITECTURES[architectures.clone()];
    let mut code: Vec<String> =
        chosen.iter().map(|number| format!("-gencode=arch=compute_{number},code=sm_{number}")).collect();
    if chosen.len() > 1 {
        code.push(format!("-gencode=arch=compute_{last},code=compute_{last}"));
    }
    let result = Command::new(nvcc)
        .args(["-std=c++17", "-fatbin", "-Xptxas", "-v", "-Werror", "all-warnings"])
        .args(abi::FLAGS)
        .args(code)
        .args(defines)
        .arg("-o")
        .arg(&output)
        .arg(source)
        .output()
        .map_err(|e| format!("{}: {e}", nvcc.display()))?;
    let _ = fs::remove_file(&output);
    let log = String::from_utf8_lossy(&result.stderr).into_owned();
    if result.status.success() {
        return Ok(log);
    }
    Err(format!("{} {}:\n{log}", source.display(), defines.join(" ")))
}

fn temporary(source: &Path, number: usize) -> PathBuf {
    let name = source.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    std::env::temp_dir().join(format!("girih-{}-{name}-{number}.fatbin", std::process::id()))
}

/// Parses the assembler's report on each kernel.
fn add_needs(log: &str, all: &mut BTreeMap<String, Resources>) {
    let mut kernel = String::new();
    for line in log.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let before = |what: &str| -> u32 {
            let at = words.iter().position(|word| word.trim_end_matches(',') == what);
            at.and_then(|at| words[at.checked_sub(1)?].parse().ok()).unwrap_or(0)
        };
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            all.entry(kernel.clone()).or_default();
        } else if let Some(needs) = all.get_mut(&kernel) {
            needs.registers = needs.registers.max(before("registers"));
            if let Some(spilled) = line.split(" bytes spill stores").next().filter(|_| line.contains("spill stores")) {
                let bytes = spilled.rsplit(' ').next().and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
                needs.spilled_bytes = needs.spilled_bytes.max(bytes);
            }
        }
    }
}

/// Path of the compiler: from the variable `NVCC`, from the path, or from `target/`.
fn find(root: &Path, install: bool) -> Result<PathBuf, String> {
    let works = |path: &Path| Command::new(path).arg("--version").output().is_ok_and(|output| output.status.success());
    let named = std::env::var_os("NVCC").map(PathBuf::from);
    let venv = root.join("target/nvcc");
    if let Some(nvcc) =
        named.into_iter().chain([PathBuf::from("nvcc")]).chain(installed(&venv)).find(|path| works(path))
    {
        return Ok(nvcc);
    }
    if !install {
        return Err("there is no nvcc; set NVCC to one, or let --install fetch it with pip".to_owned());
    }
    let call = |program: &Path, arguments: &[String]| -> Result<(), String> {
        let failed = |what: String| format!("{} {}: {what}", program.display(), arguments.join(" "));
        let status = Command::new(program).args(arguments).status().map_err(|e| failed(e.to_string()))?;
        if status.success() { Ok(()) } else { Err(failed(status.to_string())) }
    };
    call(Path::new("python3"), &["-m".to_owned(), "venv".to_owned(), venv.display().to_string()])?;
    let mut arguments: Vec<String> = ["-m", "pip", "install", "--quiet"].map(str::to_owned).to_vec();
    arguments.extend(PACKAGES.map(|package| format!("{package}=={VERSION}")));
    call(&venv.join("bin/python"), &arguments)?;
    installed(&venv).find(|path| works(path)).ok_or_else(|| format!("pip left no nvcc in {}", venv.display()))
}

/// Paths at which pip installs the compiler.
fn installed(venv: &Path) -> impl Iterator<Item = PathBuf> {
    let versions = fs::read_dir(venv.join("lib")).into_iter().flatten().flatten();
    versions.map(|python| python.path().join("site-packages/nvidia/cu13/bin/nvcc"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_combined() {
        assert_eq!(variants("// no elements"), [Vec::<String>::new()]);
        let all = variants("// A kernel.\n// Elements: X, Y\n");
        assert_eq!(all.len(), 4);
        assert_eq!(all[1], ["-DX=bf16", "-DY=float"]);
        assert_eq!(all[3], ["-DX=bf16", "-DY=bf16"]);
    }

    #[test]
    fn constants_are_variants() {
        let all = variants("// Constants: A=1 B=float\n// Constants: A=2 B=bf16\n");
        assert_eq!(all, [["-DA=1", "-DB=float"], ["-DA=2", "-DB=bf16"]]);
    }

    #[test]
    fn the_first_variant_is_for_all_and_others_take_turns() {
        let all = 0..ARCHITECTURES.len();
        assert_eq!([0, 1, 5].map(|at| Scope::Full.architectures(at)), [all.clone(), all.clone(), all.clone()]);
        assert_eq!([0, 1, 2, 3].map(|at| Scope::Turns.architectures(at)), [all, 1..2, 2..3, 0..1]);
    }

    #[test]
    fn needs_are_read_and_the_most_counts() {
        let log = |registers: u32, spilled: u32| {
            format!(
                "ptxas info    : Compiling entry function 'scale' for 'sm_80'\n\
                 ptxas info    : Function properties for scale\n    \
                 0 bytes stack frame, {spilled} bytes spill stores, 4 bytes spill loads\n\
                 ptxas info    : Used {registers} registers, used 0 barriers\n"
            )
        };
        let mut all = BTreeMap::new();
        add_needs(&log(14, 8), &mut all);
        add_needs(&log(12, 0), &mut all);
        assert_eq!((all["scale"].registers, all["scale"].spilled_bytes), (14, 8));
    }
}
