//! A volume of known contents.

use std::ops::Range;
use std::sync::Arc;

use dendro_base::units::KIB;
use dendro_base::{Clock, ManualClock, Rng, Uuid};
use dendro_device::sim::{Call, Fault, SimDevice};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{
    Aru, ClientKind, CommitSeq, Lid, ListCompression, ListHints, Locality, LogicalDisk,
    MAX_PAGE_COUNT, MAX_RECORD_LEN_BYTES, Op, PAGE_SIZE, Result, Versions, View,
};
use dendro_format::Compression;
use dendro_format::superblock::SUPERBLOCK_LEN_BYTES;
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, Place, format};
use dendro_policy::{Classes, Scatter};

/// Bytes of the device: 48 segments of 128 KiB.
const DEVICE_LEN_BYTES: u64 = 6 << 20;

/// What a volume holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// Lists, records and pages of all kinds, in the main log.
    Plain,
    /// The same, with snapshots and branches, and blocks in payload heads.
    Versions,
    /// A few lists, of which one has a long history.
    History,
    /// Pages overwritten for so long that segments were filled anew since the checkpoint.
    Reuse,
    /// As the first, with metadata that is kept twice.
    Mirrored,
    /// As the first, of a volume that becomes longer by itself.
    Growing,
    /// As the first, beside other clients.
    Clients,
    /// As the first, with pages that are compressed in several ways, or not.
    Compressed,
    /// The same, of software that counts compressed pages.
    Counted,
    /// As the first, with lists that are near others.
    Neighbours,
    /// As the first, beside other clients, with quotas.
    Quotas,
    /// As the first, with frames: pages that were compressed together when they were moved.
    Frames,
    /// As the first, with units that put off what they move; one is unfinished after the crash.
    Rearranged,
    /// As the first, beside a block device.
    Block,
    /// As the first, with backups of the superblock, in an image that is allocated completely.
    BackedUp,
    /// As the first, with lists that were made again before what they had was removed.
    Remade,
    /// As the first, on a device that cannot write some places.
    Retired,
}

impl Contents {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::Plain,
        Self::Versions,
        Self::History,
        Self::Reuse,
        Self::Mirrored,
        Self::Growing,
        Self::Clients,
        Self::Compressed,
        Self::Counted,
        Self::Neighbours,
        Self::Quotas,
        Self::Frames,
        Self::Rearranged,
        Self::Block,
        Self::BackedUp,
        Self::Remade,
        Self::Retired,
    ];
}

/// How a volume was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was shut down.
    Clean,
    /// It was left as a crash leaves it, with a log to roll forward.
    Crashed,
}

/// A volume with lists, records and pages of all kinds.
///
/// # Errors
/// When the engine refuses.
pub fn image(contents: Contents, end: End) -> Result<Vec<u8>> {
    if contents == Contents::Retired {
        return image_with_rests(contents, end);
    }
    let device = Arc::new(MemoryDevice::new(DEVICE_LEN_BYTES));
    fill(Arc::clone(&device) as Arc<dyn Device>, contents, end, &|| ())?;
    Ok(device.to_bytes())
}

/// The same on a device that does not clear what it discards.
///
/// # Errors
/// When the engine refuses.
pub fn image_with_rests(contents: Contents, end: End) -> Result<Vec<u8>> {
    let device = Arc::new(SimDevice::new(DEVICE_LEN_BYTES, 0));
    let begin = || {
        if contents == Contents::Retired {
            break_places(&device);
        }
    };
    fill(Arc::clone(&device) as Arc<dyn Device>, contents, end, &begin)?;
    Ok(device.to_bytes())
}

