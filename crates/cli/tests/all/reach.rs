//! A command reaches the volume that is named, or says why not: where the kernel gives a mount's
//! number to the next one, and where a daemon does not answer.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use dendro_control::{Client, ClientError};

use crate::common::{
    Said, Scratch, is_root, is_running, mounts, said, signal, skips_mounts, wait_until,
};
use rustix::mount::{UnmountFlags, unmount};

/// A daemon that was stopped goes on when the test ends, however it does.
struct Stopped(u32);

impl Stopped {
    fn new(pid: u32) -> Self {
        signal(pid, "STOP");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

#[allow(clippy::disallowed_methods, reason = "a test is no engine")]
fn now() -> Instant {
    Instant::now()
}

fn mkfs(scratch: &Scratch, image: &str, size: &str) {
    let image = scratch.text(image);
    scratch.dendro(["mkfs", "-q", "--segment-size", "1M", "--size", size, &image]).succeeds();
}

fn mount(scratch: &Scratch, image: &str, place: &str, options: &str) -> Said {
    fs::create_dir_all(scratch.path(place)).unwrap();
    let (image, place, log) = (scratch.text(image), scratch.text(place), scratch.text("log"));
    scratch.dendro(["mount", "--log-file", &log, "-o", options, &image, &place])
}

fn pid_of(scratch: &Scratch, target: &str) -> u32 {
    let pid = scratch.info(&scratch.text(target))["mount"]["pid"].as_u64().unwrap();
    pid.try_into().unwrap()
}

/// What a daemon that has lost its only mount says, and refuses.
fn check_that_it_tells_of_no_mount(client: &Client, view: u64) {
    let pong = client.ping().unwrap();
    assert!(pong.views.is_empty(), "{pong:?}");
    assert_eq!(pong.closing.len(), 1);
    assert_eq!(pong.closing[0].id, view);
    match client.clone().about(view).sync() {
        Err(ClientError::NotMeant(why)) => assert!(why.contains("has been unmounted"), "{why}"),
        other => panic!("{other:?}"),
    }
}

/// The volume `a`, which is mounted, and whose image lies on another one; the daemons of both.
fn mount_one_in_another(scratch: &Scratch) -> (u32, u32) {
    mkfs(scratch, "host.img", "128M");
    mount(scratch, "host.img", "host", "nofuseblk,commit=3600").succeeds();
    mkfs(scratch, "host/a.img", "32M");
    mount(scratch, "host/a.img", "a", "nofuseblk,commit=3600").succeeds();
    fs::write(scratch.path("a/file"), vec![7; 3 << 20]).unwrap();
    (pid_of(scratch, "host"), pid_of(scratch, "a"))
}

/// The volume `a`, whose image lies on a volume that does not answer, unmounted and far from
/// written; until the answer is dropped.
fn with_one_that_is_being_written(scratch: &Scratch) -> (Stopped, u32, u64) {
    let (host, pid) = mount_one_in_another(scratch);
    let number = fs::metadata(scratch.path("a")).unwrap().dev();
    let info = scratch.info(&scratch.text("a"));
    let client = Client::new(info["mount"]["socket"].as_str().unwrap());
    let view = client.ping().unwrap().views[0].id;
    let slow = Stopped::new(host);
    unmount(scratch.path("a"), UnmountFlags::empty()).unwrap();
    check_that_it_tells_of_no_mount(&client, view);
    (slow, pid, number)
}

/// All that was done to the mounted volume `b` was done to that one.
fn work_on_b(scratch: &Scratch, uuid: &str) {
    let b = scratch.text("b");
    let info = || scratch.info(&b);
    assert_eq!(info()["uuid"], uuid);
    assert_eq!(info()["mount"]["mount_point"], *b);
    fs::write(scratch.path("b/file"), "before").unwrap();
    scratch.dendro(["sync", &b]).succeeds();
    let checkpoint = &info()["checkpoint"];
    assert_eq!(checkpoint["last_commit"], checkpoint["durable_commit"], "it was not flushed");
    for name in ["new", "gone"] {
        scratch.dendro(["snapshot", "create", &format!("{b}@{name}")]).succeeds();
    }
    scratch.dendro(["snapshot", "delete", &format!("{b}@gone")]).succeeds();
    fs::write(scratch.path("b/file"), "after").unwrap();
    scratch.dendro(["rollback", &format!("{b}@new")]).succeeds();
    assert_eq!(fs::read_to_string(scratch.path("b/file")).unwrap(), "before");
    scratch.dendro(["clone", &format!("{b}@new"), "branch"]).succeeds();
    scratch.dendro(["promote", &format!("{b}:branch")]).succeeds();
    let list = scratch.dendro(["snapshot", "list", &b]).succeeds().out;
    assert!(list.contains("@new") && list.contains(":branch") && !list.contains("@gone"), "{list}");
    fs::write(scratch.path("b/file"), "last").unwrap();
}

#[test]
fn a_command_is_for_the_mount_that_is_there_and_not_for_the_one_that_had_its_number() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    mkfs(&scratch, "b.img", "32M");
    let uuid = scratch.info(&scratch.text("b.img"))["uuid"].as_str().unwrap().to_owned();
    let (slow, pid, number) = with_one_that_is_being_written(&scratch);
    let has_number = (0..20).any(|_| {
        mount(&scratch, "b.img", "b", "nofuseblk,commit=3600").succeeds();
        let is_same = fs::metadata(scratch.path("b")).unwrap().dev() == number;
        if !is_same {
            // Somebody else has it just now.
            scratch.dendro(["umount", &scratch.text("b")]).succeeds();
            thread::sleep(Duration::from_millis(100));
        }
        is_same
    });
    if !has_number {
        // What was to be seen of the number, `check_that_it_tells_of_no_mount` has seen.
        eprintln!("somebody else has got the number");
        mount(&scratch, "b.img", "b", "nofuseblk,commit=3600").succeeds();
    }
    assert!(is_running(pid), "it is written already");
    work_on_b(&scratch, &uuid);
    let pid_of_b = pid_of(&scratch, "b");
    assert_ne!(pid_of_b, pid);
    // The volume that is being written is not taken for one that is mounted.
    let socket = scratch.info(&scratch.text("b"))["mount"]["socket"].as_str().unwrap().to_owned();
    assert!(socket.contains(&uuid), "{socket}");
    scratch.dendro(["umount", &scratch.text("b")]).succeeds();
    assert!(!is_running(pid_of_b), "it was not waited for");
    assert_eq!(scratch.info(&scratch.text("b.img"))["checkpoint"]["clean"], true);
    assert!(is_running(pid), "it is written already");

    drop(slow);
    wait_until("the other one is written", || !is_running(pid));
    let image = scratch.text("host/a.img");
    assert_eq!(scratch.info(&image)["checkpoint"]["clean"], true);
    let list = scratch.dendro(["snapshot", "list", &image]).succeeds().out;
    assert!(!list.contains('@') && !list.contains(":branch"), "{list}");
    mount(&scratch, "host/a.img", "a", "nofuseblk").succeeds();
    assert_eq!(fs::read(scratch.path("a/file")).unwrap(), vec![7; 3 << 20]);
    scratch.dendro(["umount", &scratch.text("a")]).succeeds();
    mount(&scratch, "b.img", "b", "nofuseblk").succeeds();
    assert_eq!(fs::read_to_string(scratch.path("b/file")).unwrap(), "last");
    scratch.dendro(["umount", &scratch.text("b")]).succeeds();
    scratch.dendro(["umount", &scratch.text("host")]).succeeds();
}

#[test]
fn an_unmount_does_not_wait_for_ever_for_a_daemon_that_is_stopped_meanwhile() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let (host, pid) = mount_one_in_another(&scratch);
    let slow = Stopped::new(host);
    let place = scratch.text("a");
    let mut unmounting = scratch.command(["umount", &place]);
    let unmounting = unmounting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("it is unmounted", || !mounts().contains(&format!(" {place} ")));
    let stopped = Stopped::new(pid);
    let silent = format!("process {pid}, does not answer");
    said(unmounting.wait_with_output().unwrap()).fails(32, &["it is unmounted", &silent]);
    drop(stopped);
    drop(slow);
    wait_until("it is written", || !is_running(pid));
    assert_eq!(scratch.info(&scratch.text("host/a.img"))["checkpoint"]["clean"], true);
    scratch.dendro(["umount", &scratch.text("host")]).succeeds();
}

