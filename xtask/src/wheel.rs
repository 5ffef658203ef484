//! `cargo xtask wheel`: the Python package as a wheel, and its tests in a fresh virtual environment.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command;

/// Largest size of a wheel in bytes.
const MAX_BYTES: u64 = 25 << 20;
/// Names of stubs that a build without CUDA lacks, as a regular expression.
const OF_CUDA: &str = r"girih\._girih\.(__all__|DeviceArray|Cuda\w+|cuda_\w+|Adjacency\.of_cuda_block)";
/// Package, relative to the root.
const PACKAGE: &str = "crates/python";
/// Releases of the builder that wheels are made with.
const MATURIN: &str = ">=1.9,<2";

/// Arguments of `cargo xtask wheel`.
#[derive(clap::Args)]
pub struct WheelArgs {
    /// Folder of the wheel.
    #[arg(long, default_value = "target/wheels")]
    pub out: PathBuf,
    /// Build without CUDA, by the profile of tests and of what they have built, to try the package soon; slower at work.
    #[arg(long)]
    pub quick: bool,
    /// Build for glibc 2.17 and later, with zig as the linker; without it, for the glibc of this machine.
    #[arg(long, conflicts_with = "quick")]
    pub portable: bool,
    /// Install the wheel into a fresh virtual environment with NumPy alone, and run its tests and the checks of its
    /// types there.
    #[arg(long)]
    pub test: bool,
    /// Python that makes the virtual environments, 3.10 or later.
    #[arg(long, default_value = "python3", value_name = "PROGRAM")]
    pub python: PathBuf,
}

/// Whether there is a Python that makes virtual environments.
pub fn is_available() -> bool {
    let code = "import ensurepip, sys; sys.exit(sys.version_info < (3, 10))";
    let mut python = Command::new("python3");
    python.args(["-c", code]).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Builds the wheel, checks its size, and tests it if that is asked for.
///
/// # Errors
/// When Python, pip or maturin fail, the wheel is too large, or a test fails.
pub fn run(root: &Path, args: &WheelArgs) -> Result<(), String> {
    let scratch = root.join("target/wheel");
    let tools = Environment::fresh(&scratch.join("tools"), &args.python)?;
    let extra = if args.portable { "[zig]" } else { "" };
    tools.install(&[&format!("maturin{extra}{MATURIN}")])?;
    let out = root.join(&args.out);
    let wheel = built(&tools, root, &out, args)?;
    let size = fs::metadata(&wheel).map_err(|e| format!("{}: {e}", wheel.display()))?.len();
    println!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6);
    if size > MAX_BYTES {
        return Err(format!("{}: {size} bytes, and a wheel may have {MAX_BYTES}", wheel.display()));
    }
    if args.test {
        tested(&Environment::fresh(&scratch.join("tests"), &args.python)?, root, (&wheel, args))
    } else {
        Ok(())
    }
}

/// Path of the wheel, built into `out`.
fn built(tools: &Environment, root: &Path, out: &Path, args: &WheelArgs) -> Result<PathBuf, String> {
    // A wheel of an earlier build would be taken for this one's.
    for old in wheels(out) {
        fs::remove_file(&old).map_err(|e| format!("{}: {e}", old.display()))?;
    }
    let mut maturin = tools.program("maturin");
    maturin.args(["build", "--manifest-path"]).arg(root.join(PACKAGE).join("Cargo.toml"));
    maturin.arg("--out").arg(out).arg("--interpreter").arg(tools.path("python"));
    maturin.args(["--profile", if args.quick { "dev" } else { "release" }]);
    if args.quick {
        maturin.args(["--no-default-features", "--features", "as-tests"]);
    }
    if args.portable {
        maturin.args(["--zig", "--compatibility", "manylinux_2_17"]);
        // Zig is found as a package of the first Python.
        let paths = [tools.path("python").parent().map(Path::to_owned).unwrap_or_default()];
        let rest = std::env::var_os("PATH").unwrap_or_default();
        let joined = std::env::join_paths(paths.into_iter().chain(std::env::split_paths(&rest)));
        maturin.env("PATH", joined.map_err(|e| format!("PATH: {e}"))?);
    }
    // Cargo's own variables would tell the builds of dependencies apart from those of other commands.
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR")
    {
        maturin.env_remove(name);
    }
    command::finish(maturin, "maturin build", "pip has just installed it")?;
    wheels(out).pop().ok_or_else(|| format!("maturin left no wheel in {}", out.display()))
}

fn wheels(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok).map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "whl")).collect()
}

