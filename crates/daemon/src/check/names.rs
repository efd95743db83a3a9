//! The files that findings are about: a number does not help a user to restore a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use dendro_check::{Report, SeenIn, Version};
use dendro_control::check::{CheckFinding, VersionWithFile};
use dendro_control::versions::path_text;
use dendro_device::Device;
use dendro_disk::{Versions, View};
use dendro_fs::{Checked, FindingCode, Ino, NamedEntry, paths_of};
use dendro_logdisk::LogDisk;

use super::kinds::Kind;
use super::versions::{open_disk, version_text, versions};

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
    let name_of = |view: &View| names.get(view).copied().unwrap_or_default().to_owned();
    let mut wanted = Wanted::default();
    for found in &checked.found {
        let ends = found.views.first().into_iter().chain([&found.last]);
        ends.for_each(|view| wanted.add(*view, found.finding.ino));
    }
    let paths = wanted.find(disk, memory_bytes);
    let mut findings: Vec<CheckFinding> = checked
        .found
        .into_iter()
        .map(|found| {
            let (ino, entry) = (found.finding.ino, found.finding.entry);
            let of_file = |view: &View| paths.of(*view, ino, entry.as_ref());
            let with_file = |view: &View| VersionWithFile {
                version: name_of(view),
                path: of_file(view).next(),
            };
            let version = if found.is_in_head { String::new() } else { name_of(&found.last) };
            CheckFinding {
                list: Some(ino.0),
                paths: of_file(&found.last).map(|path| format!("{version}{path}")).collect(),
                found_in: found.views.iter().map(name_of).collect(),
                version_count: found.version_count,
                first: found.views.first().map(with_file),
                last: Some(with_file(&found.last)),
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

/// Files whose paths are wanted, and the versions that have them.
#[derive(Default)]
struct Wanted(BTreeMap<(u32, Option<u64>), BTreeSet<Ino>>);

impl Wanted {
    fn add(&mut self, view: View, ino: Ino) {
        self.0.entry((view.branch, view.epoch)).or_default().insert(ino);
    }

    /// Looks for them in heads, and then in the versions in which most are wanted.
    fn find(self, disk: &LogDisk, memory_bytes: u64) -> Paths {
        let mut wanted: Vec<_> = self.0.into_iter().collect();
        wanted.sort_by_key(|((_, epoch), files)| (epoch.is_some(), std::cmp::Reverse(files.len())));
        let of_version = |((branch, epoch), files): (_, BTreeSet<Ino>)| {
            let view = View { branch, epoch };
            // If names cannot be read, numbers must do.
            (view, paths_of(disk, view, &files, memory_bytes).unwrap_or_default())
        };
        Paths(wanted.into_iter().take(MAX_VERSIONS_WALKED).map(of_version).collect())
    }
}

/// Paths of files in versions.
#[derive(Default)]
struct Paths(HashMap<View, BTreeMap<Ino, Vec<Vec<u8>>>>);

impl Paths {
    /// The paths of a file in a version, or of an entry in a directory.
    fn of(&self, view: View, ino: Ino, entry: Option<&NamedEntry>) -> impl Iterator<Item = String> {
        let of_file = self.0.get(&view).and_then(|paths| paths.get(&ino));
        of_file.into_iter().flatten().map(move |path| match entry {
            None => path_text(path),
            Some(entry) if path == b"/" => path_text(&[b"/", &*entry.name].concat()),
            Some(entry) => path_text(&[&**path, b"/", &*entry.name].concat()),
        })
    }
}

/// The verifier's findings on `device`, with the versions that have what they are about, and the
/// paths of the files there.
pub(super) fn of_device(
    device: &Arc<dyn Device>,
    memory_bytes: u64,
    report: Report,
) -> Vec<CheckFinding> {
    let Report { findings, versions, .. } = report;
    let view_of =
        |index: usize| View { branch: versions[index].branch, epoch: versions[index].epoch };
    let mut wanted = Wanted::default();
    let mut without_versions = BTreeSet::new();
    for finding in &findings {
        let Some(list) = finding.list.map(Ino) else { continue };
        match &finding.seen_in {
            Some(SeenIn { first, last, .. }) => {
                let ends = first.first().into_iter().chain([last]);
                ends.for_each(|index| wanted.add(view_of(*index), list));
            }
            None => drop(without_versions.insert(list)),
        }
    }
    // A failure to open the volume has been reported.
    let paths = match wanted.0.is_empty() {
        true => None,
        false => open_disk(device, memory_bytes / 4).ok(),
    };
    let paths = paths.map(|disk| wanted.find(&disk, memory_bytes / 4)).unwrap_or_default();
    let names = find(device, memory_bytes, without_versions);
    let named = |finding: dendro_check::Finding| {
        let list = finding.list;
        let plain = CheckFinding { list, ..Kind::from(finding.kind).finding(finding.detail) };
        let ino = list.map(Ino);
        let Some(seen) = finding.seen_in else {
            let paths = ino.and_then(|ino| names.get(&ino)).cloned().unwrap_or_default();
            return CheckFinding { paths, ..plain };
        };
        let paths_in = |index| {
            let (paths, view) = (&paths, view_of(index));
            ino.into_iter().flat_map(move |ino| paths.of(view, ino, None))
        };
        let with_file = |index: &usize| VersionWithFile {
            version: name_of(&versions[*index]),
            path: paths_in(*index).next(),
        };
        // A file that was just removed has its pages for a while, and no path.
        let ends = [seen.last].into_iter().chain(seen.first.first().copied());
        let in_any = ends.map(|index| {
            let is_head = versions[index].epoch.is_none();
            let version = if is_head { String::new() } else { name_of(&versions[index]) };
            paths_in(index).map(|path| format!("{version}{path}")).collect::<Vec<_>>()
        });
        CheckFinding {
            paths: in_any.into_iter().find(|paths| !paths.is_empty()).unwrap_or_default(),
            found_in: seen.first.iter().map(|index| name_of(&versions[*index])).collect(),
            version_count: seen.count,
            first: seen.first.first().map(with_file),
            last: Some(with_file(&seen.last)),
            in_past: !seen.is_in_head,
            ..plain
        }
    };
    findings.into_iter().map(named).collect()
}

fn name_of(version: &Version) -> String {
    version_text(version.epoch, version.name.as_deref())
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
    for (version, view) in all.into_iter().take(MAX_VERSIONS_WALKED) {
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
