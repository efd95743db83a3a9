//! Trees of files after random work, sent whole and step by step: what is received is equal in
//! everything that users see, and nothing differs for the file system.

use std::ops::ControlFlow;
use std::sync::Arc;

use dendro_base::{Clock, Rng, Uuid};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{CommitSeq, LogicalDisk, Snapshot, Versions, View};
use dendro_fs::testing::{Driver, Generator, Model, Profile, StepClock, Tree};
use dendro_fs::versions::diff;
use dendro_fs::{AtimePolicy, FileSystem, FormatOptions, Options};
use dendro_logdisk::LogDisk;
use dendro_stream::testing::{frames, sample, target};
use dendro_stream::{Decoder, Header, Origin};
use dendro_transfer::{ReceiveError, Wanted, receive};

use crate::common::{formatted, sent, state};
use crate::receive::{RECEIVER, try_receive, verify};

fn options(view: View, read_only: bool) -> Options {
    Options { view, read_only, atime: AtimePolicy::Noatime, ..Options::default() }
}

pub(crate) fn mounted(disk: &Arc<LogDisk>, clock: &Arc<StepClock>, view: View) -> FileSystem {
    try_mounted(disk, clock, view).expect("it is sound")
}

pub(crate) fn try_mounted(
    disk: &Arc<LogDisk>,
    clock: &Arc<StepClock>,
    view: View,
) -> dendro_fs::Result<FileSystem> {
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    let read_only = view.epoch.is_some();
    FileSystem::mount(Arc::clone(disk) as _, options(view, read_only), clock)
}

pub(crate) fn new_disk(len_bytes: u64) -> (Arc<LogDisk>, Arc<dyn Device>) {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(len_bytes));
    (Arc::new(formatted(&device, 1 << 20)), device)
}

/// A source on which random steps were done, and snapshots with the trees that the model has then.
pub(crate) fn random_trees(
    seed: u64,
    clock: &Arc<StepClock>,
) -> (Arc<LogDisk>, Vec<(Snapshot, Tree)>) {
    let (disk, _) = new_disk(256 << 20);
    let (label, hash_key) = ("source".into(), [7; 16]);
    let format = FormatOptions { uid: 0, gid: 0, mode: 0o755, label, hash_key };
    clock.set_step(0);
    FileSystem::create_on(&*disk, &format, &**clock).expect("the disk is empty");
    let fs = Arc::new(mounted(&disk, clock, View::HEAD));
    let mut rng = Rng::new(seed);
    let mut generator = Generator::new(seed, Profile::default());
    let mut model = Model::new(clock.set_step(0), 0, 0, 0o755);
    let mut driver = Driver::new(fs);
    let mut snapshots = Vec::new();
    let mut number = 0;
    while snapshots.len() < 6 {
        for _ in 0..1 + rng.below(120) {
            number += 1;
            let step = generator.next(&model);
            let now = clock.set_step(number);
            let expected = model.run(&step, now);
            assert_eq!(driver.run(&step), expected, "seed {seed}, step {number}: {step:?}");
        }
        drop(disk.background_step());
        let name = format!("s{number}");
        let made = disk.snapshot(0, Some(&name)).expect("there is room");
        snapshots.push((made, model.tree()));
    }
    (disk, snapshots)
}

/// The same stream of a version that was made elsewhere, so that it is received beside the first.
fn of_another_origin(stream: &[u8], name: &str) -> Vec<u8> {
    let (header, items) = target::read(stream).expect("it was sent just now");
    let mut header = Header { stream: Uuid([5; 16]), ..header };
    header.version.origin = Origin { volume: Uuid([6; 16]), ..header.version.origin };
    header.version.name = Some(name.to_owned());
    sample::encode(&header, &items, None)
}