/// Runs the tests that need NumPy alone, and checks the types that the wheel states.
fn tested(fresh: &Environment, root: &Path, (wheel, args): (&Path, &WheelArgs)) -> Result<(), String> {
    fresh.install(&[&wheel.display().to_string()])?;
    // Elsewhere than in the package, so that Python imports the wheel.
    let outside = root.join("target");
    let run = |name: &str, arguments: &[&str]| {
        let mut python = fresh.program("python");
        python.current_dir(&outside).args(arguments);
        command::finish(python, name, "see above")
    };
    run("the first lines of docs/python.md", &["-c", &first_lines(root)?])?;
    fresh.install(&["pytest>=8", "mypy>=1.11"])?;
    let tests = root.join(PACKAGE).join("tests").display().to_string();
    run("tests of the wheel", &["-m", "pytest", "-q", "-p", "no:cacheprovider", &tests])?;
    let mut stubs = vec!["-m", "mypy.stubtest", "girih._girih"];
    let left_out = outside.join("wheel/without-cuda").display().to_string();
    if args.quick {
        fs::write(&left_out, format!("{OF_CUDA}\n")).map_err(|e| format!("{left_out}: {e}"))?;
        stubs.extend(["--allowlist", &left_out]);
    }
    run("types of girih._girih", &stubs)?;
    run("types of a program that uses girih", &["-m", "mypy", "--strict", &format!("{tests}/typed.py")])
}

/// The first block of Python in the page of the package.
fn first_lines(root: &Path) -> Result<String, String> {
    let page = root.join("docs/python.md");
    let text = fs::read_to_string(&page).map_err(|e| format!("{}: {e}", page.display()))?;
    let block = text.split("```python\n").nth(1).and_then(|rest| rest.split("```").next());
    block.map(str::to_owned).ok_or_else(|| format!("{}: no block of Python", page.display()))
}

/// Virtual environment of Python.
struct Environment(PathBuf);

impl Environment {
    /// Makes the environment anew.
    fn fresh(folder: &Path, python: &Path) -> Result<Self, String> {
        let mut make = Command::new(python);
        make.args(["-m", "venv", "--clear"]).arg(folder);
        let remedy = "Python 3.10 or later with venv is needed (Debian: python3-venv)";
        command::finish(make, &format!("{} -m venv", python.display()), remedy)?;
        Ok(Self(folder.to_owned()))
    }

    fn path(&self, program: &str) -> PathBuf {
        self.0.join(if cfg!(windows) { "Scripts" } else { "bin" }).join(program)
    }

    fn program(&self, program: &str) -> Command {
        Command::new(self.path(program))
    }

    fn install(&self, packages: &[&str]) -> Result<(), String> {
        let mut pip = self.program("python");
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]).args(packages);
        command::finish(pip, &format!("pip install {}", packages.join(" ")), "is there a network?")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    /// Features of each package of a build, as `cargo tree` prints them.
    fn features(root: &Path, selection: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(root).args(["tree", "--format", "{p}|{f}", "--prefix", "none"]).args(selection);
        let output = cargo.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut of_packages = BTreeMap::<String, BTreeSet<String>>::new();
        for line in String::from_utf8(output.stdout).unwrap().lines() {
            if let Some((package, of)) = line.trim_end_matches(" (*)").split_once('|') {
                let name = package.trim_end_matches(" (proc-macro)");
                of_packages.entry(name.to_owned()).or_default().insert(of.to_owned());
            }
        }
        of_packages
    }

    /// A feature more or less would build the package anew, and all that depend on it.
    #[test]
    fn the_quick_wheel_has_the_features_of_tests() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tests = features(root, &["--workspace", "--edges", "all"]);
        let wheel = ["--package", "girih-python", "--no-default-features", "--features", "as-tests"];
        let wheel = features(root, &[&wheel[..], &["--edges", "normal,build"]].concat());
        assert!(wheel.len() > 100, "{wheel:?}");
        for (package, of) in wheel.iter().filter(|(package, _)| !package.starts_with("girih-python ")) {
            let of_tests = tests.get(package);
            let differ = |of: &&String| !of_tests.is_some_and(|of_tests| of_tests.contains(*of));
            let missing: Vec<&String> = of.iter().filter(differ).collect();
            assert!(
                missing.is_empty(),
                "{package} has the features {missing:?} in the quick wheel and {of_tests:?} in tests; change those of \
                 tests/unified-features"
            );
        }
    }

    #[test]
    fn the_first_lines_are_a_program() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let lines = first_lines(root).unwrap();
        assert!(lines.contains("import girih") && lines.lines().count() <= 20, "{lines}");
    }
}
