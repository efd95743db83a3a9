//! Reports of damage that was found in use.

use dendro_base::Timestamp;
use dendro_base::units::PAGE_SIZE;
use dendro_control::Facts;
use dendro_control::damage::{DamageInfo, DamagedPlace, Part};
use dendro_control::versions::path_text;
use dendro_disk::{Lid, VersionTable, Versions, View};
use dendro_fs::versions::path_of;
use dendro_fs::{DamagedPart, Ino, KeptDamage};
use dendro_logdisk::LogDisk;

use super::versions::{Finder, version_text};
use crate::metrics::exposition::gauges;
use crate::text;

/// The most versions that are searched for a damaged page.
const MAX_VIEWS: usize = 4096;

/// A version that has this page in the block at `addr_bytes`, and the file's path there; the path
/// is empty if no version has one. The main branch's head is searched first, then other heads, then
/// the newest snapshots.
pub(super) fn find(
    disk: &LogDisk,
    list: Lid,
    page: u64,
    addr_bytes: u64,
) -> Option<(View, Vec<u8>)> {
    let table = disk.versions();
    let heads = table.branches().map(|branch| branch.head());
    let mut snapshots: Vec<_> = table.snapshots().map(|snapshot| snapshot.view()).collect();
    snapshots.sort_by_key(|view| std::cmp::Reverse(view.epoch));
    let main = table.main_head();
    let views = [main].into_iter().chain(heads.filter(|head| *head != main)).chain(snapshots);
    let has_it = |view: &View| {
        disk.page_addr(*view, list, page).is_ok_and(|found| found == Some(addr_bytes))
    };
    let mut without_path = None;
    for view in views.take(MAX_VIEWS).filter(has_it) {
        // A file that was just removed has its pages for a while, and no path.
        if let Ok(Some(path)) = path_of(disk, view, Ino(list.0)) {
            return Some((view, path));
        }
        without_path.get_or_insert((view, Vec::new()));
    }
    without_path
}

/// The report of all damage in `kept`, with the places and the versions that have them if
/// `with_places`.
pub fn info(kept: &[KeptDamage], disk: &LogDisk, with_places: bool) -> DamageInfo {
    let mut finder = Finder::new(disk);
    let listed = if with_places { kept } else { &[] };
    let located = listed.iter().map(|of| {
        let plain = place(of, finder.table());
        match finder.ends(of) {
            Some((first, last, version_count)) => {
                DamagedPlace { first: Some(first), last: Some(last), version_count, ..plain }
            }
            None => plain,
        }
    });
    DamageInfo { places: located.collect(), ..summary(kept) }
}

/// The report without the places.
fn summary(kept: &[KeptDamage]) -> DamageInfo {
    DamageInfo {
        place_count: kept.len() as u64,
        met_count: kept.iter().map(|of| of.met_count).sum(),
        first_unix_ns: kept.iter().map(|of| of.first.0).min(),
        last_unix_ns: kept.iter().map(|of| of.last.0).max(),
        places: Vec::new(),
        last_check: None,
    }
}

fn place(kept: &KeptDamage, table: &VersionTable) -> DamagedPlace {
    DamagedPlace {
        path: (!kept.path.is_empty()).then(|| path_text(&kept.path)),
        version: kept.view.and_then(|view| version_text(view, table)),
        part: match kept.part {
            DamagedPart::Page(..) => Part::Page,
            DamagedPart::Node => Part::Map,
            DamagedPart::Records => Part::Log,
            DamagedPart::Checkpoint => Part::Checkpoint,
            DamagedPart::Superblock => Part::Superblock,
            DamagedPart::NodeCopy => Part::MapCopy,
        },
        offset_bytes: kept.part.page().map(|(_, page)| page.saturating_mul(PAGE_SIZE as u64)),
        inode: kept.part.page().map(|(list, _)| list),
        addr_bytes: kept.addr_bytes,
        problem: kept.problem.clone(),
        first_unix_ns: kept.first.0,
        last_unix_ns: kept.last.0,
        met_count: kept.met_count,
        version_count: 0,
        first: None,
        last: None,
    }
}

