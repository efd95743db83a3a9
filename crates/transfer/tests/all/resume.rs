//! What was received before a stream broke off is gone on with, wherever that was: the result is
//! equal to what was sent. Until then nobody sees it.

use std::ops::ControlFlow;
use std::sync::Arc;

use dendro_base::Rng;
use dendro_device::sim::{CrashStyle, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Branch, CommitSeq, LogicalDisk, Snapshot, Versions, View};
use dendro_logdisk::LogDisk;
use dendro_stream::testing::{frames, sample, target};
use dendro_stream::{Decoder, Position, Token};
use dendro_transfer::{ReceiveError, Wanted, abandon, abort, kept_parts, receive};

use crate::common::{
    formatted, list_of, log_disk, opened, random_versions, sent, sent_from, state,
};
use crate::receive::{RECEIVER, small_source, try_receive, verify};

/// Receives and notes after each frame how far it is.
fn receive_noting(disk: &dyn Versions, stream: &[u8]) -> Result<Snapshot, ReceiveError> {
    let mut decoder = Decoder::begin(stream)?;
    let wanted = Wanted { name: None, note_interval_bytes: Some(1) };
    receive(disk, RECEIVER, &mut decoder, wanted, &mut |_| ControlFlow::Continue(()))
}

/// A stream with a frame for each item.
fn in_small_frames(stream: &[u8]) -> Vec<u8> {
    let (header, items) = target::read(stream).expect("it was sent just now");
    sample::encode_in_small_frames(&header, &items)
}

fn token_of(error: ReceiveError) -> Token {
    match error {
        ReceiveError::Kept { token, .. } => *token,
        other => panic!("nothing was kept: {other}"),
    }
}

fn receiving(disk: &dyn Versions) -> Vec<Branch> {
    disk.versions().branches().filter(|branch| branch.is_receiving()).cloned().collect()
}

/// Breaks the stream of `of` off at every frame in turn, or once only a part of that frame is
/// there; goes on, and compares.
fn break_off_anywhere(
    source: &dyn Versions,
    of: &Snapshot,
    base: Option<&Snapshot>,
    receiver: &dyn Versions,
    rng: &mut Rng,
) {
    let expected = state(source, of.view());
    let (whole, _) = sent(source, of, base);
    let stream = in_small_frames(&whole);
    let places = frames(&stream);
    let snapshots: Vec<Snapshot> = receiver.versions().snapshots().cloned().collect();
    let mut last = Position::START;
    for (number, place) in places.iter().enumerate() {
        let what = format!("{}, frame {number} of {}", of.view(), places.len());
        let len = (place + rng.below(3) as usize).min(stream.len() - 1);
        let mut token = token_of(receive_noting(receiver, &stream[..len]).expect_err(&what));
        assert!(receiver.versions().snapshots().eq(&snapshots), "{what}");
        assert!(token.position >= last, "{what}: {token:?}");
        last = token.position;
        // It is no version, and stays.
        abandon(receiver).expect("nothing is to be given up");
        assert_eq!(kept_parts(&receiver.versions()).collect::<Vec<_>>(), [token], "{what}");
        // It may break off again, and something may come twice.
        if rng.chance(30) {
            let (rest, _) = sent_from(source, of, base, Some(token.position));
            let rest = in_small_frames(&rest);
            let cut = rng.below(rest.len() as u64) as usize;
            match receive_noting(receiver, &rest[..cut.max(frames(&rest)[0])]) {
                Err(error) => token = token_of(error),
                Ok(_) => panic!("{what}: it was cut off"),
            }
        }
        let from = if rng.chance(20) { Position::START } else { token.position };
        let (rest, _) = sent_from(source, of, base, Some(from));
        assert!(rest.len() <= whole.len() + 24);
        let copy = try_receive(receiver, &rest, None).expect(&what);
        let difference = state(receiver, copy.view()).diff(&expected);
        assert_eq!(difference, None, "{what} (received left, sent right)");
        assert!(receiving(receiver).is_empty());
        receiver.delete(copy.view()).expect("nothing needs it");
    }
    // All of it except the end of the stream is there in the end.
    assert!(places.len() < 4 || last > Position::START);
}

#[test]
fn a_stream_that_breaks_off_anywhere_is_gone_on_with() {
    for seed in 0..6 {
        let source = log_disk();
        let mut background = || drop(source.background_step());
        let snapshots = random_versions(&source, seed, 60, &mut background);
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(256 << 20));
        let target = formatted(&device, 1 << 20);
        list_of(&target, 5);
        let mut rng = Rng::new(seed);
        let table = source.versions();
        for of in snapshots.iter().rev().take(3) {
            let past = table.past(of.view());
            let base = past.into_iter().find(|base| base.epoch < of.epoch);
            break_off_anywhere(&source, of, None, &target, &mut rng);
            if let Some(base) = base {
                let copy = try_receive(&target, &sent(&source, base, None).0, None);
                break_off_anywhere(&source, of, Some(base), &target, &mut rng);
                target.delete(copy.expect("it is whole").view()).expect("nothing needs it");
            }
            while target.background_step().expect("the device works") {}
        }
        target.shut_down().expect("the device works");
        verify(&*device);
    }
}

