//! Heads that gave way, and the way back to them.

use dendro_control::versions::{BranchInfo, KeptInfo};

use super::*;

fn undo(to: VersionName) -> VersionsRequest {
    VersionsRequest::Rollback { to, undo: true, how: Replacing::default() }
}

fn made(service: &Service, request: &VersionsRequest) -> BranchInfo {
    match service.answer(request) {
        Ok(VersionsReply::Branch(made)) => made,
        other => panic!("{other:?}"),
    }
}

fn kept(service: &Service, request: &VersionsRequest) -> Option<KeptInfo> {
    made(service, request).replaced.expect("it says what it replaced").kept
}

impl Fixture {
    /// The contents of `file` in the head of the main branch, as it is on the disk.
    fn now(&self) -> String {
        let head = self.disk.versions().main_head();
        let seen = Fixture {
            fs: open(&self.disk, &self.clock, head),
            disk: Arc::clone(&self.disk),
            clock: Arc::clone(&self.clock),
        };
        seen.contents("file").map(|data| String::from_utf8(data).unwrap()).unwrap_or_default()
    }

    /// Writes `file` in the head of the main branch.
    fn write(&self, text: &str) {
        let fs = open(&self.disk, &self.clock, self.disk.versions().main_head());
        let _ = fs.unlink(Ino::ROOT, b"file");
        let seen = Fixture { fs, disk: Arc::clone(&self.disk), clock: Arc::clone(&self.clock) };
        seen.file("file", text.as_bytes());
    }

    fn names(&self) -> Vec<String> {
        let table = self.disk.versions();
        let names = table.snapshots().filter_map(|of| of.name.clone());
        names.map(|name| name.split("-2").next().unwrap().to_owned()).collect()
    }
}

#[test]
fn what_a_rollback_replaces_is_kept_and_comes_back() {
    let fixture = Fixture::new();
    let service = fixture.offline();
    fixture.write("one");
    snapshot(&service, "one");
    assert_eq!(kept(&service, &back(at("one"))), None, "nothing was lost");
    fixture.write("two");
    let first = kept(&service, &back(at("one"))).expect("kept");
    assert!(first.name.starts_with("before-rollback-") && first.epoch.is_some(), "{first:?}");
    assert_eq!(fixture.now(), "one");
    // What can be had by a name anyway is not kept again.
    let is_one = kept(&service, &undo(now())).expect("kept");
    assert_eq!((&*is_one.name, fixture.now()), ("one", "two".into()));
    assert_eq!(fixture.names(), ["one"]);
    let first = kept(&service, &back(at("one"))).expect("kept");
    fixture.write("three");
    let why = refusal(&service, &back(at(&first.name)));
    assert!(why.contains("not in the past of :main; --undo"), "{why}");
    assert!(refusal(&service, &undo(at("one"))).contains("was not kept by a rollback"));
    let undone = made(&service, &undo(now())).replaced.unwrap();
    assert_eq!(undone.like, format!("@{}", first.name));
    assert_eq!(fixture.now(), "two");
    assert_eq!(fixture.names(), ["one", "before-undo"], "what is there again needs no name");
    // That can be taken back, too.
    made(&service, &undo(now()));
    assert_eq!(fixture.now(), "three");
    assert_eq!(fixture.names(), ["one", "before-undo"]);
    made(&service, &undo(now()));
    assert_eq!(fixture.now(), "two");
    let discard = Replacing { discard: true, force: false };
    let thrown = VersionsRequest::Rollback { to: at("one"), undo: false, how: discard };
    assert_eq!(kept(&service, &thrown), None);
    assert_eq!(fixture.now(), "one");
    assert_eq!(fixture.names(), ["one", "before-undo"]);
    // One that has another name is not found, and stays.
    let last = fixture.disk.versions().snapshots().last().unwrap().name.clone().unwrap();
    let rename = VersionsRequest::Rename { of: at(&last), name: "mine".into() };
    service.answer(&rename).unwrap();
    assert!(refusal(&service, &undo(now())).contains("nothing to be taken back"));
}

