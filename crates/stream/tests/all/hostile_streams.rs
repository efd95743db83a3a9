//! Streams that are cut off, altered, out of order, repeated or made up: the error names the place,
//! and nothing panics.

use dendro_base::Rng;
use dendro_format::testing::mutate;
use dendro_stream::testing::{forge, frames, sample, target};
use dendro_stream::{Level, Problem, StreamError};

/// A stream of several frames: what is behind the first is made of single streams' frames.
fn long_stream(rng: &mut Rng, level: Option<Level>) -> Vec<u8> {
    let header = sample::header(rng, true);
    let items = sample::items(rng, true, 1500);
    sample::encode(&header, &items, level)
}

fn error_of(bytes: &[u8]) -> StreamError {
    target::read(bytes).expect_err("it is wrong")
}

#[test]
fn a_stream_cut_off_anywhere_is_noticed_at_the_frame_that_is_cut() {
    for seed in 0..40 {
        let bytes = sample::stream(&mut Rng::new(seed));
        let places = frames(&bytes);
        for len in 0..bytes.len() {
            let error = error_of(&bytes[..len]);
            assert!(matches!(error.problem, Problem::CutOff), "seed {seed}, {len}: {error}");
            let frame = places.iter().rposition(|place| *place <= len);
            let place = frame.map_or(0, |frame| places[frame]);
            assert_eq!(
                (error.frame, error.offset_bytes),
                (frame.unwrap_or(0) as u64, place as u64)
            );
        }
    }
}

#[test]
fn a_flip_of_any_bit_is_noticed_where_it_is() {
    for seed in 0..6 {
        let bytes = sample::stream(&mut Rng::new(seed));
        let places = frames(&bytes);
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1 << (at % 8);
            let error = error_of(&altered);
            let frame = places.iter().rposition(|place| *place <= at);
            let place = frame.map_or(0, |frame| places[frame]);
            assert_eq!(error.offset_bytes, place as u64, "seed {seed}, byte {at}: {error}");
        }
    }
}

#[test]
fn frames_that_are_left_out_repeated_or_exchanged_are_noticed_at_the_first() {
    for level in [None, Level::new(1)] {
        let bytes = long_stream(&mut Rng::new(3), level);
        let places = frames(&bytes);
        let frame = |at: usize| &bytes[places[at]..places[at + 1]];
        let count = places.len() - 1;
        assert!(count > 3);
        for first in 0..count - 1 {
            let (before, after) = (&bytes[..places[first]], &bytes[places[first + 2]..]);
            let left_out = [before, frame(first + 1), after].concat();
            let exchanged = [before, frame(first + 1), frame(first), after].concat();
            for altered in [left_out, exchanged] {
                let error = error_of(&altered);
                let found = (first + 1) as u64;
                assert!(
                    matches!(error.problem, Problem::OutOfOrder { found: f } if f == found),
                    "{error}"
                );
                assert_eq!(error.offset_bytes, places[first] as u64);
            }
            let repeated = [before, frame(first), frame(first), frame(first + 1), after].concat();
            let error = error_of(&repeated);
            assert!(matches!(error.problem, Problem::OutOfOrder { .. }), "{error}");
            assert_eq!(
                (error.frame, error.offset_bytes),
                (first as u64 + 1, places[first + 1] as u64)
            );
        }
    }
}

#[test]
fn a_frame_of_another_stream_is_noticed_even_with_the_right_number() {
    let mut rng = Rng::new(8);
    let items = sample::items(&mut rng, true, 1500);
    let [one, other] = [(); 2].map(|()| {
        let header = sample::header(&mut rng, true);
        sample::encode(&header, &items, None)
    });
    let (places, others) = (frames(&one), frames(&other));
    for at in 0..places.len() - 1 {
        let mixed =
            [&one[..places[at]], &other[others[at]..others[at + 1]], &one[places[at + 1]..]]
                .concat();
        let error = error_of(&mixed);
        assert!(matches!(error.problem, Problem::Checksum), "{error}");
        assert_eq!(error.offset_bytes, places[at] as u64);
    }
}

#[test]
fn what_follows_the_end_is_noticed() {
    let mut bytes = sample::stream(&mut Rng::new(2));
    let len = bytes.len() as u64;
    bytes.push(0);
    let error = error_of(&bytes);
    assert!(matches!(error.problem, Problem::Trailing), "{error}");
    assert_eq!(error.offset_bytes, len);
}

#[test]
fn an_end_that_counts_something_else_is_noticed() {
    let mut rng = Rng::new(2);
    let (header, items) = (sample::header(&mut rng, true), sample::items(&mut rng, true, 5));
    let mut bytes = sample::encode(&header, &items, None);
    let end = frames(&bytes);
    bytes[end[end.len() - 2] + 24] ^= 1;
    forge(&mut bytes);
    let error = error_of(&bytes);
    assert!(error.to_string().contains("counts something else"), "{error}");
}

#[test]
fn mutations_of_streams_are_survived() {
    let mut rng = Rng::new(7);
    for _ in 0..300 {
        let valid = sample::stream(&mut rng);
        for _ in 0..30 {
            let mut bytes = valid.clone();
            mutate(&mut rng, &mut bytes);
            target::stream(&bytes);
        }
    }
}

#[test]
fn random_bytes_are_survived() {
    let mut rng = Rng::new(9);
    for _ in 0..20_000 {
        let limit = 1 << rng.below(10);
        let mut bytes = vec![0; rng.below(limit) as usize];
        rng.fill(&mut bytes);
        target::stream(&bytes);
    }
}

#[test]
fn a_frame_that_decompresses_to_more_than_it_states_is_refused() {
    let header = sample::header(&mut Rng::new(1), false);
    let page = vec![7; 4096];
    let list = sample::OwnItem::List {
        list: 1,
        change: dendro_stream::ListChange::Made,
        hints: 0,
        near: 0,
    };
    let mut items = vec![list];
    items.extend(
        (0..200).map(|page_index| sample::OwnItem::Page { page_index, bytes: page.clone() }),
    );
    let sound = sample::encode(&header, &items, Level::new(3));
    for raw_len in [0_u32, 1, 4096, 1 << 20] {
        let mut bytes = sound.clone();
        let at = frames(&bytes)[0];
        bytes[at + 8..at + 12].copy_from_slice(&raw_len.to_le_bytes());
        forge(&mut bytes);
        let error = error_of(&bytes);
        assert!(matches!(error.problem, Problem::Malformed(_)), "{error}");
    }
}
