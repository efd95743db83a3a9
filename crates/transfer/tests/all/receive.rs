//! A version that was received is equal to the one that was sent, whatever else the receiver has;
//! and one that was not received completely leaves nothing.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::common::{
    VOLUME, commit, formatted, list_of, log_disk, opened, random_versions, sent, state,
};
use dendro_base::{Origin, Rng, Uuid};
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::{ModelDisk, ModelVersions};
use dendro_disk::{Error, Lid, LogicalDisk, PAGE_SIZE, Snapshot, Versions, View};
use dendro_logdisk::LogDisk;
use dendro_stream::testing::sample::{self, OwnItem};
use dendro_stream::testing::target;
use dendro_stream::{Decoder, ListChange, Problem, StreamError};
use dendro_transfer::{ReceiveError, Wanted, abandon, origin, receive};

/// The volume that receives.
pub(crate) const RECEIVER: Uuid = Uuid([8; 16]);

pub(crate) fn try_receive(
    disk: &dyn Versions,
    stream: &[u8],
    name: Option<&str>,
) -> Result<Snapshot, ReceiveError> {
    let mut decoder = Decoder::begin(stream)?;
    let wanted = Wanted { name, note_interval_bytes: None };
    receive(disk, RECEIVER, &mut decoder, wanted, &mut |_| ControlFlow::Continue(()))
}

/// Receives snapshots of `source` into `target`, each on top of one that is there if possible, and
/// compares them. Meanwhile `target` is written to, clones of what was received too.
fn receive_all(source: &dyn Versions, snapshots: &[Snapshot], target: &dyn Versions, seed: u64) {
    let mut rng = Rng::new(seed);
    let mut received: Vec<(Snapshot, Snapshot)> = Vec::new();
    for of in snapshots {
        let what = format!("seed {seed}, {}", of.view());
        let table = source.versions();
        let past = table.past(of.view());
        let bases: Vec<_> = received.iter().filter(|(base, _)| past.contains(&base)).collect();
        let base = match bases.len() as u64 {
            0 => None,
            count if rng.chance(80) => Some(&bases[rng.below(count) as usize].0),
            _ => None,
        };
        let (stream, _) = sent(source, of, base);
        let copy = try_receive(target, &stream, None).expect(&what);
        assert_eq!((copy.origin, copy.time), (Some(origin(VOLUME, of)), of.time), "{what}");
        received.push((of.clone(), copy));
        if rng.chance(30) {
            let view = received[rng.below(received.len() as u64) as usize].1.view();
            let branch = target.branch_off(view, &format!("clone-{}", of.epoch));
            drop(branch.expect("there is room"));
        }
        drop(random_versions(target, seed ^ of.epoch, 12, &mut || ()));
        for (of, copy) in &received {
            let (found, expected) = (state(target, copy.view()), state(source, of.view()));
            if let Some(difference) = found.diff(&expected) {
                panic!("{what}: {}: {difference} (received left, sent right)", of.view());
            }
        }
    }
    // What was received is sent on as it came.
    for (of, copy) in &received {
        let (stream, counts) = sent(source, of, None);
        let (again, counted) = sent(target, copy, None);
        let header = |stream: &[u8]| Decoder::begin(stream).expect("a stream").header().clone();
        assert_eq!(header(&stream).version.origin, header(&again).version.origin);
        assert_eq!(counted, counts);
    }
}