/// Makes the volume on a device, and calls `begin` before the first unit.
fn fill(device: Arc<dyn Device>, contents: Contents, end: End, begin: &dyn Fn()) -> Result<()> {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let options = FormatOptions {
        is_allocated: contents == Contents::BackedUp,
        has_backups: contents == Contents::BackedUp,
        metadata_copies: if contents == Contents::Mirrored { 2 } else { 1 },
        max_len_bytes: if contents == Contents::Growing { 2 * DEVICE_LEN_BYTES } else { 0 },
        segment_size_bytes: 128 * KIB,
        label: "golden".into(),
        uuid: Uuid::from_random(*b"golden image v1."),
        hash_key: *b"known hash key..",
        is_on_set: false,
        is_spread: false,
        compression: matches!(contents, Contents::Compressed | Contents::Counted)
            .then_some(Compression::Lz4),
        cold_compression: None,
    };
    format(&device, &options, &clock)?;
    let stream_bytes = match contents {
        Contents::Versions | Contents::Reuse => 0,
        _ => OpenOptions::default().stream_bytes,
    };
    let mut options = OpenOptions { stream_bytes, ..OpenOptions::default() };
    if contents == Contents::Reuse {
        // The default policy keeps nothing apart on so small a volume.
        options.policy = Arc::new(Scatter::new(Classes { users: 1, survivors: 1 }, 4));
    }
    if contents == Contents::Rearranged {
        options.put_off_groups = 8;
    }
    if contents == Contents::Frames {
        options.cold_compression = Some(Some(Compression::ZSTD));
        options.cleaning.coalescing.moves_everything = true;
    }
    let open = || LogDisk::open(Arc::clone(&device), options.clone(), Arc::clone(&clock));
    let disk = open()?;
    let list_count = match contents {
        Contents::Plain => 400,
        _ => 100,
    };
    begin();
    first_part(&disk, list_count)?;
    disk.shut_down()?;
    drop(disk);
    let disk = open()?;
    match contents {
        Contents::Plain
        | Contents::Mirrored
        | Contents::Growing
        | Contents::BackedUp
        | Contents::Retired => {}
        Contents::Versions => versions(&disk)?,
        Contents::History => history(&disk)?,
        Contents::Reuse => overwrite(&disk)?,
        Contents::Clients => clients(&disk)?,
        Contents::Compressed | Contents::Counted => compressed(&disk)?,
        Contents::Neighbours => neighbours(&disk)?,
        Contents::Quotas => quotas(&disk)?,
        Contents::Frames => frames(&disk)?,
        Contents::Rearranged => rearranged(&disk)?,
        Contents::Block => block_device(&disk)?,
        Contents::Remade => remade(&disk)?,
    }
    second_part(&disk)?;
    match end {
        End::Clean => disk.shut_down(),
        End::Crashed => disk.flush(CommitSeq::LATEST),
    }
}

/// From now on, the device cannot write the place of every second write to its segments, until
/// there are many such places.
fn break_places(device: &SimDevice) {
    let (mut count, mut bad) = (0_usize, Vec::<Range<u64>>::new());
    let is_bad = move |offset: u64, len_bytes: u64| {
        let place = offset..offset + len_bytes;
        if bad.iter().any(|bad| place.start < bad.end && bad.start < place.end) {
            return true;
        }
        count += 1;
        let breaks =
            count.is_multiple_of(2) && bad.len() < 6 && len_bytes > SUPERBLOCK_LEN_BYTES as u64;
        bad.extend(breaks.then_some(place));
        breaks
    };
    device.inject(Fault::fail(Call::Write).forever().when(is_bad));
}

fn commit<'a>(disk: &LogDisk, ops: impl IntoIterator<Item = Op<'a>>) -> Result<()> {
    commit_to(disk, View::HEAD, ops)
}

fn commit_to<'a>(disk: &LogDisk, head: View, ops: impl IntoIterator<Item = Op<'a>>) -> Result<()> {
    let mut aru = Aru::new(head);
    for op in ops {
        aru.push(op);
    }
    disk.commit(aru).map(drop)
}

fn create(disk: &LogDisk, hints: ListHints) -> Result<Lid> {
    let list = disk.allocate_list()?;
    commit(disk, [Op::CreateList { list, hints }])?;
    Ok(list)
}

/// A page that its list and index tell, of `len` bytes that are not zero.
fn page(list: Lid, index: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; PAGE_SIZE];
    let line = format!("page {index} of list {}; ", list.0);
    bytes[..len].iter_mut().zip(line.bytes().cycle()).for_each(|(to, from)| *to = from);
    bytes
}

fn write(disk: &LogDisk, list: Lid, first_page: u64, lens: &[usize]) -> Result<()> {
    let data: Vec<u8> =
        (first_page..).zip(lens).flat_map(|(at, &len)| page(list, at, len)).collect();
    commit(disk, [Op::WritePages { list, first_page, data: data.into() }])
}