#[test]
fn each_branch_has_a_way_back_of_its_own() {
    let fixture = Fixture::new();
    let service = fixture.offline();
    fixture.write("one");
    snapshot(&service, "one");
    service.answer(&VersionsRequest::Clone { of: at("one"), name: "b".into() }).unwrap();
    fixture.write("main's");
    let on_b = fixture.disk.versions().branch_named("b").unwrap().head();
    let fs = open(&fixture.disk, &fixture.clock, on_b);
    fs.unlink(Ino::ROOT, b"file").unwrap();
    let to_one = |branch: &str| VersionName { branch: Some(branch.into()), ..at("one") };
    let of_b = kept(&service, &back(to_one("b"))).unwrap();
    assert!(of_b.name.starts_with("before-rollback-of-b-2"), "{of_b:?}");
    assert!(refusal(&service, &undo(now())).contains("nothing to be taken back"));
    kept(&service, &back(to_one("main"))).unwrap();
    assert_eq!(fixture.now(), "one");
    let list = service.answer(&VersionsRequest::List).unwrap();
    let VersionsReply::List(list) = list else { panic!("{list:?}") };
    let branches: Vec<_> = list.snapshots.iter().map(|of| of.branch_name.as_deref()).collect();
    assert_eq!(branches, [Some("main"), Some("main"), Some("b")], "none is of nothing");
    made(&service, &undo(of("b")));
    made(&service, &undo(now()));
    assert_eq!(fixture.now(), "main's");
    let head = fixture.disk.versions().branch_named("b").unwrap().head();
    let fs = open(&fixture.disk, &fixture.clock, head);
    assert!(fs.lookup(Ino::ROOT, b"file").is_err(), "as it was in b");
}

#[test]
fn a_promotion_keeps_the_former_main_branch_under_the_others_name() {
    let fixture = Fixture::new();
    let service = fixture.offline();
    fixture.write("old");
    let clone = |name: &str| VersionsRequest::Clone { of: now(), name: name.into() };
    service.answer(&clone("b")).unwrap();
    fixture.write("newer");
    let former = kept(&service, &promote("b"));
    assert_eq!(former, Some(KeptInfo { branch: 0, epoch: None, name: "b".into() }));
    assert_eq!(fixture.now(), "old");
    kept(&service, &promote("b"));
    assert_eq!(fixture.now(), "newer");
    let discard = Replacing { discard: true, force: false };
    let thrown = VersionsRequest::Promote { branch: "b".into(), how: discard };
    assert_eq!(kept(&service, &thrown), None);
    assert_eq!((fixture.now(), fixture.disk.versions().branches().len()), ("old".into(), 1));
}

#[test]
fn a_series_of_replacements_keeps_the_last_and_what_others_did() {
    let fixture = Fixture::new();
    let service = fixture.offline();
    fixture.write("0");
    let attempt = |text: &str, meanwhile: Option<&str>| {
        snapshot(&service, "base");
        service.answer(&VersionsRequest::Clone { of: at("base"), name: "b".into() }).unwrap();
        let clone = fixture.disk.versions().branch_named("b").unwrap().head();
        let fs = open(&fixture.disk, &fixture.clock, clone);
        fs.unlink(Ino::ROOT, b"file").unwrap();
        Fixture { fs, disk: Arc::clone(&fixture.disk), clock: Arc::clone(&fixture.clock) }
            .file("file", text.as_bytes());
        meanwhile.inspect(|text| fixture.write(text));
        let since = meanwhile.is_none().then(|| at("base"));
        let kept = kept(&service, &replace("b", since));
        service.answer(&delete(&[at("base")])).unwrap();
        kept.unwrap().name
    };
    for text in ["1", "2", "3"] {
        attempt(text, None);
        assert_eq!(fixture.now(), text);
        assert_eq!(fixture.names(), ["before-try"]);
    }
    let held = VersionsRequest::Hold { of: at(&attempt("4", None)), held: true };
    service.answer(&held).unwrap();
    attempt("6", Some("5"));
    attempt("7", None);
    assert_eq!(
        fixture.names(),
        ["before-try", "before-promote", "before-try"],
        "held, theirs, last"
    );
    let kept: Vec<_> =
        fixture.disk.versions().snapshots().filter_map(|of| of.name.clone()).collect();
    for (name, text) in kept.iter().zip(["3", "5", "6"]) {
        made(&service, &undo(at(name)));
        assert_eq!(fixture.now(), text);
    }
}
