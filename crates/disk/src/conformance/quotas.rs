//! Quotas of clients.

use super::rig::noise;
use crate::{
    Aru, CHANGE_BYTES, ClientKind, Error, Lid, ListHints, Op, PAGE_SIZE, Quota, Result, Versions,
    View,
};

const PAGE: u64 = PAGE_SIZE as u64;

/// A client with the list [`Lid::FIRST`] and a quota of `limit_bytes`.
fn client(disk: &dyn Versions, name: &str, limit_bytes: u64) -> View {
    let head = disk.new_client(name, ClientKind::Application).expect("the name is new").head();
    disk.set_quota(head.branch, Some(limit_bytes)).expect("a client");
    head
}

fn write(disk: &dyn Versions, view: View, page: u64, count: usize) -> Result<()> {
    let mut aru = Aru::new(view);
    aru.write_pages(Lid::FIRST, page, noise(page, count * PAGE_SIZE));
    disk.commit(aru).map(drop)
}

fn used(disk: &dyn Versions, view: View) -> u64 {
    disk.quota(view).expect("a quota").used_bytes
}

#[track_caller]
fn assert_over(answer: Result<()>) {
    assert!(matches!(answer, Err(Error::OverQuota { .. })), "{answer:?}");
}

/// Each change counts what it takes, and gives back what it frees.
pub fn what_a_client_uses_is_exact(disk: &dyn Versions) {
    let head = client(disk, "c", 1 << 30);
    let (list, other) = (Lid::FIRST, Lid(9));
    let after = |op: Op<'static>| {
        let mut aru = Aru::new(head);
        aru.push(op);
        disk.commit(aru).expect("a unit that fits");
        used(disk, head)
    };
    let put = |len| Op::PutRecord { list, index: 3, value: vec![1; len].into() };
    let write = |first_page, len| {
        after(Op::WritePages { list, first_page, data: noise(first_page, len).into() })
    };
    let moved = |from, from_page, to, to_page, count| {
        after(Op::MovePages { from, from_page, to, to_page, count })
    };
    assert_eq!(used(disk, head), CHANGE_BYTES);
    assert_eq!(after(put(100)), 2 * CHANGE_BYTES + 100);
    assert_eq!(after(put(30)), 2 * CHANGE_BYTES + 30);
    assert_eq!(after(Op::DeleteRecord { list, index: 3 }), CHANGE_BYTES);
    let base = after(Op::CreateList { list: other, hints: ListHints::default() });
    assert_eq!(base, 2 * CHANGE_BYTES);
    let pages = |count: u64| base + count * PAGE;
    assert_eq!(write(0, 9 * PAGE_SIZE), pages(9));
    assert_eq!(write(4, 9 * PAGE_SIZE), pages(13));
    assert_eq!(write(20, 100), pages(13) + 128);
    assert_eq!(after(Op::PunchPages { list, first_page: 20, count: 1 }), pages(13));
    assert_eq!(after(Op::ZeroPages { list, first_page: 12, count: 5 }), pages(17));
    assert_eq!(moved(list, 2, other, 40, 10), pages(17));
    // Pages that are moved replace others.
    assert_eq!(moved(other, 40, list, 12, 5), pages(12));
    assert_eq!(after(Op::SwapPages { a: list, b: other }), pages(12));
    assert_eq!(after(Op::PunchPages { list, first_page: 0, count: 50 }), pages(7));
    // The other client has nothing to do with it.
    let rest = client(disk, "d", 1 << 20);
    assert_eq!((used(disk, rest), used(disk, head)), (CHANGE_BYTES, pages(7)));
    assert_eq!(disk.quota(View::HEAD), None);
    assert_eq!(after(Op::DeleteList { list: other }), CHANGE_BYTES);
}

