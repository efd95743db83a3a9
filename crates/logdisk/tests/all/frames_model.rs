//! Frames, compared with a model: pages of them are written, freed, moved and exchanged, few at a
//! time, between cleaning, laying down, versions, crashes and clean shutdowns.

use std::collections::BTreeMap;

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{
    Aru, CommitSeq, Lid, ListCompression, LogicalDisk, Op, PAGE_SIZE, Versions, View,
};
use dendro_format::Compression;
use dendro_logdisk::external::{Block, MapCursor, Rewritten};
use dendro_logdisk::{CleanSettings, CoalesceSettings, LogDisk, OpenOptions, Place};

use crate::common::clock;
use crate::compression::{clean_all, counted, device, list, text};
use crate::frames::check_sound;

/// Two chunks and a half, so that what is moved crosses their edges.
const PAGES: u64 = 80;
const LISTS: usize = 3;
const STEPS: u64 = 70;
const SEEDS: u64 = 16;

/// What a page was written with; 0 is a hole.
type Mark = u16;
type Contents = [[Mark; PAGES as usize]; LISTS];

/// The page of a mark: every fourth cannot be compressed, and a few are one byte long.
fn page_of(mark: Mark) -> Vec<u8> {
    match mark % 8 {
        _ if mark == 0 => vec![0; PAGE_SIZE],
        3 | 7 => {
            let mut bytes = vec![0; PAGE_SIZE];
            Rng::new(mark.into()).fill(&mut bytes);
            bytes
        }
        5 => [&mark.to_le_bytes()[..], &[0; PAGE_SIZE - 2]].concat(),
        _ => text(mark.into(), 1),
    }
}

/// What has happened in all runs: otherwise they would show nothing.
#[derive(Debug, Default)]
struct Tally {
    /// Steps in which there was a frame that had lost a page between two others.
    gaps: u64,
    /// Moves and exchanges of pages of frames.
    moves: u64,
    /// Frames that were moved with all of their pages, gaps among them.
    rewrites: u64,
    crashes: u64,
    deletions: u64,
    /// How often something was compressed on request.
    compressed: u64,
}

struct World<'t> {
    rng: Rng,
    device: Arc<MemoryDevice>,
    disk: LogDisk,
    lists: [Lid; LISTS],
    head: Contents,
    kept: Vec<(View, Contents)>,
    /// What was written, by marks.
    pages: Vec<Vec<u8>>,
    tally: &'t mut Tally,
}

fn open(device: &Arc<MemoryDevice>, cold: Option<Compression>) -> LogDisk {
    let coalescing = CoalesceSettings { moves_everything: true, ..CoalesceSettings::default() };
    let cleaning =
        CleanSettings { max_clean_segments: Some(1000), coalescing, ..CleanSettings::default() };
    let options = OpenOptions { cold_compression: Some(cold), cleaning, ..OpenOptions::default() };
    LogDisk::open(Arc::clone(device) as Arc<dyn Device>, options, clock())
        .expect("it was formatted")
}

