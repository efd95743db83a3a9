//! External cleaners: one that works correctly, several at once, one that ends at any time, and one
//! that lies. Whatever they do, the contents stay and usage stays exact.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::{ModelState, apply};
use dendro_disk::{Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, View};
use dendro_format::{Addr, Key, Space};
use dendro_logdisk::external::{
    Block, BlockName, MAX_BLOCKS_PER_CALL, MapCursor, QuestionError, Released, Rewritten,
    SegmentFacts, SegmentStatus, SummaryCursor,
};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use dendro_policy::{Classes, Scatter};

const SEGMENT_BYTES: u64 = 128 << 10;

/// A disk, and the content that it must have.
struct Rig {
    device: Arc<dyn Device>,
    options: OpenOptions,
    disk: LogDisk,
    model: ModelState,
    lists: Vec<Lid>,
    rng: Rng,
    pages: u64,
}

impl Rig {
    /// Makes a volume of so many segments, fills it to `percent` and overwrites it at random, so
    /// that its segments are partly dead. With an even seed its blocks lie in several payload
    /// streams, chosen at random. With a seed that three divides, its map is kept twice.
    fn new(seed: u64, segment_count: u64, percent: u64) -> Self {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(segment_count * SEGMENT_BYTES));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let options = FormatOptions {
            segment_size_bytes: SEGMENT_BYTES,
            metadata_copies: if seed.is_multiple_of(3) { 2 } else { 1 },
            ..Default::default()
        };
        format(&device, &options, &clock).expect("the device is large enough");
        let mut options = OpenOptions { checkpoint_log_bytes: 1 << 20, ..OpenOptions::default() };
        if seed.is_multiple_of(2) {
            options.policy = Arc::new(Scatter::new(Classes { users: 2, survivors: 2 }, seed));
            options.stream_bytes = 0;
        }
        let disk = open(&device, &options);
        let pages = disk.space().capacity_bytes * percent / 100 / PAGE_SIZE as u64;
        let model = ModelState::default();
        let mut rig =
            Self { device, options, disk, model, lists: Vec::new(), rng: Rng::new(seed), pages };
        for _ in 0..4 {
            let list = rig.disk.allocate_list().expect("the disk is writable");
            let mut aru = Aru::new(View::HEAD);
            aru.create_list(list, ListHints::default());
            rig.commit(aru);
            rig.lists.push(list);
        }
        for number in 0..rig.pages {
            rig.write_page(number);
        }
        rig.overwrite(rig.pages / 2);
        rig.disk.checkpoint().expect("the device works");
        rig
    }

    fn commit(&mut self, aru: Aru<'_>) {
        let ops = aru.ops().to_vec();
        self.disk.commit(aru).expect("there is room");
        apply(&mut self.model, &ops).expect("the disk took it");
    }

    fn write_page(&mut self, number: u64) {
        let len = PAGE_SIZE - 64 * self.rng.below(3) as usize * self.rng.below(30) as usize;
        let mut page = vec![0; len];
        self.rng.fill(&mut page);
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(self.lists[number as usize % self.lists.len()], number, page);
        self.commit(aru);
    }

    fn overwrite(&mut self, count: u64) {
        for _ in 0..count {
            let number = self.rng.below(self.pages);
            self.write_page(number);
        }
    }

    fn moves_pages_between_lists(&mut self, count: u64) {
        for _ in 0..count {
            let [from, to] = [0, 1].map(|_| *pick(&mut self.rng, &self.lists));
            let (from_page, to_page) = (self.rng.below(self.pages), self.rng.below(self.pages));
            let mut aru = Aru::new(View::HEAD);
            aru.push(Op::MovePages { from, from_page, to, to_page, count: self.rng.below(20) });
            self.commit(aru);
        }
    }

    /// Asserts that the contents are the model's, and that the verifier counts what the usage table
    /// states.
    fn check(&self) {
        let found = ModelState::read_from(&self.disk).expect("it can be read");
        assert_eq!(found.diff(&self.model), None);
        self.disk.checkpoint().expect("the device works");
        let report = dendro_check::verify(&*self.device, &dendro_check::Options { data: true });
        assert!(report.is_sound(), "{report}");
        let live: u64 = self.facts().iter().map(|facts| u64::from(facts.live_bytes)).sum();
        assert_eq!(live, self.disk.stats().live_bytes);
    }

    /// Checks once more after a clean shutdown and after a crash.
    fn check_to_the_end(mut self) {
        self.check();
        let list = self.lists[0];
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, 0, &b"the last"[..]);
        self.commit(aru);
        self.disk.flush(CommitSeq::LATEST).expect("the device works");
        self.disk = open(&self.device, &self.options);
        self.check();
        self.disk.shut_down().expect("the device works");
        self.disk = open(&self.device, &self.options);
        self.check();
    }

    /// Returns a segment that may be cleaned.
    fn dirty(&self) -> SegmentFacts {
        let mut all = self.facts().into_iter();
        all.find(|facts| facts.status == SegmentStatus::Dirty).expect("there are some")
    }

    fn facts(&self) -> Vec<SegmentFacts> {
        let mut all: Vec<SegmentFacts> = Vec::new();
        loop {
            let from = all.last().map_or(0, |last| last.number + 1);
            let more = self.disk.segments(from, 7);
            if more.is_empty() {
                return all;
            }
            all.extend(more);
        }
    }
}