#[test]
fn what_does_not_fit_to_what_is_kept_is_refused() {
    let (source, a, b) = small_source();
    let target = log_disk();
    try_receive(&target, &sent(&source, &a, None).0, None).expect("it is whole");
    let (whole, _) = sent(&source, &b, Some(&a));
    let rest = |position| sent_from(&source, &b, Some(&a), Some(position)).0;
    let error = try_receive(&target, &rest(Position::START), None).expect_err("nothing is kept");
    assert!(matches!(error, ReceiveError::NoPart(_)), "{error}");
    let stream = in_small_frames(&whole);
    let places = frames(&stream);
    let token = token_of(receive_noting(&target, &stream[..places[3]]).expect_err("it is cut off"));
    let before = target.versions();
    // All of it: what is kept might be wanted.
    let error = try_receive(&target, &whole, None).expect_err("a part is here");
    assert!(matches!(&error, ReceiveError::PartIsHere(is) if **is == token), "{error}");
    assert!(error.to_string().contains(&token.to_string()));
    // Something between is missing.
    let behind = Position { list: token.position.list + 1, ..token.position };
    let error = try_receive(&target, &rest(behind), None).expect_err("there is a gap");
    assert!(matches!(&error, ReceiveError::Gap(is) if **is == token), "{error}");
    // Another base.
    let (other, _) = sent_from(&source, &b, None, Some(token.position));
    let error = try_receive(&target, &other, None).expect_err("it has no base");
    assert!(matches!(error, ReceiveError::NoPart(_)), "{error}");
    assert_eq!(target.versions(), before);
    // An altered stream breaks off where it is altered.
    let mut altered = rest(token.position);
    let last = altered.len() - 1;
    altered[last] ^= 1;
    let again = token_of(try_receive(&target, &altered, None).expect_err("it is altered"));
    assert!(again.position >= token.position);
    assert_eq!(abort(&target), Ok(1));
    assert!(receiving(&target).is_empty());
    assert_eq!(kept_parts(&target.versions()).count(), 0);
    try_receive(&target, &whole, None).expect("nothing is in its way");
}

/// A volume that is too small keeps what there was room for, and goes on when there is more.
#[test]
fn a_full_volume_keeps_what_it_has() {
    let source = log_disk();
    list_of(&source, 4000);
    let of = source.snapshot(0, None).expect("there is room");
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(24 << 20));
    let target = formatted(&device, 256 << 10);
    let in_the_way = list_of(&target, 2000);
    let token = token_of(receive_noting(&target, &sent(&source, &of, None).0).expect_err("full"));
    let mut aru = dendro_disk::Aru::new(View::HEAD);
    aru.delete_list(in_the_way);
    target.commit(aru).expect("deleting works");
    while target.background_step().expect("the device works") {}
    let (rest, _) = sent_from(&source, &of, None, Some(token.position));
    let copy = try_receive(&target, &rest, None).expect("there is room now");
    assert_eq!(state(&target, copy.view()).diff(&state(&source, of.view())), None);
}

fn found_after_crash(image: &Arc<dyn Device>, of: &Snapshot) -> (LogDisk, Option<Snapshot>) {
    let found = opened(image);
    abandon(&found).expect("it can be given up");
    let origin = dendro_transfer::origin(crate::common::VOLUME, of);
    let whole = found.versions().snapshots().find(|one| one.origin == Some(origin)).cloned();
    (found, whole)
}

/// Power cuts at any moment of receiving, in any style.
#[test]
fn a_crash_leaves_all_of_it_or_a_part_to_go_on_with_or_nothing() {
    let (source, a, b) = small_source();
    let expected = state(&source, b.view());
    let (mut none, mut parts, mut all) = (0, 0, 0);
    for seed in 0..3 {
        let device = Arc::new(SimDevice::new(8 << 20, seed));
        let dynamic = Arc::clone(&device) as Arc<dyn Device>;
        let target = formatted(&dynamic, 128 << 10);
        list_of(&target, 4);
        try_receive(&target, &sent(&source, &a, None).0, None).expect("it fits");
        target.flush(CommitSeq::LATEST).expect("the device works");
        let before: Vec<View> = target.versions().views().collect();
        let states: Vec<_> = before.iter().map(|view| state(&target, *view)).collect();
        device.start_recording();
        let stream = in_small_frames(&sent(&source, &b, Some(&a)).0);
        let places = frames(&stream);
        // It breaks off once, and is gone on with.
        let cut = &stream[..places[places.len() / 2]];
        let token = token_of(receive_noting(&target, cut).expect_err("it is cut off"));
        if seed % 2 == 1 {
            target.checkpoint().expect("the device works");
        }
        let (rest, _) = sent_from(&source, &b, Some(&a), Some(token.position));
        receive_noting(&target, &in_small_frames(&rest)).expect("it fits");
        let recording = device.take_recording().expect("it was recorded");
        let mut rng = Rng::new(seed);
        for event in 0..=recording.len() {
            for _ in 0..3 {
                let style = CrashStyle::draw(&mut rng);
                let image: Arc<dyn Device> = Arc::new(recording.image_at(event, &mut rng, style));
                let what = format!("seed {seed}, event {event}, {style:?}");
                let (found, whole) = found_after_crash(&image, &b);
                for (view, expected) in before.iter().zip(&states) {
                    assert_eq!(state(&found, *view).diff(expected), None, "{what}");
                }
                let token = kept_parts(&found.versions()).next();
                assert_eq!(receiving(&found).len(), usize::from(token.is_some()), "{what}");
                let copy = match (whole, token) {
                    (Some(whole), None) => {
                        all += 1;
                        whole
                    }
                    (None, Some(token)) => {
                        parts += 1;
                        let (rest, _) = sent_from(&source, &b, Some(&a), Some(token.position));
                        try_receive(&found, &rest, None).expect(&what)
                    }
                    (None, None) => {
                        none += 1;
                        try_receive(&found, &sent(&source, &b, Some(&a)).0, None).expect(&what)
                    }
                    (Some(_), Some(_)) => panic!("{what}: it is there twice"),
                };
                assert_eq!(state(&found, copy.view()).diff(&expected), None, "{what}");
                found.shut_down().expect("the device works");
                verify(&*image);
            }
        }
    }
    assert!(none > 0 && parts > 0 && all > 0, "{none}, {parts} and {all}");
}
