//! Lists that are near others: what is moved is laid down neighbourhood by neighbourhood.

use std::sync::Arc;

use dendro_base::{Clock, ManualClock, Rng};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{Aru, CommitSeq, Lid, ListHints, LogicalDisk, PAGE_SIZE, View};
use dendro_format::superblock::INCOMPATIBLE_NEIGHBOURS;
use dendro_logdisk::external::BlockName;
use dendro_logdisk::{CleanSettings, FormatOptions, LogDisk, OpenOptions, Place, format};

const SEGMENT_BYTES: u64 = 1 << 20;
const NEIGHBOURHOODS: u64 = 3;
const LISTS: u64 = 40;

struct Rig {
    device: Arc<dyn Device>,
    disk: LogDisk,
    /// The lists that name the neighbourhoods.
    anchors: Vec<Lid>,
    /// Short lists, of which each is near another anchor than the one before.
    lists: Vec<Lid>,
    filler: Lid,
}

fn open(device: &Arc<dyn Device>) -> LogDisk {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    LogDisk::open(Arc::clone(device), OpenOptions::default(), clock).expect("it was formatted")
}

fn content(seed: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE_SIZE];
    Rng::new(seed).fill(&mut page);
    page
}

impl Rig {
    fn new(between: u64) -> Self {
        Self::with(LISTS, between)
    }

    /// Each list has a page. Between them lie `between` pages of another list.
    fn with(lists: u64, between: u64) -> Self {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 * SEGMENT_BYTES));
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        let options =
            FormatOptions { segment_size_bytes: SEGMENT_BYTES, ..FormatOptions::default() };
        format(&device, &options, &clock).expect("the device is large enough");
        let disk = open(&device);
        let filler = Lid(1000);
        let mut rig = Self { device, disk, anchors: vec![], lists: vec![], filler };
        rig.create(filler, None, 0);
        rig.anchors = (0..NEIGHBOURHOODS).map(|number| Lid(800 + number)).collect();
        for at in 0..NEIGHBOURHOODS as usize {
            rig.create(rig.anchors[at], None, 1);
            rig.fill(between);
        }
        for number in 0..NEIGHBOURHOODS * lists {
            let list = Lid(10 + number);
            rig.create(list, Some(rig.anchors[(number % NEIGHBOURHOODS) as usize]), 1);
            rig.lists.push(list);
            rig.fill(between);
        }
        rig
    }

    fn create(&self, list: Lid, near: Option<Lid>, pages: u64) {
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints { near, ..ListHints::default() });
        for page in 0..pages {
            aru.write_pages(list, page, content(list.0));
        }
        self.disk.commit(aru).expect("there is room");
    }

    fn fill(&self, pages: u64) {
        for _ in 0..pages {
            let mut aru = Aru::new(View::HEAD);
            let at = self.disk.last_commit().0;
            aru.write_pages(self.filler, at, content(at + 5000));
            self.disk.commit(aru).expect("there is room");
        }
    }

    fn flush(&self) {
        self.disk.flush(CommitSeq::LATEST).expect("the device works");
    }

    /// Where the page of a list lies, in bytes.
    fn offset(&self, list: Lid) -> u64 {
        let name = BlockName::Page { list: list.0, page_index: 0, branch: 0, epoch: 1 };
        let found = self.disk.locate(&[name]).expect("the map can be read");
        found[0].expect("the page has a block").bytes()
    }

    /// All the short lists and anchors, as [`Self::as_they_lie`].
    fn all_as_they_lie(&self) -> Vec<(Lid, ListHints)> {
        let all: Vec<Lid> = self.lists.iter().chain(&self.anchors).copied().collect();
        self.as_they_lie(&all)
    }

    /// Lists, with their hints, in the order in which their pages lie.
    fn as_they_lie(&self, lists: &[Lid]) -> Vec<(Lid, ListHints)> {
        let mut lists = lists.to_vec();
        lists.sort_by_key(|&list| self.offset(list));
        let hints = |list| self.disk.hints(View::HEAD, list).expect("the map can be read");
        lists.iter().map(|&list| (list, hints(list).expect("it is there"))).collect()
    }

    /// How often a list of another neighbourhood follows in the order in which these lie.
    fn changes(&self, lists: &[Lid]) -> usize {
        let lists = self.as_they_lie(lists);
        let neighbourhood = |(list, hints): &(Lid, ListHints)| hints.place(*list).0;
        lists.windows(2).filter(|two| neighbourhood(&two[0]) != neighbourhood(&two[1])).count()
    }

    /// How many of the neighbourhoods lie in one piece, without anything else between their lists.
    fn whole_neighbourhoods(&self) -> usize {
        let lists = self.all_as_they_lie();
        let is_whole = |of: &&Lid| {
            let of: Vec<Lid> = (lists.iter().filter(|(list, hints)| hints.place(*list).0 == **of))
                .map(|(list, _)| *list)
                .collect();
            of.windows(2).all(|two| self.offset(two[1]) - self.offset(two[0]) <= 3 * 4096)
        };
        self.anchors.iter().filter(is_whole).count()
    }

    fn check(&self) {
        for &list in self.lists.iter().chain(&self.anchors) {
            let mut found = vec![0; PAGE_SIZE];
            self.disk.read_pages(View::HEAD, list, 0, &mut found).expect("it can be read");
            assert!(found == content(list.0), "list {list}");
        }
        self.disk.checkpoint().expect("the device works");
        let options = dendro_check::Options { data: true };
        let report = dendro_check::verify(&self.device, &options);
        assert!(report.is_sound(), "{report}");
    }
}

