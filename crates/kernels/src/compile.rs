//! Sources of kernels, and how they become code for a card.

use cudarc::nvrtc::{CompileError, CompileOptions, Ptx, compile_ptx_with_opts};

use crate::error::{KernelError, Kind};

/// A file of `kernels/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) name: &'static str,
    text: &'static str,
}

macro_rules! sources {
    ($($ident:ident = $file:literal;)*) => {
        impl Source {
            $(#[doc = concat!("`kernels/", $file, "`.")]
            pub(crate) const $ident: Self =
                Self { name: $file, text: include_str!(concat!("../../../kernels/", $file)) };)*
        }
    };
}

sources! {
    PASSES = "passes.cu";
    NORMALIZE = "normalize.cu";
    ROWS = "rows.cu";
    OPTIM = "optim.cu";
}

/// What every source includes.
const COMMON: &str = include_str!("../../../kernels/common.cuh");
const INCLUDE: &str = "#include \"common.cuh\"";

/// Names and values that a source is compiled with: types of elements, widths.
pub(crate) type Defines = Vec<(&'static str, String)>;

/// Compiles a source for a compute capability.
pub(crate) fn compile(source: Source, defines: &Defines, (major, minor): (i32, i32)) -> Result<Ptx, KernelError> {
    // sm_90a has the instructions that only this generation has.
    let suffix = if (major, minor) == (9, 0) { "a" } else { "" };
    let arch = format!("compute_{major}{minor}{suffix}");
    let mut options = vec![format!("--gpu-architecture={arch}"), "--std=c++17".to_owned()];
    options.extend(defines.iter().map(|(name, value)| format!("-D{name}={value}")));
    let text = source.text.replacen(INCLUDE, COMMON, 1);
    let options = CompileOptions { options, name: Some(source.name.to_owned()), ..CompileOptions::default() };
    compile_ptx_with_opts(text, options).map_err(|error| {
        let log = match error {
            CompileError::CompileError { log, .. } => log.to_string_lossy().into_owned(),
            other => other.to_string(),
        };
        Kind::Compile { source_name: source.name, arch, log }.into()
    })
}
