//! The versions that have a damaged page, of which one is known.
//!
//! A block belongs to one entry of the map. Of a branch those versions see it that lie between the
//! entry and the next one for the page, so they follow each other, and a few probes find them all.

use std::collections::BTreeMap;

use dendro_control::check::VersionWithFile;
use dendro_control::versions::path_text;
use dendro_disk::{Lid, Snapshot, VersionTable, Versions, View};
use dendro_fs::versions::path_of;
use dendro_fs::{Ino, KeptDamage};
use dendro_logdisk::LogDisk;

/// The versions that have a damaged page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) first: View,
    /// The last one; if the head of a branch has it, the last of those.
    pub(super) last: View,
    pub(super) count: u64,
}

/// The versions of the table that `has` is true of, if it is of `known`; `None` if of none.
pub(super) fn spread(
    table: &VersionTable,
    known: View,
    mut has: impl FnMut(View) -> bool,
) -> Option<Spread> {
    let mut by_branch: BTreeMap<u32, Vec<View>> = BTreeMap::new();
    for view in table.views() {
        by_branch.entry(view.branch).or_default().push(view);
    }
    let ancestry: BTreeMap<u32, u64> = table.ancestry(known).into_iter().collect();
    let mut found: Option<Spread> = None;
    for (branch, mut views) in by_branch {
        let epoch = |view: &View| view.epoch.unwrap_or(u64::MAX);
        views.sort_unstable_by_key(epoch);
        // A branch that inherits it has it from its beginning on, and an ancestor of the known
        // version around where that one left it.
        let left_at =
            ancestry.get(&branch).map(|last| views.partition_point(|of| epoch(of) <= *last));
        let around = left_at.into_iter().flat_map(|at| [at.wrapping_sub(1), at]);
        let probes = around.chain([0]);
        let mut probes = probes.filter(|at| *at < views.len());
        let Some(at) = probes.find(|at| has(views[*at])) else { continue };
        let start = views[..at].partition_point(|view| !has(*view));
        let end = at + 1 + views[at + 1..].partition_point(|view| has(*view));
        let (first, last, count) = (views[start], views[end - 1], (end - start) as u64);
        found = Some(match found {
            None => Spread { first, last, count },
            Some(before) => Spread {
                first: before.first,
                // A head says more to users than a snapshot.
                last: if before.last.epoch.is_none() && last.epoch.is_some() {
                    before.last
                } else {
                    last
                },
                count: before.count + count,
            },
        });
    }
    found
}

/// Looks for the versions that have damaged pages. It keeps the paths of files that it has looked
/// for, since a file may have many such pages.
pub(super) struct Finder<'d> {
    disk: &'d LogDisk,
    table: VersionTable,
    paths: BTreeMap<(u32, Option<u64>, u64), Option<String>>,
}

/// Of what is damaged, the first version that has it, the last one, and how many have it.
pub(super) type Ends = (VersionWithFile, VersionWithFile, u64);

impl<'d> Finder<'d> {
    pub(super) fn new(disk: &'d LogDisk) -> Self {
        Self { disk, table: disk.versions(), paths: BTreeMap::new() }
    }

    pub(super) const fn table(&self) -> &VersionTable {
        &self.table
    }

    /// The versions that have what is damaged there; `None` if it is no page, or if none is known.
    pub(super) fn ends(&mut self, kept: &KeptDamage) -> Option<Ends> {
        let (list, page) = kept.part.page()?;
        let known = kept.view.filter(|view| self.table.check(*view).is_ok())?;
        let disk = self.disk;
        let found = spread(&self.table, known, |view| {
            let addr = disk.page_addr(view, Lid(list), page);
            addr.is_ok_and(|addr| addr == Some(kept.addr_bytes))
        })?;
        Some((self.with_file(found.first, list), self.with_file(found.last, list), found.count))
    }

    fn with_file(&mut self, view: View, list: u64) -> VersionWithFile {
        let disk = self.disk;
        let path = self.paths.entry((view.branch, view.epoch, list)).or_insert_with(|| {
            let path = path_of(disk, view, Ino(list)).ok().flatten();
            path.map(|path| path_text(&path))
        });
        let version = version_text(view, &self.table).unwrap_or_default();
        VersionWithFile { version, path: path.clone() }
    }
}

/// The name of a version, as commands take it.
pub(super) fn version_text(view: View, table: &VersionTable) -> Option<String> {
    match view.epoch {
        None => table.branch_of(view).map(|branch| format!(":{}", branch.name)),
        Some(_) => table.snapshot_of(view).map(Snapshot::title),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendro_base::{Rng, Timestamp};

    /// A table with branches of branches, and some versions deleted again.
    fn table(rng: &mut Rng) -> VersionTable {
        let time = Timestamp(0);
        let mut table = VersionTable::new(time);
        for step in 0..60 {
            let views: Vec<View> = table.views().collect();
            let view = views[rng.below(views.len() as u64) as usize];
            let _ = match rng.below(6) {
                0 => table.branch_off(view, &format!("b{step}"), time).map(drop),
                1 if view != table.main_head() => table.delete(view),
                _ => table.snapshot(view.branch, None, time).map(drop),
            };
        }
        table
    }

    #[test]
    fn a_few_probes_find_what_asking_each_version_finds() {
        let mut rng = Rng::new(1);
        for _ in 0..300 {
            let table = table(&mut rng);
            let views: Vec<View> = table.views().collect();
            let known = views[rng.below(views.len() as u64) as usize];
            // The page was written in one of the branches that the version sees, and again later in
            // this one and others.
            let seen = table.ancestry(known);
            let (owner, last) = seen[rng.below(seen.len() as u64) as usize];
            let born = rng.below(last.min(60) + 1);
            let writes: Vec<(u32, u64)> = std::iter::once((owner, born))
                .chain((0..3).map(|_| (rng.below(20) as u32, rng.below(60))))
                .collect();
            let mut asked = 0;
            let mut has = |view: View| {
                asked += 1;
                let newest = table.ancestry(view).into_iter().find_map(|(branch, last)| {
                    let own = writes.iter().filter(|of| of.0 == branch && of.1 <= last);
                    own.max_by_key(|of| of.1)
                });
                newest == Some(&(owner, born))
            };
            if !has(known) {
                continue;
            }
            let mut all: Vec<View> = views.iter().copied().filter(|view| has(*view)).collect();
            all.sort_by_key(|view| (view.branch, view.epoch.unwrap_or(u64::MAX)));
            let last = all.iter().rev().find(|view| view.epoch.is_none()).or(all.last());
            let wanted = Spread { first: all[0], last: *last.unwrap(), count: all.len() as u64 };
            assert_eq!(spread(&table, known, &mut has), Some(wanted), "{known:?} {writes:?}");
        }
    }

    #[test]
    fn a_thousand_snapshots_take_few_probes() {
        let mut table = VersionTable::new(Timestamp(0));
        for _ in 0..1000 {
            table.snapshot(0, None, Timestamp(0)).unwrap();
        }
        let mut asked = 0;
        let all = spread(&table, View::HEAD, |view| {
            asked += 1;
            view.epoch.is_none_or(|epoch| epoch > 300)
        });
        assert_eq!(
            all.map(|of| (of.first.epoch, of.last, of.count)),
            Some((Some(301), View::HEAD, 701))
        );
        assert!(asked < 40, "{asked}");
    }
}
