//! What is written is read back, for random streams.

use std::io::Read;

use dendro_base::Rng;
use dendro_base::units::PAGE_SIZE;
use dendro_stream::testing::{frames, sample, target};
use dendro_stream::{Decoder, Encoder, Header, Item, Level, ListChange, MAX_PAYLOAD_LEN_BYTES};

#[test]
fn streams_read_back() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let has_base = rng.chance(50);
        let (header, items) =
            (sample::header(&mut rng, has_base), sample::items(&mut rng, has_base, seed % 20));
        let level = Level::new((seed % 4) as u8);
        let bytes = sample::encode(&header, &items, level);
        let header = Header { is_compressed: level.is_some(), ..header };
        assert_eq!(target::read(&bytes).unwrap(), (header, items), "seed {seed}");
    }
}

#[test]
fn a_stream_of_many_frames_reads_back_from_an_input_that_gives_little_at_a_time() {
    struct Slow<'a>(&'a [u8], usize);
    impl Read for Slow<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            self.1 = self.1 % 7 + 1;
            let len = self.1.min(buf.len());
            self.0.read(&mut buf[..len])
        }
    }
    for level in [None, Level::new(3)] {
        let mut rng = Rng::new(5);
        let header = sample::header(&mut rng, true);
        let items = sample::items(&mut rng, true, 1200);
        let bytes = sample::encode(&header, &items, level);
        assert!(frames(&bytes).len() > 4);
        let mut decoder = Decoder::begin(Slow(&bytes, 0)).unwrap();
        for item in &items {
            assert_eq!(decoder.next_item().unwrap(), Some(item.borrowed()));
        }
        assert_eq!(decoder.next_item().unwrap(), None);
        assert_eq!(decoder.read_bytes(), bytes.len() as u64);
        decoder.finish().unwrap();
    }
}

#[test]
fn pages_lose_the_zeros_at_their_ends_and_zeros_and_holes_are_joined() {
    let header = sample::header(&mut Rng::new(1), true);
    let mut encoder = Encoder::begin(Vec::new(), &header, None).unwrap();
    encoder.put(&Item::List { list: 7, change: ListChange::Changed, hints: 1, near: 0 }).unwrap();
    let mut page = [0; PAGE_SIZE];
    for page_index in 0..1000 {
        encoder.put_page(page_index, &page).unwrap();
    }
    encoder.put(&Item::Holes(1000..1004)).unwrap();
    encoder.put(&Item::Holes(1004..1010)).unwrap();
    encoder.put(&Item::Zeros(1010..1011)).unwrap();
    page[99] = 9;
    encoder.put_page(1011, &page).unwrap();
    let (bytes, counts) = encoder.end().unwrap();
    assert_eq!((counts.pages, counts.zero_pages, counts.content_bytes), (1, 1001, 100));
    let (_, items) = target::read(&bytes).unwrap();
    let items: Vec<_> = items.iter().map(sample::OwnItem::borrowed).collect();
    assert_eq!(
        items,
        [
            Item::List { list: 7, change: ListChange::Changed, hints: 1, near: 0 },
            Item::Zeros(0..1000),
            Item::Holes(1000..1010),
            Item::Zeros(1010..1011),
            Item::Page { page_index: 1011, bytes: &page[..100] },
        ]
    );
}

#[test]
fn a_stream_is_hardly_longer_than_its_content() {
    let header = sample::header(&mut Rng::new(1), false);
    let mut encoder = Encoder::begin(Vec::new(), &header, None).unwrap();
    encoder.put(&Item::List { list: 7, change: ListChange::Made, hints: 0, near: 0 }).unwrap();
    for page_index in 0..4096 {
        encoder.put_page(page_index, &[1; PAGE_SIZE]).unwrap();
    }
    let (bytes, counts) = encoder.end().unwrap();
    assert_eq!(counts.content_bytes, 16 << 20);
    assert!((bytes.len() as u64) < counts.content_bytes * 1004 / 1000);
    assert!(
        frames(&bytes).windows(2).all(|frame| frame[1] - frame[0] < MAX_PAYLOAD_LEN_BYTES + 99)
    );
    let mut encoder = Encoder::begin(Vec::new(), &header, Level::new(1)).unwrap();
    encoder.put(&Item::List { list: 7, change: ListChange::Made, hints: 0, near: 0 }).unwrap();
    for page_index in 0..4096 {
        encoder.put_page(page_index, &[1; PAGE_SIZE]).unwrap();
    }
    assert!(encoder.end().unwrap().0.len() < 100_000);
}

#[test]
fn items_that_are_out_of_order_are_not_written() {
    let header = sample::header(&mut Rng::new(1), false);
    let mut encoder = Encoder::begin(Vec::new(), &header, None).unwrap();
    let error = encoder.put(&Item::Record { index: 1, value: Some(b"x") }).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}
