//! A list is deleted and made again in one unit, or made again before what the deleted one had is
//! removed. That is a bounded change, whatever the list held.

use std::sync::Arc;

use dendro_base::Rng;
use dendro_check::{Options, verify};
use dendro_device::Device;
use dendro_disk::model::{ModelState, apply};
use dendro_disk::{
    Aru, CommitSeq, Error, Lid, ListHints, LogicalDisk, Op, PAGE_SIZE, Versions, View,
};
use dendro_logdisk::LogDisk;

use crate::common::{delete, drain, formatted, list_of, open};

/// Deletes a list and makes it again in one unit, with a record and a page.
fn make_again(disk: &LogDisk, list: Lid, text: &[u8]) {
    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(list).create_list(list, ListHints::default());
    aru.put_record(list, 64, text.to_vec()).write_pages(list, 65, text.to_vec());
    disk.commit(aru).expect("the number is free");
}

/// Asserts that a list has what [`make_again`] has put in it, and nothing else.
fn assert_made_again(disk: &LogDisk, view: View, list: Lid, text: &[u8]) {
    assert_eq!(disk.records(view, list, 0, 9), Ok(vec![(64, Arc::from(text))]));
    assert_eq!(disk.record(view, list, 32), Ok(None));
    assert_eq!(disk.count_pages(view, list, 0..1 << 40), Ok(1));
    assert_eq!(disk.next_data(view, list, 0), Ok(Some(65)));
    let mut pages = vec![1; 3 * PAGE_SIZE];
    disk.read_pages(view, list, 64, &mut pages).expect("the device works");
    assert!(pages[..PAGE_SIZE].iter().all(|byte| *byte == 0), "an old page shows through");
    assert_eq!(pages[PAGE_SIZE..][..text.len()], *text);
    assert!(pages[PAGE_SIZE + text.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn making_a_list_again_changes_equally_little_of_the_map_whatever_it_held() {
    let dirtied = |count| {
        let (_, disk) = formatted(64 << 20);
        let list = list_of(&disk, View::HEAD, count);
        disk.checkpoint().expect("the device works");
        make_again(&disk, list, b"new");
        assert_made_again(&disk, View::HEAD, list, b"new");
        disk.stats().dirty_node_bytes
    };
    let (few, many) = (dirtied(1_000), dirtied(50_000));
    assert!(many <= few + (64 << 10), "{few} bytes, and {many} of fifty times as many records");
}

#[test]
fn a_list_that_was_made_again_keeps_what_is_new_after_a_crash_at_any_step() {
    for has_checkpoint in [false, true] {
        for step_count in [0, 1, 5, 40, 1_000] {
            let (device, disk) = formatted(64 << 20);
            let before = disk.stats().live_bytes;
            let list = list_of(&disk, View::HEAD, 20_000);
            make_again(&disk, list, b"first");
            assert_made_again(&disk, View::HEAD, list, b"first");
            make_again(&disk, list, b"second");
            for _ in 0..step_count {
                disk.removal_step().expect("the device works");
            }
            assert_made_again(&disk, View::HEAD, list, b"second");
            if has_checkpoint {
                disk.checkpoint().expect("the device works");
            }
            disk.flush(CommitSeq::LATEST).expect("the device works");
            drop(disk);
            let disk = open(&device);
            assert_made_again(&disk, View::HEAD, list, b"second");
            let snapshot = disk.snapshot(0, None).expect("there is room").view();
            let mut aru = Aru::new(View::HEAD);
            aru.delete_record(list, 64).punch_pages(list, 0, 1 << 20);
            disk.commit(aru).expect("there is room");
            assert_eq!(disk.records(View::HEAD, list, 0, 9), Ok(vec![]));
            assert_eq!(disk.count_pages(View::HEAD, list, 0..1 << 40), Ok(0));
            let usage = disk.version_usage().expect("the device works");
            let seen: Vec<u64> = usage.iter().map(|usage| usage.seen_bytes).collect();
            assert!(seen.iter().all(|bytes| *bytes <= 64), "{seen:?}");
            assert_made_again(&disk, snapshot, list, b"second");
            drain(&disk);
            assert_made_again(&disk, snapshot, list, b"second");
            let left = disk.stats().live_bytes - before;
            assert!(left < 64 << 10, "{left} bytes are left");
            disk.shut_down().expect("the device works");
            drop(disk);
            assert_eq!(verify(&*device, &Options { data: true }).findings, []);
            let disk = open(&device);
            assert_made_again(&disk, snapshot, list, b"second");
        }
    }
}

#[test]
fn a_list_is_made_again_in_the_epoch_in_which_all_of_the_old_one_was_removed() {
    // The log says nothing of the removal, so applying it again finds all of the old list.
    let (device, disk) = formatted(64 << 20);
    let list = list_of(&disk, View::HEAD, 5_000);
    delete(&disk, View::HEAD, list);
    while disk.removal_step().expect("the device works") {}
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default());
    aru.put_record(list, 64, b"new".to_vec()).write_pages(list, 65, b"new".to_vec());
    disk.commit(aru).expect("the number is free");
    disk.flush(CommitSeq::LATEST).expect("the device works");
    drop(disk);
    let disk = open(&device);
    assert_made_again(&disk, View::HEAD, list, b"new");
    drain(&disk);
    assert_made_again(&disk, View::HEAD, list, b"new");
}

#[test]
fn a_unit_that_changes_a_long_list_and_makes_it_again_is_refused() {
    let (_, disk) = formatted(64 << 20);
    let list = list_of(&disk, View::HEAD, 20_000);
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(list, 1, b"x".to_vec());
    aru.delete_list(list).create_list(list, ListHints::default());
    assert_eq!(disk.commit(aru), Err(Error::UnitTooLong));
    assert_eq!(disk.records(View::HEAD, list, 0, 30_000).map(|found| found.len()), Ok(20_000));
    let mut aru = Aru::new(View::HEAD);
    for _ in 0..3 {
        aru.delete_list(list).create_list(list, ListHints::default());
    }
    disk.commit(aru).expect("the number is free");
    assert_eq!(disk.records(View::HEAD, list, 0, 9), Ok(vec![]));
}

/// Two lists that are changed, deleted and made again at random, beside the model.
struct Session {
    seed: u64,
    rng: Rng,
    device: Arc<dyn Device>,
    disk: LogDisk,
    lists: [Lid; 2],
    model: ModelState,
    /// The snapshots, and what each must have.
    snapshots: Vec<(View, ModelState)>,
}

impl Session {
    fn new(seed: u64) -> Self {
        let (device, disk) = formatted(64 << 20);
        let lists = [(); 2].map(|()| disk.allocate_list().expect("the disk is writable"));
        let (model, snapshots) = (ModelState::default(), Vec::new());
        Self { seed, rng: Rng::new(seed), device, disk, lists, model, snapshots }
    }

    fn unit(&mut self, step: u64) -> Vec<Op<'static>> {
        let rng = &mut self.rng;
        let (list, other) = (self.lists[rng.below(2) as usize], self.lists[rng.below(2) as usize]);
        let (index, count) = (rng.below(400), 1 + rng.below(300));
        let exists = self.model.list(list).is_some();
        let mut ops = Vec::new();
        let text = format!("{step}").into_bytes();
        let put = |index, ops: &mut Vec<Op<'static>>| {
            ops.push(Op::PutRecord { list, index, value: text.clone().into() });
            ops.push(Op::WritePages { list, first_page: index, data: text.clone().into() });
        };
        match rng.below(9) {
            0 if exists => ops.push(Op::DeleteList { list }),
            0..4 => {
                if exists {
                    ops.push(Op::DeleteList { list });
                }
                ops.push(Op::CreateList { list, hints: ListHints::default() });
                put(index, &mut ops);
            }
            4 => {
                ops.push(Op::PunchPages { list, first_page: index, count: count * 4 });
                ops.push(Op::DeleteRecord { list, index });
            }
            5 => ops.push(Op::MovePages {
                from: list,
                from_page: index,
                to: other,
                to_page: rng.below(400),
                count,
            }),
            6 => ops.push(Op::ZeroPages { list, first_page: index, count }),
            _ => (index..index + count).for_each(|index| put(index * 7, &mut ops)),
        }
        ops
    }

    fn commit(&mut self, step: u64) {
        let ops = self.unit(step);
        let mut aru = Aru::new(View::HEAD);
        let mut after = self.model.clone();
        let expected = apply(&mut after, &ops);
        let is_kept = |op: &Op<'_>| match op {
            Op::CreateList { list, .. } => {
                self.snapshots.iter().any(|(_, past)| past.list(*list).is_some())
            }
            _ => false,
        };
        let is_kept = ops.iter().any(is_kept);
        ops.into_iter().for_each(|op| {
            aru.push(op);
        });
        match (self.disk.commit(aru), expected) {
            (Ok(_), Ok(())) if !is_kept => self.model = after,
            (Err(Error::ListExists(_)), Ok(())) if is_kept => {}
            (Err(Error::NoSuchList(_)), Err(Error::NoSuchList(_))) => {}
            (answer, expected) => {
                panic!("seed {}, step {step}: {answer:?}, not {expected:?}", self.seed)
            }
        }
    }

    fn change_versions(&mut self) {
        if self.snapshots.len() < 3 && self.rng.chance(50) {
            let made = self.disk.snapshot(0, None).expect("there is room");
            self.snapshots.push((made.view(), self.model.clone()));
        } else {
            for (view, _) in self.snapshots.drain(..) {
                self.disk.delete(view).expect("it is not held");
            }
        }
    }

    fn crash(&mut self) {
        if self.rng.chance(50) {
            self.disk.checkpoint().expect("the device works");
        }
        self.disk.flush(CommitSeq::LATEST).expect("the device works");
        let (_, other) = formatted(16 << 20);
        drop(std::mem::replace(&mut self.disk, other));
        self.disk = open(&self.device);
    }

    fn check(&self, step: u64) {
        let head = (View::HEAD, &self.model);
        let past = self.snapshots.iter().map(|(view, state)| (*view, state));
        for (view, state) in past.chain([head]) {
            let found = ModelState::read_view(&self.disk, view).expect("the device works");
            let difference = found.diff(state);
            assert_eq!(difference, None, "seed {}, step {step}, {view}", self.seed);
        }
    }
}

#[test]
fn random_changes_of_lists_that_are_made_again_are_as_in_the_model() {
    for seed in 0..40 {
        let mut session = Session::new(seed);
        for step in 0..150 {
            match session.rng.below(10) {
                0 => session.change_versions(),
                1 => {
                    for _ in 0..session.rng.below(12) {
                        session.disk.removal_step().expect("the device works");
                    }
                }
                2 => drop(session.disk.background_step().expect("the device works")),
                3 => session.crash(),
                _ => session.commit(step),
            }
            if step % 5 == 0 {
                session.check(step);
            }
        }
        drain(&session.disk);
        session.check(150);
        session.disk.shut_down().expect("the device works");
        let report = verify(&*session.device, &Options { data: true });
        assert_eq!(report.findings, [], "seed {seed}");
    }
}
