use super::*;
use crate::Locality;

const A: Lid = Lid(1);
const B: Lid = Lid(2);

fn page(fill: u8) -> Vec<u8> {
    vec![fill; PAGE_SIZE]
}

/// A disk with lists A and B.
fn disk() -> ModelDisk {
    let disk = ModelDisk::new(None);
    let mut aru = Aru::new(View::HEAD);
    for expected in [A, B] {
        assert_eq!(disk.allocate_list(), Ok(expected));
        aru.create_list(expected, ListHints::default());
    }
    disk.commit(aru).unwrap();
    disk
}

fn commit(disk: &ModelDisk, op: Op<'static>) -> Result<CommitSeq> {
    let mut aru = Aru::new(View::HEAD);
    aru.push(op);
    disk.commit(aru)
}

fn pages_of(disk: &ModelDisk, list: Lid) -> Vec<(u64, u8)> {
    let state = disk.state();
    let list = state.list(list).unwrap();
    list.pages(0..MAX_PAGE_COUNT)
        .map(|(page, data)| (page, data.first().copied().unwrap_or(0)))
        .collect()
}

#[test]
fn a_unit_that_is_wrong_changes_nothing() {
    let disk = disk();
    let before = disk.state();
    let mut aru = Aru::new(View::HEAD);
    aru.put_record(A, 1, &b"x"[..]).delete_list(B).put_record(B, 1, &b"y"[..]);
    assert_eq!(disk.commit(aru), Err(Error::NoSuchList(B)));
    assert_eq!(disk.state(), before);
}

#[test]
fn numbers_of_lists_are_not_given_out_again() {
    let disk = disk();
    commit(&disk, Op::CreateList { list: Lid(10), hints: ListHints::default() }).unwrap();
    assert_eq!(disk.allocate_list(), Ok(Lid(11)));
    for list in [A, Lid(0), Lid::CLIENT_END] {
        let answer = commit(&disk, Op::CreateList { list, hints: ListHints::default() });
        assert_eq!(answer, Err(Error::ListExists(list)));
    }
}

#[test]
fn moving_pages_over_themselves_keeps_what_they_were() {
    let disk = disk();
    let data = [page(1), page(2), page(3)].concat();
    commit(&disk, Op::WritePages { list: A, first_page: 0, data: data.into() }).unwrap();
    let moved = |from_page, to_page| Op::MovePages { from: A, from_page, to: A, to_page, count: 3 };
    commit(&disk, moved(0, 1)).unwrap();
    assert_eq!(pages_of(&disk, A), [(1, 1), (2, 2), (3, 3)]);
    commit(&disk, moved(1, 0)).unwrap();
    assert_eq!(pages_of(&disk, A), [(0, 1), (1, 2), (2, 3)]);
    commit(&disk, moved(0, 0)).unwrap();
    assert_eq!(pages_of(&disk, A), [(0, 1), (1, 2), (2, 3)]);
}

#[test]
fn swapping_a_list_with_itself_changes_nothing() {
    let disk = disk();
    commit(&disk, Op::WritePages { list: A, first_page: 7, data: page(1).into() }).unwrap();
    let before = disk.state();
    commit(&disk, Op::SwapPages { a: A, b: A }).unwrap();
    assert_eq!(disk.state(), before);
    commit(&disk, Op::SwapPages { a: A, b: B }).unwrap();
    assert_eq!((pages_of(&disk, A), pages_of(&disk, B)), (vec![], vec![(7, 1)]));
}

#[test]
fn a_full_disk_refuses_all_but_what_reclaims_or_was_set_aside() {
    let disk = ModelDisk::new(Some(100));
    let put = |index, len: usize| Op::PutRecord { list: A, index, value: vec![1; len].into() };
    commit(&disk, Op::CreateList { list: A, hints: ListHints::default() }).unwrap();
    let reservation = disk.reserve(40).unwrap();
    assert!(disk.reserve(61).is_err());
    commit(&disk, put(0, 60)).unwrap();
    let full = Error::NoSpace { needed_bytes: 1, available_bytes: 0 };
    assert_eq!(commit(&disk, put(1, 1)), Err(full));
    let mut aru = Aru::new(View::HEAD);
    aru.push(put(1, 40)).use_reservation(reservation);
    disk.commit(aru).unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.push(put(2, 5)).set_reclaims();
    disk.commit(aru).unwrap();
    assert_eq!(disk.space().live_bytes, 105);
    commit(&disk, Op::DeleteList { list: A }).unwrap();
    assert_eq!(disk.space().available_bytes, 100);
}

#[test]
fn the_history_has_the_state_after_every_commit() {
    let disk = ModelDisk::new(None).recording();
    commit(&disk, Op::CreateList { list: A, hints: ListHints::default() }).unwrap();
    commit(&disk, Op::PutRecord { list: A, index: 3, value: b"x"[..].into() }).unwrap();
    disk.flush(CommitSeq(1)).unwrap();
    let history = disk.history();
    let counts: Vec<_> = history.iter().map(|(seq, state)| (seq.0, state.live_bytes())).collect();
    assert_eq!(counts, [(0, 0), (1, 0), (2, 1)]);
    assert_eq!(history[2].1, disk.state());
    assert_eq!(disk.flushed(), CommitSeq(1));
    let reopened = ModelDisk::from_state(history[1].1.clone(), None);
    assert_eq!(reopened.allocate_list(), Ok(B));
}

#[test]
fn a_state_read_through_the_trait_is_the_state() {
    let disk = disk();
    let data = [page(1), page(0), b"tail".to_vec()].concat();
    commit(&disk, Op::WritePages { list: A, first_page: 60, data: data.into() }).unwrap();
    let last = MAX_PAGE_COUNT - 1;
    commit(&disk, Op::ZeroPages { list: A, first_page: last, count: 1 }).unwrap();
    for index in [0, 5, u64::MAX] {
        commit(&disk, Op::PutRecord { list: B, index, value: b"r"[..].into() }).unwrap();
    }
    let hints = ListHints { locality: Locality::Clustered, ..ListHints::default() };
    commit(&disk, Op::SetHints { list: B, hints }).unwrap();
    let read = ModelState::read_from(&disk).unwrap();
    assert_eq!(read.diff(&disk.state()), None);
    assert_eq!(read, disk.state());
}

#[test]
fn a_difference_is_named() {
    let one = disk();
    let other = disk();
    commit(&one, Op::WritePages { list: A, first_page: 3, data: page(1).into() }).unwrap();
    commit(&other, Op::ZeroPages { list: A, first_page: 3, count: 1 }).unwrap();
    let text = one.state().diff(&other.state()).unwrap();
    assert!(text.starts_with("list 1: page 3 is 4096 bytes 0101010101010101… left"), "{text}");
    commit(&other, Op::DeleteList { list: A }).unwrap();
    assert!(one.state().diff(&other.state()).unwrap().starts_with("list 1 is only left"));
}

#[test]
fn a_disk_that_failed_or_was_shut_down_reads_but_does_not_write() {
    let disk = disk();
    disk.shut_down().unwrap();
    let put = || Op::PutRecord { list: A, index: 0, value: b"x"[..].into() };
    assert!(matches!(commit(&disk, put()), Err(Error::ReadOnly(_))));
    assert!(disk.read_only_reason().is_some());
    let disk = self::disk();
    disk.fail("no more");
    assert_eq!(commit(&disk, put()), Err(Error::Failed("no more".into())));
    assert_eq!(disk.flush(CommitSeq::LATEST), Err(Error::Failed("no more".into())));
    assert_eq!(disk.hints(View::HEAD, A), Ok(Some(ListHints::default())));
}
