//! The commands about versions, with a daemon that keeps its volume in memory.

use std::fs;
use std::sync::Arc;
use std::thread;

use crate::common::{Said, Scratch, skips_mounts};
use dendro_base::{Clock, SystemClock};
use dendro_control::cleaning::{
    Blocks, BlocksRequest, CleanerChange, CleanerSettings, CleaningStatus, Marked, NamedBlock,
    Places, Released, Segments, SegmentsRequest,
};
use dendro_control::versions::{VersionsReply, VersionsRequest};
use dendro_control::{
    Admin, AdminError, Cleaning, Facts, MountNamed, Pong, Server, ViewInfo, VolumeInfo,
};
use dendro_disk::model::ModelDisk;
use dendro_disk::{LogicalDisk, View};
use dendro_fs::{Caller, FileSystem, FormatOptions, Ino, OpenOptions, Options};
use dendro_versions::Service;
use serde_json::Value;

/// What answers for a volume.
struct Daemon {
    source: String,
    fs: Arc<FileSystem>,
    service: Service,
}

fn not_here<T>() -> Result<T, AdminError> {
    Err(AdminError("not here".into()))
}

impl Admin for Daemon {
    fn ping(&self) -> Pong {
        Pong {
            software: "test".into(),
            pid: std::process::id(),
            uuid: "u".into(),
            source: self.source.clone(),
            mount_point: "/none".into(),
            views: vec![ViewInfo::default()],
            ..Pong::default()
        }
    }

    fn info(&self) -> Result<VolumeInfo, AdminError> {
        Ok(VolumeInfo::default())
    }

    fn stat(&self) -> Result<Facts, AdminError> {
        not_here()
    }

    fn metrics(&self) -> Result<String, AdminError> {
        not_here()
    }

    fn change_cleaner(&self, _: &CleanerChange) -> Result<CleanerSettings, AdminError> {
        not_here()
    }

    fn versions(
        &self,
        _: Option<MountNamed<'_>>,
        request: &VersionsRequest,
    ) -> Result<VersionsReply, AdminError> {
        self.service.answer(request)
    }

    fn sync(&self) -> Result<(), AdminError> {
        not_here()
    }

    fn shut_down(&self) -> Result<(), AdminError> {
        not_here()
    }
}

impl Cleaning for Daemon {
    fn present(&self) -> CleaningStatus {
        CleaningStatus::default()
    }

    fn segments(&self, _: &SegmentsRequest) -> Result<Segments, AdminError> {
        Ok(Segments::default())
    }

    fn blocks(&self, _: &BlocksRequest) -> Result<Blocks, AdminError> {
        not_here()
    }

    fn bmapv(&self, _: &[NamedBlock]) -> Result<Places, AdminError> {
        not_here()
    }

    fn markv(&self, _: &[NamedBlock]) -> Result<Marked, AdminError> {
        not_here()
    }

    fn segclean(&self, _: &[u32]) -> Result<Released, AdminError> {
        not_here()
    }
}

impl Daemon {
    fn new(scratch: &Scratch) -> Self {
        fs::write(scratch.path("image"), b"").unwrap();
        let clock = Arc::new(SystemClock) as Arc<dyn Clock>;
        let disk = Arc::new(ModelDisk::new(None).with_clock(Arc::clone(&clock)));
        let options =
            FormatOptions { uid: 0, gid: 0, mode: 0o755, label: String::new(), hash_key: [1; 16] };
        FileSystem::create_on(&*disk, &options, &*clock).unwrap();
        let fs_options = Options { view: View::HEAD, ..Options::default() };
        let on = Arc::clone(&disk) as Arc<dyn LogicalDisk>;
        let fs = Arc::new(FileSystem::mount(on, fs_options, Arc::clone(&clock)).unwrap());
        let service =
            Service::new(disk, clock).with_mounted(Arc::clone(&fs), "/none").at(fs.view());
        Self { source: scratch.image(), fs, service }
    }