/// Describes the place of damage in words.
pub fn where_text(place: &DamagedPlace) -> String {
    let offset_bytes = place.offset_bytes.unwrap_or(0);
    let version = match &place.version {
        Some(version) => format!(" in {version}"),
        None => " in a version that is gone, or was not found".into(),
    };
    let more = match (&place.first, &place.last) {
        (Some(first), Some(last)) if place.version_count > 1 => {
            format!(" ({})", text::versions(first, last, place.version_count))
        }
        _ => String::new(),
    };
    let inode = place.inode.unwrap_or(0);
    match (place.part, &place.path) {
        (Part::Page, Some(path)) => format!("{path}{version}, at byte {offset_bytes}{more}"),
        (Part::Page, None) => format!("i-node {inode}{version}, at byte {offset_bytes}{more}"),
        (Part::Map, _) => "the map, of whatever files are in that part of it".into(),
        (Part::Log, _) => "the log's record of what was written there; no file is damaged".into(),
        (Part::Checkpoint, _) => "a checkpoint, which the next one replaces".into(),
        (Part::Superblock, _) => "a superblock, which the next one replaces".into(),
        (Part::MapCopy, _) => "a copy of a part of the map; the other is sound".into(),
    }
}

/// The message for the log.
pub(super) fn line(kept: &KeptDamage, table: &VersionTable) -> String {
    format!("{}: {}", where_text(&place(kept, table)), kept.problem)
}

/// Names and numbers, for `dendro stat`.
pub(crate) fn facts(info: &DamageInfo) -> Facts {
    Facts::from([
        ("damage_places".to_owned(), info.place_count.into()),
        ("damage_met".to_owned(), info.met_count.into()),
        ("damage_first_unix_ns".to_owned(), info.first_unix_ns.into()),
        ("damage_last_unix_ns".to_owned(), info.last_unix_ns.into()),
    ])
}

/// The same in Prometheus's text format.
pub(crate) fn exposition(info: &DamageInfo) -> String {
    let secs = |ns: Option<i64>| ns.map_or(0, |ns| Timestamp(ns).secs());
    let metrics = [
        ("places", "Places that do not hold what was written there.", info.place_count.to_string()),
        ("met", "How often one of these was met.", info.met_count.to_string()),
        (
            "first_timestamp_seconds",
            "When one was met first; 0: none was.",
            secs(info.first_unix_ns).to_string(),
        ),
        (
            "last_timestamp_seconds",
            "When one was met last; 0: none was.",
            secs(info.last_unix_ns).to_string(),
        ),
    ];
    gauges("damage", metrics.map(|(name, help, value)| (name, help, Some(value))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_control::check::VersionWithFile;

    #[test]
    fn what_was_met_is_told_in_words_and_figures() {
        let table = VersionTable::new(Timestamp(0));
        let page = KeptDamage {
            addr_bytes: 1 << 20,
            part: DamagedPart::Page(7, 2),
            view: Some(View::HEAD),
            path: b"/dir/file".to_vec(),
            problem: "the checksum is wrong".into(),
            first: Timestamp(1_000_000_000),
            last: Timestamp(9_000_000_000),
            met_count: 3,
        };
        assert_eq!(line(&page, &table), "/dir/file in :main, at byte 8192: the checksum is wrong");
        let node =
            KeptDamage { part: DamagedPart::Node, view: None, path: Vec::new(), ..page.clone() };
        let lost = KeptDamage { view: None, path: Vec::new(), ..page.clone() };
        assert!(line(&node, &table).starts_with("the map"));
        assert!(line(&lost, &table).starts_with("i-node 7 in a version that is gone"));
        let with_file = |version: &str, path: &str| {
            Some(VersionWithFile { version: version.into(), path: Some(path.into()) })
        };
        let shared = DamagedPlace {
            version_count: 7,
            first: with_file("@old", "/dir/was"),
            last: with_file(":main", "/dir/file"),
            ..place(&page, &table)
        };
        assert_eq!(
            where_text(&shared),
            "/dir/file in :main, at byte 8192 (7 versions, from @old, there /dir/was, to :main)"
        );
        let damage = summary(&[page, node]);
        assert_eq!((damage.place_count, damage.met_count), (2, 6));
        assert_eq!(facts(&damage)["damage_last_unix_ns"], 9_000_000_000_i64);
        assert!(exposition(&damage).contains("\ndendro_damage_places 2\n"));
        assert_eq!(facts(&DamageInfo::default())["damage_first_unix_ns"], serde_json::Value::Null);
    }
}