fn pick<'a, T>(rng: &mut Rng, all: &'a [T]) -> &'a T {
    &all[rng.below(all.len() as u64) as usize]
}

fn open(device: &Arc<dyn Device>, options: &OpenOptions) -> LogDisk {
    LogDisk::open(Arc::clone(device), options.clone(), Arc::new(ManualClock::default()))
        .expect("it was formatted")
}

/// The cleaner's next action.
#[derive(Clone, Debug)]
enum Next {
    Choose,
    Ask(u32, SummaryCursor),
    SearchTheMap(u32, MapCursor),
    Locate(Vec<Block>, Box<Next>),
    Rewrite(Vec<Block>, Box<Next>),
    Release(u32),
}

/// A cleaner as in another process: it knows only the answers it was given, and these may be old.
struct Cleaner {
    next: Next,
    /// The number of blocks that it asks for at a time.
    stride: usize,
    released: u32,
    /// Segments that it has given up.
    tried: Vec<u32>,
}

impl Cleaner {
    fn new(stride: usize) -> Self {
        Self { next: Next::Choose, stride, released: 0, tried: Vec::new() }
    }

    /// Makes one call of the disk. Returns false when there is nothing left to clean.
    fn step(&mut self, disk: &LogDisk) -> bool {
        let next = std::mem::replace(&mut self.next, Next::Choose);
        self.next = match next {
            Next::Choose => {
                let segments = disk.segments(0, usize::MAX);
                let victim = segments
                    .iter()
                    .filter(|facts| facts.status == SegmentStatus::Dirty)
                    .filter(|facts| u64::from(facts.live_bytes) < SEGMENT_BYTES * 9 / 10)
                    .filter(|facts| !self.tried.contains(&facts.number))
                    .min_by_key(|facts| facts.live_bytes);
                let Some(victim) = victim else { return false };
                self.tried.push(victim.number);
                Next::Ask(victim.number, SummaryCursor::default())
            }
            Next::Ask(segment, at) => match disk.segment_blocks(segment, at, self.stride) {
                Ok(answer) => {
                    // The main log's records also name blocks in segments of other streams.
                    let lies_here =
                        |block: &Block| block.addr.bytes() / SEGMENT_BYTES == u64::from(segment);
                    assert!(answer.blocks.iter().all(lies_here));
                    let then = match answer.next {
                        Some(at) => Next::Ask(segment, at),
                        None => Next::Release(segment),
                    };
                    Next::Locate(answer.blocks, Box::new(then))
                }
                Err(
                    QuestionError::Clean(_) | QuestionError::Open(_) | QuestionError::Mirror(_),
                ) => Next::Choose,
                Err(error) => panic!("{error}"),
            },
            Next::SearchTheMap(segment, at) => match disk.mapped_blocks(segment, at) {
                Ok(answer) => {
                    let then = match answer.next {
                        Some(at) => Next::SearchTheMap(segment, at),
                        None => Next::Release(segment),
                    };
                    Next::Rewrite(answer.blocks, Box::new(then))
                }
                Err(
                    QuestionError::Clean(_) | QuestionError::Open(_) | QuestionError::Mirror(_),
                ) => Next::Choose,
                Err(error) => panic!("{error}"),
            },
            Next::Locate(blocks, then) => {
                let names: Vec<BlockName> = blocks.iter().map(|block| block.name).collect();
                let places = disk.locate(&names).expect("the map can be read");
                let lives = blocks.into_iter().zip(places);
                let live = lives.filter(|(block, place)| *place == Some(block.addr));
                Next::Rewrite(live.map(|(block, _)| block).collect(), then)
            }
            Next::Rewrite(blocks, then) => {
                let outcomes = disk.rewrite(&blocks).expect("the device works");
                assert_eq!(outcomes.len(), blocks.len());
                if outcomes.contains(&Rewritten::NoRoom) { Next::Choose } else { *then }
            }
            Next::Release(segment) => {
                match disk.release(&[segment]).expect("the device works")[..] {
                    [Released::Clean] => {
                        self.released += 1;
                        Next::Choose
                    }
                    // The segment's summaries do not name all live pages, because some came from
                    // other lists.
                    [Released::Live(_)] if !self.has_searched_the_map(segment) => {
                        Next::SearchTheMap(segment, MapCursor::default())
                    }
                    _ => Next::Choose,
                }
            }
        };
        true
    }

