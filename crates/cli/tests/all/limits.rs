//! Limits that a shell sets on its processes (`ulimit`).

use std::fs;
use std::process::Command;

use crate::common::{Said, Scratch, said, skips_mounts};

/// Runs the command where files may be `limit_bytes` long, or as long as it says itself.
fn with_limit(scratch: &Scratch, limit_bytes: &str, arguments: &[&str]) -> Said {
    let command = scratch.command(arguments);
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--fsize={limit_bytes}")).arg(command.get_program());
    limited.args(command.get_args());
    scratch.prepare(&mut limited);
    said(limited.output().unwrap())
}

#[test]
fn a_limit_of_the_length_of_files_does_not_hold_for_a_volume() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let (image, mount_point) = (scratch.image(), scratch.mount_point());
    with_limit(&scratch, "65536:unlimited", &["mount", &image, &mount_point]).succeeds();
    fs::write(scratch.inside("file"), vec![1; 4 << 20]).unwrap();
    scratch.umount();
    scratch.dendro(["check", &image]).succeeds();
}

#[test]
fn what_a_limit_of_the_length_of_files_forbids_fails_with_a_message() {
    let scratch = Scratch::new();
    let image = scratch.image();
    let limited = |arguments: &[&str]| with_limit(&scratch, "65536", arguments);
    let mkfs = ["mkfs", "--size", "64M", &image];
    limited(&mkfs).fails(1, &["File too large"]);
    scratch.dendro(mkfs).succeeds();
    let write = ["client", "create", &format!("{image}:one")];
    limited(&write).fails(1, &[&image, "the first 65536", "`ulimit -f`"]);
    limited(&["info", &image]).succeeds();
}