#[test]
fn a_bind_mount_names_the_same_volume_also_when_the_first_mount_is_gone() {
    if skips_mounts() || !is_root() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("nofuseblk");
    fs::create_dir_all(scratch.path("bound")).unwrap();
    fs::create_dir(scratch.inside("dir")).unwrap();
    let bound = scratch.text("bound");
    rustix::mount::mount_bind(scratch.inside("dir"), &bound).unwrap();
    let uuid = scratch.info(&scratch.mount_point())["uuid"].clone();
    assert_eq!(scratch.info(&bound)["uuid"], uuid);
    scratch.dendro(["umount", &scratch.mount_point()]).succeeds();
    assert_eq!(scratch.info(&bound)["uuid"], uuid);
    scratch.dendro(["sync", &bound]).succeeds();
    scratch.dendro(["umount", &bound]).succeeds();
    assert_eq!(scratch.info(&scratch.image())["checkpoint"]["clean"], true);
}

#[test]
fn a_daemon_that_does_not_answer_is_said_to_and_keeps_nobody_else_waiting() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    mkfs(&scratch, "b.img", "32M");
    scratch.mount_with("nofuseblk");
    fs::write(scratch.inside("file"), "accepted").unwrap();
    let pid = scratch.daemon_pid();
    let stopped = Stopped::new(pid);

    let began = now();
    mount(&scratch, "b.img", "b", "nofuseblk").succeeds();
    scratch.dendro(["sync", &scratch.text("b")]).succeeds();
    scratch.dendro(["umount", &scratch.text("b.img")]).succeeds();
    // A single wait for the other one would take as long.
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());

    let began = now();
    let (image, mount_point, inside) =
        (scratch.image(), scratch.mount_point(), scratch.text("mnt/not/looked/up"));
    let silent = [&*format!("process {pid}, does not answer"), &format!("kill -CONT {pid}")];
    for target in [&image, &mount_point, &inside] {
        for command in ["sync", "stat", "info"] {
            let said = scratch.dendro([command, target]).fails(1, &silent);
            assert!(!said.err.contains("not mounted"), "{said:?}");
        }
    }
    scratch.dendro(["snapshot", "create", &format!("{mount_point}@a")]).fails(1, &silent);
    scratch.dendro(["snapshot", "create", &format!("{image}@a")]).fails(1, &silent);
    scratch.dendro(["history", &inside]).fails(1, &silent);
    mount(&scratch, "image", "second", "defaults").fails(32, &silent);
    mount(&scratch, "image", "mnt", "defaults").fails(32, &silent);
    mount(&scratch, "b.img", "mnt", "defaults").fails(32, &silent);
    for arguments in [&["umount"][..], &["umount", "--lazy"]] {
        let arguments = [arguments, &[&mount_point]].concat();
        scratch.dendro(arguments).fails(32, &[silent[0], "--force"]);
    }
    scratch.dendro(["umount", &image]).fails(32, &silent);
    assert!(scratch.is_mounted());
    // What asks no daemon works.
    let dumped = scratch.dendro(["dump", &image, "superblocks"]).succeeds();
    assert!(dumped.err.contains(silent[0]) && !dumped.out.is_empty(), "{dumped:?}");
    // Each waits once.
    assert!(began.elapsed() < Duration::from_secs(19 * 4), "{:?}", began.elapsed());

    drop(stopped);
    scratch.dendro(["sync", &image]).succeeds();
    let stopped = Stopped::new(pid);
    scratch.dendro(["umount", "--force", &mount_point]).fails(32, &["it is unmounted", silent[0]]);
    assert!(!mounts().contains(&mount_point));
    drop(stopped);
    wait_until("the daemon ends", || !is_running(pid));
    scratch.mount();
    assert_eq!(fs::read_to_string(scratch.inside("file")).unwrap(), "accepted");
    scratch.umount();
}

