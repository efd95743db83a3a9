//! Makes the tail of the log durable every few seconds, and takes automatic snapshots.

use std::sync::Arc;

use dendro_base::{Clock, SystemClock};

use super::pace::Failing;
use crate::state::Daemon;
use crate::views::MountedView;

impl Daemon<'_> {
    pub(crate) fn commit_at_intervals(&self) {
        let interval = || self.options.lock().commit_interval;
        let mut failing = Failing::new("making the log durable");
        let mut failing_snapshots = Failing::new("keeping how it was");
        while !self.stop.wait(interval()) {
            failing_snapshots.note(self.take_snapshots());
            failing.note(self.unless_host_is_full(self.volume.commit(), ()));
        }
    }

    /// Has the kernel hand over what it collects, every few seconds. That can take long, so
    /// [`Self::commit_at_intervals`] does not wait for it.
    pub(crate) fn collect_at_intervals(&self) {
        let interval = || self.options.lock().commit_interval;
        while !self.stop.wait(interval()) {
            for view in self.views.all() {
                view.refresh_block_counts();
                view.ask_for_collected();
            }
        }
    }

    /// Takes the automatic snapshots that mounts ask for.
    fn take_snapshots(&self) -> Result<(), dendro_disk::Error> {
        let views = self.views.all();
        let keeps = |view: &&Arc<MountedView>| view.keeps_snapshots();
        let mut keeping = views.iter().filter(keeps).peekable();
        if keeping.peek().is_none() {
            return Ok(());
        }
        views.iter().filter(keeps).for_each(|view| view.take_collected());
        // A snapshot must not be deleted while it is being mounted.
        let _changes = self.changes.lock();
        let mounted: Vec<_> = self.views.all_open().iter().map(|view| view.view()).collect();
        keeping.try_for_each(|view| {
            view.take_snapshot(self.volume.disk(), &mounted, SystemClock.now())
        })
    }
}
