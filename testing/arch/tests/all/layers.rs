//! The arrows between the crates point down only.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{Package, packages, root};

/// What each crate of the engine may use of the others; a crate that is not here is refused.
/// Tests of a crate may use any.
const LAYERS: [(&str, &[&str]); 21] = [
    ("dendro-base", &[]),
    ("dendro-format", &["dendro-base"]),
    ("dendro-device", &["dendro-base"]),
    // Knows no logs.
    ("dendro-set", &["dendro-base", "dendro-device", "dendro-format"]),
    ("dendro-disk", &["dendro-base"]),
    ("dendro-policy", &["dendro-base"]),
    (
        "dendro-logdisk",
        &["dendro-base", "dendro-device", "dendro-disk", "dendro-format", "dendro-policy"],
    ),
    // Shares no code with what it verifies.
    ("dendro-check", &["dendro-base", "dendro-device", "dendro-format"]),
    // Sender and receiver need no disk to agree on it.
    ("dendro-stream", &["dendro-base", "dendro-format"]),
    // Knows no files, and of devices their memory alone.
    ("dendro-transfer", &["dendro-base", "dendro-device", "dendro-disk", "dendro-stream"]),
    // Knows a disk by its trait alone.
    ("dendro-fs", &["dendro-base", "dendro-disk"]),
    // Knows a protocol alone.
    ("dendro-nbd", &["dendro-base"]),
    // Knows a disk by its trait alone.
    ("dendro-block", &["dendro-base", "dendro-disk", "dendro-nbd"]),
    // Knows the kernel's protocol alone.
    ("dendro-fuse-transport", &[]),
    ("dendro-fuse", &["dendro-base", "dendro-fs", "dendro-fuse-transport"]),
    ("dendro-control", &["dendro-base", "dendro-policy"]),
    // What front ends do with versions, on any disk that has them.
    ("dendro-versions", &["dendro-base", "dendro-control", "dendro-disk", "dendro-fs"]),
    // The library for programs.
    (
        "dendrofs",
        &[
            "dendro-base",
            "dendro-block",
            "dendro-device",
            "dendro-disk",
            "dendro-format",
            "dendro-fs",
            "dendro-logdisk",
            "dendro-set",
            "dendro-stream",
            "dendro-transfer",
        ],
    ),
    // The same for C programs.
    ("dendro-capi", &["dendrofs"]),
    // The same for Python programs.
    ("dendro-python", &["dendrofs"]),
    // Joins the concrete types of all layers but the verifier's.
    (
        "dendro-daemon",
        &[
            "dendro-base",
            "dendro-block",
            "dendro-check",
            "dendro-control",
            "dendro-device",
            "dendro-disk",
            "dendro-format",
            "dendro-fs",
            "dendro-fuse",
            "dendro-logdisk",
            "dendro-nbd",
            "dendro-policy",
            "dendro-set",
            "dendro-stream",
            "dendro-transfer",
            "dendro-versions",
        ],
    ),
];

/// It joins the daemon, the verifier and all others, and nobody uses it.
const JOINS_ALL: &str = "dendro";

/// Crates from elsewhere that these crates alone may use.
const AT_HOME_IN: [(&str, &[&str]); 2] =
    [("io-uring", &["dendro-device", "dendro-fuse-transport"]), ("rustls", &["dendro-nbd"])];

/// The core is synchronous.
const RUNTIMES: [&str; 5] = ["tokio", "async-std", "smol", "futures", "async-trait"];

/// Crates whose `unsafe` is looked at one by one.
const MAY_BE_UNSAFE: [&str; 3] = ["dendro-capi", "dendro-device", "dendro-fuse-transport"];

fn allowed() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    LAYERS.iter().map(|(name, below)| (*name, below.iter().copied().collect())).collect()
}

fn engine() -> Vec<Package> {
    let crates = root().join("crates");
    packages().into_iter().filter(|package| package.directory.starts_with(&crates)).collect()
}

#[test]
fn every_crate_uses_only_those_below_it() {
    let allowed = allowed();
    for package in engine() {
        let name = package.name.as_str();
        let Some(below) = allowed.get(name) else {
            assert_eq!(name, JOINS_ALL, "{name} has no place in the layers; give it one above");
            continue;
        };
        for used in package.uses.iter().filter(|used| used.starts_with("dendro")) {
            assert!(below.contains(used.as_str()), "{name} must not use {used}");
        }
    }
}

#[test]
fn the_layers_have_no_cycle() {
    let mut placed = BTreeSet::new();
    // They are listed from the bottom up.
    for (name, below) in LAYERS {
        for used in below {
            assert!(placed.contains(used), "{name} stands below {used}, which it may use");
        }
        placed.insert(name);
    }
}

#[test]
fn no_crate_uses_a_test_crate_but_in_tests() {
    let testing = root().join("testing");
    let of_tests: BTreeSet<_> = packages()
        .into_iter()
        .filter(|package| package.directory.starts_with(&testing))
        .map(|package| package.name)
        .collect();
    assert!(!of_tests.is_empty());
    for package in engine() {
        for used in &package.uses {
            assert!(!of_tests.contains(used), "{} must not use {used}", package.name);
        }
    }
}

#[test]
fn what_belongs_to_one_crate_is_used_by_no_other() {
    for package in packages() {
        for used in &package.uses {
            assert!(!RUNTIMES.contains(&used.as_str()), "{} must not use {used}", package.name);
            for (foreign, home) in AT_HOME_IN {
                assert!(
                    used != foreign || home.contains(&&*package.name),
                    "{} uses {used}",
                    package.name
                );
            }
        }
    }
}

#[test]
fn unsafe_code_is_forbidden_where_it_is_not_needed() {
    for package in engine() {
        if MAY_BE_UNSAFE.contains(&package.name.as_str()) {
            continue;
        }
        let entry = ["lib.rs", "main.rs"].map(|name| package.directory.join("src").join(name));
        let entry = entry.iter().find(|path| path.exists()).expect("a crate has an entry");
        let text = std::fs::read_to_string(entry).expect("the sources can be read");
        assert!(text.contains("#![forbid(unsafe_code)]"), "{} allows unsafe", entry.display());
    }
}

#[test]
fn every_crate_takes_the_lints_of_the_workspace() {
    for package in packages() {
        let path = package.directory.join("Cargo.toml");
        let text = std::fs::read_to_string(&path).expect("a manifest can be read");
        assert!(text.contains("[lints]\nworkspace = true"), "{} has its own", path.display());
    }
}
