//! Those who may not ask for everything.

use super::*;
use crate::Asker;
use dendro_control::versions::AncestorInfo;
use dendro_fs::{Credentials, SetAttr};

fn asker(uid: u32, is_delegate: bool) -> Option<Asker> {
    Some(Asker { who: Credentials { uid, gid: uid, groups: Vec::new() }, is_delegate })
}

impl Fixture {
    /// For everybody.
    fn open_to_all() -> Self {
        let fixture = Self::new();
        let mode = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        fixture.fs.setattr(&Caller::default(), Ino::ROOT, &mode).unwrap();
        fixture
    }

    fn asked_by(&self, uid: u32, is_delegate: bool) -> Service {
        self.mounted().asked_by(asker(uid, is_delegate))
    }
}

fn clone(of: VersionName, name: &str) -> VersionsRequest {
    VersionsRequest::Clone { of, name: name.into() }
}

#[test]
fn what_could_take_something_from_others_is_refused_to_delegates_too() {
    let fixture = Fixture::open_to_all();
    let alice = fixture.asked_by(501, true);
    snapshot(&fixture.mounted(), "roots");
    fixture.mounted().answer(&clone(at("roots"), "work")).unwrap();
    let hold = VersionsRequest::Hold { of: at("roots"), held: true };
    let rename = VersionsRequest::Rename { of: of("main"), name: "mine".into() };
    let force = Replacing { force: true, ..Replacing::default() };
    let forced =
        VersionsRequest::Replace { with: "a".into(), since: Some(at("roots")), how: force };
    for request in [
        back(at("roots")),
        promote("work"),
        delete(&[at("roots")]),
        delete(&[of("work")]),
        delete(&[of("main")]),
        hold,
        rename,
        replace("work", None),
        replace("work", Some(at("roots"))),
        forced,
        clone(of("work"), "mine"),
        VersionsRequest::Diff { old: at("roots"), new: of("work"), skip: 0 },
    ] {
        let why = refusal(&alice, &request);
        assert!(why.starts_with("permission denied: "), "{request:?}: {why}");
    }
    let stranger = fixture.asked_by(502, false);
    for request in [
        VersionsRequest::Snapshot { of: now(), name: Some("s".into()) },
        VersionsRequest::Usage,
        clone(now(), "mine"),
    ] {
        assert!(refusal(&stranger, &request).contains("users="), "{request:?}");
    }
    let VersionsReply::List(all) = stranger.answer(&VersionsRequest::List).unwrap() else {
        panic!("another answer")
    };
    assert_eq!(all.branches.iter().map(|of| &*of.name).collect::<Vec<_>>(), ["main"]);
}

#[test]
fn a_clone_takes_the_trees_place_only_if_it_was_made_of_that() {
    let fixture = Fixture::open_to_all();
    let alice = fixture.asked_by(501, true);
    fixture.file("old", b"as it was");
    snapshot(&fixture.mounted(), "then");
    fixture.fs.unlink(Ino::ROOT, b"old").unwrap();
    snapshot(&alice, "now");
    // It would bring back what somebody has removed.
    alice.answer(&clone(at("then"), "past")).unwrap();
    let why = refusal(&alice, &replace("past", Some(at("now"))));
    assert!(why.contains("is no clone of what it is to replace"), "{why}");
    alice.answer(&clone(at("now"), "try")).unwrap();
    // Another delegate has not made it.
    let bob = fixture.asked_by(502, true);
    assert!(refusal(&bob, &replace("try", Some(at("now")))).contains("another user"));
    // The daemon closes the mount before it comes to this.
    let offline = fixture.offline().at(fixture.fs.view()).asked_by(asker(501, true));
    offline.answer(&replace("try", Some(at("now")))).unwrap();
    // It is everybody's now.
    let here = fixture.offline().asked_by(asker(501, true));
    assert!(refusal(&here, &delete(&[of("main")])).contains("another user"));
    here.answer(&delete(&[at("now"), of("past")])).unwrap();
    assert_eq!(fixture.contents("old"), None);
}