fn put(disk: &LogDisk, list: Lid, index: u64, value: &[u8]) -> Result<()> {
    commit(disk, [Op::PutRecord { list, index, value: value.into() }])
}

/// Fills a volume with the first part of what most images hold.
///
/// # Errors
/// When the engine refuses.
pub(crate) fn first_part(disk: &LogDisk, list_count: u32) -> Result<()> {
    let files = create(disk, ListHints::default())?;
    write(disk, files, 0, &[PAGE_SIZE; 20])?;
    write(disk, files, 31, &[PAGE_SIZE, 1, 64, 65, 4032, 4033, 0])?;
    write(disk, files, MAX_PAGE_COUNT - 1, &[100])?;
    let records =
        create(disk, ListHints { locality: Locality::Clustered, ..ListHints::default() })?;
    for index in 0..200 {
        put(disk, records, index * index, format!("record {index}").as_bytes())?;
    }
    put(disk, records, u64::MAX, &[0xff; MAX_RECORD_LEN_BYTES])?;
    // Many lists, so that the map has nodes above its leaves.
    for number in 0..list_count {
        let list = create(disk, ListHints::default())?;
        put(disk, list, 0, format!("list {number}").as_bytes())?;
    }
    let mut noise = vec![0; 5 * PAGE_SIZE];
    Rng::new(1).fill(&mut noise);
    let random = create(disk, ListHints::default())?;
    commit(disk, [Op::WritePages { list: random, first_page: 7, data: noise.into() }])?;
    commit(disk, [Op::ZeroPages { list: random, first_page: 100, count: 3 }])
}

/// Changes what the first part has left.
///
/// # Errors
/// When the engine refuses.
pub(crate) fn second_part(disk: &LogDisk) -> Result<()> {
    let (files, records) = (Lid::FIRST, Lid(2));
    let other = create(disk, ListHints::default())?;
    commit(
        disk,
        [
            Op::PunchPages { list: files, first_page: 3, count: 2 },
            Op::MovePages { from: files, from_page: 8, to: other, to_page: 1000, count: 4 },
            Op::ZeroPages { list: files, first_page: 0, count: 1 },
        ],
    )?;
    write(disk, files, 1, &[PAGE_SIZE, 7])?;
    let third = create(disk, ListHints::default())?;
    write(disk, third, 0, &[3, PAGE_SIZE])?;
    commit(disk, [Op::SwapPages { a: third, b: other }])?;
    for list in 10..60 {
        commit(disk, [Op::DeleteList { list: Lid(list) }])?;
    }
    commit(
        disk,
        [
            Op::DeleteRecord { list: records, index: 4 },
            Op::SetHints { list: records, hints: ListHints::default() },
        ],
    )?;
    put(disk, records, 9, b"changed")
}

/// Pages that change with every snapshot, in two branches, beside others that do not.
fn history(disk: &LogDisk) -> Result<()> {
    let mut head = View::HEAD;
    for number in 0..12 {
        let mut aru = Aru::new(head);
        aru.write_pages(Lid::FIRST, number % 3, page(Lid::FIRST, number, 100));
        disk.commit(aru)?;
        disk.snapshot(head.branch, None)?;
        if number == 9 {
            head = disk.branch_off(View::HEAD, "branch")?.head();
        }
    }
    Ok(())
}

/// Pages overwritten at random, on a volume that has not seen a checkpoint since.
fn overwrite(disk: &LogDisk) -> Result<()> {
    const PAGES: u64 = 300;
    let list = create(disk, ListHints::default())?;
    let mut rng = Rng::new(3);
    for number in 0..10 * PAGES {
        let at = if number < PAGES { number } else { rng.below(PAGES) };
        // Most of it packs to nothing, but it is stored whole.
        let mut bytes = page(list, number, 64);
        bytes[PAGE_SIZE - 1] = 1;
        commit(disk, [Op::WritePages { list, first_page: at, data: bytes.into() }])?;
        while disk.background_step()? {}
    }
    let stats = disk.stats();
    assert!(stats.reused_segments > 40 && stats.log_bytes > 0, "{stats:?}");
    Ok(())
}

