//! What cargo knows of the workspace.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A crate of the workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Where its manifest lies.
    pub(crate) directory: PathBuf,
    /// The crates that its own code uses; those of its tests and build script are left out.
    pub(crate) uses: Vec<String>,
    /// The root files of its library and its programs.
    pub(crate) entries: Vec<PathBuf>,
}

/// The root of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate lies two directories deep").to_path_buf()
}

/// The workspace as `cargo metadata` describes it.
pub(crate) fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// All crates of the workspace.
pub(crate) fn packages() -> Vec<Package> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("there is a list of packages");
    packages.iter().map(package).collect()
}

fn package(package: &Value) -> Package {
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    let manifest = PathBuf::from(text(&package["manifest_path"]));
    let targets = package["targets"].as_array().expect("there is a list");
    let dependencies = package["dependencies"].as_array().expect("there is a list");
    Package {
        name: text(&package["name"]),
        directory: manifest.parent().expect("a manifest lies in a directory").to_path_buf(),
        // The kind of a plain dependency is null.
        uses: dependencies
            .iter()
            .filter(|dependency| dependency["kind"].is_null())
            .map(|dependency| text(&dependency["name"]))
            .collect(),
        entries: targets
            .iter()
            .filter(|target| ["lib", "bin"].iter().any(|kind| target["kind"][0] == *kind))
            .map(|target| PathBuf::from(text(&target["src_path"])))
            .collect(),
    }
}