    /// Whether the map was searched for this segment already. The first call enters the segment in
    /// `tried` for the second time.
    fn has_searched_the_map(&mut self, segment: u32) -> bool {
        let count = self.tried.iter().filter(|&&tried| tried == segment).count();
        self.tried.push(segment);
        count > 1
    }
}

#[test]
fn an_external_cleaner_empties_all_partly_dead_segments() {
    for seed in [1, 10] {
        let mut rig = Rig::new(seed, 128, 60);
        rig.moves_pages_between_lists(30);
        rig.check();
        let before = rig.disk.stats();
        let mut cleaner = Cleaner::new(100);
        while cleaner.step(&rig.disk) {}
        assert!(cleaner.released > 20, "{} segments released", cleaner.released);
        let after = rig.disk.stats();
        assert_eq!(after.cleaned_segments, before.cleaned_segments, "no other cleaner works");
        assert!(after.external_moved_bytes > 20 * SEGMENT_BYTES / 4, "{after:?}");
        assert_eq!(after.external_released_segments, u64::from(cleaner.released));
        assert!(after.segments.clean > before.segments.clean + 15, "{before:?} {after:?}");
        // Exceptions are the last segments written, and those with nodes of the map.
        let left = rig.facts().into_iter().filter(|facts| {
            facts.status == SegmentStatus::Dirty
                && u64::from(facts.live_bytes) < SEGMENT_BYTES / 2
                && cleaner.tried.contains(&facts.number)
        });
        assert_eq!(left.count(), 0);
        rig.check_to_the_end();
    }
}

#[test]
fn pages_moved_from_other_lists_are_found_only_in_the_map() {
    let mut rig = Rig::new(2, 96, 40);
    let (from, to) = (rig.lists[0], rig.lists[1]);
    let mut aru = Aru::new(View::HEAD);
    aru.push(Op::SwapPages { a: from, b: to });
    rig.commit(aru);
    let fullest = rig.facts().into_iter().max_by_key(|facts| facts.live_bytes).unwrap();
    let number = fullest.number;
    let mut at = SummaryCursor::default();
    loop {
        let listed = rig.disk.segment_blocks(number, at, 10).unwrap();
        assert!(listed.blocks.len() <= 10);
        rig.disk.rewrite(&listed.blocks).unwrap();
        let Some(next) = listed.next else { break };
        at = next;
    }
    assert!(matches!(rig.disk.release(&[number]).unwrap()[..], [Released::Live(_)]));
    let mut at = MapCursor::default();
    loop {
        let listed = rig.disk.mapped_blocks(number, at).unwrap();
        let outcomes = rig.disk.rewrite(&listed.blocks).unwrap();
        assert!(outcomes.iter().all(|&outcome| outcome == Rewritten::Moved), "{outcomes:?}");
        let Some(next) = listed.next else { break };
        at = next;
    }
    assert_eq!(rig.disk.release(&[number]).unwrap(), [Released::Clean]);
    rig.check_to_the_end();
}