/// Snapshots, and branches that differ from each other and have been promoted, rolled back and
/// deleted.
fn versions(disk: &LogDisk) -> Result<()> {
    let (files, records) = (Lid::FIRST, Lid(2));
    let change = |view: View, number: u64| {
        let mut aru = Aru::new(view);
        aru.write_pages(files, number, page(files, 1000 + number, PAGE_SIZE));
        aru.write_pages(files, 40 + number, page(files, number, 100));
        aru.push(Op::PunchPages { list: files, first_page: 10 + number, count: 1 });
        aru.put_record(records, number, format!("changed by {}", view.branch).into_bytes());
        aru.push(Op::DeleteRecord { list: records, index: 100 + number * number });
        aru.delete_list(Lid(70 + number));
        disk.commit(aru).map(drop)
    };
    let kept = disk.snapshot(0, Some("kept"))?;
    change(View::HEAD, 1)?;
    let deleted = disk.snapshot(0, None)?;
    change(View::HEAD, 2)?;
    disk.hold(kept.view(), true)?;
    let branch = disk.branch_off(View::HEAD, "branch")?;
    change(branch.head(), 3)?;
    let of_branch = disk.snapshot(branch.branch, Some("of branch"))?;
    change(branch.head(), 4)?;
    disk.delete(deleted.view())?;
    disk.roll_back(branch.branch, of_branch.view())?;
    let early = disk.branch_off(kept.view(), "early")?;
    change(early.head(), 5)?;
    disk.snapshot(0, Some("second"))?;
    Ok(())
}

/// Lists with each hint: pages that are compressed, that gain nothing, that are short or zeros,
/// that are written again, and that a branch shares.
fn compressed(disk: &LogDisk) -> Result<()> {
    let all = [
        ListCompression::AsOthers,
        ListCompression::Lz4,
        ListCompression::Zstd,
        ListCompression::Never,
    ];
    let mut noise = vec![0; 3 * PAGE_SIZE];
    Rng::new(2).fill(&mut noise);
    for compression in all {
        let list = create(disk, ListHints { compression, ..ListHints::default() })?;
        write(disk, list, 0, &[PAGE_SIZE; 40])?;
        write(disk, list, 60, &[4000, 2000, 300, 100, 0, PAGE_SIZE])?;
        commit(disk, [Op::WritePages { list, first_page: 70, data: noise.clone().into() }])?;
        disk.snapshot(0, None)?;
        write(disk, list, 5, &[700, PAGE_SIZE])?;
        commit(disk, [Op::WritePages { list, first_page: 8, data: noise[..PAGE_SIZE].into() }])?;
        write(disk, list, 71, &[PAGE_SIZE])?;
        let hints = ListHints { compression: all[3], ..ListHints::default() };
        commit(disk, [Op::SetHints { list, hints }])?;
        write(disk, list, 90, &[PAGE_SIZE; 2])?;
    }
    disk.branch_off(View::HEAD, "branch").map(drop)
}

/// Lists whose pages are put into frames. Of some, pages are written or freed afterwards, while a
/// snapshot and a branch have them and when nothing does; some frames are moved again.
fn frames(disk: &LogDisk) -> Result<()> {
    let lay_down = |list: Lid| {
        disk.flush(CommitSeq::LATEST)?;
        disk.coalesce(View::HEAD, Place { list: list.0, page: 0 }, Lid(list.0 + 1), false)
    };
    let mut lists = Vec::new();
    for number in 0..4 {
        let list = create(disk, ListHints::default())?;
        write(disk, list, 5 * number, &[PAGE_SIZE; 70])?;
        write(disk, list, 100, &[4000, 2000, 300, 100, 0, PAGE_SIZE])?;
        lay_down(list)?;
        lists.push(list);
    }
    let punch = |list, first_page, count| {
        commit(disk, [Op::PunchPages { list, first_page, count }])?;
        write(disk, list, first_page + 40, &[PAGE_SIZE, 700])
    };
    punch(lists[0], 3, 9)?;
    disk.snapshot(0, None)?;
    punch(lists[1], 8, 30)?;
    punch(lists[0], 20, 4)?;
    disk.branch_off(View::HEAD, "branch")?;
    punch(lists[2], 12, 2)?;
    lay_down(lists[0])?;
    lay_down(lists[2])?;
    let (from, to) = (lists[3], lists[2]);
    commit(disk, [Op::MovePages { from, from_page: 20, to, to_page: 50, count: 7 }])
}

