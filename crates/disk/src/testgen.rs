//! Random units of work, the same for the same seed.
//!
//! They are meant to collide: few lists, few indices, many of them at the edges of groups of 32
//! pages and at the end of the index space, and ranges that reach far past all data.

use dendro_base::Rng;

use crate::model::{ModelList, ModelState};
use crate::{
    Lid, ListCompression, ListHints, Locality, MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, Op, PAGE_SIZE,
};

/// What the units are like.
#[derive(Clone, Debug)]
pub struct Profile {
    /// How many lists there are at most.
    pub max_lists: usize,
    /// Changes in a large unit; most have one to five.
    pub max_ops: u64,
    /// The longest write, rarely reached: lengths have all magnitudes equally often.
    pub max_write_bytes: u64,
    /// The longest of the one write in a hundred that is large.
    pub max_large_write_bytes: u64,
    /// How much the lists hold before deletions prevail.
    pub target_bytes: u64,
    /// How many units in a hundred contain a change that must be refused.
    pub wrong_percent: u64,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            max_lists: 6,
            max_ops: 60,
            max_write_bytes: 128 << 10,
            max_large_write_bytes: 1200 << 10,
            target_bytes: 8 << 20,
            wrong_percent: 5,
        }
    }
}

/// A source of random units.
#[derive(Clone, Debug)]
pub struct Generator {
    rng: Rng,
    profile: Profile,
    /// How many in a hundred lists that are deleted are created anew in the same unit.
    recreated_percent: u64,
}

/// A unit while it is made.
struct Unit<'a> {
    /// What it starts from.
    state: &'a ModelState,
    /// The lists that are there after `ops`.
    lists: Vec<Lid>,
    ops: Vec<Op<'static>>,
    allocate: &'a mut dyn FnMut() -> Option<Lid>,
}

impl Generator {
    /// The generator that `rng` and `profile` name.
    #[must_use]
    pub const fn new(rng: Rng, profile: Profile) -> Self {
        Self { rng, profile, recreated_percent: 30 }
    }

    /// The same, but that no list is deleted and created anew in one unit, which is wrong when
    /// another version has the list.
    #[must_use]
    pub const fn beside_versions(mut self) -> Self {
        self.recreated_percent = 0;
        self
    }