#[test]
fn the_survivors_of_a_segment_are_written_neighbourhood_by_neighbourhood() {
    const SEGMENTS: usize = 6;
    let mut rig = Rig::with(170, 2);
    rig.fill(2 * SEGMENT_BYTES / PAGE_SIZE as u64);
    rig.flush();
    let before: Vec<u64> = rig.lists.iter().map(|&list| rig.offset(list)).collect();

    let mut aru = Aru::new(View::HEAD);
    aru.delete_list(rig.filler);
    rig.disk.commit(aru).expect("there is room");
    rig.flush();
    let settings = CleanSettings { min_clean_segments: Some(64), ..rig.disk.clean_settings() };
    rig.disk.set_clean_settings(settings);
    for _ in 0..1000 {
        let works = [rig.disk.background_step(), rig.disk.clean_step(), rig.disk.idle_step()];
        if !works.into_iter().any(|step| step.expect("the device works")) {
            break;
        }
    }
    rig.flush();
    let moved: Vec<Lid> = (rig.lists.iter().zip(&before))
        .filter(|&(&list, &at)| rig.offset(list) != at)
        .map(|(&list, _)| list)
        .collect();
    // Those in the last segments stay, as their neighbours would not leave a segment empty.
    assert!(moved.len() > 300, "{}", moved.len());
    let most = SEGMENTS * NEIGHBOURHOODS as usize;
    assert!(rig.changes(&moved) < most, "{}", rig.changes(&moved));
    rig.check();
    rig.disk.shut_down().expect("the device works");
    rig.disk = open(&rig.device);
    rig.check();
}

fn coalesce(disk: &LogDisk, is_trial: bool) -> (u64, u64, u64) {
    let (mut at, mut reads, mut bytes) = (Place::START, (0, 0), 0);
    loop {
        let done = disk.coalesce(View::HEAD, at, Lid::CLIENT_END, is_trial).expect("it works");
        reads = (reads.0 + done.reads_before, reads.1 + done.reads_after);
        bytes += done.moved_bytes;
        match done.next {
            None => return (reads.0, reads.1, bytes),
            Some(next) => {
                assert!(next > at && !done.lacks_room, "{done:?}");
                at = next;
            }
        }
    }
}

