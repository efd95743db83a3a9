//! Mounting a volume while its last mount goes away, and one that has failed.

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{Said, Scratch, is_root, is_running, said, signal, skips_mounts, wait_until};
use rustix::mount::{UnmountFlags, unmount};

/// Mounts the image while the daemon of a mount that has just been taken away learns of it: both
/// begin at the same moment.
fn mount_while_it_ends(scratch: &Scratch, image: &str, options: &str) -> (Said, u32) {
    let mount_point = scratch.mount_point();
    let pid = scratch.daemon_pid();
    signal(pid, "STOP");
    unmount(&mount_point, UnmountFlags::empty()).unwrap();
    let log = scratch.text("log");
    let mut mounting = scratch.command(["mount", "--log-file", &log, "-o", options, image]);
    mounting.arg(&mount_point).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mounting = mounting.spawn().unwrap();
    thread::sleep(Duration::from_millis(200));
    signal(pid, "CONT");
    (said(mounting.wait_with_output().unwrap()), pid)
}

#[test]
fn a_mount_that_follows_another_at_once_is_quiet_and_has_its_own_options() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    for round in 0..10 {
        scratch.mount_with("nofuseblk");
        fs::write(scratch.inside("file"), format!("{round}")).unwrap();
        let image = scratch.image();
        let (said, pid) = mount_while_it_ends(&scratch, &image, "nofuseblk,commit=3600,cache=9M");
        let said = said.succeeds();
        assert_eq!(said.err, "", "round {round}");
        assert_ne!(scratch.daemon_pid(), pid, "round {round}");
        assert_eq!(fs::read_to_string(scratch.inside("file")).unwrap(), format!("{round}"));
        scratch.umount();
    }
}

#[test]
fn what_an_image_is_like_is_told_as_soon_as_its_last_mount_is_written() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    for round in 0..6 {
        scratch.mount_with("nofuseblk,commit=3600");
        fs::write(scratch.inside("file"), vec![1; 2 << 20]).unwrap();
        // A process that another test is about to begin may hold the file for a moment.
        wait_until("it is unmounted", || {
            unmount(scratch.mount_point(), UnmountFlags::empty()).is_ok()
        });
        if round % 2 == 0 {
            scratch.dendro(["check", "-q", &scratch.image()]).succeeds();
        }
        let info = scratch.info(&scratch.image());
        assert_eq!((&info["checkpoint"]["clean"], info["mount"].is_null()), (&true.into(), true));
    }
}

/// A volume on a file system of its own, which refuses to write it: what was written last is lost.
struct Failed {
    scratch: Scratch,
    image: String,
}

impl Failed {
    fn new() -> Self {
        let scratch = Scratch::new();
        let host = scratch.text("host");
        fs::create_dir(&host).unwrap();
        let disk = scratch.text("disk");
        fs::File::create(&disk).unwrap().set_len(64 << 20).unwrap();
        run("mkfs.ext4", &["-q", &disk]);
        run("mount", &["-o", "loop", &disk, &host]);
        let image = format!("{host}/image");
        scratch.dendro(["mkfs", "-q", "--segment-size", "1M", "--size", "256M", &image]).succeeds();
        Self { scratch, image }
    }

    fn mount(&self, place: &str, options: &str) -> Said {
        fs::create_dir_all(self.scratch.path(place)).unwrap();
        let (place, log) = (self.scratch.text(place), self.scratch.text("log"));
        self.scratch.dendro(["mount", "--log-file", &log, "-o", options, &self.image, &place])
    }

    /// Writes what the host refuses: the image must not be changed any more.
    fn fail(&self) {
        run("chattr", &["+i", &self.image]);
        let lost = self.scratch.inside("lost");
        fs::write(&lost, vec![1; 1 << 20]).unwrap();
        assert!(fs::File::open(&lost).unwrap().sync_all().is_err());
        let mount_point = self.scratch.mount_point();
        let reason = || self.scratch.info(&mount_point)["mount"]["read_only"].clone();
        wait_until("it has failed", || !reason().is_null());
    }

    /// From now on it can be written again.
    fn mend(&self) {
        run("chattr", &["-i", &self.image]);
    }
}

fn run(program: &str, arguments: &[&str]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program}");
}

impl Drop for Failed {
    fn drop(&mut self) {
        for place in ["mnt", "past"] {
            let _ = self.scratch.dendro(["umount", "--force", &self.scratch.text(place)]);
        }
        let _ = Command::new("umount").args(["-l", &self.scratch.text("host")]).status();
    }
}

#[test]
fn a_volume_that_failed_is_opened_anew_by_the_next_mount() {
    if skips_mounts() || !is_root() {
        return;
    }
    let failed = Failed::new();
    for round in 1..=3 {
        failed.mount("mnt", "nofuseblk").succeeds();
        failed.fail();
        failed.mend();
        let (said, pid) = mount_while_it_ends(&failed.scratch, &failed.image, "nofuseblk");
        let said = said.succeeds();
        assert_eq!(said.err, "", "round {round}");
        assert_ne!(failed.scratch.daemon_pid(), pid);
        fs::write(failed.scratch.inside("again"), format!("{round}")).unwrap();
        failed.scratch.umount();
    }
}

