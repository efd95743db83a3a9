use dendro_base::Rng;

use super::*;

fn page(layout: Layout, segment: SegmentNo) -> PageRef {
    PageRef {
        addr: Addr::from_bytes(layout.segment_offset(segment)),
        len_bytes: PAGE_SIZE as u16,
        ..PageRef::ZERO
    }
}

/// The live bytes of each segment, read from the whole table.
fn live_bytes(segments: &Segments) -> Vec<u32> {
    (0..segments.layout.segment_count()).map(|at| segments.live_bytes_of(SegmentNo(at))).collect()
}

fn pending_by_full_scan(segments: &Segments) -> Vec<SegmentNo> {
    let is_pending = |segment: &SegmentNo| segments.is_pending(*segment);
    segments.layout.log_segments().filter(is_pending).collect()
}

/// DESIGN §5 states these numbers.
#[test]
fn a_segment_takes_32_bytes_once_it_was_filled_and_almost_none_before() {
    let sixteen_tib = Layout::new(22, 1 << 22).unwrap();
    let pebibyte = Layout::new(26, 1 << 24).unwrap();
    for (layout, most_mib) in [(sixteen_tib, 130), (pebibyte, 517)] {
        let mut segments = Segments::new(layout);
        assert!(segments.memory_bytes() < 5 << 20, "{}", segments.memory_bytes());
        let count = layout.log_segments().count();
        for _ in 0..count {
            let segment = segments.open(Head::Payload, Class::MAIN).unwrap();
            segments.close(segment);
        }
        assert_eq!(segments.open(Head::Main, Class::MAIN), None);
        segments.take_reclaimable();
        segments.reclaimable = Vec::new();
        assert!(segments.memory_bytes() <= most_mib << 20, "{}", segments.memory_bytes());
    }
}

/// A freeze visits only the segments that have changed, and must find what a full scan finds.
#[test]
fn a_freeze_finds_what_a_full_scan_finds() {
    let layout = Layout::new(17, 60).unwrap();
    let mut segments = Segments::new(layout);
    let mut rng = Rng::new(5);
    let mut clock = 0;
    let (mut frozen, mut awaiting) = (live_bytes(&segments), [BTreeSet::new(), BTreeSet::new()]);
    for _ in 0..20_000 {
        clock += PAGE_SIZE as u64;
        let segment = SegmentNo(2 + rng.below(58) as u32);
        match (rng.below(100), segments.state(segment)) {
            (0..1, _) => {
                let pending = segments.freeze();
                frozen = live_bytes(&segments);
                let [next, last] = &mut awaiting;
                last.append(next);
                let found: Vec<_> = pending.iter().map(|generation| generation.segment).collect();
                assert_eq!(found, pending_by_full_scan(&segments));
                assert!(pending.iter().all(|generation| segments.is_still_pending(*generation)));
                assert!(segments.frozen.is_empty());
            }
            (1..2, _) => {
                segments.note_settled();
                awaiting[1].clear();
            }
            (2..10, _) => {
                segments.await_checkpoint(page(layout, segment).addr);
                awaiting[0].insert(segment);
            }
            (_, SegmentState::Clean) => {
                let opened = segments.open(Head::Payload, Class::user(1)).unwrap();
                assert!(opened <= segment, "the lowest is opened");
            }
            (10..30, SegmentState::Open) => segments.close(segment),
            (_, SegmentState::Open) if segments.live_bytes_of(segment) < 120 << 10 => {
                segments.block_added(&page(layout, segment), clock, clock);
            }
            (_, SegmentState::Dirty) if segments.live_bytes_of(segment) == 0 => {
                segments.set_clean(segment);
            }
            _ => segments.block_freed(&page(layout, segment), clock),
        }
        for segment in layout.log_segments() {
            assert_eq!(segments.frozen_bytes_of(segment), frozen[segment.0 as usize]);
            let is_awaiting =
                segments.table[segment.0 as usize].is_marked(AWAITS_NEXT | AWAITS_LAST);
            assert_eq!(is_awaiting, awaiting.iter().any(|awaiting| awaiting.contains(&segment)));
        }
        let clean = layout.log_segments().filter(|at| segments.state(*at) == SegmentState::Clean);
        assert_eq!(segments.clean_count() as usize, clean.count());
        assert_eq!(u64::from(segments.clean_count()), segments.clean.len());
        assert_eq!(segments.has_pending(), !segments.pending.is_empty());
    }
}