#[test]
fn external_cleaners_the_internal_cleaner_and_clients_can_work_at_once() {
    for seed in [3, 12] {
        let mut rig = Rig::new(seed, 128, 75);
        let mut cleaners = [Cleaner::new(40), Cleaner::new(7), Cleaner::new(1000)];
        for round in 0..4000 {
            let at = rig.rng.below(4) as usize;
            match cleaners.get_mut(at) {
                Some(cleaner) => {
                    if !cleaner.step(&rig.disk) {
                        cleaner.tried.clear();
                    }
                }
                None => {
                    rig.overwrite(3);
                    rig.disk.background_step().expect("the device works");
                }
            }
            if round % 50 == 0 {
                rig.moves_pages_between_lists(1);
            }
            if round % 1000 == 0 {
                rig.check();
            }
        }
        let released: Vec<u32> = cleaners.iter().map(|cleaner| cleaner.released).collect();
        assert!(released.iter().all(|&count| count > 0), "each has its share: {released:?}");
        rig.check_to_the_end();
    }
}

#[test]
fn a_cleaner_that_ends_between_any_two_calls_leaves_nothing_to_clear_up() {
    for calls in 0..40 {
        let mut rig = Rig::new(4, 64, 50);
        let mut cleaner = Cleaner::new(16);
        for _ in 0..calls {
            cleaner.step(&rig.disk);
        }
        drop(cleaner);
        // No other process finishes the cleaner's work, and the volume continues to work.
        if calls % 2 == 0 {
            rig.overwrite(50);
        }
        rig.check();
        // The next cleaner starts without any state and works as well as the first.
        let mut next = Cleaner::new(64);
        while next.step(&rig.disk) {}
        assert!(next.released > 0);
        rig.check_to_the_end();
    }
}

/// Returns a block that may exist or not.
fn lie(rig: &mut Rig, known: &[Block]) -> Block {
    let rng = &mut rig.rng;
    if rng.chance(10) {
        return *pick(rng, known);
    }
    let device_grains = rig.device.len_bytes() / 64;
    let addr = match rng.below(4) {
        0 => Addr(rng.below(device_grains)),
        1 => Addr(rng.below(64) * SEGMENT_BYTES / 64),
        2 => Addr(rng.next_u64()),
        _ => pick(rng, known).addr,
    };
    let lists = [0, 1, rig.lists[0].0, rig.lists[1].0, u64::MAX, 1 << 62, 1 << 63];
    let list = *pick(rng, &lists);
    let name = match rng.below(4) {
        0 => BlockName::Page { list, page_index: rng.below(rig.pages), branch: 0, epoch: 1 },
        1 => BlockName::Page { list, page_index: rng.next_u64(), branch: 0, epoch: 1 },
        2 => BlockName::Node {
            level: rng.below(256) as u8,
            first_key: Key {
                list,
                space: *pick(rng, &[Space::List, Space::Records, Space::Chunks]),
                index: rng.next_u64(),
                branch: rng.below(3) as u32,
                epoch: rng.next_u64(),
            },
        },
        _ => pick(rng, known).name,
    };
    Block { name, addr }
}