/// What versions of a client share counts once, and what a snapshot keeps counts.
pub fn versions_of_a_client_count_together(disk: &dyn Versions) {
    let head = client(disk, "c", 1 << 30);
    write(disk, head, 0, 8).expect("room");
    let base = CHANGE_BYTES + 8 * PAGE;
    let snapshot = disk.snapshot(head.branch, Some("s")).expect("a snapshot").view();
    let clone = disk.branch_off(snapshot, "clone").expect("a branch").head();
    assert_eq!((used(disk, head), used(disk, clone)), (base, base));
    assert_eq!(disk.quota(snapshot), disk.quota(head));
    write(disk, head, 0, 3).expect("room");
    assert_eq!(used(disk, clone), base + 3 * PAGE);
    write(disk, clone, 7, 2).expect("room");
    assert_eq!(used(disk, head), base + 5 * PAGE);
    let rolled = disk.roll_back(head.branch, snapshot).expect("a snapshot of it").head();
    let quota = disk.quota(rolled).expect("it hands the quota on");
    assert!(quota.used_bytes <= base + 5 * PAGE && quota.limit_bytes == 1 << 30, "{quota:?}");
    // It is refused only if there is no room after everything that is gone was freed.
    let limit_bytes = base + 3 * PAGE;
    disk.set_quota(clone.branch, Some(limit_bytes)).expect("a client");
    write(disk, rolled, 0, 1).expect("what was rolled back is freed");
    assert_eq!(used(disk, rolled), limit_bytes);
    assert_over(write(disk, rolled, 1, 1));
    assert_over(write(disk, clone, 20, 1));
    disk.delete(clone).expect("a head");
    write(disk, rolled, 1, 2).expect("what the clone had is freed");
    assert_over(write(disk, rolled, 3, 1));
    disk.delete(snapshot).expect("a snapshot");
    write(disk, rolled, 3, 5).expect("nothing is kept any more");
    // All that nobody sees is freed if that much is needed.
    disk.set_quota(rolled.branch, Some(base)).expect("a client");
    let mut aru = Aru::new(rolled);
    aru.punch_pages(Lid::FIRST, 7, 1);
    disk.commit(aru).expect("it gives something back");
    write(disk, rolled, 30, 1).expect("as much as was given back");
    assert_eq!(used(disk, rolled), base);
}

/// A unit that does not fit is refused whole, and fits when something was deleted.
pub fn a_unit_over_the_quota_is_refused_whole(disk: &dyn Versions) {
    let limit_bytes = CHANGE_BYTES + 10 * PAGE;
    let head = client(disk, "c", limit_bytes);
    write(disk, head, 0, 8).expect("room");
    let mut aru = Aru::new(head);
    aru.put_record(Lid::FIRST, 1, vec![1; 1000]).write_pages(
        Lid::FIRST,
        8,
        noise(3, 2 * PAGE_SIZE),
    );
    let answer = disk.try_commit(&mut aru).map(drop);
    let expected = Error::OverQuota { needed_bytes: 2 * PAGE + 1064, available_bytes: 2 * PAGE };
    assert_eq!(answer, Err(expected));
    assert_eq!(disk.record(head, Lid::FIRST, 1).expect("readable"), None);
    assert_eq!(disk.next_data(head, Lid::FIRST, 8).expect("readable"), None);
    assert_eq!(used(disk, head), CHANGE_BYTES + 8 * PAGE);
    assert_eq!(aru.ops().len(), 2);
    // One that takes no more than before is committed, however little is left.
    disk.set_quota(head.branch, Some(1)).expect("a client");
    write(disk, head, 2, 6).expect("pages that are replaced");
    assert_over(write(disk, head, 8, 1));
    let there =
        Op::MovePages { from: Lid::FIRST, from_page: 0, to: Lid::FIRST, to_page: 9, count: 3 };
    let mut moved = Aru::new(head);
    moved.push(there);
    disk.commit(moved).expect("it takes nothing");
    let mut freed = Aru::new(head);
    freed.punch_pages(Lid::FIRST, 9, 3).put_record(Lid::FIRST, 7, vec![1; 1000]);
    disk.commit(freed).expect("it gives back more than it takes");
    let mut reclaiming = Aru::new(head);
    reclaiming.put_record(Lid::FIRST, 8, vec![1; 1000]).set_reclaims();
    disk.commit(reclaiming).expect("it is a part of giving something back");
    disk.set_quota(head.branch, Some(limit_bytes)).expect("a client");
    disk.try_commit(&mut aru).expect("there is room now");
    disk.set_quota(head.branch, None).expect("a client");
    assert_eq!(disk.quota(head), None);
    write(disk, head, 100, 30).expect("nothing limits it");
}