pub(crate) fn verify(device: &dyn Device) {
    let report = dendro_check::verify(device, &dendro_check::Options { data: true });
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn versions_are_received_by_the_model() {
    for seed in 0..6 {
        let (source, target) = (ModelDisk::new(None), ModelDisk::new(None));
        let snapshots = random_versions(&source, seed, 200, &mut || ());
        receive_all(&source, &snapshots, &target, seed);
    }
}

#[test]
fn versions_are_received_by_the_log_structured_disk() {
    for seed in 20..26 {
        let source = log_disk();
        let mut background = || drop(source.background_step());
        let snapshots = random_versions(&source, seed, 200, &mut background);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(512 << 20));
        let target = formatted(&device, 1 << 20);
        receive_all(&source, &snapshots, &target, seed);
        let before = ModelVersions::read_from(&target).expect("readable");
        // Roll-forward applies it again, and a clean start reads it.
        target.flush(dendro_disk::CommitSeq::LATEST).expect("the device works");
        drop(target);
        let target = opened(&device);
        assert_eq!(ModelVersions::read_from(&target).expect("readable").diff(&before), None);
        while target.background_step().expect("the device works") {}
        assert_eq!(ModelVersions::read_from(&target).expect("readable").diff(&before), None);
        target.shut_down().expect("the device works");
        verify(&*device);
        let target = opened(&device);
        assert_eq!(ModelVersions::read_from(&target).expect("readable").diff(&before), None);
        // And it can all be deleted.
        let main = target.versions().main_head();
        let views: Vec<View> = target.versions().views().filter(|view| *view != main).collect();
        views.iter().for_each(|view| target.delete(*view).expect("nothing needs it"));
        while target.background_step().expect("the device works") {}
        target.shut_down().expect("the device works");
        verify(&*device);
    }
}

/// A source with two snapshots, of a few lists each.
pub(crate) fn small_source() -> (LogDisk, Snapshot, Snapshot) {
    let source = log_disk();
    let lists: Vec<Lid> = (0..3).map(|_| list_of(&source, 3)).collect();
    let a = source.snapshot(0, Some("a")).expect("there is room");
    commit(&source, View::HEAD, |aru| {
        aru.write_pages(lists[0], 1, vec![5; PAGE_SIZE]).delete_list(lists[1]);
        aru.punch_pages(lists[2], 0, 1).delete_record(lists[2], 2);
    });
    list_of(&source, 2);
    let b = source.snapshot(0, Some("b")).expect("there is room");
    (source, a, b)
}