#[test]
fn trees_are_received_as_they_were_whole_and_step_by_step() {
    for seed in 0..8 {
        let clock = Arc::new(StepClock::default());
        let (source, snapshots) = random_trees(seed, &clock);
        let (copy, device) = new_disk(512 << 20);
        let mut rng = Rng::new(seed);
        let mut before: Option<&Snapshot> = None;
        for (of, expected) in &snapshots {
            let what = format!("seed {seed}, {}", of.title());
            let (step, _) = sent(&*source, of, before);
            let (whole, _) = sent(&*source, of, None);
            let by_step = try_receive(&*copy, &step, None).expect(&what);
            let name = format!("{}-whole", of.title().trim_start_matches('@'));
            let at_once = try_receive(&*copy, &of_another_origin(&whole, &name), None);
            let at_once = at_once.expect(&what);
            for view in [by_step.view(), at_once.view()] {
                let tree = Tree::of_fs(&mounted(&copy, &clock, view)).expect(&what);
                assert_eq!(tree.difference(expected), None, "{what}: received, and as it was");
                assert_eq!(state(&*copy, view).diff(&state(&*source, of.view())), None, "{what}");
            }
            let changes = diff(&*copy, by_step.view(), at_once.view()).expect(&what);
            assert_eq!(changes, [], "{what}");
            // A clone can be worked on.
            if rng.chance(30) {
                let branch = copy.branch_off(by_step.view(), &format!("work-{}", of.epoch));
                let head = branch.expect("the name is new").head();
                drop(mounted(&copy, &clock, head));
            }
            before = Some(of);
        }
        copy.flush(CommitSeq::LATEST).expect("the device works");
        copy.shut_down().expect("the device works");
        verify(&*device);
    }
}

/// Nothing of a stream that is wrong is applied, and the error names the frame.
#[test]
fn streams_that_are_wrong_change_no_tree() {
    for seed in 20..23 {
        let clock = Arc::new(StepClock::default());
        let (source, snapshots) = random_trees(seed, &clock);
        let (copy, _) = new_disk(256 << 20);
        let mut rng = Rng::new(seed);
        let [(first, _), (second, expected), ..] = &snapshots[..] else { panic!("six were made") };
        try_receive(&*copy, &sent(&*source, first, None).0, None).expect("it is whole");
        let (header, items) =
            target::read(&sent(&*source, second, Some(first)).0).expect("it was sent just now");
        let stream = sample::encode_in_small_frames(&header, &items);
        let places = frames(&stream);
        let table = copy.versions();
        let frame = |at: usize| &stream[places[at]..places[at + 1]];
        let count = places.len() - 1;
        for _ in 0..60 {
            let at = rng.below(count as u64 - 1) as usize;
            let (before, after) = (&stream[..places[at]], &stream[places[at + 1]..]);
            let (kind, wrong) = match rng.below(5) {
                0 => ("cut off", before.to_vec()),
                1 => {
                    let mut altered = stream.clone();
                    let byte = rng.below(stream.len() as u64) as usize;
                    altered[byte] ^= 1 << rng.below(8);
                    ("altered", altered)
                }
                2 => ("left out", [before, after].concat()),
                3 => ("replayed", [before, frame(at), frame(at), after].concat()),
                _ => {
                    let behind = &stream[places[at + 2]..];
                    ("exchanged", [before, frame(at + 1), frame(at), behind].concat())
                }
            };
            let error =
                Decoder::begin(&wrong[..]).map_err(ReceiveError::from).and_then(|mut of| {
                    let go_on = &mut |_| ControlFlow::Continue(());
                    receive(&*copy, RECEIVER, &mut of, Wanted::default(), go_on)
                });
            let error = error.expect_err(kind);
            assert!(matches!(error, ReceiveError::Stream(_)), "{kind}: {error}");
            assert!(error.to_string().starts_with("frame "), "{kind}: {error}");
            assert!(copy.versions().snapshots().eq(table.snapshots()), "{kind}");
            assert!(copy.versions().branches().eq(table.branches()), "{kind}");
        }
        let received = try_receive(&*copy, &stream, None).expect("it is whole");
        let tree = Tree::of_fs(&mounted(&copy, &clock, received.view())).expect("readable");
        assert_eq!(tree.difference(expected), None);
        // The same stream again.
        let again = try_receive(&*copy, &stream, None).expect_err("it is here");
        assert!(matches!(again, ReceiveError::IsHere(_)), "{again}");
    }
}
