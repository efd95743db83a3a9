//! Mounting where autofs waits for a mount, as systemd does for `x-systemd.automount`.

use std::fs;
use std::io::{PipeReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::common::{Said, Scratch, is_root, mounts, said, skips_mounts};

/// No command may take longer.
const TIMEOUT_S: &str = "30";

/// An automount on a directory. Until the end of this value, autofs stops every process that wants
/// to pass the directory, except those of the automounter's process group.
struct Automount {
    mount_point: String,
    /// Leads the process group of the automounter.
    leader: Child,
    requests: PipeReader,
    /// Wants to pass.
    visitor: Option<Child>,
}

impl Automount {
    fn new(mount_point: String) -> Self {
        fs::create_dir_all(&mount_point).unwrap();
        let leader = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
        let (requests, to_automounter) = std::io::pipe().unwrap();
        let options = format!("fd=1,pgrp={},minproto=5,maxproto=5,direct", leader.id());
        let made = Command::new("mount")
            .args(["-t", "autofs", "-o", &options, "test", &mount_point])
            .stdout(to_automounter)
            .status()
            .unwrap();
        assert!(made.success());
        Self { mount_point, leader, requests, visitor: None }
    }

    /// Waits until somebody has come, for whom autofs requests a mount.
    fn is_visited(&mut self) {
        let visitor = Command::new("ls").arg(&self.mount_point).stderr(Stdio::null()).spawn();
        self.visitor = Some(visitor.unwrap());
        // The request is one packet, of a known size.
        let mut packet = [0; 1024];
        assert!(self.requests.read(&mut packet).unwrap() > 0);
    }

    /// Runs a command as the automounter would.
    fn run(&self, command: &mut Command) -> Said {
        said(command.process_group(self.leader.id().cast_signed()).output().unwrap())
    }

    /// Runs dendro as the automounter would.
    fn dendro(&self, scratch: &Scratch, arguments: &[&str]) -> Said {
        // In the foreground: timeout(1) makes no process group of its own then.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "--signal=KILL", TIMEOUT_S, env!("CARGO_BIN_EXE_dendro")]);
        scratch.prepare(command.args(arguments));
        self.run(&mut command)
    }
}

impl Drop for Automount {
    fn drop(&mut self) {
        // First what is mounted on it.
        while mounts().lines().filter(|line| line.contains(&self.mount_point)).count() > 1 {
            if !self.run(Command::new("umount").arg("-l").arg(&self.mount_point)).err.is_empty() {
                break;
            }
        }
        self.run(Command::new("umount").arg("-l").arg(&self.mount_point));
        for child in self.visitor.iter_mut().chain([&mut self.leader]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn an_automounter_is_served_before_anybody_passes() {
    let filesystems = fs::read_to_string("/proc/filesystems").unwrap();
    if skips_mounts() || !is_root() || !filesystems.contains("autofs") {
        eprintln!("left out: it takes root, FUSE and autofs");
        return;
    }
    let scratch = Scratch::with_volume();
    let snapshot = format!("{}@one", scratch.image());
    scratch.dendro(["snapshot", "create", &snapshot]).succeeds();
    let is_mounted = |on: &str| mounts().contains(&format!(" {on} fuse.dendro "));
    // A daemon of its own, and one that serves another mount already.
    let mut first = Automount::new(scratch.text("first"));
    first.is_visited();
    first.dendro(&scratch, &["mount", &scratch.image(), &first.mount_point]).succeeds();
    assert!(is_mounted(&first.mount_point));
    let mut second = Automount::new(scratch.text("second"));
    second.is_visited();
    let arguments = ["mount", "-o", "snapshot=one", &scratch.image(), &second.mount_point];
    second.dendro(&scratch, &arguments).succeeds();
    assert!(is_mounted(&second.mount_point));
    for automount in [&second, &first] {
        automount.dendro(&scratch, &["umount", &automount.mount_point]).succeeds();
        assert!(!is_mounted(&automount.mount_point));
    }
}
