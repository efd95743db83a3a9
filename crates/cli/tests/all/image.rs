//! `dendro image --metadata`: copies that say what is wrong, and nothing of what the volume holds.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::common::pages::{damage, page};
use crate::common::{Scratch, skips_mounts};
use serde_json::Value;

/// The numbers of what a check finds.
fn findings(scratch: &Scratch, image: &str) -> BTreeSet<u64> {
    let checked = scratch.dendro(["check", "--data", "--json", image]).out;
    let checked: Value = serde_json::from_str(&checked).unwrap();
    let numbers = checked["findings"].as_array().unwrap().iter();
    numbers.map(|finding| finding["number"].as_u64().unwrap()).collect()
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// Names and contents of which nothing may be in a copy.
const SECRETS: [&str; 8] = [
    "Quarterly-Figures",
    "Überweisungen",
    "confidential.target",
    "user.classification",
    "top-secret-value",
    "before-the-merger",
    "inline and private",
    "acquisition-branch",
];

fn fill(scratch: &Scratch) {
    scratch.mount();
    fs::create_dir(scratch.inside(SECRETS[0])).unwrap();
    let inside = |name: &str| scratch.inside(&format!("{}/{name}", SECRETS[0]));
    fs::write(inside(SECRETS[1]), SECRETS[6]).unwrap();
    let pages: Vec<u8> = (0..20).flat_map(|number| page("classified", number)).collect();
    fs::write(inside("long"), pages).unwrap();
    std::os::unix::fs::symlink(SECRETS[2], inside("link")).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(inside("long"), SECRETS[3], SECRETS[4].as_bytes(), flags).unwrap();
    let at = |version: &str| format!("{}@{version}", scratch.mount_point());
    scratch.dendro(["snapshot", "create", &at(SECRETS[5])]).succeeds();
    scratch.dendro(["clone", &at(SECRETS[5]), SECRETS[7]]).succeeds();
    fs::write(inside("later"), vec![3; 100_000]).unwrap();
    scratch.umount();
}

#[test]
fn a_copy_has_the_same_findings_and_nothing_of_names_or_contents() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    fill(&scratch);
    let image = scratch.image();
    let copy = scratch.text("report.img");
    let made = scratch.dendro(["image", "--metadata", "--data", "--json", &image, &copy]);
    assert_eq!(made.code, Some(0), "{made:?}");
    assert_eq!(findings(&scratch, &copy), BTreeSet::new());
    let bytes = fs::read(&copy).unwrap();
    for secret in SECRETS {
        assert!(!contains(&bytes, secret.as_bytes()), "{secret}");
    }
    assert!(!contains(&bytes, b"classified"));
    assert!(contains(&fs::read(&image).unwrap(), SECRETS[1].as_bytes()), "it is a name there");
    let length = fs::metadata(&copy).unwrap();
    assert!(length.blocks() * 512 < 2 << 20, "{} blocks", length.blocks());
    // It can be looked at, and by its names.
    let listed = scratch.dendro(["ls", "-R", &copy]).succeeds().out;
    assert!(listed.lines().count() > 4, "{listed}");
    scratch.dendro(["dump", &copy]).succeeds();
    scratch.dendro(["image", "--metadata", &image, &copy]).fails(1, &["exists"]);
}

#[test]
fn a_copy_is_mounted_and_its_files_are_found_by_their_hidden_names() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    fill(&scratch);
    let copy = scratch.text("report.img");
    scratch.dendro(["image", "--metadata", &scratch.image(), &copy]).succeeds();
    fs::rename(&copy, scratch.image()).unwrap();
    scratch.mount_with("ro");
    // What is left of an entry would keep the directory open.
    let first = fs::read_dir(scratch.mount_point()).unwrap().next().unwrap().unwrap().path();
    let mut sizes = BTreeSet::new();
    for entry in fs::read_dir(first).unwrap() {
        let entry = entry.unwrap();
        let metadata = fs::symlink_metadata(entry.path()).unwrap();
        if metadata.is_file() {
            assert!(fs::read(entry.path()).unwrap().iter().all(|&byte| byte == 0));
            sizes.insert(metadata.len());
        }
    }
    assert_eq!(sizes, BTreeSet::from([18, 20 * 4096, 100_000]));
    scratch.umount();
}

#[test]
fn a_copy_of_a_damaged_volume_has_the_same_findings() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    fill(&scratch);
    damage(&scratch, "classified", 7);
    crate::common::harm_a_count(&scratch.image());
    let wrong = findings(&scratch, &scratch.image());
    assert!(wrong.contains(&32) && wrong.len() > 1, "{wrong:?}");
    let copy = scratch.text("report.img");
    let made = scratch.dendro(["image", "--metadata", "--data", &scratch.image(), &copy]);
    assert_eq!(made.code, Some(4), "{made:?}");
    assert_eq!(findings(&scratch, &copy), wrong);
    assert!(!contains(&fs::read(&copy).unwrap(), b"classified"));
}