impl<'t> World<'t> {
    fn new(seed: u64, tally: &'t mut Tally) -> Self {
        let device = device(None);
        let disk = open(&device, Some(Compression::ZSTD));
        let hints = [ListCompression::AsOthers, ListCompression::Lz4, ListCompression::AsOthers];
        let lists = hints.map(|hint| list(&disk, hint));
        let (rng, head) = (Rng::new(seed), [[0; PAGES as usize]; LISTS]);
        Self { rng, device, disk, lists, head, kept: Vec::new(), pages: vec![page_of(0)], tally }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn commit(&self, op: Op<'_>) {
        let mut aru = Aru::new(View::HEAD);
        aru.push(op);
        self.disk.commit(aru).expect("there is room");
    }

    fn write(&mut self, list: usize, first_page: u64, count: u64) {
        let mut data = Vec::new();
        for page in first_page..first_page + count {
            let mark = self.pages.len() as Mark;
            self.head[list][page as usize] = mark;
            self.pages.push(page_of(mark));
            data.extend_from_slice(&self.pages[usize::from(mark)]);
        }
        let list = self.lists[list];
        self.commit(Op::WritePages { list, first_page, data: data.into() });
    }

    /// The pages of each frame of a list of the head.
    fn frames(&self, list: Lid) -> Vec<(u64, Vec<u64>)> {
        let mut by_addr: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for page in 0..PAGES {
            if let Some(addr) = self.disk.page_addr(View::HEAD, list, page).expect("it is mapped") {
                by_addr.entry(addr).or_default().push(page);
            }
        }
        by_addr.into_iter().filter(|(_, pages)| pages.len() > 1).collect()
    }

    fn all_frames(&self) -> Vec<(Lid, u64, Vec<u64>)> {
        let of_list = |list: Lid| self.frames(list).into_iter().map(move |(at, of)| (list, at, of));
        self.lists.into_iter().flat_map(of_list).collect()
    }

    fn has_frames(&self, list: usize, pages: std::ops::Range<u64>) -> bool {
        let frames = self.frames(self.lists[list]);
        frames.iter().any(|(_, of)| of.iter().any(|page| pages.contains(page)))
    }

    /// Puts what a version has together, and half of the time compresses it.
    fn lay_down(&mut self) {
        self.flush();
        let views: Vec<View> =
            self.kept.iter().map(|(view, _)| *view).chain([View::HEAD, View::HEAD]).collect();
        let view = views[self.below(views.len() as u64) as usize];
        let with = [None, None, Some(Compression::Lz4), Some(Compression::Zstd { level: 15 })];
        let with = with[self.below(4) as usize];
        let mut next = Some(Place { list: 0, page: 0 });
        while let Some(place) = next {
            let before = self.data_bytes();
            let done = match with {
                None => self.disk.coalesce(view, place, Lid::CLIENT_END, false),
                Some(with) => self.disk.compress(view, place, Lid::CLIENT_END, with, false),
            };
            let done = done.expect("the device works");
            assert_eq!(done.saved_bytes, before - self.data_bytes(), "{with:?}");
            self.tally.compressed += u64::from(with.is_some() && done.saved_bytes > 0);
            next = done.next.filter(|_| !done.lacks_room);
        }
    }

    fn data_bytes(&self) -> u64 {
        self.disk.stats().live_bytes - self.disk.stats().node_bytes
    }

    fn flush(&self) {
        self.disk.flush(CommitSeq::LATEST).expect("the device works");
        while self.disk.write_step(std::time::Duration::ZERO).expect("the device works") {}
    }

    /// Has frames written again as they are, each named by one of its pages.
    fn rewrite(&mut self) {
        self.flush();
        let addrs: Vec<u64> = self.all_frames().iter().map(|(_, addr, _)| *addr).collect();
        for addr in addrs {
            let named = self.blocks_at(addr);
            let pages_before = named.len();
            let Some(block) = named.get(self.below(pages_before.max(1) as u64) as usize) else {
                continue;
            };
            let outcome = self.disk.rewrite(&[*block]).expect("the device works");
            let expected = if outcome == [Rewritten::Moved] { 0 } else { pages_before };
            assert_eq!(self.blocks_at(addr).len(), expected, "{outcome:?}");
            self.tally.rewrites += u64::from(outcome == [Rewritten::Moved]);
        }
    }

    /// What the map names at an address.
    fn blocks_at(&self, addr: u64) -> Vec<Block> {
        let segment = (addr / self.disk.superblock().layout.segment_size_bytes()) as u32;
        let (mut found, mut next) = (Vec::new(), Some(MapCursor::default()));
        while let Some(from) = next {
            let Ok(blocks) = self.disk.mapped_blocks(segment, from) else { return Vec::new() };
            found.extend(blocks.blocks.into_iter().filter(|block| block.addr.bytes() == addr));
            next = blocks.next;
        }
        found
    }

    fn step(mut self) -> Self {
        let (list, other) = (self.below(3) as usize, self.below(3) as usize);
        match self.below(100) {
            0..30 => {
                let count = 1 + self.below(3);
                let first_page = self.below(PAGES - count);
                self.write(list, first_page, count);
            }
            30..50 => {
                let count = 1 + self.below(4);
                let first_page = self.below(PAGES - count);
                let range = first_page as usize..(first_page + count) as usize;
                self.head[list][range].fill(0);
                self.commit(Op::PunchPages { list: self.lists[list], first_page, count });
            }
            50..60 => self.move_pages(list, other),
            60..62 => {
                self.tally.moves += u64::from(self.has_frames(list, 0..PAGES));
                self.head.swap(list, other);
                self.commit(Op::SwapPages { a: self.lists[list], b: self.lists[other] });
            }
            62..66 => {
                let first_page = self.below(40);
                let count = 20 + self.below(PAGES - first_page - 20);
                self.write(list, first_page, count);
            }
            66..80 => self.lay_down(),
            80..83 => clean_all(&self.disk),
            83..88 if self.kept.len() < 2 => {
                let made = self.disk.snapshot(0, None).expect("there is room");
                self.kept.push((made.view(), self.head));
            }
            83..91 if !self.kept.is_empty() => {
                let at = self.below(self.kept.len() as u64) as usize;
                let (view, _) = self.kept.remove(at);
                self.disk.delete(view).expect("it is there");
                self.drain();
                self.tally.deletions += 1;
            }
            83..91 => {}
            91..93 => self.rewrite(),
            93..98 => return self.reopen(true),
            _ => return self.reopen(false),
        }
        self
    }

    fn move_pages(&mut self, list: usize, other: usize) {
        let count = 1 + self.below(8);
        let (from, to) = (self.below(PAGES - count), self.below(PAGES - count));
        self.tally.moves += u64::from(self.has_frames(list, from..from + count));
        let source = from as usize..(from + count) as usize;
        let moved = self.head[list][source.clone()].to_vec();
        self.head[list][source].fill(0);
        self.head[other][to as usize..(to + count) as usize].copy_from_slice(&moved);
        self.commit(Op::MovePages {
            from: self.lists[list],
            from_page: from,
            to: self.lists[other],
            to_page: to,
            count,
        });
    }

    fn drain(&self) {
        while self.disk.background_step().expect("the device works") {}
    }

    /// Opens the disk again, which is what it was, and may compress in another way from now on.
    fn reopen(mut self, crashes: bool) -> Self {
        self.drain();
        // What was moved is durable with the next commit.
        self.write(0, 0, 1);
        self.flush();
        let before = self.disk.stats().compressed;
        let cold = [None, Some(Compression::ZSTD), Some(Compression::Lz4)][self.below(3) as usize];
        if crashes {
            self.tally.crashes += 1;
            drop(self.disk);
        } else {
            counted(&self.device, self.disk);
            check_sound(&self.device);
        }
        self.disk = open(&self.device, cold);
        self.drain();
        assert_eq!(self.disk.stats().compressed, before);
        self
    }

    /// Compares all versions with the model, all of them at once and in parts.
    fn check(&mut self) {
        let kept = self.kept.clone();
        for (view, contents) in kept.iter().chain([&(View::HEAD, self.head)]) {
            for (list, marks) in self.lists.into_iter().zip(contents) {
                let first = self.below(PAGES);
                let count = 1 + self.below(PAGES - first);
                for range in [0..PAGES, first..first + count, first..first + 1] {
                    let mut found = vec![1; (range.end - range.start) as usize * PAGE_SIZE];
                    let read = self.disk.read_pages(*view, list, range.start, &mut found);
                    read.expect("it is sound");
                    for (page, found) in range.zip(found.chunks(PAGE_SIZE)) {
                        let mark = marks[page as usize];
                        let is_right = found == self.pages[usize::from(mark)];
                        assert!(is_right, "page {page} of list {list} in {view:?}, mark {mark}");
                    }
                }
            }
        }
        let has_gap = |pages: &[u64]| pages.windows(2).any(|pair| pair[0] + 1 < pair[1]);
        self.tally.gaps += u64::from(self.all_frames().iter().any(|(.., pages)| has_gap(pages)));
    }
}

#[test]
fn versions_are_what_a_model_says_whatever_happens_to_pages_of_frames() {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        let mut world = World::new(seed, &mut tally);
        (0..LISTS).for_each(|list| world.write(list, 0, PAGES));
        world.lay_down();
        for _ in 0..STEPS {
            world = world.step();
            world.check();
        }
        world.reopen(true).reopen(false).check();
    }
    println!("{tally:?}");
    let Tally { gaps, moves, rewrites, crashes, deletions, compressed } = tally;
    let least = gaps.min(moves).min(rewrites).min(crashes).min(deletions).min(compressed);
    assert!(least >= SEEDS, "{tally:?}");
}
