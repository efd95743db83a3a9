//! Repairs: the classics, damage at random, and a crash after each unit.

use std::collections::{BTreeMap, BTreeSet};

use dendro_base::sync::Arc;
use dendro_base::{Rng, Timestamp};
use dendro_disk::model::{ModelDisk, ModelState};
use dendro_disk::{Aru, ClientKind, Lid, LogicalDisk, Op, Snapshot, Versions, View};

use super::check::damage;
use super::damage::sample;
use super::{Fixture, USER, format_options, noatime};
use crate::format::{HEAD_INDEX, ORPHAN_LIST, ORPHAN_PUNCH, PUNCHED_RANGES, VOLUME_LIST};
use crate::layout::inode::{Inode, InodeState};
use crate::layout::{dirent, orphan_list};
use crate::testing::StepClock;
use crate::{
    BEFORE_REPAIR, FileKind, FileSystem, Finding, FindingCode, FormatOptions, FsError, Ino,
    Mending, Options, RepairOptions, create_client, repair, repair_branches, verify,
};

const OPTIONS: RepairOptions = RepairOptions {
    safe_only: false,
    data: true,
    memory_bytes: 1 << 20,
    now: Timestamp(1_800_000_000_000_000_000),
    hash_key: [9; 16],
};

/// Repairs the head, and expects a file system that can be mounted, and in which nothing is wrong.
/// Returns what was mended.
fn mend(disk: &ModelDisk) -> Vec<Finding> {
    let repaired = repair(disk, View::HEAD, &[], &OPTIONS, &mut || Ok(())).unwrap();
    assert_eq!((repaired.left, repaired.failures), (vec![], vec![]));
    assert_eq!(verify(disk, View::HEAD), Ok(vec![]));
    repaired.mended
}

/// The same disk, without versions and with a record of its commits.
fn copy(disk: &ModelDisk) -> Arc<ModelDisk> {
    Arc::new(ModelDisk::from_state(disk.state(), None).recording())
}

fn mount(disk: &Arc<ModelDisk>) -> FileSystem {
    let clock = Arc::new(StepClock::default());
    FileSystem::mount(Arc::clone(disk) as _, noatime(), clock).unwrap()
}

/// The contents of the lists of files in a state, by their numbers: everything but the i-node.
fn contents(state: &ModelState) -> BTreeMap<Lid, Vec<u8>> {
    let of = |list: &dendro_disk::model::ModelList| {
        let mut all = Vec::new();
        if let Some(record) = list.record(HEAD_INDEX) {
            all.extend_from_slice(&record[120.min(record.len())..]);
        }
        for (index, bytes) in list.pages(0..1 << 40) {
            all.extend_from_slice(&index.to_le_bytes());
            all.extend_from_slice(bytes);
        }
        all
    };
    state.lists(Lid(4)).map(|(lid, list)| (lid, of(list))).collect()
}

/// The files that a mounted file system leads to.
fn reachable(fs: &FileSystem) -> BTreeSet<Ino> {
    let mut seen = BTreeSet::from([Ino::ROOT]);
    let mut queue = vec![Ino::ROOT];
    while let Some(directory) = queue.pop() {
        let mut entries = Vec::new();
        fs.readdir(directory, 0, &mut |entry| {
            entries.push((entry.name.to_vec(), entry.ino, entry.kind));
            true
        })
        .unwrap();
        for (name, ino, kind) in entries {
            if name != b"." && name != b".." && seen.insert(ino) && kind == FileKind::Directory {
                queue.push(ino);
            }
        }
    }
    seen
}

/// Expects that all of `before`'s files whose lists are as they were can be reached, and have what
/// they had.
fn expect_kept(before: &ModelState, damaged: &ModelState, disk: &Arc<ModelDisk>) {
    let (was, is) = (contents(before), contents(&disk.state()));
    let fs = mount(disk);
    let reachable = reachable(&fs);
    for (lid, list) in before.lists(Lid(4)) {
        if damaged.list(lid) == Some(list) {
            assert_eq!(was.get(&lid), is.get(&lid), "list {lid} is another");
            assert!(reachable.contains(&Ino(lid.0)), "i-node {lid} has no name");
        }
    }
}