/// A unit that gives space back may take records beyond the quota, and no pages.
pub fn a_unit_that_gives_space_back_takes_no_pages_beyond_the_quota(disk: &dyn Versions) {
    let head = client(disk, "c", 1 << 30);
    write(disk, head, 0, 8).expect("room");
    let mut short = Aru::new(head);
    short.write_pages(Lid::FIRST, 8, noise(8, 900));
    disk.commit(short).expect("room");
    disk.set_quota(head.branch, Some(1)).expect("a client");
    let used_bytes = used(disk, head);
    let list = Lid::FIRST;
    let reclaim = |ops: &[Op<'static>]| {
        let mut aru = Aru::new(head);
        for op in ops {
            aru.push(op.clone());
        }
        aru.put_record(list, 1, vec![1; 100]).set_reclaims();
        disk.commit(aru).map(drop)
    };
    let bytes = |offset_bytes, len, byte| {
        let data = vec![byte; len].into();
        Op::WriteBytes { list, offset_bytes, data }
    };
    let zero = |first_page| Op::ZeroPages { list, first_page, count: 1 };
    let punch = |first_page, count| Op::PunchPages { list, first_page, count };
    assert_over(reclaim(&[bytes(20 * PAGE + 100, 50, 1)]));
    assert_over(reclaim(&[zero(20)]));
    assert_over(reclaim(&[zero(20), punch(20, 1), zero(20)]));
    assert_eq!(used(disk, head), used_bytes);
    // What replaces a page takes no more than before. The record may.
    let most_bytes = used_bytes + CHANGE_BYTES + 100;
    reclaim(&[bytes(PAGE + 96, 4000, 0)]).expect("a page that is cut off");
    reclaim(&[bytes(8 * PAGE + 400, 500, 0)]).expect("a short page that is cut off");
    let another = Op::WritePages { list, first_page: 9, data: noise(9, PAGE_SIZE).into() };
    reclaim(&[another, punch(2, 1)]).expect("a page for a page");
    assert!(used(disk, head) <= most_bytes);
    // What a snapshot has is not given back.
    disk.snapshot(head.branch, None).expect("a snapshot");
    assert_over(reclaim(&[bytes(3 * PAGE + 1, 1, 0)]));
    let (from_page, to_page) = (4, 40);
    let moved = Op::MovePages { from: list, from_page, to: list, to_page, count: 1 };
    // A disk may have to copy the page.
    if let Err(error) = reclaim(&[moved]) {
        assert!(matches!(error, Error::OverQuota { .. }), "{error}");
    }
    reclaim(&[punch(0, 4)]).expect("it takes no pages");
    assert!(used(disk, head) <= most_bytes + CHANGE_BYTES + 100);
}

/// A page that a unit writes twice, whole and then short, is charged with what it takes.
pub fn a_page_that_is_written_twice_does_not_exceed_the_quota(disk: &dyn Versions) {
    let head = client(disk, "c", CHANGE_BYTES + PAGE + 100);
    write(disk, head, 0, 1).expect("room");
    for page in 1..4 {
        let mut aru = Aru::new(head);
        aru.write_pages(Lid::FIRST, page, noise(page, PAGE_SIZE));
        aru.write_pages(Lid::FIRST, page, noise(page, 50));
        // A disk may ask for the whole page.
        if let Err(error) = disk.commit(aru) {
            assert!(matches!(error, Error::OverQuota { .. }), "{error}");
        }
        let Quota { limit_bytes, used_bytes, .. } = disk.quota(head).expect("a quota");
        assert!(used_bytes <= limit_bytes, "{used_bytes} of {limit_bytes}");
    }
}