#[test]
fn a_stream_that_is_cut_off_or_altered_anywhere_leaves_nothing() {
    let (source, a, b) = small_source();
    let target = log_disk();
    try_receive(&target, &sent(&source, &a, None).0, None).expect("it fits");
    list_of(&target, 5);
    let before = ModelVersions::read_from(&target).expect("readable");
    let (stream, _) = sent(&source, &b, Some(&a));
    let table = target.versions();
    let same = |what: &str| {
        let now = target.versions();
        assert!(now.branches().eq(table.branches()), "{what}");
        assert!(now.snapshots().eq(table.snapshots()), "{what}");
    };
    for len in (0..stream.len()).step_by(7).chain(stream.len() - 60..stream.len()) {
        let error = try_receive(&target, &stream[..len], None).expect_err("it is cut off");
        let ReceiveError::Stream(StreamError { problem, .. }) = error else { panic!("{error}") };
        assert!(matches!(problem, Problem::CutOff), "{len}: {problem}");
        same(&format!("{len}"));
    }
    for at in (0..stream.len()).step_by(11) {
        let mut altered = stream.clone();
        altered[at] ^= 0x10;
        let error = try_receive(&target, &altered, None).expect_err("it is altered");
        assert!(matches!(error, ReceiveError::Stream(_)), "{at}: {error}");
        same(&format!("{at}"));
    }
    while target.background_step().expect("the device works") {}
    let after = ModelVersions::read_from(&target).expect("readable");
    let heads = |versions: &ModelVersions| -> Vec<_> {
        let views: Vec<View> = versions.table().views().collect();
        views.iter().map(|view| versions.state(*view).expect("a view").clone()).collect()
    };
    assert_eq!(heads(&after), heads(&before));
    let copy = try_receive(&target, &stream, None).expect("it is whole");
    assert_eq!(state(&target, copy.view()), state(&source, b.view()));
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_read() {
    let (source, a, b) = small_source();
    let target = log_disk();
    let (full, _) = sent(&source, &a, None);
    let (step, _) = sent(&source, &b, Some(&a));
    let refused = |stream: &[u8], name| {
        let table = target.versions();
        // Nothing behind the header is needed for it.
        let error = try_receive(&target, &stream[..140], name).expect_err("it is refused");
        assert_eq!(target.versions(), table);
        error
    };
    let error = refused(&step, None);
    assert!(matches!(&error, ReceiveError::NoBase(base) if base.origin == origin(VOLUME, &a)));
    assert!(error.to_string().contains("@a, epoch"), "{error}");
    try_receive(&target, &full, Some("first")).expect("it fits");
    let error = refused(&full, Some("again"));
    assert!(matches!(&error, ReceiveError::IsHere(_)) && error.to_string().contains("@first"));
    let error = refused(&step, Some("first"));
    assert!(matches!(error, ReceiveError::Disk(Error::NameTaken(_))), "{error}");
    let error = refused(&step, Some("no/name"));
    assert!(matches!(error, ReceiveError::Disk(Error::BadName(..))), "{error}");
    // A clone of the copy is another version.
    let copy = target.versions().snapshot_named("first").expect("it was received").clone();
    let clone = target.branch_off(copy.view(), "clone").expect("the name is new");
    let of_clone = target.snapshot(clone.branch, Some("of-clone")).expect("the name is new");
    let own = Origin { volume: RECEIVER, epoch: of_clone.epoch };
    assert_eq!(origin(RECEIVER, &of_clone), own);
    // What went out comes back on top of its original.
    let (home, _) = sent(&target, &of_clone, Some(&copy));
    let mut decoder = Decoder::begin(&*home).expect("it was encoded just now");
    let mut go_on = |_| ControlFlow::Continue(());
    let back = receive(&source, VOLUME, &mut decoder, Wanted::default(), &mut go_on)
        .expect("the base is here");
    assert_eq!(state(&source, back.view()), state(&source, a.view()));
}

/// The new list has a number that the history of the base knows from a list that was deleted, whose
/// content must not come back.
#[test]
fn a_version_that_does_not_descend_from_its_base_may_be_refused_and_leaves_nothing() {
    let source = log_disk();
    let list = list_of(&source, 100);
    let old = source.snapshot(0, Some("old")).expect("there is room");
    commit(&source, View::HEAD, |aru| {
        aru.delete_list(list);
    });
    let new = source.snapshot(0, Some("new")).expect("there is room");
    let target = log_disk();
    try_receive(&target, &sent(&source, &old, None).0, Some("old-copy")).expect("it fits");
    try_receive(&target, &sent(&source, &new, Some(&old)).0, None).expect("it fits");
    let table = target.versions();
    target.delete(table.snapshot_named("old-copy").expect("it is there").view()).expect("not held");
    let before = target.versions();
    let (back, _) = sent(&source, &old, Some(&new));
    let error = try_receive(&target, &back, None).expect_err("it cannot be made");
    assert!(matches!(error, ReceiveError::NumberInUse(of) if of == list), "{error}");
    assert!(target.versions().snapshots().eq(before.snapshots()));
    let copy = try_receive(&target, &sent(&source, &old, None).0, None).expect("it is whole");
    assert_eq!(state(&target, copy.view()), state(&source, old.view()));
}

#[test]
fn a_receiver_that_is_told_to_end_leaves_nothing() {
    let source = log_disk();
    list_of(&source, 3000);
    let of = source.snapshot(0, None).expect("there is room");
    let target = log_disk();
    let table = target.versions();
    let (stream, _) = sent(&source, &of, None);
    let mut decoder = Decoder::begin(&*stream).expect("it was encoded just now");
    let mut asked = 0;
    let ended = receive(&target, RECEIVER, &mut decoder, Wanted::default(), &mut |_| {
        asked += 1;
        if asked > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(ended, Err(ReceiveError::Interrupted)));
    assert!(target.versions().branches().eq(table.branches()));
}

/// A short stream can state more pages of zeros than a map holds.
#[test]
fn a_receiver_ends_also_in_the_middle_of_one_item() {
    let (source, a, _) = small_source();
    let (header, _) = target::read(&sent(&source, &a, None).0).expect("it was sent just now");
    let list = OwnItem::List { list: 9, change: ListChange::Made, hints: 0, near: 0 };
    let stream = sample::encode(&header, &[list, OwnItem::Zeros(0..1 << 51)], None);
    let target = log_disk();
    let mut decoder = Decoder::begin(&*stream).expect("it was encoded just now");
    let mut asked = 0;
    let ended = receive(&target, RECEIVER, &mut decoder, Wanted::default(), &mut |_| {
        asked += 1;
        if asked > 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(ended, Err(ReceiveError::Interrupted)), "{ended:?}");
}

#[test]
fn a_volume_that_is_too_small_is_as_before() {
    let source = log_disk();
    list_of(&source, 8000);
    let of = source.snapshot(0, None).expect("there is room");
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(24 << 20));
    let target = formatted(&device, 256 << 10);
    let kept = list_of(&target, 50);
    let table = target.versions();
    let (stream, _) = sent(&source, &of, None);
    let error = try_receive(&target, &stream, None).expect_err("it is too small");
    assert!(matches!(error, ReceiveError::List { error: Error::NoSpace { .. }, .. }), "{error}");
    assert!(target.versions().branches().eq(table.branches()));
    while target.background_step().expect("the device works") {}
    assert!(target.hints(View::HEAD, kept).expect("readable").is_some());
    assert!(target.space().available_bytes > 10 << 20, "{:?}", target.space());
    target.shut_down().expect("the device works");
    verify(&*device);
}

/// Power cuts at any moment of receiving, in any style.
#[test]
fn a_crash_leaves_all_of_it_or_nothing() {
    let (source, a, b) = small_source();
    for seed in 0..4 {
        let device = Arc::new(SimDevice::new(8 << 20, seed));
        let dynamic = Arc::clone(&device) as Arc<dyn Device>;
        let target = formatted(&dynamic, 128 << 10);
        list_of(&target, 4);
        try_receive(&target, &sent(&source, &a, None).0, None).expect("it fits");
        target.flush(dendro_disk::CommitSeq::LATEST).expect("the device works");
        let before: Vec<View> = target.versions().views().collect();
        let states: Vec<_> = before.iter().map(|view| state(&target, *view)).collect();
        device.start_recording();
        if seed % 2 == 1 {
            target.checkpoint().expect("the device works");
        }
        let copy = try_receive(&target, &sent(&source, &b, Some(&a)).0, None).expect("it fits");
        let recording = device.take_recording().expect("it was recorded");
        let mut rng = Rng::new(seed);
        let (mut none, mut all) = (0, 0);
        for event in 0..=recording.len() {
            for _ in 0..3 {
                let style = CrashStyle::draw(&mut rng);
                let image = recording.image_at(event, &mut rng, style);
                let image: Arc<dyn Device> = Arc::new(image);
                let what = format!("seed {seed}, event {event}, {style:?}");
                let found = opened(&image);
                abandon(&found).expect("it can be given up");
                assert!(!found.versions().branches().any(|branch| branch.is_receiving()));
                for (view, expected) in before.iter().zip(&states) {
                    assert_eq!(state(&found, *view).diff(expected), None, "{what}");
                }
                match found.versions().snapshots().find(|one| one.origin == copy.origin) {
                    Some(one) => {
                        let difference = state(&found, one.view()).diff(&state(&source, b.view()));
                        assert_eq!(difference, None, "{what}");
                        all += 1;
                    }
                    None => {
                        assert!(event < recording.len(), "it was durable");
                        let (stream, _) = sent(&source, &b, Some(&a));
                        try_receive(&found, &stream, None).expect(&what);
                        none += 1;
                    }
                }
                found.shut_down().expect("the device works");
                verify(&*image);
            }
        }
        assert!(none > 0 && all > 0, "seed {seed}: {none} and {all}");
    }
}
