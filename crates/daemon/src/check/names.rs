//! The files that findings are about: a number does not help a user to restore a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dendro_control::check::CheckFinding;
use dendro_control::versions::path_text;
use dendro_device::Device;
use dendro_disk::{Versions, View};
use dendro_fs::{Checked, FindingCode, Found, Ino, paths_of};
use dendro_logdisk::LogDisk;

use super::kinds::Kind;
use super::versions::{open_disk, versions};

/// The most versions in which paths of files with findings are looked for. Each one costs a walk
/// over its directories.
const MAX_VERSIONS_WALKED: usize = 64;

/// The findings in trees, with the paths of the files and the names of the versions. What is kept
/// about directories takes `memory_bytes` at most.
pub(super) fn of_trees(
    disk: &LogDisk,
    names: &[(String, View)],
    checked: Checked,
    memory_bytes: u64,
) -> Vec<CheckFinding> {
    let names: HashMap<View, &str> = names.iter().map(|(name, view)| (*view, &**name)).collect();
    let mut wanted: Vec<(View, BTreeSet<Ino>)> = Vec::new();
    for found in &checked.found {
        match wanted.iter_mut().find(|(view, _)| *view == found.last) {
            Some((_, files)) => drop(files.insert(found.finding.ino)),
            None => wanted.push((found.last, BTreeSet::from([found.finding.ino]))),
        }
    }
    wanted.sort_by_key(|(view, _)| view.epoch.is_some());
    let mut paths = HashMap::new();
    for (view, files) in wanted.into_iter().take(MAX_VERSIONS_WALKED) {
        // If names cannot be read, numbers must do.
        paths.insert(view, paths_of(disk, view, &files, memory_bytes).unwrap_or_default());
    }
    let no_paths = BTreeMap::new();
    let mut findings: Vec<CheckFinding> = checked
        .found
        .into_iter()
        .map(|found| {
            let paths = paths.get(&found.last).unwrap_or(&no_paths);
            let version = names.get(&found.last).filter(|_| !found.is_in_head);
            let texts = path_texts(&found, paths, version.copied().unwrap_or_default());
            let of_view = |view: &View| names.get(view).map(|name| (*name).to_owned());
            CheckFinding {
                list: Some(found.finding.ino.0),
                paths: texts,
                found_in: found.views.iter().filter_map(of_view).collect(),
                version_count: found.version_count,
                in_past: !found.is_in_head,
                ..Kind::from(found.finding.code).finding(found.finding.detail)
            }
        })
        .collect();
    findings.extend(checked.more.into_iter().map(|(code, count)| of_more(code, count, false)));
    findings
}

/// The finding that there are `count` more of a kind, which are not listed.
#[must_use]
pub fn of_more(code: FindingCode, count: usize, mended: bool) -> CheckFinding {
    let detail = format!("{count} more that are not listed");
    CheckFinding { mended, ..Kind::from(code).finding(detail) }
}

/// What was mended, with the paths that it had `before`.
#[must_use]
pub fn of_mended(mended: dendro_fs::Finding, before: &[CheckFinding]) -> CheckFinding {
    let list = Some(mended.ino.0);
    let known = before.iter().find(|finding| {
        finding.number == mended.code.number()
            && finding.list == list
            && finding.detail == mended.detail
    });
    let plain = CheckFinding { list, ..Kind::from(mended.code).finding(mended.detail) };
    CheckFinding { mended: true, ..known.cloned().unwrap_or(plain) }
}

fn path_texts(found: &Found, paths: &BTreeMap<Ino, Vec<Vec<u8>>>, version: &str) -> Vec<String> {
    let of_file = paths.get(&found.finding.ino).map(Vec::as_slice).unwrap_or_default();
    let full = of_file.iter().map(|path| match &found.finding.entry {
        None => path.clone(),
        Some(entry) if path == b"/" => [b"/", &*entry.name].concat(),
        Some(entry) => [&**path, b"/", &*entry.name].concat(),
    });
    full.map(|path| format!("{version}{}", path_text(&path))).collect()
}

/// The verifier's findings on `device`, with paths in the main branch, or in the first version that
/// has any.
pub(super) fn of_device(
    device: &Arc<dyn Device>,
    memory_bytes: u64,
    findings: Vec<dendro_check::Finding>,
) -> Vec<CheckFinding> {
    let lists = findings.iter().filter_map(|finding| finding.list).map(Ino);
    let names = find(device, memory_bytes, lists.collect());
    let named = |finding: dendro_check::Finding| {
        let paths = finding.list.and_then(|list| names.get(&Ino(list)));
        CheckFinding {
            list: finding.list,
            paths: paths.cloned().unwrap_or_default(),
            ..Kind::from(finding.kind).finding(finding.detail)
        }
    };
    findings.into_iter().map(named).collect()
}

/// The paths of files on the volume on `device`, in the main branch or in the first version that
/// has any; none if the volume cannot be opened. It takes about `memory_bytes`.
#[must_use]
pub fn find(
    device: &Arc<dyn Device>,
    memory_bytes: u64,
    mut wanted: BTreeSet<Ino>,
) -> BTreeMap<Ino, Vec<String>> {
    let mut names = BTreeMap::new();
    if wanted.is_empty() {
        return names;
    }
    // A failure to open the volume has been reported.
    let Ok(disk) = open_disk(device, memory_bytes / 4) else { return names };
    let main = disk.versions().main_head();
    let mut all = versions(&disk);
    all.sort_by_key(|(_, view)| (*view != main, view.epoch.is_some()));
    for (version, view) in all {
        if wanted.is_empty() {
            break;
        }
        let version = if view == main { "" } else { &*version };
        for (ino, paths) in paths_of(&disk, view, &wanted, memory_bytes / 4).unwrap_or_default() {
            wanted.remove(&ino);
            let texts = paths.iter().map(|path| format!("{version}{}", path_text(path)));
            names.insert(ino, texts.collect());
        }
    }
    names
}