#[test]
fn the_short_lists_of_a_neighbourhood_are_put_side_by_side() {
    let mut rig = Rig::new(9);
    rig.flush();
    assert_eq!(rig.whole_neighbourhoods(), 0);
    let (before, after, bytes) = coalesce(&rig.disk, true);
    assert_eq!(rig.whole_neighbourhoods(), 0, "that was a trial");
    assert_eq!(
        before - after,
        NEIGHBOURHOODS * LISTS,
        "a neighbourhood is one piece with its list"
    );
    let coalesced = coalesce(&rig.disk, false);
    assert_eq!(coalesced, (before, after, bytes));
    rig.flush();
    assert_eq!(rig.whole_neighbourhoods(), NEIGHBOURHOODS as usize, "{:?}", rig.all_as_they_lie());
    assert_eq!(coalesce(&rig.disk, false).2, 0, "nothing is moved twice");
    rig.check();
    rig.disk.shut_down().expect("the device works");
    rig.disk = open(&rig.device);
    assert_eq!(rig.whole_neighbourhoods(), NEIGHBOURHOODS as usize);
    rig.check();
}

#[test]
fn idle_times_put_neighbours_side_by_side() {
    let rig = Rig::new(9);
    rig.fill(8 * SEGMENT_BYTES / PAGE_SIZE as u64);
    rig.flush();
    for _ in 0..10_000 {
        let works = [rig.disk.background_step(), rig.disk.idle_step(), rig.disk.coalesce_step()];
        if !works.into_iter().any(|step| step.expect("the device works")) {
            break;
        }
    }
    rig.flush();
    assert_eq!(rig.whole_neighbourhoods(), NEIGHBOURHOODS as usize, "{:?}", rig.all_as_they_lie());
    rig.check();
}

/// More than are gathered at once, so that the search groups them several times.
#[test]
fn coalescing_ends_with_thousands_of_neighbours_and_little_room() {
    let rig = Rig::new(0);
    for number in 0..3000 {
        rig.create(Lid(2000 + number), Some(Lid(1 + number % 7)), 1);
        if number % 3 == 0 {
            rig.fill(1);
        }
    }
    rig.flush();
    let (before, after, bytes) = coalesce(&rig.disk, false);
    assert!(bytes > 0 && after < before, "{before} {after} {bytes}");
    assert!(coalesce(&rig.disk, false).2 < bytes / 2);
    rig.check();
}

#[test]
fn a_list_that_moves_to_another_neighbourhood_or_has_gone_is_no_hindrance() {
    let rig = Rig::new(9);
    let settler = rig.lists[0];
    let mut aru = Aru::new(View::HEAD);
    aru.push(dendro_disk::Op::SetHints {
        list: settler,
        hints: ListHints { near: Some(rig.anchors[1]), ..ListHints::default() },
    });
    aru.delete_list(rig.lists[3]).delete_list(rig.anchors[2]);
    rig.disk.commit(aru).expect("there is room");
    rig.flush();
    coalesce(&rig.disk, false);
    rig.flush();
    let distance = |a, b| rig.offset(a).abs_diff(rig.offset(b));
    assert!(distance(settler, rig.lists[1]) <= 3 * 4096);
    assert!(distance(rig.lists[2], rig.lists[5]) <= 2 * 4096, "its anchor has gone");
}

#[test]
fn the_volume_states_that_it_has_neighbours_from_the_first_one_on() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(64 << 20));
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    format(&device, &FormatOptions::default(), &clock).expect("the device is large enough");
    let disk = open(&device);
    let is_stated = |disk: &LogDisk| disk.superblock().incompatible & INCOMPATIBLE_NEIGHBOURS != 0;
    let create = |list, near| {
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints { near, ..ListHints::default() });
        disk.commit(aru)
    };
    create(Lid(1), None).expect("there is room");
    assert!(!is_stated(&disk));
    create(Lid(2), Some(Lid::CLIENT_END)).expect_err("no client has that number");
    create(Lid(2), Some(Lid(1))).expect("there is room");
    assert!(is_stated(&disk));
    drop(disk);
    assert!(is_stated(&open(&device)), "it was stated before the log had it");
}
