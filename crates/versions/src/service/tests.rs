use std::sync::Arc;

use dendro_base::{Clock, ManualClock};
use dendro_control::versions::{Moment, Replacing, VersionName, VersionsReply, VersionsRequest};
use dendro_disk::model::ModelDisk;
use dendro_disk::{LogicalDisk, Versions, View};
use dendro_fs::{Caller, FileSystem, FormatOptions, Ino, OpenOptions, Options};

use super::Service;

mod asker;
mod kept;

struct Fixture {
    disk: Arc<ModelDisk>,
    clock: Arc<ManualClock>,
    fs: Arc<FileSystem>,
}

impl Fixture {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let disk = Arc::new(ModelDisk::new(None).with_clock(Arc::clone(&clock) as _));
        let options =
            FormatOptions { uid: 0, gid: 0, mode: 0o755, label: String::new(), hash_key: [1; 16] };
        FileSystem::create_on(&*disk, &options, &*clock).unwrap();
        let fs = open(&disk, &clock, View::HEAD);
        Self { disk, clock, fs }
    }

    /// As a daemon serves it.
    fn mounted(&self) -> Service {
        self.offline().with_mounted(Arc::clone(&self.fs), "/mnt").at(self.fs.view())
    }

    fn offline(&self) -> Service {
        Service::new(Arc::clone(&self.disk) as _, Arc::clone(&self.clock) as _)
    }

    fn file(&self, name: &str, data: &[u8]) -> Ino {
        let (caller, options) = (Caller::default(), OpenOptions::default());
        let created = self.fs.create(&caller, Ino::ROOT, name.as_bytes(), 0o644, options).unwrap();
        self.fs.write(created.ino, 0, data, false).unwrap();
        self.fs.release(created.ino);
        self.fs.forget(created.ino, 1);
        created.ino
    }

    fn contents(&self, name: &str) -> Option<Vec<u8>> {
        let attr = self.fs.lookup(Ino::ROOT, name.as_bytes()).ok()?;
        let mut data = vec![0; attr.size_bytes as usize];
        self.fs.read(attr.ino, 0, &mut data).unwrap();
        self.fs.forget(attr.ino, 1);
        Some(data)
    }
}

fn open(disk: &Arc<ModelDisk>, clock: &Arc<ManualClock>, view: View) -> Arc<FileSystem> {
    let options = Options { view, ..Options::default() };
    let disk = Arc::clone(disk) as Arc<dyn LogicalDisk>;
    Arc::new(FileSystem::mount(disk, options, Arc::clone(clock) as Arc<dyn Clock>).unwrap())
}

fn at(text: &str) -> VersionName {
    let moment = Moment { text: text.into(), unix_ns: None };
    VersionName { branch: None, moment: Some(moment) }
}

fn of(branch: &str) -> VersionName {
    VersionName { branch: Some(branch.into()), moment: None }
}

fn now() -> VersionName {
    VersionName::default()
}

fn snapshot(service: &Service, name: &str) {
    let request = VersionsRequest::Snapshot { of: now(), name: Some(name.into()) };
    service.answer(&request).unwrap();
}

fn refusal(service: &Service, request: &VersionsRequest) -> String {
    service.answer(request).unwrap_err().0
}

fn delete(names: &[VersionName]) -> VersionsRequest {
    VersionsRequest::Delete { versions: names.to_vec(), dry_run: false }
}

fn back(to: VersionName) -> VersionsRequest {
    VersionsRequest::Rollback { to, undo: false, how: Replacing::default() }
}

fn promote(branch: &str) -> VersionsRequest {
    VersionsRequest::Promote { branch: branch.into(), how: Replacing::default() }
}

fn replace(with: &str, since: Option<VersionName>) -> VersionsRequest {
    VersionsRequest::Replace { with: with.into(), since, how: Replacing::default() }
}