#[test]
fn what_a_volume_that_failed_needs_is_said_as_long_as_another_view_of_it_is_mounted() {
    if skips_mounts() || !is_root() {
        return;
    }
    let failed = Failed::new();
    failed.mount("mnt", "nofuseblk").succeeds();
    fs::write(failed.scratch.inside("kept"), "kept").unwrap();
    let mount_point = failed.scratch.mount_point();
    failed.scratch.dendro(["snapshot", "create", &format!("{mount_point}@one")]).succeeds();
    failed.mount("past", "snapshot=one").succeeds();
    let past_point = failed.scratch.text("past");
    let metrics = || failed.scratch.dendro(["stat", "--metrics", &past_point]).succeeds().out;
    assert!(metrics().contains("\ndendro_latched 0\n"));
    failed.fail();
    // Whoever watches it learns of it.
    assert!(metrics().contains("\ndendro_latched 1\n"));
    let stat = failed.scratch.dendro(["stat", &past_point]).succeeds().out;
    assert!(stat.contains("stopped taking writes"), "{stat}");
    let pid = failed.scratch.daemon_pid();
    unmount(&mount_point, UnmountFlags::empty()).unwrap();
    let past = failed.scratch.text("past");
    let said = failed.mount("mnt", "nofuseblk").fails(32, &["takes no changes any more", &past]);
    assert!(said.err.contains("not permitted") && !said.err.contains("reading alone"), "{said:?}");
    failed.mend();
    unmount(&past, UnmountFlags::empty()).unwrap();
    failed.mount("mnt", "nofuseblk").succeeds();
    assert!(!is_running(pid));
    assert_eq!(fs::read_to_string(failed.scratch.inside("kept")).unwrap(), "kept");
    failed.scratch.umount();
}

/// A user's mount is taken away by fusermount3, which fails where it finds no table of mounts.
#[test]
fn sigterm_ends_a_users_daemon_cleanly_though_its_mount_cannot_be_taken_away() {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if skips_mounts() || !is_root() || !has("fusermount3") || !has("setpriv") {
        return;
    }
    let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata("/dev/fuse").unwrap());
    if mode & 0o006 != 0o006 {
        eprintln!("left out: /dev/fuse does not let everybody in");
        return;
    }
    let scratch = Scratch::with_volume();
    let helper = scratch.path("bin/fusermount3");
    fs::create_dir(scratch.path("bin")).unwrap();
    fs::create_dir(scratch.path("run")).unwrap();
    let script = "#!/bin/sh\n[ \"$1\" = -u ] && { echo no /etc/mtab >&2; exit 1; }\n\
                  PATH=/bin:/usr/bin exec fusermount3 \"$@\"\n";
    fs::write(&helper, script).unwrap();
    run("chmod", &["755", helper.to_str().unwrap(), &scratch.text("")]);
    scratch.mount_with("nofuseblk");
    run("chown", &["nobody", &scratch.mount_point()]);
    scratch.umount();
    for name in ["image", "mnt", "run"] {
        run("chown", &["nobody", &scratch.text(name)]);
    }
    // In a place that everybody can get at.
    let dendro = scratch.text("dendro");
    fs::copy(env!("CARGO_BIN_EXE_dendro"), &dendro).unwrap();
    let (image, mount_point, log) =
        (scratch.image(), scratch.mount_point(), scratch.text("run/log"));
    let mut mounting = Command::new("setpriv");
    mounting.args(["--reuid", "nobody", "--clear-groups", &dendro, "mount", "--log-file", &log]);
    mounting.args([&image, &mount_point]);
    scratch.prepare(&mut mounting);
    mounting.env("PATH", format!("{}:/usr/bin:/bin", scratch.text("bin")));
    said(mounting.output().unwrap()).succeeds();
    let mut write = Command::new("setpriv");
    write.args(["--reuid", "nobody", "--clear-groups", "sh", "-c", "echo kept > \"$0\"/kept"]);
    assert!(write.arg(&mount_point).status().unwrap().success());
    let pid = scratch.info(&image)["mount"]["pid"].as_u64().unwrap().try_into().unwrap();
    signal(pid, "TERM");
    wait_until("the daemon ends", || !is_running(pid));
    let told = fs::read_to_string(&log).unwrap();
    assert!(told.contains("no /etc/mtab") && told.contains("clears it away"), "{told}");
    let checkpoint = &scratch.info(&image)["checkpoint"];
    assert_eq!(checkpoint["clean"], true);
    scratch.dendro(["umount", &mount_point]).succeeds();
    assert!(!scratch.is_mounted());
    scratch.mount_with("nofuseblk");
    assert_eq!(fs::read_to_string(scratch.inside("kept")).unwrap(), "kept\n");
    scratch.umount();
}
