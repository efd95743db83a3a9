//! Automatic snapshots of a mount, and their retention.

use dendro_base::Timestamp;
use dendro_disk::{Lid, Result, VersionTable, Versions, View};
use dendro_versions::Retention;

/// Below this share of writable space, old snapshots are deleted.
const SHORT_OF_SPACE: u64 = 20;

/// The most snapshots that one step deletes: a changed rule may thin out thousands.
const MAX_DELETED: usize = 256;

/// Takes snapshots of a branch and keeps them by a rule.
#[derive(Debug)]
pub(crate) struct AutomaticSnapshots {
    rule: Retention,
    gives_way: bool,
}

impl AutomaticSnapshots {
    pub(crate) fn new(rule: Retention) -> Self {
        Self { rule, gives_way: false }
    }

    /// Takes a snapshot of `head` if something changed since the last one, and deletes those of
    /// the same client that the rule no longer keeps, except those that are `mounted`. If space is
    /// short, each step takes none and deletes the client's oldest snapshot without a name.
    pub(crate) fn tick(
        &mut self,
        disk: &dyn Versions,
        head: View,
        mounted: &[View],
        now: Timestamp,
    ) -> Result<()> {
        let space = disk.space();
        let is_short = space.available_bytes < space.capacity_bytes / SHORT_OF_SPACE;
        if is_short != std::mem::replace(&mut self.gives_way, is_short) && is_short {
            log::warn!(
                "space runs short: no more snapshots are made, and old ones without a name go"
            );
        }
        let table = disk.versions();
        let (client, _) = table.client_of(head.branch);
        if is_short {
            let first = Retention::first_to_give_way(&table, client, mounted);
            return first.map_or(Ok(()), |view| disk.delete(view));
        }
        if is_changed(disk, &table, head)? {
            disk.snapshot(head.branch, None)?;
        }
        let past = self.rule.to_delete(&table, client, now);
        for view in past.into_iter().filter(|view| !mounted.contains(view)).take(MAX_DELETED) {
            disk.delete(view)?;
        }
        Ok(())
    }
}

fn is_changed(disk: &dyn Versions, table: &VersionTable, head: View) -> Result<bool> {
    match table.snapshots_on(head.branch).next_back() {
        None => Ok(true),
        Some(last) => Ok(!disk.changed_lists(last.view(), head, Lid::FIRST, 1)?.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use dendro_disk::model::ModelDisk;
    use dendro_disk::{Aru, ListHints, LogicalDisk};

    use super::*;

    fn put(disk: &ModelDisk, list: Lid, len_bytes: usize) {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, 0, vec![1; len_bytes]);
        disk.commit(aru).unwrap();
    }

    fn disk(capacity_bytes: u64) -> (ModelDisk, Lid) {
        let disk = ModelDisk::new(Some(capacity_bytes));
        let list = disk.allocate_list().unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.create_list(list, ListHints::default());
        disk.commit(aru).unwrap();
        (disk, list)
    }

    #[test]
    fn a_snapshot_is_made_when_something_changed() {
        let (disk, list) = disk(1 << 30);
        let mut automatic = AutomaticSnapshots::new("1Y:all".parse().unwrap());
        let mut counts = Vec::new();
        for round in 0..6_usize {
            if round.is_multiple_of(2) {
                put(&disk, list, 1 + round);
            }
            automatic.tick(&disk, View::HEAD, &[], Timestamp(0)).unwrap();
            counts.push(disk.versions().snapshots().len());
        }
        assert_eq!(counts, [1, 1, 2, 2, 3, 3]);
        let mounted = disk.versions().snapshots().nth(1).unwrap().view();
        automatic.tick(&disk, View::HEAD, &[mounted], Timestamp(i64::MAX)).unwrap();
        assert_eq!(disk.versions().snapshots().len(), 1, "the rule keeps none that long");
        automatic.tick(&disk, View::HEAD, &[], Timestamp(i64::MAX)).unwrap();
        assert!(
            disk.versions().snapshot_of(mounted).is_none(),
            "and this one is no longer mounted"
        );
    }

    #[test]
    fn the_oldest_without_a_name_give_way_when_space_runs_short() {
        let (disk, list) = disk(1 << 20);
        let mut automatic = AutomaticSnapshots::new("1Y:all".parse().unwrap());
        for len_bytes in [300_000, 400_000] {
            put(&disk, list, len_bytes);
            automatic.tick(&disk, View::HEAD, &[], Timestamp(0)).unwrap();
        }
        disk.snapshot(0, Some("named")).unwrap();
        put(&disk, list, 320_000);
        let epochs = || disk.versions().snapshots().map(|of| of.epoch).collect::<Vec<_>>();
        assert_eq!(epochs(), [1, 2, 3]);
        automatic.tick(&disk, View::HEAD, &[], Timestamp(0)).unwrap();
        assert_eq!(epochs(), [2, 3], "the oldest went, and none was made");
        automatic.tick(&disk, View::HEAD, &[], Timestamp(0)).unwrap();
        assert_eq!(epochs(), [2, 3, 4], "there is room again");
    }
}