    /// The changes of one unit that starts from `state`. New lists get their numbers from
    /// `allocate`; when that has none, the unit creates no list.
    ///
    /// A unit is right for `state` (but for [`Profile::wrong_percent`]); when other units are
    /// committed before it, it may have become wrong.
    pub fn unit(
        &mut self,
        state: &ModelState,
        allocate: &mut dyn FnMut() -> Option<Lid>,
    ) -> Vec<Op<'static>> {
        let large = self.rng.chance(3);
        let count = 1 + self.rng.below(if large { self.profile.max_ops } else { 5 });
        let lists = state.lists(Lid(0)).map(|(list, _)| list).collect();
        let mut unit = Unit { state, lists, ops: Vec::new(), allocate };
        for _ in 0..count {
            self.add_op(&mut unit);
        }
        if self.rng.chance(self.profile.wrong_percent) {
            let place = self.rng.below(unit.ops.len() as u64 + 1) as usize;
            let wrong = self.wrong_op(state);
            unit.ops.insert(place, wrong);
        }
        unit.ops
    }

    fn add_op(&mut self, unit: &mut Unit<'_>) {
        let few = unit.lists.len() < self.profile.max_lists;
        if unit.lists.is_empty() || few && self.rng.chance(10) {
            if let Some(list) = (unit.allocate)() {
                unit.lists.push(list);
                unit.ops.push(Op::CreateList { list, hints: self.hints() });
            }
            return;
        }
        let list = self.pick(&unit.lists);
        let empty = ModelList::default();
        let held = unit.state.list(list).unwrap_or(&empty);
        let full = unit.state.live_bytes() > self.profile.target_bytes;
        let op = match self.rng.below(if full { 200 } else { 100 }) {
            0..2 | 180..200 => {
                unit.ops.push(Op::DeleteList { list });
                if !self.rng.chance(self.recreated_percent) {
                    unit.lists.retain(|&other| other != list);
                    return;
                }
                Op::CreateList { list, hints: self.hints() }
            }
            2..4 => Op::SetHints { list, hints: self.hints() },
            4..34 => {
                let index = self.record_index(held);
                Op::PutRecord { list, index, value: self.record().into() }
            }
            34..44 => Op::DeleteRecord { list, index: self.record_index(held) },
            44..78 => self.write(list, held),
            78..82 => {
                let count = self.magnitude(300);
                Op::ZeroPages { list, first_page: self.first_page(held, count), count }
            }
            90..97 => self.move_pages(list, held, &unit.lists),
            97..100 => Op::SwapPages { a: list, b: self.pick(&unit.lists) },
            _ => {
                let count = self.magnitude(MAX_PAGE_COUNT);
                Op::PunchPages { list, first_page: self.first_page(held, count), count }
            }
        };
        unit.ops.push(op);
    }

    fn pick(&mut self, lists: &[Lid]) -> Lid {
        lists[self.rng.below(lists.len() as u64) as usize]
    }

    fn hints(&mut self) -> ListHints {
        let drawn = self.rng.below(100);
        let locality = if drawn < 20 { Locality::Clustered } else { Locality::AsWritten };
        let compression = match drawn % 6 {
            0 => ListCompression::Lz4,
            1 => ListCompression::Zstd,
            2 => ListCompression::Never,
            _ => ListCompression::AsOthers,
        };
        let near = drawn.is_multiple_of(5).then(|| Lid(1 + self.rng.below(40)));
        ListHints { locality, compression, near }
    }

    /// From 1 to `max`, all magnitudes equally often.
    fn magnitude(&mut self, max: u64) -> u64 {
        let bits = self.rng.below(u64::from(max.ilog2()) + 1);
        (1 + self.rng.below(2 << bits)).min(max)
    }

    fn record_index(&mut self, held: &ModelList) -> u64 {
        match self.rng.below(10) {
            0..5 => self.rng.below(40),
            5..8 => {
                let near = self.rng.next_u64() >> self.rng.below(64);
                held.records(near).next().map_or(near, |(index, _)| index)
            }
            8 => u64::MAX - self.rng.below(3),
            _ => self.rng.next_u64(),
        }
    }

    fn record(&mut self) -> Vec<u8> {
        let len = match self.rng.below(10) {
            0 => MAX_RECORD_LEN_BYTES,
            1 => 1,
            _ => self.magnitude(MAX_RECORD_LEN_BYTES as u64) as usize,
        };
        let mut value = vec![0; len];
        self.fill(&mut value);
        value
    }

    /// A page that something of `count` pages can start at.
    fn first_page(&mut self, held: &ModelList, count: u64) -> u64 {
        let near = match self.rng.below(20) {
            0..8 => self.rng.below(100),
            8..12 => self.page_beside_data(held),
            12..15 => {
                let group = self.rng.below(40);
                self.around(32 * group)
            }
            15..17 => self.rng.below(1 << 20),
            17..19 => MAX_PAGE_COUNT - self.magnitude(200),
            _ => {
                let bits = self.rng.below(51);
                self.around(1 << bits)
            }
        };
        near.min(MAX_PAGE_COUNT - count)
    }

    fn around(&mut self, page: u64) -> u64 {
        (page + self.rng.below(5)).saturating_sub(2)
    }

    fn page_beside_data(&mut self, held: &ModelList) -> u64 {
        let somewhere = self.rng.below(MAX_PAGE_COUNT) >> self.rng.below(51);
        let data = held.pages(somewhere..MAX_PAGE_COUNT).next();
        self.around(data.map_or(somewhere, |(page, _)| page))
    }

    fn write(&mut self, list: Lid, held: &ModelList) -> Op<'static> {
        let large = self.rng.chance(1);
        let max =
            if large { self.profile.max_large_write_bytes } else { self.profile.max_write_bytes };
        let mut len_bytes = self.magnitude(max) as usize;
        if self.rng.chance(60) {
            len_bytes = len_bytes.next_multiple_of(PAGE_SIZE);
        }
        let mut data = vec![0; len_bytes];
        // Runs of pages of different kinds, as files have them.
        let mut rest = &mut data[..];
        while !rest.is_empty() {
            let len = (self.magnitude(64) as usize * PAGE_SIZE).min(rest.len());
            let (run, behind) = rest.split_at_mut(len);
            self.fill(run);
            rest = behind;
        }
        let first_page = self.first_page(held, len_bytes.div_ceil(PAGE_SIZE) as u64 + 1);
        if self.rng.chance(25) {
            let offset_bytes = first_page * PAGE_SIZE as u64 + self.rng.below(PAGE_SIZE as u64);
            return Op::WriteBytes { list, offset_bytes, data: data.into() };
        }
        Op::WritePages { list, first_page, data: data.into() }
    }

    /// Makes `bytes`, which are zero, random, compressible, or leaves (parts of) them zero.
    fn fill(&mut self, bytes: &mut [u8]) {
        match self.rng.below(10) {
            0 => {}
            1..4 => {
                for piece in bytes.chunks_mut(PAGE_SIZE) {
                    let (line, number) = (self.rng.below(10), self.rng.below(1000));
                    let text = format!("{number} is the number of line {line}\n");
                    piece.iter_mut().zip(text.bytes().cycle()).for_each(|(to, from)| *to = from);
                }
            }
            4..6 => {
                for piece in bytes.chunks_mut(PAGE_SIZE) {
                    let kept = self.rng.below(piece.len() as u64 + 1) as usize;
                    self.rng.fill(&mut piece[..kept]);
                }
            }
            6 => {
                let place = self.rng.below(bytes.len() as u64) as usize;
                bytes[place] = 1;
            }
            _ => self.rng.fill(bytes),
        }
    }

    fn move_pages(&mut self, from: Lid, held: &ModelList, lists: &[Lid]) -> Op<'static> {
        let count = match self.rng.below(4) {
            0 => self.magnitude(MAX_PAGE_COUNT),
            _ => self.magnitude(200),
        };
        let from_page = self.first_page(held, count);
        let to_page = match self.rng.below(4) {
            // The ranges overlap, as when a part of a file is cut out or put in.
            0 | 1 => {
                let distance = self.magnitude(100);
                let up = self.rng.chance(50);
                if up { from_page + distance } else { from_page.saturating_sub(distance) }
                    .min(MAX_PAGE_COUNT - count)
            }
            _ => self.first_page(held, count),
        };
        let to = if self.rng.chance(50) { from } else { self.pick(lists) };
        Op::MovePages { from, from_page, to, to_page, count }
    }

    fn wrong_op(&mut self, state: &ModelState) -> Op<'static> {
        let there = state.last_list().unwrap_or(Lid(0));
        let missing = Lid(there.0 + 1_000_000 + self.rng.below(3));
        let past_end = MAX_PAGE_COUNT - self.rng.below(10);
        match self.rng.below(14) {
            0 => Op::PutRecord { list: there, index: 0, value: vec![].into() },
            1 => {
                let value = vec![1; MAX_RECORD_LEN_BYTES + 1];
                Op::PutRecord { list: there, index: 0, value: value.into() }
            }
            2 => {
                let data = vec![1; 11 * PAGE_SIZE];
                Op::WritePages { list: there, first_page: past_end, data: data.into() }
            }
            3 => Op::PunchPages { list: there, first_page: past_end, count: u64::MAX },
            12 => {
                let offset_bytes = past_end * PAGE_SIZE as u64 + 1;
                let data = vec![1; 10 * PAGE_SIZE];
                Op::WriteBytes { list: there, offset_bytes, data: data.into() }
            }
            4 => Op::ZeroPages { list: there, first_page: past_end, count: 11 },
            5 => {
                let (from_page, to_page) = (0, past_end);
                Op::MovePages { from: there, from_page, to: there, to_page, count: 11 }
            }
            6 => Op::CreateList { list: Lid(0), hints: ListHints::default() },
            7 => Op::CreateList { list: Lid::CLIENT_END, hints: ListHints::default() },
            8 => Op::DeleteList { list: missing },
            9 => Op::SwapPages { a: there, b: missing },
            10 => Op::PutRecord { list: missing, index: 0, value: vec![1].into() },
            13 => {
                let near = Some(Lid::CLIENT_END);
                Op::SetHints { list: there, hints: ListHints { near, ..ListHints::default() } }
            }
            _ => Op::DeleteRecord { list: Lid::CLIENT_END, index: 0 },
        }
    }
}