#[test]
fn snapshots_and_branches_are_made_listed_renamed_and_deleted() {
    let fixture = Fixture::new();
    let service = fixture.mounted();
    snapshot(&service, "one");
    let clone = VersionsRequest::Clone { of: at("one"), name: "b".into() };
    match service.answer(&clone) {
        Ok(VersionsReply::Branch(branch)) => {
            assert_eq!((branch.branch, branch.parent, branch.parent_epoch), (1, Some(0), Some(1)));
        }
        other => panic!("{other:?}"),
    }
    let rename = VersionsRequest::Rename { of: at("one"), name: "two".into() };
    assert_eq!(service.answer(&rename), Ok(VersionsReply::Done));
    assert_eq!(fixture.disk.flushed().0, 4, "each change is durable");
    let of_b = VersionsRequest::Snapshot { of: of("b"), name: None };
    service.answer(&of_b).unwrap();
    match service.answer(&VersionsRequest::List) {
        Ok(VersionsReply::List(list)) => {
            let names: Vec<_> =
                list.snapshots.iter().map(|of| (of.branch, of.name.as_deref())).collect();
            assert_eq!(names, [(0, Some("two")), (1, None)]);
            let branches: Vec<_> = list.branches.iter().map(|of| (&*of.name, of.main)).collect();
            assert_eq!(branches, [("main", true), ("b", false)]);
        }
        other => panic!("{other:?}"),
    }
    match service.answer(&delete(&[at("two"), at("2"), of("b"), at("two")])) {
        Ok(VersionsReply::Deleted(deleted)) => assert_eq!(deleted.len(), 3, "each once"),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.disk.versions().views().collect::<Vec<_>>(), [View::HEAD]);
}

#[test]
fn all_are_deleted_or_none() {
    let fixture = Fixture::new();
    let service = fixture.mounted();
    snapshot(&service, "one");
    snapshot(&service, "held");
    let hold = |held| VersionsRequest::Hold { of: at("held"), held };
    service.answer(&hold(true)).unwrap();
    let before = fixture.disk.versions();
    for wrong in [at("held"), at("three"), of("main"), now()] {
        let why = refusal(&service, &delete(&[at("one"), wrong]));
        assert!(!why.is_empty());
        assert_eq!(fixture.disk.versions(), before, "{why}");
    }
    let request = VersionsRequest::Delete { versions: vec![at("one")], dry_run: true };
    let answer = service.answer(&request);
    assert!(matches!(answer, Ok(VersionsReply::Deleted(of)) if of[0].exclusive_bytes.is_some()));
    assert_eq!(fixture.disk.versions(), before);
    service.answer(&hold(false)).unwrap();
    service.answer(&delete(&[at("held"), at("one")])).unwrap();
}

#[test]
fn a_time_names_what_is_read_and_nothing_that_is_changed() {
    let fixture = Fixture::new();
    let service = fixture.mounted();
    snapshot(&service, "one");
    let moment = Moment { text: "-1s".into(), unix_ns: Some(fixture.clock.now().0) };
    let version = VersionName { branch: None, moment: Some(moment) };
    let why = refusal(&service, &delete(std::slice::from_ref(&version)));
    assert!(why.contains("-1s is a time"), "{why}");
    let old = VersionsRequest::Diff { old: version, new: now(), skip: 0 };
    assert!(service.answer(&old).is_ok());
}

#[test]
fn what_is_mounted_stays() {
    let fixture = Fixture::new();
    snapshot(&fixture.mounted(), "one");
    let view = fixture.disk.versions().snapshots().next().unwrap().view();
    let past = open(&fixture.disk, &fixture.clock, view);
    let service = fixture.mounted().with_mounted(past, "/other");
    assert!(refusal(&service, &delete(&[at("one")])).contains("is mounted on /other"));
    let rollback = back(at("one"));
    assert!(refusal(&service, &rollback).contains("is mounted on /mnt"));
    let offline = fixture.offline();
    assert!(matches!(offline.answer(&rollback), Ok(VersionsReply::Branch(of)) if of.main));
    assert_eq!(fixture.disk.versions().main, 1);
    assert!(refusal(&offline, &back(now())).contains("how far"));
}