    fn file(&self, name: &str, data: &[u8]) {
        let options = OpenOptions::default();
        let caller = Caller::default();
        let attr = self.fs.create(&caller, Ino::ROOT, name.as_bytes(), 0o644, options).unwrap();
        self.fs.write(attr.ino, 0, data, false).unwrap();
        self.fs.release(attr.ino);
        self.fs.forget(attr.ino, 1);
    }
}

/// Runs `test` while a daemon answers for the image of a scratch directory.
fn with_daemon(test: impl FnOnce(&Scratch, &Daemon)) {
    let scratch = Scratch::new();
    let daemon = Daemon::new(&scratch);
    let server = Server::bind(&scratch.path("run"), "u").unwrap();
    thread::scope(|scope| {
        scope.spawn(|| server.run(&daemon));
        // What fails is to be said, not waited for.
        let outcome =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&scratch, &daemon)));
        server.stop();
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

#[test]
fn snapshots_are_made_listed_held_renamed_and_deleted() {
    with_daemon(|scratch, _| {
        let image = scratch.image();
        let snapshot =
            |arguments: &[&str]| scratch.dendro(["snapshot"].iter().chain(arguments).copied());
        assert_eq!(snapshot(&["create", &format!("{image}@one")]).succeeds().out, "");
        assert_eq!(snapshot(&["create", &image]).succeeds().out, "@2\n", "it has no name");
        let made = json(&snapshot(&["create", &format!("{image}@two"), "--json"]).succeeds());
        assert_eq!((made["epoch"].as_u64(), made["name"].as_str()), (Some(3), Some("two")));
        let again = snapshot(&["create", &format!("{image}@one")]);
        assert_eq!(again.code, Some(1));
        assert!(again.err.contains("called 'one' already"), "{again:?}");
        let list = snapshot(&["list", &image]).succeeds().out;
        let lines: Vec<_> = list.lines().collect();
        assert!(lines[1].starts_with(":main") && lines[1].ends_with("main branch"), "{list}");
        assert!(lines[3].starts_with("- ") && lines[3].ends_with("automatic"), "{list}");
        snapshot(&["hold", &format!("{image}@one")]).succeeds();
        let held = snapshot(&["delete", &format!("{image}@two"), "@one"]);
        assert!(held.err.contains("it is held"), "{held:?}");
        snapshot(&["release", &format!("{image}@one")]).succeeds();
        snapshot(&["rename", &format!("{image}@2"), "kept"]).succeeds();
        let would = snapshot(&["delete", "-n", &format!("{image}@two"), "@kept"]).succeeds();
        assert!(would.out.starts_with("would delete @two, which alone holds"), "{would:?}");
        assert!(would.out.contains("together they hold"), "{would:?}");
        let gone = snapshot(&["delete", "-v", &format!("{image}@two"), "@1"]).succeeds();
        assert_eq!(gone.out, "deleted @two\ndeleted @one\n");
        let list = json(&snapshot(&["list", "--named", "--json", &image]).succeeds());
        let names: Vec<_> =
            list["snapshots"].as_array().unwrap().iter().map(|of| &of["name"]).collect();
        assert_eq!(names, ["kept"]);
    });
}

#[test]
fn branches_are_made_promoted_and_deleted() {
    with_daemon(|scratch, _| {
        let image = scratch.image();
        scratch.dendro(["snapshot", "create", &format!("{image}@one")]).succeeds();
        scratch.dendro(["clone", &format!("{image}@one"), "b"]).succeeds();
        scratch.dendro(["snapshot", "create", &format!("{image}:b@of-b")]).succeeds();
        scratch.dendro(["promote", &format!("{image}:b")]).succeeds();
        let list = scratch.dendro(["snapshot", "list", "--json", &image]).succeeds();
        let list = json(&list);
        assert_eq!(list["branches"][1]["name"], "main");
        assert_eq!(list["branches"][1]["main"], true);
        let mounted = scratch.dendro(["snapshot", "delete", &format!("{image}:b")]);
        assert!(mounted.err.contains("is mounted"), "{mounted:?}");
        let back = scratch.dendro(["rollback", &format!("{image}@one")]);
        assert!(back.err.contains("is mounted"), "{back:?}");
        scratch.dendro(["rollback", &format!("{image}:main@of-b")]).succeeds();
        let usage = json(&scratch.dendro(["usage", "--json", &image]).succeeds());
        assert_eq!(usage["versions"].as_array().unwrap().len(), 4);
        let text = scratch.dendro(["usage", &image]).succeeds().out;
        assert!(text.contains("\n@of-b "), "{text}");
    });
}