/// Lists of more groups than these units change at once, which are punched, moved and exchanged. Of
/// the last of these units, only some is done.
fn rearranged(disk: &LogDisk) -> Result<()> {
    let mut lists = Vec::new();
    for number in 0..3 {
        let list = create(disk, ListHints::default())?;
        let pages = (0..200).map(|group| {
            let first_page = group * 32 + number;
            let data = page(list, first_page, 60);
            Op::WritePages { list, first_page, data: data.into() }
        });
        commit(disk, pages)?;
        write(disk, list, 320 * (number + 1), &[PAGE_SIZE, 100 + number as usize])?;
        lists.push(list);
    }
    let (from, to) = (lists[0], lists[1]);
    let finish = || -> Result<()> {
        while disk.rearrangement_step()? {}
        Ok(())
    };
    commit(disk, [Op::SwapPages { a: from, b: to }])?;
    finish()?;
    disk.snapshot(0, Some("after the exchange"))?;
    let first_page = 64;
    commit(disk, [Op::PunchPages { list: lists[2], first_page, count: 1 << 40 }])?;
    commit(disk, [Op::MovePages { from, from_page: 5, to: lists[2], to_page: 0, count: 1 << 20 }])?;
    finish()?;
    let swap = Op::SwapPages { a: to, b: lists[2] };
    commit(disk, [swap, Op::MovePages { from: to, from_page: 0, to, to_page: 9, count: 1 << 30 }])?;
    disk.rearrangement_step()?;
    disk.rearrangement_step().map(drop)
}

/// Lists that are near others, of which some move to another neighbourhood in one version, some are
/// near a number that no list has, and some have gone.
fn neighbours(disk: &LogDisk) -> Result<()> {
    let near = |near: u64| ListHints { near: Some(Lid(near)), ..ListHints::default() };
    let mut lists = Vec::new();
    for number in 0..60 {
        let list = create(disk, near([1, 2, 1 << 40, Lid::CLIENT_END.0 - 1][number % 4]))?;
        write(disk, list, 0, &[PAGE_SIZE, 100])?;
        lists.push(list);
    }
    disk.snapshot(0, Some("before they moved"))?;
    for (number, &list) in lists.iter().enumerate() {
        let op = match number % 5 {
            0 => Op::SetHints { list, hints: near(lists[7].0) },
            1 => Op::SetHints { list, hints: ListHints::default() },
            2 => Op::DeleteList { list },
            _ => continue,
        };
        commit(disk, [op])?;
    }
    disk.branch_off(View::HEAD, "branch").map(drop)
}

/// Clients with quotas and without, the first too; one uses more than it may. One of the quotas is
/// in the log alone, and the branch of one client was deleted.
fn quotas(disk: &LogDisk) -> Result<()> {
    clients(disk)?;
    let of = |name: &str| disk.versions().branch_named(name).map_or(0, |of| of.branch);
    disk.set_quota(0, Some(4 << 20))?;
    disk.set_quota(of("files client"), Some(1 << 20))?;
    disk.set_quota(of("block client"), Some(2 * PAGE_SIZE as u64))?;
    disk.delete(View { branch: of("clone"), epoch: None })?;
    while disk.removal_step()? || disk.collection_step()? {}
    disk.checkpoint()?;
    let late = disk.new_client("late", ClientKind::Application)?;
    disk.set_quota(late.branch, Some(1 << 20))?;
    let mut aru = Aru::new(late.head());
    aru.write_pages(Lid::FIRST, 3, page(Lid::FIRST, 3, PAGE_SIZE));
    disk.commit(aru).map(drop)
}

