//! Streams that somebody forged: changed at random, with all checksums right. They are refused and
//! change nothing, or make a version that the model of a disk makes of them too. Nothing panics,
//! and neither does the file system that looks at such a version.
//!
//! `DENDRO_FORGED_SEEDS=1000 cargo test --release -p dendro-transfer forged` tries more of them.

use std::sync::Arc;

use dendro_base::Rng;
use dendro_disk::model::ModelDisk;
use dendro_disk::{Error, LogicalDisk, Versions};
use dendro_format::testing::mutate;
use dendro_fs::testing::{ReadableTree, StepClock};
use dendro_stream::testing::sample::OwnItem;
use dendro_stream::testing::{forge, frames, target};
use dendro_stream::{Decoder, Encoder, Header, Item, Level, ListChange};
use dendro_transfer::ReceiveError;

use crate::common::{sent, state};
use crate::receive::{try_receive, verify};
use crate::trees::{new_disk, random_trees, try_mounted};

/// How many streams are forged of those of one seed.
const STREAMS_OF_A_SEED: u64 = 60;
/// More pages than this are not put into the model, which holds each.
const MODEL_PAGES: u64 = 1 << 12;

fn seed_count() -> u64 {
    let count = std::env::var("DENDRO_FORGED_SEEDS").ok();
    count.and_then(|count| count.parse().ok()).unwrap_or(4)
}

/// The stream with some bytes changed, most of them in what its frames hold.
fn with_other_bytes(rng: &mut Rng, stream: &[u8]) -> Vec<u8> {
    let places = frames(stream);
    let mut forged = stream.to_vec();
    if rng.chance(10) {
        mutate(rng, &mut forged);
    } else {
        let at = rng.below(places.len() as u64 - 1) as usize;
        let payload = places[at] + 24..places[at + 1];
        let mut bytes = forged[payload.clone()].to_vec();
        mutate(rng, &mut bytes);
        // The header of the frame states how long it is.
        bytes.resize(payload.len(), 0);
        forged[payload].copy_from_slice(&bytes);
    }
    forge(&mut forged);
    forged
}

fn change_item(rng: &mut Rng, item: &mut OwnItem) {
    let number = rng.next_u64() >> rng.below(64);
    match item {
        OwnItem::List { list, change, hints, near } => match rng.below(4) {
            0 => *list = number,
            1 => {
                let changes = [ListChange::Made, ListChange::Changed, ListChange::Deleted];
                *change = changes[rng.below(3) as usize];
            }
            2 => *near = number,
            _ => *hints = number as u16,
        },
        OwnItem::Record { index, value } => match rng.below(3) {
            0 => *index = number,
            1 => *value = value.is_none().then(|| vec![7; 1 + rng.below(1024) as usize]),
            _ => value.iter_mut().for_each(|value| mutate(rng, value)),
        },
        OwnItem::Page { page_index, bytes } => match rng.below(2) {
            0 => *page_index = number,
            _ => mutate(rng, bytes),
        },
        OwnItem::Zeros(pages) | OwnItem::Holes(pages) => match rng.below(2) {
            0 => pages.start = number,
            _ => pages.end = number,
        },
    }
}

/// A stream of other items, which says that it has those; `None`: they may not follow each other.
fn with_other_items(rng: &mut Rng, header: &Header, items: &[OwnItem]) -> Option<Vec<u8>> {
    let mut items = items.to_vec();
    for _ in 0..=rng.below(4) {
        if items.is_empty() {
            return None;
        }
        let at = rng.below(items.len() as u64) as usize;
        match rng.below(6) {
            0 => drop(items.remove(at)),
            1 => items.insert(at, items[rng.below(items.len() as u64) as usize].clone()),
            2 => {
                let start = rng.next_u64() >> rng.below(64);
                let pages = start..start.saturating_add(1 + (rng.next_u64() >> rng.below(64)));
                let is_hole = rng.chance(50);
                items.insert(
                    at,
                    if is_hole { OwnItem::Holes(pages) } else { OwnItem::Zeros(pages) },
                );
            }
            _ => change_item(rng, &mut items[at]),
        }
    }
    let level = if rng.chance(30) { Level::new(1) } else { None };
    let mut encoder = Encoder::begin(Vec::new(), header, level).ok()?;
    for item in &items {
        // What is out of order is left out.
        let _ = encoder.put(&item.borrowed());
    }
    encoder.end().ok().map(|(stream, _)| stream)
}