/// What is reserved in a quota is there for the unit, and for nobody else.
pub fn a_reservation_counts_against_the_quota(disk: &dyn Versions) {
    let head = client(disk, "c", CHANGE_BYTES + 10 * PAGE);
    let mut aru = Aru::new(head);
    aru.write_pages(Lid::FIRST, 0, noise(1, 4 * PAGE_SIZE));
    let payload_bytes = aru.payload_bytes();
    let reserved = disk.reserve_in(head, payload_bytes).expect("room");
    assert_eq!(disk.quota(head).expect("a quota").reserved_bytes, payload_bytes);
    assert_over(disk.reserve_in(head, 6 * PAGE).map(drop));
    assert_over(write(disk, head, 20, 6));
    write(disk, head, 20, 5).expect("what is not reserved");
    assert_over(write(disk, head, 0, 1));
    // Whatever becomes of the quota meanwhile.
    disk.set_quota(head.branch, Some(1)).expect("a client");
    aru.use_reservation(reserved);
    disk.commit(aru).expect("room was reserved");
    let quota = disk.quota(head).expect("a quota");
    assert_eq!((quota.used_bytes, quota.reserved_bytes), (CHANGE_BYTES + 9 * PAGE, 0));
    disk.set_quota(head.branch, Some(CHANGE_BYTES + 10 * PAGE)).expect("a client");
    drop(disk.reserve_in(head, PAGE).expect("a page"));
    write(disk, head, 40, 1).expect("it was given back");
}

/// Copies that a move of a snapshot's pages makes come from what was reserved for it.
pub fn a_reservation_pays_for_copies_of_what_a_snapshot_has(disk: &dyn Versions) {
    let head = client(disk, "c", CHANGE_BYTES + 1000 * PAGE);
    write(disk, head, 0, 100).expect("room");
    disk.snapshot(head.branch, None).expect("a snapshot");
    let (from, to) = (Lid::FIRST, Lid::FIRST);
    let mut aru = Aru::new(head);
    aru.push(Op::MovePages { from, from_page: 10, to, to_page: 200, count: 80 });
    let reserved = disk.reserve_in(head, aru.payload_bytes()).expect("room");
    disk.set_quota(head.branch, Some(1)).expect("a client");
    aru.use_reservation(reserved);
    disk.commit(aru).expect("room was reserved");
    let mut page = vec![0; PAGE_SIZE];
    disk.read_pages(head, Lid::FIRST, 279, &mut page).expect("readable");
    assert_eq!(page, noise(0, 100 * PAGE_SIZE)[89 * PAGE_SIZE..90 * PAGE_SIZE]);
}

/// `df` of a client tells what is left of its quota.
pub fn the_space_of_a_client_is_that_of_its_quota(disk: &dyn Versions) {
    let limit_bytes = 1 << 20;
    let head = client(disk, "c", limit_bytes);
    write(disk, head, 0, 8).expect("room");
    let space = disk.space_of(head);
    let used_bytes = CHANGE_BYTES + 8 * PAGE;
    assert_eq!((space.capacity_bytes, space.live_bytes), (limit_bytes, used_bytes));
    assert_eq!(space.available_bytes, limit_bytes - used_bytes);
    assert_eq!(disk.space_of(View::HEAD), disk.space());
}

/// Any client can have one, and it ends with the client.
pub fn quotas_are_set_changed_and_end(disk: &dyn Versions) {
    let nobody = View { branch: 77, epoch: None };
    assert_eq!(disk.set_quota(77, Some(1)), Err(Error::NoSuchView(nobody)));
    assert_eq!(disk.set_quota(77, None), Err(Error::NoSuchView(nobody)));
    let list = disk.allocate_list().expect("a number");
    let mut aru = Aru::new(View::HEAD);
    aru.create_list(list, ListHints::default()).write_pages(list, 0, noise(1, 5 * PAGE_SIZE));
    disk.commit(aru).expect("room");
    // The client that the disk was made for is counted when it gets a quota.
    disk.set_quota(0, Some(1 << 20)).expect("a client");
    assert_eq!(used(disk, View::HEAD), CHANGE_BYTES + 5 * PAGE);
    let head = client(disk, "c", 2 << 20);
    let quotas: Vec<_> = disk.versions().quotas().collect();
    assert_eq!(quotas, [(0, 1 << 20), (head.branch, 2 << 20)]);
    disk.delete(head).expect("a head");
    disk.set_quota(0, None).expect("a client");
    assert_eq!(disk.versions().quotas().len(), 0);
}