#[test]
fn a_lying_cleaner_causes_no_loss_and_takes_no_space_from_clients() {
    for seed in [5, 14] {
        let mut rig = Rig::new(seed, 96, 80);
        // The blocks that the cleaner knows of; many of them are soon out of date.
        let mut known = Vec::new();
        for facts in rig.facts().iter().filter(|facts| facts.status == SegmentStatus::Dirty) {
            known.extend(
                rig.disk.segment_blocks(facts.number, SummaryCursor::default(), 50).unwrap().blocks,
            );
        }
        let mut moved = 0;
        for round in 0..600 {
            let blocks: Vec<Block> =
                (0..rig.rng.below(100)).map(|_| lie(&mut rig, &known)).collect();
            let names: Vec<BlockName> = blocks.iter().map(|block| block.name).collect();
            let places = rig.disk.locate(&names).expect("a lie is no failure");
            let outcomes = rig.disk.rewrite(&blocks).expect("a lie is no failure");
            for ((block, place), outcome) in blocks.iter().zip(places).zip(outcomes) {
                let is_true = place == Some(block.addr);
                // If there is no room, the map is not searched.
                let is_right = matches!(outcome, Rewritten::Dead | Rewritten::NoRoom) || is_true;
                assert!(is_right, "{block:?} {place:?} {outcome:?}");
                moved += usize::from(outcome == Rewritten::Moved);
            }
            // Correct names, many times: the same live blocks are moved again and again.
            let truth: Vec<Block> = {
                let names: Vec<BlockName> =
                    (0..200).map(|_| pick(&mut rig.rng, &known).name).collect();
                let places = rig.disk.locate(&names).expect("the map can be read");
                let found = names.into_iter().zip(places);
                found.filter_map(|(name, addr)| Some(Block { name, addr: addr? })).collect()
            };
            rig.disk.rewrite(&truth).expect("the device works");
            let numbers: Vec<u32> = (0..rig.rng.below(20))
                .map(|_| if rig.rng.chance(80) { rig.rng.below(100) as u32 } else { u32::MAX })
                .collect();
            let before = rig.facts();
            for (&number, released) in
                numbers.iter().zip(rig.disk.release(&numbers).expect("a lie is no failure"))
            {
                let fact = before.iter().find(|facts| facts.number == number);
                let is_right = match released {
                    Released::Unknown => fact.is_none(),
                    // The checkpoint that releasing takes may continue in a segment that was clean.
                    Released::Open => {
                        let may_be = [SegmentStatus::Open, SegmentStatus::Clean];
                        fact.is_some_and(|fact| may_be.contains(&fact.status))
                    }
                    Released::Live(bytes) => bytes > 0,
                    Released::Clean | Released::Pending => {
                        fact.is_some_and(|fact| fact.live_bytes == 0)
                    }
                };
                assert!(is_right, "{fact:?} {released:?}");
            }
            let cursor = SummaryCursor {
                offset_bytes: rig.rng.next_u64() as u32,
                skip: rig.rng.next_u64() as u32,
            };
            let _ = rig.disk.segment_blocks(rig.rng.below(100) as u32, cursor, usize::MAX);
            let cursor = MapCursor { list: rig.rng.next_u64(), chunk: rig.rng.next_u64() };
            let _ = rig.disk.mapped_blocks(rig.rng.below(100) as u32, cursor);
            rig.overwrite(2);
            rig.disk.background_step().expect("the device works");
            if round % 200 == 0 {
                rig.check();
            }
        }
        assert!(moved > 0, "some of what it says is true by chance");
        // Clients still get their data.
        rig.overwrite(rig.pages);
        rig.check_to_the_end();
    }
}

#[test]
fn deleting_works_on_a_full_volume_whatever_a_cleaner_moves() {
    for seed in [9, 16] {
        let mut rig = Rig::new(seed, 64, 97);
        for round in 1..20 {
            // As much is moved as there is room for, many times.
            for facts in rig.facts().iter().filter(|facts| facts.status == SegmentStatus::Dirty) {
                let listed = rig.disk.segment_blocks(facts.number, SummaryCursor::default(), 1000);
                let Ok(listed) = listed else { continue };
                rig.disk
                    .rewrite(&listed.blocks[..listed.blocks.len() / 2])
                    .expect("the device works");
            }
            let list = rig.disk.allocate_list().expect("the disk is writable");
            let (mut number, mut is_full) = (0, false);
            while !is_full {
                let mut aru = Aru::new(View::HEAD);
                if rig.model.list(list).is_none() {
                    aru.create_list(list, ListHints::default());
                }
                aru.write_pages(list, number * 5, vec![round; 20_000]);
                number += 1;
                let ops = aru.ops().to_vec();
                match rig.disk.commit(aru) {
                    Ok(_) => apply(&mut rig.model, &ops).expect("the disk took it"),
                    Err(Error::NoSpace { .. }) => is_full = true,
                    Err(error) => panic!("{error}"),
                }
            }
            let mut aru = Aru::new(View::HEAD);
            aru.push(Op::PunchPages { list: rig.lists[0], first_page: 0, count: 5 }).set_reclaims();
            rig.commit(aru);
            if rig.model.list(list).is_some() {
                let mut aru = Aru::new(View::HEAD);
                aru.delete_list(list).set_reclaims();
                rig.commit(aru);
            }
        }
        rig.check_to_the_end();
    }
}

