//! The library can be published: it, the crates that it uses, and no other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::workspace::{metadata, root};

const LIBRARY: &str = "dendrofs";

/// The crates of the workspace as cargo describes them, by name.
fn crates() -> BTreeMap<String, Value> {
    let packages = metadata()["packages"].take();
    let packages = packages.as_array().expect("there is a list of packages").clone();
    packages.into_iter().map(|package| (text(&package["name"]).to_owned(), package)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The dependencies of a crate on crates of the workspace: those of its code, or of its tests.
fn dependencies<'a>(package: &'a Value, kind: Option<&str>) -> Vec<&'a Value> {
    let all = package["dependencies"].as_array().expect("there is a list of dependencies");
    let ours = all.iter().filter(|dependency| dependency["path"].is_string());
    ours.filter(|dependency| dependency["kind"].as_str() == kind).collect()
}

/// The library and all that it uses, under any feature.
fn library(crates: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open = vec![LIBRARY.to_owned()];
    while let Some(name) = open.pop() {
        let used = dependencies(&crates[&name], None);
        open.extend(used.into_iter().map(|dependency| text(&dependency["name"]).to_owned()));
        found.insert(name);
        open.retain(|name| !found.contains(name));
    }
    found
}

#[test]
fn the_library_and_what_it_uses_are_published_and_nothing_else() {
    let crates = crates();
    // An empty list of registries stands for `publish = false`.
    let published = crates.iter().filter(|(_, package)| package["publish"].is_null());
    let published: BTreeSet<_> = published.map(|(name, _)| name.clone()).collect();
    assert_eq!(published, library(&crates));
}

#[test]
fn a_published_crate_says_what_it_is_and_has_its_licence() {
    let crates = crates();
    let licence = fs::read(root().join("LICENSE")).expect("the licence is there");
    for name in library(&crates) {
        let package = &crates[&name];
        for field in ["description", "license", "rust_version"] {
            assert!(!text(&package[field]).is_empty(), "{name} has no {field}");
        }
        let manifest = std::path::Path::new(text(&package["manifest_path"]));
        let own = fs::read(manifest.with_file_name("LICENSE")).unwrap_or_default();
        assert_eq!(own, licence, "{name} lacks the text of its licence");
    }
}

/// A registry knows crates by their versions alone. What only tests use is left out of a package,
/// unless it has a version; then a circle of crates and their tests could never be published.
#[test]
fn a_published_crate_names_versions_of_what_it_uses_and_none_of_what_its_tests_use() {
    let crates = crates();
    for name in library(&crates) {
        for used in dependencies(&crates[&name], None) {
            let (used, version) = (text(&used["name"]), text(&used["req"]));
            let expected = format!("^{}", text(&crates[used]["version"]));
            assert_eq!(version, expected, "of {used}, which {name} uses");
        }
        for used in dependencies(&crates[&name], Some("dev")) {
            let (used, version) = (text(&used["name"]), text(&used["req"]));
            assert_eq!(version, "*", "of {used}, which tests of {name} use");
        }
    }
}

#[test]
fn make_packs_what_is_published() {
    let makefile = fs::read_to_string(root().join("Makefile")).expect("it is text");
    let line = makefile.lines().find_map(|line| line.strip_prefix("PUBLISHED := "));
    let packed = line.expect("it lists them").split_whitespace().map(str::to_owned);
    assert_eq!(packed.collect::<BTreeSet<_>>(), library(&crates()));
}