#[test]
fn a_promoted_clone_is_what_is_meant() {
    let fixture = Fixture::new();
    let service = fixture.offline();
    service.answer(&VersionsRequest::Clone { of: now(), name: "b".into() }).unwrap();
    service.answer(&promote("b")).unwrap();
    snapshot(&service, "of-b");
    let table = fixture.disk.versions();
    assert_eq!(table.snapshots().next().unwrap().branch, 1);
    assert_eq!(table.branch_named("main").map(|of| of.branch), Some(1));
    let past = VersionsRequest::Snapshot { of: at("of-b"), name: None };
    assert!(refusal(&service, &past).contains("name a branch"));
}

#[test]
fn files_are_compared_followed_and_brought_back() {
    for is_mounted in [true, false] {
        let fixture = Fixture::new();
        let service = if is_mounted { fixture.mounted() } else { fixture.offline() };
        fixture.file("file", b"first");
        snapshot(&service, "one");
        fixture.fs.unlink(Ino::ROOT, b"file").unwrap();
        fixture.file("other", b"");
        match service.answer(&VersionsRequest::Diff { old: at("one"), new: now(), skip: 1 }) {
            Ok(VersionsReply::Diff(diff)) => {
                let told: Vec<_> = diff.changes.iter().map(|of| (of.change, &*of.path)).collect();
                assert_eq!(told, [('-', "/file"), ('+', "/other")]);
                assert!(!diff.more);
            }
            other => panic!("{other:?}"),
        }
        match service.answer(&VersionsRequest::History { of: now(), path: "/file".into() }) {
            Ok(VersionsReply::History(versions)) => {
                assert_eq!(versions.len(), 2);
                assert_eq!(versions[1].snapshot.as_deref(), Some("one"));
                assert_eq!(versions[1].file.as_ref().map(|file| file.size_bytes), Some(5));
            }
            other => panic!("{other:?}"),
        }
        match service.answer(&VersionsRequest::Removed { of: now(), path: "/".into() }) {
            Ok(VersionsReply::Removed(names)) => assert_eq!(names[0].name, "file"),
            other => panic!("{other:?}"),
        }
        let undelete = |from, path: &str, to: Option<&str>| VersionsRequest::Undelete {
            from,
            path: path.into(),
            to: to.map(str::to_owned),
        };
        match service.answer(&undelete(None, "/file", None)) {
            Ok(VersionsReply::Restored(of)) => assert_eq!((of.files, of.epoch), (1, Some(1))),
            other => panic!("{other:?}"),
        }
        let copy = undelete(Some(at("one")), "/file", Some("/copy"));
        service.answer(&copy).unwrap();
        for (request, why) in [
            (undelete(None, "/file", None), "it is there now"),
            (undelete(None, "/never", None), "no snapshot has it"),
            (undelete(Some(at("one")), "/other", Some("/x")), "does not have it"),
            (undelete(None, "/", None), "must end in a name"),
            (undelete(None, "/file", Some("/none/file")), "no such directory"),
            (undelete(None, "\\q", None), "stray backslash"),
        ] {
            let found = refusal(&service, &request);
            assert!(found.contains(why), "{found}");
        }
        let seen = Fixture { fs: open(&fixture.disk, &fixture.clock, View::HEAD), ..fixture };
        assert_eq!(seen.contents("file").as_deref(), Some(&b"first"[..]));
        assert_eq!(seen.contents("copy").as_deref(), Some(&b"first"[..]));
    }
}