/// Whether the model can hold what the stream has, up to what is wrong with it.
fn is_small(stream: &[u8]) -> bool {
    let Ok(mut decoder) = Decoder::begin(stream) else { return true };
    let mut page_count = 0_u64;
    while let Ok(Some(item)) = decoder.next_item() {
        if let Item::Zeros(pages) = item {
            page_count = page_count.saturating_add(pages.end - pages.start);
        }
    }
    page_count < MODEL_PAGES
}

#[test]
fn forged_streams_are_refused_and_change_nothing_or_make_what_the_model_makes() {
    let (mut refused, mut received) = (0, 0);
    for seed in 0..seed_count() {
        let clock = Arc::new(StepClock::default());
        let (source, snapshots) = random_trees(seed, &clock);
        let mut rng = Rng::new(seed);
        let [(first, _), (second, _), ..] = &snapshots[..] else { panic!("six were made") };
        let (copy, device) = new_disk(64 << 20);
        let model = ModelDisk::new(None);
        let whole = sent(&*source, first, None).0;
        let base = try_receive(&*copy, &whole, None).expect("it is whole");
        try_receive(&model, &whole, None).expect("it is whole");
        let bases = [Some(first), None];
        let streams = bases.map(|base| sent(&*source, second, base).0);
        let before = state(&*copy, base.view());
        for number in 0..STREAMS_OF_A_SEED {
            let what = format!("seed {seed}, stream {number}");
            let stream = &streams[rng.below(2) as usize];
            let forged = if rng.chance(50) {
                with_other_bytes(&mut rng, stream)
            } else {
                let (header, items) = target::read(stream).expect("it was sent just now");
                let Some(forged) = with_other_items(&mut rng, &header, &items) else { continue };
                forged
            };
            let table = copy.versions();
            let outcome = try_receive(&*copy, &forged, None);
            let expected = is_small(&forged).then(|| try_receive(&model, &forged, None));
            match outcome {
                Err(error) => {
                    refused += 1;
                    assert!(copy.versions().snapshots().eq(table.snapshots()), "{what}");
                    assert!(copy.versions().branches().eq(table.branches()), "{what}");
                    let is_full =
                        matches!(error, ReceiveError::List { error: Error::NoSpace { .. }, .. });
                    if let Some(Ok(of_model)) = expected {
                        assert!(is_full, "{what}: {error}");
                        model.delete(of_model.view()).expect("nothing needs it");
                    }
                }
                Ok(of) => {
                    received += 1;
                    if let Some(expected) = expected {
                        let of_model = expected.expect(&what);
                        let difference =
                            state(&*copy, of.view()).diff(&state(&model, of_model.view()));
                        assert_eq!(difference, None, "{what}");
                        model.delete(of_model.view()).expect("nothing needs it");
                        let _ = dendro_fs::verify(&*copy, of.view());
                        if let Ok(fs) = try_mounted(&copy, &clock, of.view()) {
                            // Directories may be inside each other.
                            let _ = ReadableTree::of_fs(&fs);
                        }
                    }
                    copy.delete(of.view()).expect("nothing needs it");
                }
            }
            while copy.background_step().expect("the device works") {}
        }
        assert_eq!(state(&*copy, base.view()).diff(&before), None, "seed {seed}");
        let good = try_receive(&*copy, &streams[0], None).expect("it is whole");
        assert_eq!(state(&*copy, good.view()).diff(&state(&*source, second.view())), None);
        copy.shut_down().expect("the device works");
        verify(&*device);
    }
    assert!(refused > 20 && received > 20, "{refused} refused, {received} received");
}