/// The sample, with `harm` done to it, is mended, also after a crash in any moment of the repair.
fn mended_after(
    harm: impl FnOnce(&Fixture, &mut Aru<'_>),
    found: &[FindingCode],
) -> Arc<ModelDisk> {
    let fixture = sample();
    let before = fixture.disk.state();
    let mut aru = Aru::new(View::HEAD);
    harm(&fixture, &mut aru);
    fixture.disk.commit(aru).unwrap();
    let codes: BTreeSet<FindingCode> =
        verify(&*fixture.disk, View::HEAD).unwrap().iter().map(|of| of.code).collect();
    assert_eq!(codes, found.iter().copied().collect());
    let damaged = fixture.disk.state();
    let disk = copy(&fixture.disk);
    mend(&disk);
    expect_kept(&before, &damaged, &disk);
    for (_, state) in disk.history() {
        let crashed = Arc::new(ModelDisk::from_state(state, None));
        mend(&crashed);
        expect_kept(&before, &damaged, &crashed);
    }
    disk
}

fn find(fs: &FileSystem, path: &str) -> Option<Ino> {
    let mut at = Ino::ROOT;
    for name in path.split('/') {
        at = fs.lookup(at, name.as_bytes()).ok()?.ino;
    }
    Some(at)
}

fn ino(fixture: &Fixture, path: &str) -> Ino {
    find(&fixture.fs, path).unwrap()
}

fn change(fixture: &Fixture, aru: &mut Aru<'_>, ino: Ino, change: impl FnOnce(&mut Inode)) {
    let record = fixture.disk.record(View::HEAD, ino.lid(), HEAD_INDEX).unwrap().unwrap();
    let mut inode = Inode::decode(ino, &record).unwrap();
    change(&mut inode);
    aru.put_record(ino.lid(), HEAD_INDEX, inode.encode());
}

/// Changes the record of `name` in a directory.
fn change_entry(
    fixture: &Fixture,
    aru: &mut Aru<'_>,
    dir: Ino,
    name: &[u8],
    change: impl FnOnce(&mut Vec<u8>),
) {
    let index = fixture.fs.state().hasher().dir_index(name);
    let record = fixture.disk.record(View::HEAD, dir.lid(), index).unwrap();
    let mut record = record.map_or_else(Vec::new, |record| record.to_vec());
    change(&mut record);
    match record.is_empty() {
        true => aru.delete_record(dir.lid(), index),
        false => aru.put_record(dir.lid(), index, record),
    };
}

#[test]
fn a_lost_i_node_of_the_root_costs_nothing() {
    let disk = mended_after(
        |_, aru| {
            aru.delete_record(Ino::ROOT.lid(), HEAD_INDEX);
        },
        &[FindingCode::BadInode],
    );
    let fs = mount(&disk);
    assert!(find(&fs, "d/sub").is_some() && find(&fs, "f").is_some());
    assert_eq!(find(&fs, "lost+found"), None);
}

#[test]
fn a_lost_list_of_the_root_costs_the_names_in_it() {
    let disk = mended_after(
        |_, aru| {
            aru.delete_list(Ino::ROOT.lid());
        },
        &[FindingCode::BadInode, FindingCode::Unreachable],
    );
    let fs = mount(&disk);
    // The directory keeps what is in it.
    let d = sample();
    let name = format!("lost+found/#{}/sub", ino(&d, "d"));
    assert!(find(&fs, &name).is_some());
}

#[test]
fn an_entry_that_is_there_twice_becomes_one() {
    let disk = mended_after(
        |fixture, aru| {
            change_entry(fixture, aru, Ino::ROOT, b"f", |record| {
                let again = record[1..].to_vec();
                record.extend_from_slice(&again);
            });
        },
        &[
            FindingCode::DuplicateEntry,
            FindingCode::WrongDirectorySize,
            FindingCode::WrongLinkCount,
        ],
    );
    assert!(find(&mount(&disk), "f").is_some());
}

#[test]
fn of_two_files_with_one_name_the_second_gets_another() {
    let short = ino(&sample(), "short");
    let disk = mended_after(
        |fixture, aru| {
            let short = ino(fixture, "short");
            change_entry(fixture, aru, Ino::ROOT, b"f", |record| {
                dirent::insert(record, b"f", short, FileKind::Regular).unwrap();
            });
            change_entry(fixture, aru, Ino::ROOT, b"short", Vec::clear);
            change(fixture, aru, Ino::ROOT, |inode| inode.size -= 4);
        },
        &[FindingCode::DuplicateEntry],
    );
    let fs = mount(&disk);
    assert_eq!(find(&fs, &format!("f~{short}")), Some(short));
}

#[test]
fn a_loop_of_directories_is_cut() {
    let fixture = sample();
    let (d, sub) = (ino(&fixture, "d"), ino(&fixture, "d/sub"));
    let disk = mended_after(
        |fixture, aru| {
            change_entry(fixture, aru, Ino::ROOT, b"d", Vec::clear);
            change_entry(fixture, aru, sub, b"up", |record| {
                dirent::insert(record, b"up", d, FileKind::Directory).unwrap();
            });
            change(fixture, aru, d, |inode| inode.parent = sub.0);
            change(fixture, aru, sub, |inode| {
                (inode.nlink, inode.size) = (3, dirent::entry_len(b"up") as u64);
            });
            change(fixture, aru, Ino::ROOT, |inode| {
                inode.nlink -= 1;
                inode.size -= dirent::entry_len(b"d") as u64;
            });
        },
        &[FindingCode::DirectoryLoop],
    );
    assert_eq!(find(&mount(&disk), &format!("lost+found/#{d}/sub")), Some(sub));
}

#[test]
fn wrong_link_counts_are_mended_without_a_question() {
    let fixture = sample();
    let mut aru = Aru::new(View::HEAD);
    for name in ["f", "d"] {
        change(&fixture, &mut aru, ino(&fixture, name), |inode| inode.nlink = 9);
    }
    fixture.disk.commit(aru).unwrap();
    let disk = copy(&fixture.disk);
    let safe = RepairOptions { safe_only: true, ..OPTIONS };
    let repaired = repair(&*disk, View::HEAD, &[], &safe, &mut || Ok(())).unwrap();
    assert_eq!((repaired.mended.len(), repaired.left), (2, vec![]));
    assert_eq!(verify(&*disk, View::HEAD), Ok(vec![]));
}

#[test]
fn what_takes_a_decision_is_left_with_all_else_by_a_safe_repair() {
    let fixture = sample();
    let mut aru = Aru::new(View::HEAD);
    change(&fixture, &mut aru, ino(&fixture, "f"), |inode| inode.nlink = 9);
    change_entry(&fixture, &mut aru, Ino::ROOT, b"short", Vec::clear);
    fixture.disk.commit(aru).unwrap();
    let before = fixture.disk.state();
    let safe = RepairOptions { safe_only: true, ..OPTIONS };
    let repaired = repair(&*fixture.disk, View::HEAD, &[], &safe, &mut || Ok(())).unwrap();
    assert!(repaired.mended.is_empty() && !repaired.left.is_empty());
    assert_eq!(fixture.disk.state().diff(&before), None);
}

#[test]
fn an_entry_for_nothing_goes() {
    let disk = mended_after(
        |fixture, aru| {
            aru.delete_list(ino(fixture, "f").lid());
        },
        &[FindingCode::DanglingEntry],
    );
    assert_eq!(find(&mount(&disk), "f"), None);
}

#[test]
fn a_tree_without_a_name_is_found_again_as_a_whole() {
    let fixture = sample();
    let (d, sub) = (ino(&fixture, "d"), ino(&fixture, "d/sub"));
    let disk = mended_after(
        |fixture, aru| change_entry(fixture, aru, Ino::ROOT, b"d", Vec::clear),
        &[FindingCode::Unreachable, FindingCode::WrongDirectorySize, FindingCode::WrongLinkCount],
    );
    let fs = mount(&disk);
    assert_eq!(find(&fs, &format!("lost+found/#{d}/sub")), Some(sub));
    // Only the top of the tree had lost its name.
    let mut count = 0;
    fs.readdir(find(&fs, "lost+found").unwrap(), 0, &mut |_| {
        count += 1;
        true
    })
    .unwrap();
    assert_eq!(count, 3);
}

#[test]
fn a_directory_in_two_places_stays_where_it_says_it_is() {
    let sub = ino(&sample(), "d/sub");
    let disk = mended_after(
        |fixture, aru| {
            change_entry(fixture, aru, Ino::ROOT, b"again", |record| {
                dirent::insert(record, b"again", sub, FileKind::Directory).unwrap();
            });
            change(fixture, aru, Ino::ROOT, |inode| {
                inode.nlink += 1;
                inode.size += dirent::entry_len(b"again") as u64;
            });
        },
        &[FindingCode::WrongParent],
    );
    let fs = mount(&disk);
    assert_eq!((find(&fs, "d/sub"), find(&fs, "again")), (Some(sub), None));
}

#[test]
fn data_behind_the_end_of_a_file_are_taken_into_it() {
    let disk = mended_after(
        |fixture, aru| change(fixture, aru, ino(fixture, "f"), |inode| inode.size = 5000),
        &[FindingCode::DataPastEnd, FindingCode::PagesPastEnd],
    );
    let fs = mount(&disk);
    let mut bytes = vec![0; 20_000];
    assert_eq!(fs.read(find(&fs, "f").unwrap(), 0, &mut bytes), Ok(10_000));
    assert_eq!(bytes[..10_000], [7; 10_000]);
}

#[test]
fn a_file_without_i_node_keeps_its_name_and_its_data() {
    let disk = mended_after(
        |fixture, aru| {
            aru.put_record(ino(fixture, "f").lid(), HEAD_INDEX, vec![9; 50]);
        },
        &[FindingCode::BadInode],
    );
    let fs = mount(&disk);
    let file = find(&fs, "f").unwrap();
    let mut bytes = vec![0; 20_000];
    assert_eq!(fs.read(file, 0, &mut bytes), Ok(10_000));
    assert_eq!(bytes[..10_000], [7; 10_000]);
    // Whose it was is not known, so nobody but root may read it.
    let attr = fs.getattr(file).unwrap();
    assert_eq!((attr.uid, attr.perm), (0, 0o600));
}

/// A directory of which no record is left, with what else `harm` does to it, is one after a repair
/// that knows `versions`.
fn mended_without_records(
    harm: impl FnOnce(&Fixture, &mut Aru<'_>, Ino),
    has_snapshot: bool,
) -> (FileSystem, Ino) {
    use dendro_disk::Versions;
    let fixture = sample();
    let snapshot = fixture.disk.snapshot(0, Some("s")).unwrap().view();
    let d = ino(&fixture, "d");
    let mut aru = Aru::new(View::HEAD);
    for (index, _) in fixture.disk.records(View::HEAD, d.lid(), 0, 100).unwrap() {
        aru.delete_record(d.lid(), index);
    }
    harm(&fixture, &mut aru, d);
    fixture.disk.commit(aru).unwrap();
    let versions: &[View] = if has_snapshot { &[snapshot] } else { &[] };
    let done = repair(&*fixture.disk, View::HEAD, versions, &OPTIONS, &mut || Ok(())).unwrap();
    assert_eq!((done.left, done.failures), (vec![], vec![]));
    assert_eq!(verify(&*fixture.disk, View::HEAD), Ok(vec![]));
    (mount(&fixture.disk), d)
}

#[test]
fn a_directory_of_which_no_record_is_left_stays_one_by_its_name() {
    let whole = sample();
    let (sub, link) = (ino(&whole, "d/sub"), ino(&whole, "d/link"));
    for has_snapshot in [false, true] {
        let (fs, d) = mended_without_records(|_, _, _| (), has_snapshot);
        assert_eq!(find(&fs, "d"), Some(d));
        let attr = fs.getattr(d).unwrap();
        assert_eq!((attr.kind, attr.perm), (FileKind::Directory, 0o700));
        let place = if has_snapshot {
            ["d/sub", "d/link"].map(String::from)
        } else {
            [sub, link].map(|ino| format!("d/#{ino}"))
        };
        assert_eq!(place.map(|path| find(&fs, &path)), [Some(sub), Some(link)]);
    }
}

/// The sample with a file in `d/sub`, and a snapshot of it, which then loses the lists of `lost`.
/// It is mended, with the names of the snapshot or without, also after a crash in any moment.
/// Returns the file systems.
fn mended_without_lists(lost: &[&str], has_snapshot: bool) -> Vec<FileSystem> {
    use dendro_disk::Versions;
    let fixture = sample();
    let sub = ino(&fixture, "d/sub");
    fixture.fs.mknod(&USER, sub, b"file", 0o100_644, 0).unwrap();
    let snapshot = fixture.disk.snapshot(0, Some("s")).unwrap().view();
    let mut aru = Aru::new(View::HEAD);
    for path in lost {
        aru.delete_list(ino(&fixture, path).lid());
    }
    fixture.disk.commit(aru).unwrap();
    let mend = |disk: &Arc<ModelDisk>, versions: &[View]| {
        let done = repair(&**disk, View::HEAD, versions, &OPTIONS, &mut || Ok(())).unwrap();
        assert_eq!((done.left, done.failures), (vec![], vec![]));
        assert_eq!(verify(&**disk, View::HEAD), Ok(vec![]));
        mount(disk)
    };
    if has_snapshot {
        return vec![mend(&fixture.disk, &[snapshot])];
    }
    let disk = copy(&fixture.disk);
    let whole = mend(&disk, &[]);
    let crashed = disk.history().into_iter().map(|(_, state)| {
        let crashed = Arc::new(ModelDisk::from_state(state, None));
        mend(&crashed, &[])
    });
    crashed.chain([whole]).collect()
}

#[test]
fn a_directory_of_which_nothing_is_left_is_made_anew_with_what_was_in_it() {
    let whole = sample();
    let (sub, link) = (ino(&whole, "d/sub"), ino(&whole, "d/link"));
    let by_number = [sub, link].map(|ino| format!("d/#{ino}"));
    for (has_snapshot, paths) in [(false, by_number), (true, ["d/sub", "d/link"].map(String::from))]
    {
        for fs in mended_without_lists(&["d"], has_snapshot) {
            assert_eq!(paths.each_ref().map(|path| find(&fs, path)), [Some(sub), Some(link)]);
            assert!(find(&fs, &format!("{}/file", paths[0])).is_some());
            let attr = fs.getattr(find(&fs, "d").unwrap()).unwrap();
            assert_eq!((attr.kind, attr.perm), (FileKind::Directory, 0o700));
        }
    }
}

#[test]
fn what_was_in_a_lost_directory_without_a_name_stays_together() {
    let (sub, link) = (ino(&sample(), "d/sub"), ino(&sample(), "d/link"));
    for fs in mended_without_lists(&["d", "d/sub"], false) {
        assert_eq!(find(&fs, &format!("d/#{link}")), Some(link));
        let file = Ino(link.0.max(sub.0) + 1);
        assert_eq!(find(&fs, &format!("lost+found/#{sub}/#{file}")), Some(file));
    }
}

#[test]
fn the_name_of_a_lost_directory_goes_if_nothing_says_that_it_was_in_it() {
    for fs in mended_without_lists(&["d", "d/sub", "d/link", "d/sub/file"], false) {
        assert_eq!((find(&fs, "d"), find(&fs, "lost+found")), (None, None));
        assert!(find(&fs, "f").is_some());
    }
}

#[test]
fn what_has_data_and_no_i_node_is_a_file_even_by_the_name_of_a_directory() {
    let (fs, d) = mended_without_records(
        |_, aru, d| {
            aru.write_pages(d.lid(), 0, vec![7; 100]);
        },
        false,
    );
    let mut bytes = vec![0; 200];
    assert_eq!((find(&fs, "d"), fs.read(d, 0, &mut bytes)), (Some(d), Ok(100)));
}

#[test]
fn a_directory_with_pages_stays_one_if_its_name_agrees_with_its_i_node() {
    for has_name in [true, false] {
        let (d, sub) = (ino(&sample(), "d"), ino(&sample(), "d/sub"));
        let disk = mended_after(
            |fixture, aru| {
                aru.write_pages(sub.lid(), 3, vec![7; 100]);
                if !has_name {
                    change_entry(fixture, aru, d, b"sub", Vec::clear);
                    change(fixture, aru, d, |inode| {
                        (inode.nlink, inode.size) =
                            (2, inode.size - dirent::entry_len(b"sub") as u64);
                    });
                }
            },
            if has_name {
                &[FindingCode::WrongPageCount]
            } else {
                &[FindingCode::WrongPageCount, FindingCode::Unreachable]
            },
        );
        let kind = mount(&disk).getattr(sub).unwrap().kind;
        assert_eq!(kind, if has_name { FileKind::Directory } else { FileKind::Regular });
    }
}

#[test]
fn names_that_cannot_be_become_such_that_can() {
    let short = ino(&sample(), "short");
    let disk = mended_after(
        |fixture, aru| {
            change_entry(fixture, aru, Ino::ROOT, b"short", Vec::clear);
            change_entry(fixture, aru, Ino::ROOT, b"sh/rt", |record| {
                dirent::insert(record, b"sh/rt", short, FileKind::Regular).unwrap();
            });
        },
        &[FindingCode::BadName],
    );
    assert_eq!(find(&mount(&disk), "sh_rt"), Some(short));
}

#[test]
fn a_lost_description_is_taken_from_another_version() {
    use dendro_disk::Versions;
    let fixture = sample();
    let snapshot = fixture.disk.snapshot(0, Some("s")).unwrap();
    let mut aru = Aru::new(View::HEAD);
    aru.delete_record(VOLUME_LIST, HEAD_INDEX);
    fixture.disk.commit(aru).unwrap();
    let repaired =
        repair(&*fixture.disk, View::HEAD, &[snapshot.view()], &OPTIONS, &mut || Ok(())).unwrap();
    assert_eq!(repaired.left, vec![]);
    assert_eq!(mount(&fixture.disk).label(), "test");
}

/// The sample with a snapshot, in which all names in the root directory are lost then.
fn without_names(before: impl FnOnce(&Fixture, &mut Aru<'_>)) -> (Fixture, View) {
    use dendro_disk::Versions;
    let fixture = sample();
    let snapshot = fixture.disk.snapshot(0, Some("s")).unwrap().view();
    let mut aru = Aru::new(View::HEAD);
    for name in ["d", "f", "short"] {
        change_entry(&fixture, &mut aru, Ino::ROOT, name.as_bytes(), Vec::clear);
    }
    before(&fixture, &mut aru);
    fixture.disk.commit(aru).unwrap();
    (fixture, snapshot)
}

#[test]
fn names_that_another_version_has_come_back() {
    let (fixture, snapshot) = without_names(|_, _| ());
    let first = repair(&*fixture.disk, View::HEAD, &[snapshot], &OPTIONS, &mut || Ok(())).unwrap();
    assert_eq!((first.left, first.failures), (vec![], vec![]));
    assert_eq!(verify(&*fixture.disk, View::HEAD), Ok(vec![]));
    let whole = sample();
    let fs = mount(&fixture.disk);
    for path in ["d", "d/sub", "d/link", "f", "short"] {
        assert_eq!(find(&fs, path), Some(ino(&whole, path)), "{path}");
    }
    assert_eq!(find(&fs, "lost+found"), None);
}

#[test]
fn a_name_that_is_in_use_again_or_would_close_a_loop_is_not_given_back_as_it_was() {
    let (d, sub) = (ino(&sample(), "d"), ino(&sample(), "d/sub"));
    let short = ino(&sample(), "short");
    let (fixture, snapshot) = without_names(|fixture, aru| {
        // `short` has the name of `f`, and the directories are the other way round.
        change_entry(fixture, aru, Ino::ROOT, b"f", |record| {
            record.clear();
            dirent::insert(record, b"f", short, FileKind::Regular).unwrap();
        });
        change_entry(fixture, aru, d, b"sub", Vec::clear);
        change_entry(fixture, aru, sub, b"d", |record| {
            dirent::insert(record, b"d", d, FileKind::Directory).unwrap();
        });
        change(fixture, aru, d, |inode| inode.parent = sub.0);
        change(fixture, aru, sub, |inode| inode.parent = d.0);
    });
    let f = ino(&sample(), "f");
    let done = repair(&*fixture.disk, View::HEAD, &[snapshot], &OPTIONS, &mut || Ok(())).unwrap();
    assert_eq!((done.left, done.failures), (vec![], vec![]));
    let fs = mount(&fixture.disk);
    assert_eq!((find(&fs, "f"), find(&fs, &format!("f~{f}"))), (Some(short), Some(f)));
    let reachable = reachable(&fs);
    assert!([d, sub].iter().all(|ino| reachable.contains(ino)));
}

#[test]
fn of_names_that_no_version_has_the_directory_is_told() {
    let (fixture, _) = without_names(|_, _| ());
    let done = repair(&*fixture.disk, View::HEAD, &[], &OPTIONS, &mut || Ok(())).unwrap();
    let told = done.mended.iter().find(|of| of.ino == Ino::ROOT && of.detail.contains(", 3 of"));
    let text = &told.expect("it is said of the root").detail;
    for path in ["d", "f", "short"] {
        let number = format!("#{}", ino(&sample(), path));
        assert!(text.contains(&number), "{text}");
        assert!(find(&mount(&fixture.disk), &format!("lost+found/{number}")).is_some());
    }
}

#[test]
fn without_any_description_all_names_move_to_where_a_new_key_has_them() {
    let disk = mended_after(
        |_, aru| {
            aru.delete_list(VOLUME_LIST);
            aru.delete_list(ORPHAN_LIST);
        },
        &[FindingCode::BadVolume],
    );
    let fs = mount(&disk);
    assert!(find(&fs, "d/sub").is_some() && find(&fs, "short").is_some());
    let mut value = fs.getxattr(find(&fs, "short").unwrap(), b"user.b").unwrap();
    value.dedup();
    assert_eq!(value, [1]);
}

#[test]
fn a_description_made_anew_says_that_a_range_is_still_to_be_freed() {
    for has_orphan in [true, false] {
        let fixture = sample();
        let f = ino(&fixture, "f");
        let mut aru = Aru::new(View::HEAD);
        change(&fixture, &mut aru, f, |inode| {
            (inode.state, inode.pages) = (InodeState::PUNCHING, 2);
            inode.punched = Some(Box::new(1..2));
        });
        if has_orphan {
            orphan_list::enter(&mut aru, f, ORPHAN_PUNCH);
        }
        aru.delete_list(VOLUME_LIST);
        fixture.disk.commit(aru).unwrap();
        let disk = copy(&fixture.disk);
        mend(&disk);
        let description = disk.record(View::HEAD, VOLUME_LIST, HEAD_INDEX).unwrap().unwrap();
        assert_eq!(description[20], PUNCHED_RANGES as u8, "{has_orphan}");
        assert!(find(&mount(&disk), "f").is_some());
    }
}

#[test]
fn a_description_with_features_of_a_later_version_is_not_replaced() {
    let fixture = sample();
    let disk = copy(&fixture.disk);
    let mut record = disk.record(View::HEAD, VOLUME_LIST, HEAD_INDEX).unwrap().unwrap().to_vec();
    // Its header is said to be longer than all of it.
    record[11] = 4;
    for (is_known, feature) in [(true, 0), (false, 0x40)] {
        record[16] = feature;
        let mut aru = Aru::new(View::HEAD);
        aru.put_record(VOLUME_LIST, HEAD_INDEX, &record[..]);
        disk.commit(aru).unwrap();
        assert_eq!(verify(&*disk, View::HEAD).unwrap()[0].code, FindingCode::BadVolume);
        let repaired = repair(&*disk, View::HEAD, &[], &OPTIONS, &mut || Ok(()));
        match repaired {
            Ok(repaired) => assert!(is_known && repaired.left.is_empty()),
            Err(error) => assert!(!is_known && matches!(error, FsError::NotSupported(_))),
        }
        let after = disk.record(View::HEAD, VOLUME_LIST, HEAD_INDEX).unwrap().unwrap();
        assert_eq!(*after != *record, is_known);
    }
}

#[test]
fn all_branches_are_repaired_and_stay_as_they_were_in_snapshots() {
    let disk = ModelDisk::new(None);
    let empty = disk.snapshot(0, Some("empty")).unwrap().view();
    let fixture = Fixture::with(disk, noatime(), u64::MAX);
    fixture.file_with("f", b"data");
    let disk = &*fixture.disk;
    // The head of this branch has none of the lists that main has.
    let lost = disk.branch_off(empty, "lost").unwrap().head();
    let repair = || {
        let mut shown = Vec::new();
        let mut show = |branch: &str| shown.push(branch.to_owned());
        let repaired = repair_branches(disk, &OPTIONS, &mut show, &mut || Ok(())).unwrap();
        assert_eq!((repaired.left, repaired.failures), (vec![], vec![]));
        assert_eq!(shown[..2], ["main", "lost"]);
        repaired.mended
    };
    let state = |view| disk.model_versions().state(view).unwrap().clone();
    let before = state(View::HEAD);
    assert!(repair().iter().any(|of| of.code == FindingCode::BadVolume));
    assert_eq!(state(View::HEAD), before);
    assert_eq!(verify(disk, lost), Ok(vec![]));
    let kept = || -> Vec<Snapshot> {
        let table = disk.versions();
        let is_kept =
            |of: &&Snapshot| of.name.as_ref().is_some_and(|of| of.starts_with(BEFORE_REPAIR));
        table.snapshots().filter(is_kept).cloned().collect()
    };
    assert_eq!(kept().len(), 1);
    assert_eq!(kept()[0].name.as_deref(), Some("before-repair-20270115T080000"));
    assert_eq!(state(kept()[0].view()), state(empty));
    assert_eq!(repair(), vec![]);
    assert_eq!(kept().len(), 1);
}

#[test]
fn a_repair_takes_nothing_from_other_clients() {
    let fixture = sample();
    let disk = copy(&fixture.disk);
    let theirs = FormatOptions { hash_key: [3; 16], ..format_options() };
    for (name, kind) in [("files", ClientKind::Files), ("device", ClientKind::Block)] {
        create_client(&*disk, name, kind, None, &theirs, &StepClock::default()).unwrap();
    }
    let mut aru = Aru::new(View::HEAD);
    aru.push(Op::DeleteRecord { list: VOLUME_LIST, index: HEAD_INDEX });
    disk.commit(aru).unwrap();
    let mut shown = Vec::new();
    let mut show = |branch: &str| shown.push(branch.to_owned());
    let repaired = repair_branches(&*disk, &OPTIONS, &mut show, &mut || Ok(())).unwrap();
    assert!(repaired.mended.iter().any(|of| of.code == FindingCode::BadVolume));
    assert_eq!(shown[..3], ["main", "files", "device"]);
    let record = disk.record(View::HEAD, VOLUME_LIST, HEAD_INDEX).unwrap().unwrap();
    let has_key = |key: [u8; 16]| record.windows(16).any(|part| part == key);
    assert!(has_key(OPTIONS.hash_key) && !has_key(theirs.hash_key));
    // Nothing was looked for in the device, or changed there.
    let device = disk.versions().branch_named("device").unwrap().head();
    assert_eq!(disk.lists(device, Lid(0), 9), Ok(vec![Lid::FIRST]));
    assert_eq!(verify(&*disk, device), Ok(vec![]));
    let options = Options { view: device, ..Options::default() };
    let refused = FileSystem::mount(disk, options, Arc::new(StepClock::default())).map(drop);
    assert_eq!(refused, Err(FsError::NoFiles(ClientKind::Block)));
}

/// Damage at random, and a repair of it, also after crashes.
fn mend_random_damage(seeds: std::ops::Range<u64>, crash_every: usize) {
    for seed in seeds {
        let mut rng = Rng::new(seed);
        let fixture = sample();
        for number in 0..20 {
            let dir = [Ino::ROOT, ino(&fixture, "d"), ino(&fixture, "d/sub")][number % 3];
            let name = format!("more-{number}");
            let attr = fixture.fs.mknod(&USER, dir, name.as_bytes(), 0o100_644, 0).unwrap();
            let data = vec![number as u8; 300 * number];
            fixture.fs.write(attr.ino, 0, &data, false).unwrap();
            fixture.fs.forget(attr.ino, 1);
        }
        let before = fixture.disk.state();
        damage(&fixture.disk, View::HEAD, &mut rng);
        let damaged = fixture.disk.state();
        let disk = copy(&fixture.disk);
        let what = format!("seed {seed}: {:#?}", verify(&*disk, View::HEAD));
        let repaired = repair(&*disk, View::HEAD, &[], &OPTIONS, &mut || Ok(())).unwrap();
        assert_eq!(repaired.left, vec![], "{what}\nmended: {:#?}", repaired.mended);
        expect_kept(&before, &damaged, &disk);
        for (number, (_, state)) in disk.history().into_iter().enumerate() {
            if number % crash_every == 0 {
                let crashed = Arc::new(ModelDisk::from_state(state, None));
                let again = repair(&*crashed, View::HEAD, &[], &OPTIONS, &mut || Ok(())).unwrap();
                assert_eq!(again.left, vec![], "after unit {number}, {what}");
                expect_kept(&before, &damaged, &crashed);
            }
        }
    }
}

#[test]
fn random_damage_is_mended_and_what_was_not_damaged_stays() {
    mend_random_damage(0..300, 3);
}

#[test]
#[ignore = "takes minutes"]
fn soak() {
    mend_random_damage(1_000..30_000, 2);
}

#[test]
fn a_repair_of_what_is_sound_writes_nothing() {
    let fixture = sample();
    let disk = copy(&fixture.disk);
    assert_eq!(mend(&disk), vec![]);
    assert_eq!(disk.history().len(), 1);
    assert!(FindingCode::ALL.iter().all(|code| !code.repair().is_empty()));
    assert!(FindingCode::ALL.iter().any(|code| code.mending() == Mending::Never));
}
