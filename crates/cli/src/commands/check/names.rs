//! The files that findings are about: a number does not help a user to restore a file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dendro_check::Finding;
use dendro_control::versions::path_text;
use dendro_device::Device;
use dendro_disk::{LogicalDisk, View};
use dendro_fs::{Ino, paths_of};

use super::disk::{open_disk, versions};
use super::finding::{NamedFinding, TreeFinding};

/// Adds paths to the findings in one tree.
pub(super) fn name_in(
    disk: &dyn LogicalDisk,
    view: View,
    findings: Vec<dendro_fs::Finding>,
) -> Vec<TreeFinding> {
    let wanted: BTreeSet<Ino> = findings.iter().map(|finding| finding.ino).collect();
    let mut names = match wanted.is_empty() {
        true => BTreeMap::new(),
        // If names cannot be read, numbers must do.
        false => paths_of(disk, view, &wanted).unwrap_or_default(),
    };
    let named = |finding: dendro_fs::Finding| TreeFinding {
        number: Some(finding.code as u16),
        inode: Some(finding.ino.0),
        paths: texts(names.entry(finding.ino).or_default(), ""),
        detail: finding.detail,
    };
    findings.into_iter().map(named).collect()
}

fn texts(paths: &[Vec<u8>], version: &str) -> Vec<String> {
    paths.iter().map(|path| format!("{version}{}", path_text(path))).collect()
}

/// Adds paths to the verifier's findings on `device`: those in the main branch, or in the first
/// version that has any.
pub(super) fn name(device: &Arc<dyn Device>, findings: Vec<Finding>) -> Vec<NamedFinding> {
    let lists = findings.iter().filter_map(|finding| finding.list).map(Ino);
    let names = find(device, lists.collect());
    let named = |finding: Finding| {
        let paths = finding.list.and_then(|list| names.get(&Ino(list)));
        NamedFinding { paths: paths.cloned().unwrap_or_default(), finding }
    };
    findings.into_iter().map(named).collect()
}

fn find(device: &Arc<dyn Device>, mut wanted: BTreeSet<Ino>) -> BTreeMap<Ino, Vec<String>> {
    let mut names = BTreeMap::new();
    if wanted.is_empty() {
        return names;
    }
    // A failure to open the volume has been reported.
    let Ok(disk) = open_disk(device) else { return names };
    let main = dendro_disk::Versions::versions(&disk).main_head();
    let mut all = versions(&disk, true);
    all.sort_by_key(|(_, view)| (*view != main, view.epoch.is_some()));
    for (version, view) in all {
        if wanted.is_empty() {
            break;
        }
        let version = if view == main { String::new() } else { version };
        for (ino, paths) in paths_of(&disk, view, &wanted).unwrap_or_default() {
            wanted.remove(&ino);
            names.insert(ino, texts(&paths, &version));
        }
    }
    names
}