#[test]
fn backed_segments_are_opened_first_and_not_while_they_are_discarded() {
    let mut segments = Segments::new(Layout::new(20, 64).unwrap());
    let first = FIRST_LOG_SEGMENT.0;
    for number in [first + 9, first + 5, first + 20] {
        segments.take(SegmentNo(number), Head::Payload);
        segments.close(SegmentNo(number));
        segments.set_clean(SegmentNo(number));
    }
    assert_eq!(segments.backed_count(), 3);
    let discarding = segments.begin_discard(Surplus::Beyond(1), 16);
    assert_eq!(discarding.segments, [SegmentNo(first + 9), SegmentNo(first + 20)]);
    let open = |segments: &mut Segments| segments.open(Head::Main, Class::MAIN).unwrap().0 - first;
    assert_eq!(open(&mut segments), 5);
    assert_eq!(open(&mut segments), 0, "the others are being discarded");
    let next = segments.begin_discard(Surplus::From(first + 9), 1);
    assert!(next.segments[0].0 > first + 9);
    assert_eq!(u64::from(segments.clean_count()), segments.clean.len() - 3);
    segments.end_discard(next, |_| false);
    segments.end_discard(discarding, |_| true);
    assert_eq!(segments.backed_count(), 0);
    assert_eq!(open(&mut segments), 1);
    // What was opened in between has not aged.
    for number in [first + 30, first + 31] {
        segments.take(SegmentNo(number), Head::Payload);
        segments.close(SegmentNo(number));
        segments.set_clean(SegmentNo(number));
    }
    segments.age_backed();
    assert_eq!(open(&mut segments), 30);
    segments.close(SegmentNo(first + 30));
    segments.set_clean(SegmentNo(first + 30));
    segments.age_backed();
    let stale = segments.begin_discard(Surplus::Beyond(9), 16);
    let stale = segments.end_discard(stale, |_| false);
    assert_eq!(stale, [SegmentNo(first + 31)]);
    // What a shrink gives up is not discarded, and may be again when it is taken back.
    segments.lower_end(first + 8, 3);
    assert_eq!(segments.begin_discard(Surplus::Beyond(0), 16).segments, []);
    segments.take_back();
    assert!(segments.begin_discard(Surplus::Beyond(0), 64).segments.contains(&stale[0]));
}

#[test]
fn each_stream_takes_a_segment_of_its_tier_and_then_of_the_other() {
    let mut segments = Segments::new(Layout::new(20, 16).unwrap());
    assert_eq!((segments.fast_counts(), segments.fast_range()), (None, 0..0));
    segments.set_tiers(Tiers::of_these([5, 8]));
    assert_eq!(segments.fast_range(), 5..9);
    let (ahead, pin) = segments.begin_write_ahead().unwrap();
    assert_eq!(ahead, SegmentNo(5));
    drop(pin);
    segments.end_write_ahead(ahead, false);
    let open = |segments: &mut Segments, head, class| segments.open(head, class).unwrap().0;
    assert_eq!(open(&mut segments, Head::Payload, Class::survivor(0)), 2);
    assert_eq!(open(&mut segments, Head::Main, Class::MAIN), 5);
    let counts = FastCounts { clean: 1, pending: 0, wanted: 0 };
    assert_eq!(segments.fast_counts(), Some(counts));
    assert_eq!(open(&mut segments, Head::Payload, Class::user(0)), 8);
    assert_eq!(open(&mut segments, Head::Map, Class::MAIN), 3);
    // A backed one is taken before others of the same tier, and after those of the right one.
    for number in [3, 8] {
        segments.close(SegmentNo(number));
        segments.set_clean(SegmentNo(number));
    }
    assert_eq!(open(&mut segments, Head::Main, Class::MAIN), 8);
    assert_eq!(open(&mut segments, Head::Main, Class::MAIN), 3);
    for _ in 0..10 {
        segments.open(Head::Payload, Class::survivor(1)).unwrap();
    }
    segments.close(SegmentNo(5));
    segments.set_clean(SegmentNo(5));
    assert_eq!(open(&mut segments, Head::Payload, Class::survivor(1)), 5);
}

#[test]
fn a_map_that_takes_much_of_the_fast_segments_goes_to_others() {
    let mut segments = Segments::new(Layout::new(17, 20).unwrap());
    segments.set_tiers(Tiers::of_these([5, 6, 7, 8]));
    assert!(segments.prefers_fast(Head::Map, Class::MAIN));
    segments.node_bytes = (1 << 17) + 1;
    assert!(!segments.prefers_fast(Head::Map, Class::MAIN));
    assert!(segments.prefers_fast(Head::Main, Class::MAIN));
}