#[test]
fn a_try_is_taken_back_by_whoever_made_it_and_only_the_last() {
    let fixture = Fixture::open_to_all();
    let offline = || fixture.offline().at(fixture.disk.versions().main_head());
    let alice = || offline().asked_by(asker(501, true));
    let write = |view, name: &str| {
        let fs = open(&fixture.disk, &fixture.clock, view);
        let caller = Caller::default();
        let made = fs.create(&caller, Ino::ROOT, name.as_bytes(), 0o666, OpenOptions::default());
        fs.forget(made.unwrap().ino, 1);
        fs.sync_all().unwrap();
    };
    let head_of = |name: &str| fixture.disk.versions().branch_named(name).unwrap().head();
    let undo = |to| VersionsRequest::Rollback { to, undo: true, how: Replacing::default() };
    let has = |name: &str| {
        let fs = open(&fixture.disk, &fixture.clock, fixture.disk.versions().main_head());
        fs.lookup(Ino::ROOT, name.as_bytes()).is_ok()
    };
    let attempt = |name: &str| {
        snapshot(&alice(), name);
        alice().answer(&clone(at(name), &format!("try-{name}"))).unwrap();
        write(head_of(&format!("try-{name}")), name);
        match alice().answer(&replace(&format!("try-{name}"), Some(at(name)))) {
            Ok(VersionsReply::Branch(made)) => made.replaced.unwrap().kept.unwrap().name,
            other => panic!("{other:?}"),
        }
    };
    let first = attempt("a");
    // It is held, so the next one does not take its place.
    alice().answer(&VersionsRequest::Hold { of: at(&first), held: true }).unwrap();
    write(fixture.disk.versions().main_head(), "others");
    assert!(refusal(&alice(), &undo(now())).contains("nothing was changed since"));
    let second = attempt("b");
    // Going back by two would take what others did in between.
    let why = refusal(&alice(), &undo(at(&first)));
    assert!(why.starts_with("permission denied: "), "{why}");
    let bob = offline().asked_by(asker(502, true));
    assert!(refusal(&bob, &undo(now())).starts_with("permission denied: "));
    let forced = Replacing { force: true, ..Replacing::default() };
    let forced = VersionsRequest::Rollback { to: now(), undo: true, how: forced };
    assert!(refusal(&alice(), &forced).starts_with("permission denied: "));
    // Nor is the first one what was there before, where the second one is gone.
    let table = fixture.disk.versions();
    assert!(table.snapshot_named(&second).is_some());
    alice().answer(&undo(now())).unwrap();
    assert!(has("a") && has("others") && !has("b"));
    let third = attempt("c");
    alice().answer(&delete(&[at(&third)])).unwrap();
    assert!(refusal(&alice(), &undo(now())).starts_with("permission denied: "));
    assert!(has("c"));
}

#[test]
fn what_the_history_goes_through_is_listed_for_everybody() {
    let fixture = Fixture::open_to_all();
    let service = fixture.offline();
    snapshot(&service, "first");
    service.answer(&clone(at("first"), "hidden")).unwrap();
    fixture.file("file", b"new");
    service.answer(&back(at("first"))).unwrap();
    let listed = |service: &Service| match service.answer(&VersionsRequest::List) {
        Ok(VersionsReply::List(list)) => list,
        other => panic!("{other:?}"),
    };
    let main = fixture.disk.versions().main;
    for service in [fixture.offline(), fixture.offline().asked_by(asker(502, false))] {
        let list = listed(&service);
        let head = list.branches.iter().find(|of| of.branch == main).unwrap();
        // The first branch has no head any more; what went on from it says so.
        assert_eq!(head.parent, Some(0));
        assert_eq!(list.ancestors, [AncestorInfo::default()], "{list:?}");
    }
}

#[test]
fn nobody_hears_what_changed_where_that_one_may_not_look() {
    let fixture = Fixture::open_to_all();
    let alice = fixture.asked_by(501, true);
    let mkdir = |name: &[u8], mode| {
        let made = fixture.fs.mkdir(&Caller::default(), Ino::ROOT, name, mode).unwrap().ino;
        fixture.fs.forget(made, 1);
        made
    };
    let shut = mkdir(b"shut", 0o700);
    snapshot(&alice, "now");
    alice.answer(&clone(at("now"), "try")).unwrap();
    let options = OpenOptions::default();
    let made = fixture.fs.create(&Caller::default(), shut, b"secret", 0o644, options).unwrap();
    fixture.fs.release(made.ino);
    let offline = fixture.offline().at(fixture.fs.view()).asked_by(asker(501, true));
    // It is refused all the same.
    let answer = offline.answer(&replace("try", Some(at("now")))).unwrap();
    let VersionsReply::Diff(changed) = answer else { panic!("{answer:?}") };
    let paths: Vec<_> = changed.changes.iter().map(|change| &*change.path).collect();
    assert_eq!(paths, ["/shut"]);
}