/// Clients of each kind, with lists of the numbers that the first client has, snapshots and a
/// branch; one was rolled back, one is gone but for a snapshot, and one was only begun.
fn clients(disk: &LogDisk) -> Result<()> {
    let kinds = [ClientKind::Files, ClientKind::Block, ClientKind::Application];
    for (number, kind) in (0..).zip(kinds) {
        let head = disk.new_client(&format!("{kind} client"), kind)?.head();
        for list in [Lid(1), Lid(2), Lid(20 + number)] {
            let mut aru = Aru::new(head);
            if list > Lid::FIRST {
                aru.create_list(list, ListHints::default());
            }
            aru.write_pages(list, number, page(list, number, PAGE_SIZE));
            aru.put_record(list, number, format!("of the {kind}").into_bytes());
            disk.commit(aru)?;
        }
        let kept = disk.snapshot(head.branch, Some(&format!("of {kind}")))?;
        let mut aru = Aru::new(head);
        aru.delete_list(Lid(2));
        disk.commit(aru)?;
        match kind {
            ClientKind::Block => drop(disk.roll_back(head.branch, kept.view())?),
            ClientKind::Application => disk.delete(head)?,
            _ => drop(disk.branch_off(kept.view(), "clone")?),
        }
    }
    let begun = disk.begin_receive(None, Some(ClientKind::Block))?.head();
    let mut aru = Aru::new(begun);
    aru.create_list(Lid::FIRST, ListHints::default());
    disk.commit(aru).map(drop)
}

/// Lists that are deleted and made again at once, some of them twice, with fewer pages than they
/// had.
fn remade(disk: &LogDisk) -> Result<()> {
    for number in 0..4 {
        let list = create(disk, ListHints::default())?;
        // More groups than a unit removes at once.
        let pages = (0..200).map(|group| {
            let data = page(list, group * 32, 60).into();
            Op::WritePages { list, first_page: group * 32, data }
        });
        commit(disk, pages)?;
        for _ in 0..1 + number % 2 {
            commit(disk, [Op::DeleteList { list }])?;
            commit(disk, [Op::CreateList { list, hints: ListHints::default() }])?;
        }
        write(disk, list, 60 + number, &[PAGE_SIZE, 100])?;
        put(disk, list, number, b"made again")?;
    }
    Ok(())
}

/// The record that says that a block device has so many pages.
fn description(page_count: u64) -> Op<'static> {
    let size_bytes = (page_count * PAGE_SIZE as u64).to_le_bytes();
    let value = [b"dendroBD\x01\0\0\0\0\0\0\0", &size_bytes[..], &[0; 8]].concat();
    Op::PutRecord { list: Lid::FIRST, index: 0, value: value.into() }
}

/// A block device with a quota, whose pages are compressed, and a snapshot of when it was shorter.
/// Of its clone the end was cut off, and has not been freed yet.
fn block_device(disk: &LogDisk) -> Result<()> {
    let list = Lid::FIRST;
    let head = disk.new_client("disk", ClientKind::Block)?.head();
    disk.set_quota(head.branch, Some(256 * KIB))?;
    // Numbers that tell them from pages of the first client's list.
    let pages = |first_page: u64, lens: &[usize]| {
        let data: Vec<u8> =
            (5000 + first_page..).zip(lens).flat_map(|(at, &len)| page(list, at, len)).collect();
        Op::WritePages { list, first_page, data: data.into() }
    };
    let hints = ListHints { compression: ListCompression::Zstd, ..ListHints::default() };
    commit_to(disk, head, [description(64), Op::SetHints { list, hints }])?;
    commit_to(disk, head, [pages(0, &[PAGE_SIZE; 20])])?;
    commit_to(disk, head, [pages(31, &[4000, 2000, 300, 100, 0, PAGE_SIZE])])?;
    let mut noise = vec![0; 3 * PAGE_SIZE];
    Rng::new(4).fill(&mut noise);
    let noise = Op::WritePages { list, first_page: 50, data: noise.into() };
    commit_to(disk, head, [noise, Op::ZeroPages { list, first_page: 60, count: 4 }])?;
    disk.snapshot(head.branch, Some("short"))?;
    commit_to(disk, head, [description(128)])?;
    let (offset_bytes, data) = (5 * PAGE_SIZE as u64 - 7, b"across two pages"[..].into());
    commit_to(disk, head, [pages(127, &[100]), Op::WriteBytes { list, offset_bytes, data }])?;
    commit_to(disk, head, [Op::PunchPages { list, first_page: 10, count: 4 }])?;
    let clone = disk.branch_off(head, "clone")?.head();
    commit_to(disk, clone, [pages(0, &[700]), pages(100, &[PAGE_SIZE; 2])])?;
    commit_to(disk, clone, [description(96)])
}