#[test]
fn files_are_compared_followed_and_brought_back() {
    with_daemon(|scratch, daemon| {
        let image = scratch.image();
        daemon.file("file", b"contents");
        scratch.dendro(["snapshot", "create", &format!("{image}@one")]).succeeds();
        daemon.fs.unlink(Ino::ROOT, b"file").unwrap();
        daemon.file("line\nbreak", b"");
        scratch.dendro(["snapshot", "create", &format!("{image}@two")]).succeeds();
        let expected = "M\t/\n-\t/file\n+\t/line\\x0abreak\n";
        for arguments in [
            vec!["diff", &format!("{image}@one..two")],
            vec!["diff", &format!("{image}@one")],
            vec!["diff", &format!("{image}@one"), "@two"],
        ] {
            assert_eq!(scratch.dendro(&arguments).succeeds().out, expected, "{arguments:?}");
        }
        let lines = scratch.dendro(["diff", "--json", &format!("{image}@two..one")]).succeeds().out;
        assert_eq!(lines.lines().count(), 3);
        let history = scratch.dendro(["history", "--volume", &image, "/file"]).succeeds().out;
        assert!(history.contains("@one") && history.contains(" 8  "), "{history}");
        let none = scratch.dendro(["history", "--volume", &image, "/none"]);
        assert!(none.err.contains("no version has it"), "{none:?}");
        let list = scratch.dendro(["undelete", "--list", "--volume", &image, "/"]).succeeds().out;
        assert!(list.lines().nth(1).unwrap().ends_with("file"), "{list}");
    });
}

#[test]
fn what_is_named_wrongly_is_said_before_anybody_is_asked() {
    with_daemon(|scratch, _| {
        let image = scratch.image();
        for arguments in [
            vec!["snapshot", "create", &format!("{image}@a/b")],
            vec!["snapshot", "delete", &image],
            vec!["snapshot", "rename", &image, "x"],
            vec!["rollback", &image],
            vec!["promote", &image],
            vec!["clone", &format!("{image}@-5q"), "x"],
            vec!["diff", &format!("{image}@a..b"), "c"],
        ] {
            let said = scratch.dendro(&arguments);
            assert!(said.code != Some(0) && !said.err.is_empty(), "{arguments:?}: {said:?}");
        }
        let future = scratch.dendro(["clone", &format!("{image}@2200-01-01"), "x"]);
        assert!(future.err.contains("in the future"), "{future:?}");
        let unknown = scratch.dendro(["clone", &format!("{image}@unknown"), "x"]);
        assert!(unknown.err.contains("no snapshot called unknown"), "{unknown:?}");
        let nothing = scratch.dendro(["snapshot", "list", &scratch.text("nothing")]);
        assert!(nothing.err.contains("No such file"), "{nothing:?}");
    });
}

/// A volume on a disk, not mounted.
#[test]
fn an_unmounted_volume_has_versions_too() {
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.dendro(["snapshot", "create", &format!("{image}@one")]).succeeds();
    scratch.dendro(["clone", &format!("{image}@one"), "b"]).succeeds();
    scratch.dendro(["snapshot", "create", &format!("{image}:b@of-b")]).succeeds();
    scratch.dendro(["promote", &format!("{image}:b")]).succeeds();
    scratch.dendro(["rollback", &format!("{image}@one")]).succeeds();
    let list = json(&scratch.dendro(["snapshot", "list", "--json", &image]).succeeds());
    let names: Vec<_> = list["branches"].as_array().unwrap().iter().map(|of| &of["name"]).collect();
    assert_eq!(names, ["b", "main"]);
    scratch.dendro(["snapshot", "delete", &format!("{image}@one"), "@of-b", ":b"]).succeeds();
    scratch.dendro(["snapshot", "delete", &format!("{image}:main")]).fails(1, &["main branch"]);
    let usage = json(&scratch.dendro(["usage", "--json", &image]).succeeds());
    assert_eq!(usage["versions"].as_array().unwrap().len(), 1);
    assert_eq!(scratch.info(&image)["checkpoint"]["clean"], true);
}