#[test]
fn forks_options_and_several_unmounts_do_not_wait_for_a_daemon_that_does_not_answer() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    mkfs(&scratch, "b.img", "32M");
    scratch.mount_with("nofuseblk");
    mount(&scratch, "b.img", "b", "nofuseblk").succeeds();
    let [mount_point, b, c, work] = ["mnt", "b", "c", "work"].map(|name| scratch.text(name));
    scratch.dendro(["snapshot", "create", &format!("{b}@s")]).succeeds();
    mount(&scratch, "b.img", "c", "snapshot=s").succeeds();
    let is_mounted = |place: &str| mounts().contains(&format!(" {place} "));
    scratch.dendro(["fork", &mount_point, &work]).succeeds();
    let pid = scratch.daemon_pid();
    let stopped = Stopped::new(pid);
    let silent = [&*format!("process {pid}, does not answer")];

    let inside = |place: &str| format!("{place}/not/looked/up");
    let (other, looked_up) = (scratch.text("other"), inside(&mount_point));
    scratch.dendro(["set", &mount_point, "commit=1"]).fails(1, &silent);
    scratch.dendro(["forks", &looked_up]).fails(1, &silent);
    scratch.dendro(["branch", "list", &mount_point]).fails(1, &silent);
    scratch.dendro(["fork", &looked_up, &other]).fails(1, &silent);
    assert!(!scratch.path("other").exists(), "nothing was made");
    scratch.dendro(["fork", &b, &looked_up]).fails(1, &silent);
    scratch.dendro(["drop", &work]).fails(1, &silent);
    scratch.dendro(["drop", &inside(&work)]).fails(1, &silent);
    assert!(is_mounted(&work) && is_mounted(&mount_point));
    let list = scratch.dendro(["snapshot", "list", &b]).succeeds().out;
    assert!(!list.contains("fork-"), "{list}");

    // The others go all the same.
    let said = scratch.dendro(["umount", &b, &mount_point, &c]).fails(32, &silent);
    assert!(said.err.contains("--force"), "{said:?}");
    assert!(!is_mounted(&b) && !is_mounted(&c) && is_mounted(&mount_point));
    let cut = scratch.dendro(["umount", "--force", &mount_point, &work]).fails(32, &silent);
    assert_eq!(cut.err.matches("it is unmounted").count(), 2, "{cut:?}");
    assert!(!is_mounted(&mount_point) && !is_mounted(&work));
    drop(stopped);
    wait_until("the daemon ends", || !is_running(pid));
    assert_eq!(scratch.info(&scratch.image())["checkpoint"]["clean"], true);
}