#[test]
fn what_the_versions_take_is_told_by_name() {
    let fixture = Fixture::new();
    let service = fixture.mounted();
    fixture.file("file", &[1; 100_000]);
    snapshot(&service, "one");
    fixture.fs.unlink(Ino::ROOT, b"file").unwrap();
    match service.answer(&VersionsRequest::Usage) {
        Ok(VersionsReply::Usage(usage)) => {
            assert_eq!(usage[0].name.as_deref(), Some("main"));
            assert_eq!(usage[1].name.as_deref(), Some("one"));
            assert!(usage[1].exclusive_bytes > 100_000 && usage[0].exclusive_bytes < 1000);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_branch_replaces_a_head_that_has_not_changed_since() {
    let fixture = Fixture::new();
    fixture.file("file", b"old");
    let service = fixture.offline();
    snapshot(&service, "base");
    service.answer(&VersionsRequest::Clone { of: at("base"), name: "b".into() }).unwrap();
    let clone = fixture.disk.versions().branch_named("b").unwrap().head();
    let fs = open(&fixture.disk, &fixture.clock, clone);
    let ino = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
    fs.write(ino, 0, b"new", false).unwrap();
    let replace_b = |since| replace("b", since);
    assert!(refusal(&fixture.mounted(), &replace_b(None)).contains("is mounted on /mnt"));
    fixture.file("other", b"meanwhile");
    match service.answer(&replace_b(Some(at("base")))).unwrap() {
        VersionsReply::Diff(changed) => {
            assert_eq!(changed.changes[1].path, "/other");
            assert!(!changed.more);
        }
        other => panic!("{other:?}"),
    }
    fixture.fs.unlink(Ino::ROOT, b"other").unwrap();
    let branches = || fixture.disk.versions().branches().len();
    assert_eq!((branches(), fixture.disk.versions().main), (2, 0), "nothing was done");
    match service.answer(&replace_b(None)).unwrap() {
        VersionsReply::Branch(made) => assert_eq!((&*made.name, made.main), ("main", true)),
        other => panic!("{other:?}"),
    }
    assert_eq!((branches(), fixture.disk.versions().main_head()), (1, clone));
    assert!(refusal(&service, &replace_b(None)).contains("no branch called b"));
    // Of a branch that is not the main one the name alone goes over.
    for name in ["c", "d"] {
        service.answer(&VersionsRequest::Clone { of: now(), name: name.into() }).unwrap();
    }
    let head = |name: &str| fixture.disk.versions().branch_named(name).unwrap().head();
    let [c, d] = ["c", "d"].map(head);
    let there = fixture.offline().at(c);
    let fs = open(&fixture.disk, &fixture.clock, d);
    let ino = fs.lookup(Ino::ROOT, b"file").unwrap().ino;
    fs.write(ino, 0, b"d's", false).unwrap();
    there.answer(&replace("d", Some(of("main")))).unwrap();
    assert_eq!((head("c"), branches()), (d, 2));
    assert!(refusal(&fixture.offline().at(d), &replace("c", None)).contains("there already"));
}

#[test]
fn a_branch_in_which_nothing_was_done_goes_and_the_head_stays() {
    let fixture = Fixture::new();
    fixture.file("file", b"old");
    let service = fixture.offline();
    snapshot(&service, "base");
    let main = fixture.disk.versions().main_head();
    let replace_b = replace("b", Some(at("base")));
    let branch_off = || {
        service.answer(&VersionsRequest::Clone { of: at("base"), name: "b".into() }).unwrap();
        fixture.disk.versions().branch_named("b").unwrap().head()
    };
    branch_off();
    // The head may be mounted, for nothing changes there.
    match fixture.mounted().spare_replacement(&replace_b).unwrap() {
        Some(VersionsReply::Branch(kept)) => assert_eq!((kept.branch, kept.main), (0, true)),
        other => panic!("{other:?}"),
    }
    assert_eq!(fixture.disk.versions().views().next(), Some(main));
    assert!(fixture.disk.versions().branch_named("b").is_none());
    // Once something was done in either, it is a replacement like others.
    let clone = branch_off();
    fixture.file("other", b"meanwhile");
    assert_eq!(service.spare_replacement(&replace_b).unwrap(), None);
    assert!(matches!(service.answer(&replace_b).unwrap(), VersionsReply::Diff(_)));
    service.answer(&VersionsRequest::Delete { versions: vec![of("b")], dry_run: false }).unwrap();
    assert!(fixture.disk.versions().branch_of(clone).is_none());
    let unconditional = replace("b", None);
    let clone = branch_off();
    assert_eq!(service.spare_replacement(&unconditional).unwrap(), None);
    service.answer(&unconditional).unwrap();
    assert_eq!(fixture.disk.versions().main_head(), clone);
}