#[test]
fn removed_files_come_back_by_undelete_and_by_rollback() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    let mount = scratch.mount_point();
    fs::create_dir_all(scratch.inside("tree/sub")).unwrap();
    for number in 0..100_u8 {
        fs::write(scratch.inside(&format!("tree/sub/file{number}")), vec![number; 5000]).unwrap();
    }
    scratch.dendro(["snapshot", "create", &format!("{mount}@before")]).succeeds();
    fs::write(scratch.inside("tree/sub/file7"), b"changed").unwrap();
    let diff = scratch.dendro(["diff", &format!("{mount}@before")]).succeeds().out;
    assert_eq!(diff, "M\t/tree/sub/file7\n");
    let history = scratch.dendro(["history", &scratch.text("mnt/tree/sub/file7")]).succeeds().out;
    assert_eq!(history.lines().count(), 3, "{history}");
    fs::remove_dir_all(scratch.inside("tree")).unwrap();
    assert!(!scratch.inside("tree").exists(), "the kernel knows that it is not there");
    let list = scratch.dendro(["undelete", "--list", &mount]).succeeds().out;
    assert!(list.lines().nth(1).unwrap().ends_with("tree"), "{list}");
    let said = scratch.dendro(["undelete", &scratch.text("mnt/tree")]).succeeds();
    assert!(said.out.contains("100 files, 2 directories"), "{said:?}");
    assert_eq!(fs::read(scratch.inside("tree/sub/file7")).unwrap(), [7; 5000]);
    assert_eq!(fs::read_dir(&mount).unwrap().count(), 1, "nothing else was left");
    scratch.dendro(["undelete", &scratch.text("mnt/tree")]).fails(1, &["there now"]);
    let copy = ["undelete", "--from", "before", "--to", &scratch.text("mnt/copy")];
    scratch.dendro(copy.into_iter().chain([&*scratch.text("mnt/tree/sub/file9")])).succeeds();
    assert_eq!(fs::read(scratch.inside("copy")).unwrap(), [9; 5000]);
    let from_root =
        ["undelete", "--from", "before", "--volume", &mount, "--to", "/second", "/tree/sub/file8"];
    scratch.dendro(from_root).succeeds();
    assert_eq!(fs::read(scratch.inside("second")).unwrap(), [8; 5000]);
    scratch.dendro(from_root).fails(1, &["there now"]);
    fs::remove_dir_all(scratch.inside("tree")).unwrap();
    let copy = fs::File::open(scratch.inside("copy")).unwrap();
    let rollback = ["rollback", &format!("{mount}@before")];
    scratch.dendro(rollback).fails(1, &["files are open", "/mnt/copy"]);
    drop(copy);
    assert!(!scratch.inside("tree").exists());
    scratch.dendro(rollback).succeeds();
    let list = scratch.dendro(["snapshot", "list", &mount]).succeeds().out;
    assert!(!list.contains("(gone)"), "what is in its past is of the main branch: {list}");
    // The kernel knew that it was not there, and what the copy held.
    assert_eq!(fs::read(scratch.inside("tree/sub/file7")).unwrap(), [7; 5000]);
    assert!(!scratch.inside("copy").exists());
    fs::write(scratch.inside("since"), "since").unwrap();
    scratch.umount();
    scratch.mount();
    assert_eq!(fs::read(scratch.inside("since")).unwrap(), b"since");
    assert!(!scratch.inside("copy").exists());
    assert_eq!(fs::read(scratch.inside("tree/sub/file99")).unwrap(), [99; 5000]);
    scratch.umount();
}

