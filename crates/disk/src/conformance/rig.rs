//! A disk under test beside the model.

use dendro_base::Rng;

use crate::model::{ModelState, apply};
use crate::{
    Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, MAX_PAGE_COUNT, Op, PAGE_SIZE, View,
};

/// What is done to the disk is done to the model too, and [`Rig::check`] compares them whole.
pub(super) struct Rig<'d> {
    pub(super) disk: &'d dyn LogicalDisk,
    pub(super) model: ModelState,
    last: CommitSeq,
}

impl<'d> Rig<'d> {
    pub(super) fn new(disk: &'d dyn LogicalDisk) -> Self {
        assert_eq!(ModelState::read_from(disk).expect("readable"), ModelState::default());
        Self { disk, model: ModelState::default(), last: CommitSeq(0) }
    }

    /// A new list.
    pub(super) fn list(&mut self) -> Lid {
        let list = self.disk.allocate_list().expect("a number");
        self.commit(|aru| {
            aru.create_list(list, ListHints::default());
        });
        list
    }

    /// Commits a unit that must be accepted.
    pub(super) fn commit<'a>(&mut self, build: impl FnOnce(&mut Aru<'a>)) -> CommitSeq {
        let mut aru = Aru::new(View::HEAD);
        build(&mut aru);
        apply(&mut self.model, aru.ops()).expect("the case is right");
        let seq = self.disk.commit(aru).expect("a commit that is right");
        assert!(seq > self.last, "commit {seq:?} after {:?}", self.last);
        self.last = seq;
        seq
    }

    /// Commits one change.
    pub(super) fn push(&mut self, op: Op<'_>) -> CommitSeq {
        self.commit(|aru| {
            aru.push(op);
        })
    }

    /// Commits a unit that must be refused, and sees that nothing changed.
    pub(super) fn refuse<'a>(&mut self, expected: &Error, build: impl FnOnce(&mut Aru<'a>)) {
        let mut aru = Aru::new(View::HEAD);
        build(&mut aru);
        let ops = format!("{:.300}", format!("{:?}", aru.ops()));
        assert_eq!(self.disk.commit(aru).as_ref(), Err(expected), "for {ops}");
        self.check();
    }

    /// Sees that the whole disk is as the model.
    pub(super) fn check(&self) {
        let found = ModelState::read_from(self.disk).expect("readable");
        if let Some(difference) = found.diff(&self.model) {
            panic!("disk (left) and model (right) differ: {difference}");
        }
        assert_eq!(found, self.model);
    }

    /// Writes one page for each letter: full of the letter, of zeros for `0`; none for a dot.
    pub(super) fn write(&mut self, list: Lid, first_page: u64, letters: &str) {
        self.commit(|aru| add_letters(aru, list, first_page, letters));
    }

    /// What [`Self::write`] would have to be told to get what is in `list` from `first_page` on.
    pub(super) fn letters(&self, list: Lid, first_page: u64, count: u64) -> String {
        let mut buf = vec![0xaa; PAGE_SIZE];
        let letter = |page| {
            self.disk.read_pages(View::HEAD, list, page, &mut buf).expect("readable");
            assert!(buf.iter().all(|&byte| byte == buf[0]), "page {page} is mixed");
            let data = self.disk.next_data(View::HEAD, list, page).expect("readable");
            match (buf[0], data == Some(page)) {
                (0, true) => '0',
                (0, false) => '.',
                (letter, true) => char::from(letter),
                (letter, false) => panic!("page {page} is a hole full of {letter}"),
            }
        };
        (first_page..first_page + count).map(letter).collect()
    }

    /// All pages that are not holes, by their places.
    pub(super) fn places(&self, list: Lid) -> Vec<u64> {
        let mut places = Vec::new();
        let mut from = 0;
        while let Some(page) = self.disk.next_data(View::HEAD, list, from).expect("readable") {
            places.push(page);
            from = page + 1;
        }
        places
    }
}

/// Adds writes as [`Rig::write`] does them.
pub(super) fn add_letters(aru: &mut Aru<'_>, list: Lid, first_page: u64, letters: &str) {
    let mut page = first_page;
    for run in letters.split_inclusive('.') {
        let written = run.trim_end_matches('.');
        let data: Vec<u8> = written
            .bytes()
            .flat_map(|letter| [if letter == b'0' { 0 } else { letter }; PAGE_SIZE])
            .collect();
        if !data.is_empty() {
            aru.write_pages(list, page, data);
        }
        page += run.len() as u64;
    }
}

/// Bytes that do not compress, the same for the same seed.
pub(super) fn noise(seed: u64, len_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; len_bytes];
    Rng::new(seed).fill(&mut bytes);
    bytes
}

/// [`Error::OutOfRange`] of a range.
pub(super) const fn out_of_range(first_page: u64, count: u64) -> Error {
    assert!(first_page > MAX_PAGE_COUNT - 5000, "the range is inside");
    Error::OutOfRange { first_page, count }
}