#[test]
fn no_call_returns_or_accepts_more_than_its_bound() {
    let rig = Rig::new(6, 64, 60);
    let segment = rig.dirty().number;
    let listed = rig.disk.segment_blocks(segment, SummaryCursor::default(), usize::MAX).unwrap();
    assert!(!listed.blocks.is_empty() && listed.blocks.len() <= MAX_BLOCKS_PER_CALL);
    let many = vec![listed.blocks[0]; MAX_BLOCKS_PER_CALL + 1000];
    let names: Vec<BlockName> = many.iter().map(|block| block.name).collect();
    assert_eq!(rig.disk.locate(&names).unwrap().len(), MAX_BLOCKS_PER_CALL);
    let outcomes = rig.disk.rewrite(&many).unwrap();
    assert_eq!(outcomes.len(), MAX_BLOCKS_PER_CALL);
    assert!(outcomes.iter().filter(|&&outcome| outcome == Rewritten::Moved).count() <= 1);
    assert_eq!(
        rig.disk.segment_blocks(0, SummaryCursor::default(), 1).unwrap_err().to_string(),
        "there is no segment 0 in the log; it has 2 to 63"
    );
    rig.check_to_the_end();
}

#[test]
fn damaged_blocks_are_reported_and_not_moved() {
    let rig = Rig::new(7, 64, 50);
    let facts = rig.facts();
    let victim = facts.iter().filter(|facts| facts.status == SegmentStatus::Dirty);
    let victim = victim.max_by_key(|facts| facts.live_bytes).unwrap();
    let listed = rig.disk.segment_blocks(victim.number, SummaryCursor::default(), 1000).unwrap();
    let pages: Vec<Block> = listed
        .blocks
        .into_iter()
        .filter(|block| matches!(block.name, BlockName::Page { .. }))
        .filter(|block| rig.disk.locate(&[block.name]).unwrap() == [Some(block.addr)])
        .collect();
    let damaged = pages[pages.len() / 2];
    let start = damaged.addr.bytes() / PAGE_SIZE as u64 * PAGE_SIZE as u64;
    let mut around = vec![0; PAGE_SIZE];
    rig.device.read_at(start, &mut around).unwrap();
    around[(damaged.addr.bytes() - start) as usize + 7] ^= 1;
    rig.device.write_at(start, &around).unwrap();
    for (block, outcome) in pages.iter().zip(rig.disk.rewrite(&pages).unwrap()) {
        let expected = if *block == damaged { Rewritten::Unreadable } else { Rewritten::Moved };
        assert_eq!(outcome, expected);
    }
    assert_eq!(rig.disk.locate(&[damaged.name]).unwrap(), [Some(damaged.addr)]);
    assert!(matches!(rig.disk.release(&[victim.number]).unwrap()[..], [Released::Live(_)]));
}

#[test]
fn a_read_only_disk_refuses_changes_and_still_answers_queries() {
    let rig = Rig::new(8, 64, 50);
    let segment = rig.dirty().number;
    rig.disk.shut_down().unwrap();
    let listed = rig.disk.segment_blocks(segment, SummaryCursor::default(), 10).unwrap();
    assert!(matches!(rig.disk.rewrite(&listed.blocks), Err(Error::ReadOnly(_))));
    assert!(matches!(rig.disk.release(&[segment]), Err(Error::ReadOnly(_))));
}