#[test]
fn what_undelete_brought_back_is_there_after_a_crash() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    // Nothing else makes it durable.
    scratch.mount_with("commit=300");
    let mount = scratch.mount_point();
    fs::create_dir(scratch.inside("tree")).unwrap();
    fs::write(scratch.inside("tree/file"), [7; 50_000]).unwrap();
    scratch.dendro(["snapshot", "create", &format!("{mount}@before")]).succeeds();
    fs::remove_dir_all(scratch.inside("tree")).unwrap();
    scratch.dendro(["undelete", &scratch.text("mnt/tree")]).succeeds();
    fs::write(scratch.inside("later"), "lost").unwrap();
    scratch.kill_daemon();
    scratch.mount();
    assert_eq!(fs::read(scratch.inside("tree/file")).unwrap(), [7; 50_000]);
    assert!(!scratch.inside("later").exists(), "what is not durable is lost");
    scratch.umount();
}

#[test]
fn the_past_is_mounted_read_only_and_a_clone_is_written_to() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    let image = scratch.image();
    scratch.mount();
    fs::write(scratch.inside("file"), b"before").unwrap();
    let create = ["snapshot", "create", &format!("{}@one", scratch.mount_point())];
    scratch.dendro(create).succeeds();
    fs::write(scratch.inside("file"), b"after").unwrap();
    scratch.umount();
    scratch.mount_with("snapshot=one");
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"before");
    assert!(fs::write(scratch.inside("file"), b"x").is_err());
    let delete = ["snapshot", "delete", &format!("{}@one", scratch.mount_point())];
    scratch.dendro(delete).fails(1, &["is mounted"]);
    scratch.umount();
    scratch.dendro(["clone", &format!("{image}@one"), "b"]).succeeds();
    scratch.mount_with("clone=b");
    fs::write(scratch.inside("file"), b"of the clone").unwrap();
    scratch.umount();
    scratch.mount_with("at=-0s,clone=b");
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"before", "what was kept of it");
    scratch.umount();
    scratch.mount();
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"after");
    scratch.umount();
    scratch.dendro(["promote", &format!("{image}:b")]).succeeds();
    scratch.mount();
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"of the clone");
    scratch.umount();
    let log = scratch.text("log");
    let mount =
        ["mount", "--log-file", &log, "-o", "snapshot=none", &image, &scratch.mount_point()];
    scratch.dendro(mount).fails(32, &["no snapshot called none"]);
}

#[test]
fn a_mount_keeps_how_it_was_at_each_interval_by_a_rule() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount_with("commit=1,retain=1h:all");
    let kept = || {
        let list = scratch.dendro(["snapshot", "list", "--json", &scratch.mount_point()]);
        json(&list.succeeds())["snapshots"].as_array().unwrap().len()
    };
    crate::common::wait_until("a first snapshot is made", || kept() == 1);
    fs::write(scratch.inside("file"), b"first").unwrap();
    crate::common::wait_until("a second one is made", || kept() >= 2);
    let first = kept();
    fs::write(scratch.inside("file"), b"second").unwrap();
    crate::common::wait_until("another one is made", || kept() > first);
    fs::remove_file(scratch.inside("file")).unwrap();
    scratch.dendro(["undelete", &scratch.text("mnt/file")]).succeeds();
    assert_eq!(fs::read(scratch.inside("file")).unwrap(), b"second");
    scratch.umount();
}

#[test]
fn usage_tells_pages_of_zeros_from_what_is_stored() {
    if skips_mounts() {
        return;
    }
    let scratch = Scratch::with_volume();
    scratch.mount();
    fs::write(scratch.inside("zeros"), vec![0; 8 << 20]).unwrap();
    fs::write(scratch.inside("data"), vec![7; 1 << 20]).unwrap();
    scratch.dendro(["sync", &scratch.mount_point()]).succeeds();
    let usage = scratch.dendro(["usage", "--json", &scratch.image()]).succeeds().out;
    let usage: serde_json::Value = serde_json::from_str(&usage).unwrap();
    let number = |name: &str| usage[name].as_u64().unwrap();
    let (live, unstored) = (number("live_bytes"), number("unstored_bytes"));
    assert!((8 << 20..9 << 20).contains(&unstored), "{usage}");
    assert!((1 << 20..2 << 20).contains(&(live - unstored)), "{usage}");
    let text = scratch.dendro(["usage", &scratch.image()]).succeeds().out;
    assert!(text.contains("not stored ") && text.contains("pages of zeros"), "{text}");
    scratch.umount();
}
