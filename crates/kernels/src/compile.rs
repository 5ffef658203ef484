//! Sources of kernels, and their compilation for a GPU.

use std::fmt::Write as _;
use std::fs::{self, File, Metadata};
use std::hash::{Hash, Hasher};
use std::io::{Read as _, Write as _};
use std::path::Path;

use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts, sys};
use girih_graph_format::FormatError;
use girih_graph_format::file::write_file;
use girih_machine::cache_folder;
use sha2::{Digest, Sha256};

use crate::abi::FLAGS;
use crate::driver::CudaVersion;
use crate::error::{KernelError, Kind};

/// Source file in `cuda/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    text: &'static str,
}

// Compared by name: each launch looks a kernel up, and texts are long.
impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Source {}

impl Hash for Source {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

macro_rules! sources {
    ($($ident:ident = $file:literal;)*) => {
        impl Source {
            $(#[doc = concat!("`kernels/", $file, "`.")]
            pub(crate) const $ident: Self =
                Self { name: $file, text: include_str!(concat!("../cuda/", $file)) };)*

            /// All sources.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$ident),*];
        }
    };
}

sources! {
    PASSES = "passes.cu";
    SPMM = "spmm.cu";
    OPERAND = "operand.cu";
    TILING = "tiling.cu";
    TILES = "tiles.cu";
    TILES_MMA = "tiles_mma.cu";
    TILES_PAPER = "tiles_paper.cu";
    EDGES = "edges.cu";
    EDGES_WIDE = "edges_wide.cu";
    HEAD_DOTS_WIDE = "head_dots_wide.cu";
    ATTENTION = "attention.cu";
    NORMALIZE = "normalize.cu";
    ROWS = "rows.cu";
    OPTIM = "optim.cu";
    DENSE = "dense.cu";
    DENSE_WGMMA = "dense_wgmma.cu";
    GEMM = "gemm.cu";
    LOSS = "loss.cu";
    RANKING = "ranking.cu";
    SEGMENTS = "segments.cu";
    SAMPLING_BATCH = "sampling_batch.cu";
    SAMPLING_HASHED = "sampling_hashed.cu";
    SAMPLING_FEW = "sampling_few.cu";
    SAMPLING_MANY = "sampling_many.cu";
    SAMPLING_WEIGHTED = "sampling_weighted.cu";
    SAMPLING_SHARES = "sampling_shares.cu";
    SAMPLING_PATCHES = "sampling_patches.cu";
    SAMPLING_LISTS = "sampling_lists.cu";
    WALKS = "walks.cu";
    NEIGHBORHOODS = "neighborhoods.cu";
    TRANSPOSE = "transpose.cu";
}

/// Headers that sources include, by name.
const HEADERS: [(&str, &str); 6] = [
    ("common.cuh", include_str!("../cuda/common.cuh")),
    ("elements.cuh", include_str!("../cuda/elements.cuh")),
    ("sampling.cuh", include_str!("../cuda/sampling.cuh")),
    ("dense.cuh", include_str!("../cuda/dense.cuh")),
    ("heads.cuh", include_str!("../cuda/heads.cuh")),
    ("warpgroups.cuh", include_str!("../cuda/warpgroups.cuh")),
];

impl Source {
    /// Text of the source with its headers in place of their `#include` lines; the compiler reads no files.
    fn with_headers(self) -> String {
        let include = |text: String, (name, header): &(&str, &str)| text.replacen(&include_of(name), header, 1);
        HEADERS.iter().fold(self.text.to_owned(), include)
    }
}

fn include_of(name: &str) -> String {
    format!("#include \"{name}\"")
}

/// Macros of a source, as names and values: types of elements, widths.
pub(crate) type Defines = Vec<(&'static str, String)>;

/// Compiles a source for a compute capability, or reads the result from the cache.
pub(crate) fn compile(source: Source, defines: &Defines, capability: (i32, i32)) -> Result<Ptx, KernelError> {
    let arch = architecture(capability);
    let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
    options.extend(FLAGS.iter().map(|&flag| flag.to_owned()));
    options.extend(defines.iter().map(|(name, value)| format!("-D{name}={value}")));
    let text = source.with_headers();
    let cached = cache_folder("kernels").map(|folder| folder.join(key(&text, &options)));
    if let Some(code) = cached.as_ref().and_then(|path| kept(path)) {
        return Ok(Ptx::from_src(code));
    }
    let options = CompileOptions { options, name: Some(source.name.to_owned()), ..CompileOptions::default() };
    let code = compile_ptx_with_opts(text, options).map_err(|error| failed(source, arch, error))?;
    if let Some(path) = cached {
        store(&path, &code.to_src());
    }
    Ok(code)
}

/// Version of the loaded compiler.
pub(crate) fn compiler_version() -> CudaVersion {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are to live numbers.
    let _ = unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    CudaVersion { major, minor }
}

/// Architecture name for the compiler. Compute capability 9.0 has instructions that later ones lack; its suffix `a`
/// allows them.
fn architecture((major, minor): (i32, i32)) -> String {
    let suffix = if (major, minor) == (9, 0) { "a" } else { "" };
    format!("compute_{major}{minor}{suffix}")
}

fn failed(source: Source, arch: String, error: CompileError) -> KernelError {
    let log = match error {
        CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
        other => other.to_string(),
    };
    Kind::Compile { source_name: source.name, arch, log }.into()
}

/// File name of a compiled source: a hash of its text, the options and the compiler's version.
fn key(text: &str, options: &[String]) -> String {
    hashed(&format!("{} {}\n{text}", compiler_version(), options.join(" "))) + ".ptx"
}

/// File name of a measurement: a hash of its description `of`, the sources and constants of its kernels and the
/// compiler's version.
pub(crate) fn digest(of: &str, sources: &[Source]) -> String {
    let texts: String = sources.iter().map(|source| source.with_headers()).collect();
    hashed(&format!("{} {} {of}\n{texts}", compiler_version(), FLAGS.join(" ")))
}

fn hashed(text: &str) -> String {
    Sha256::digest(text).iter().fold(String::new(), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// Reads compiled code from a file. Only this user may be able to write to the file, and its first line has the
/// digest of its content.
fn kept(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    if !is_private(&file.metadata().ok()?) {
        tracing::debug!("{} is not used: others can write to it", path.display());
        return None;
    }
    let mut text = String::new();
    file.read_to_string(&mut text).ok()?;
    let (digest, code) = text.split_once('\n')?;
    (digest == first_line(code)).then(|| code.to_owned())
}

/// First line of a kept file, a comment of its language.
fn first_line(code: &str) -> String {
    format!("// sha256 {}", hashed(code))
}

/// Whether a file is a regular one that belongs to this user, and that nobody else can write to.
#[cfg(unix)]
fn is_private(metadata: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    metadata.is_file() && metadata.uid() == nix::unistd::geteuid().as_raw() && metadata.mode() & WRITABLE_BY_OTHERS == 0
}

#[cfg(not(unix))]
fn is_private(metadata: &Metadata) -> bool {
    metadata.is_file()
}

/// Keeps compiled code; a cache that cannot be written only costs time.
fn store(path: &Path, code: &str) {
    let write = || -> Result<(), FormatError> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        // Other processes may write the same file at this time, so whole files replace each other.
        write_file(path, |out| {
            #[cfg(unix)]
            out.get_ref().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            Ok(writeln!(out, "{}", first_line(code)).and_then(|()| out.write_all(code.as_bytes()))?)
        })
    };
    if let Err(error) = write() {
        tracing::debug!("compiled kernels are not kept in {}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn generations_are_spelt_as_the_compiler_does() {
        assert_eq!(architecture((8, 0)), "compute_80");
        assert_eq!(architecture((9, 0)), "compute_90a");
        assert_eq!(architecture((12, 0)), "compute_120");
    }

    #[test]
    fn every_source_includes_what_it_uses() {
        let sources = [Source::PASSES, Source::WALKS, Source::TILES, Source::DENSE, Source::DENSE_WGMMA];
        for source in sources {
            assert!(source.text.contains(&include_of("common.cuh")) && !source.with_headers().contains("#include"));
        }
        assert!(HEADERS.iter().all(|(_, header)| !header.contains("#include")));
    }

    #[test]
    fn every_constant_is_one_of_kernels_and_launches() {
        let texts: String = Source::ALL.iter().map(|source| source.with_headers()).collect();
        let words = texts.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("ABI_")).collect();
        let defined: BTreeSet<&str> =
            FLAGS.iter().filter_map(|flag| flag.strip_prefix("-D")?.split('=').next()).collect();
        assert_eq!(named, defined);
    }

    #[test]
    fn code_is_stored_whole() {
        let folder = std::env::temp_dir().join(format!("girih-kernels-{}", std::process::id()));
        let path = folder.join("a.ptx");
        store(&path, "code\nmore");
        assert_eq!(kept(&path).as_deref(), Some("code\nmore"));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        let changed = fs::read_to_string(&path).unwrap().replace("more", "less");
        fs::write(&path, changed).unwrap();
        assert_eq!(kept(&path), None, "another content than its digest");
        store(&path, "code");
        assert!(kept(&path).is_some());
        #[cfg(unix)]
        {
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o620)).unwrap();
            assert_eq!(kept(&path), None, "a file that others can write to");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
