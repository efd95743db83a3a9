//! The Debian package: what cargo-deb would put into it, and what packaging/make-deb puts into it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::Scratch;
use serde_json::Value;

/// Where `make stage-deb` puts the files, as cargo-deb names it.
const STAGED: &str = "target/release/deb/";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The table `[package.metadata.deb]`.
fn deb_metadata() -> Value {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = command.current_dir(repository()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let package = packages.iter().find(|package| package["name"] == "dendro").unwrap();
    package["metadata"]["deb"].clone()
}

/// The files and links below `directory`, relative to `root`, with their modes; links have none.
fn files_below(root: &Path, directory: &Path, files: &mut BTreeMap<String, Option<u32>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            files_below(root, &path, files);
            continue;
        }
        let mode = (!metadata.is_symlink()).then(|| metadata.permissions().mode() & 0o7777);
        files.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), mode);
    }
}

#[test]
fn cargo_deb_packs_the_files_that_make_deb_packs() {
    let tools = ["make", "strip", "gzip"];
    if let Some(tool) =
        tools.iter().find(|tool| Command::new(tool).arg("--version").output().is_err())
    {
        eprintln!("left out: there is no {tool}");
        return;
    }
    let scratch = Scratch::new();
    let root = scratch.path("root");
    let mut stage = Command::new(repository().join("packaging/stage-deb"));
    let output = stage.arg(env!("CARGO_BIN_EXE_dendro")).arg(&root).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut files = BTreeMap::new();
    files_below(&root, &root, &mut files);
    assert!(files.contains_key("usr/share/doc/dendrofs/copyright"), "{files:?}");

    let metadata = deb_metadata();
    assert_eq!(metadata["preserve-symlinks"], true, "links stay links");
    let mut packed = BTreeSet::new();
    for asset in metadata["assets"].as_array().unwrap() {
        let [source, target, mode] = [0, 1, 2].map(|at| asset[at].as_str().unwrap());
        let mode = u32::from_str_radix(mode, 8).unwrap();
        let source = source.strip_prefix(STAGED).unwrap_or_else(|| panic!("{source}: not staged"));
        let (directory, pattern) = source.rsplit_once('/').unwrap();
        assert_eq!(target, format!("{directory}/"), "{source} goes where it is staged");
        let before = packed.len();
        for (path, staged_mode) in &files {
            let (parent, name) = path.rsplit_once('/').unwrap();
            if parent == directory && (pattern == "*" || pattern == name) {
                assert!(staged_mode.is_none_or(|staged| staged == mode), "{path}: {staged_mode:?}");
                assert!(packed.insert(path.clone()), "{path} is listed twice");
            }
        }
        assert!(packed.len() > before, "{source} matches nothing");
    }
    assert_eq!(packed, files.into_keys().collect(), "what is listed, and what is staged");
}

#[test]
fn cargo_deb_describes_the_package_as_make_deb_does() {
    let control =
        fs::read_to_string(repository().join("packaging/debian/dendrofs.control.in")).unwrap();
    let control = control.replace("@SHLIBS@", "$auto");
    let (fields, description) = control.split_once("Description: ").unwrap();
    let field = |name: &str| {
        let value = fields.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
        value.unwrap_or_else(|| panic!("no field {name}")).to_owned()
    };
    let metadata = deb_metadata();
    for (field_name, key) in [
        ("Package", "name"),
        ("Maintainer", "maintainer"),
        ("Depends", "depends"),
        ("Recommends", "recommends"),
        ("Section", "section"),
        ("Priority", "priority"),
    ] {
        assert_eq!(metadata[key], field(field_name), "{key}");
    }
    assert_eq!(metadata["revision"], "", "the version is that of the workspace");
    let text: Vec<&str> =
        description.lines().skip(1).map(|line| line[1..].trim_start_matches('.')).collect();
    let described = metadata["extended-description"].as_str().unwrap();
    assert_eq!(described.lines().collect::<Vec<_>>(), text);
}
