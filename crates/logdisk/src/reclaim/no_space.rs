//! What is done when a unit does not fit: space is freed and room is made, or the unit is refused
//! (ENOSPC).

use std::time::Duration;

use dendro_base::Clock;
use dendro_base::sync::Arc;
use dendro_disk::{Chores, ExpectedRelease, Releases, Result};

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::map::Nodes;
use crate::reclaim::collection::Collector;
use crate::reclaim::make_room::{MIN_CLEANED_AT_ONCE, RoomMaker, SeenPruning, Tries};
use crate::reclaim::prune::Pruner;
use crate::reclaim::removal::Remover;
use crate::space::reserve::Accounts;
use crate::space::shortage::{Need, Shortage};
use crate::volume::Volume;
use crate::volume::holds::LockHolder;

/// Frees space and makes room for what does not fit.
pub(crate) struct Reclaimer {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    room_maker: Arc<RoomMaker>,
    pruner: Arc<Pruner>,
    remover: Arc<Remover>,
    collector: Collector,
    releases: Arc<Releases>,
    /// What clients have left to be done, most of which gives space back.
    chores: Chores,
    clock: Arc<dyn Clock>,
    /// How long to wait for a release that is expected.
    release_wait: Duration,
}

impl Reclaimer {
    pub(crate) fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        room_maker: Arc<RoomMaker>,
        pruner: Arc<Pruner>,
        remover: Arc<Remover>,
        collector: Collector,
        release_wait: Duration,
    ) -> Self {
        let (releases, clock) = (Arc::default(), Arc::clone(volume.read().clock()));
        Self {
            volume,
            accounts,
            room_maker,
            pruner,
            remover,
            collector,
            releases,
            chores: Chores::default(),
            clock,
            release_wait,
        }
    }

    /// See [`LogicalDisk::expect_release`](dendro_disk::LogicalDisk::expect_release).
    pub(crate) fn expect_release(&self) -> ExpectedRelease {
        if self.release_wait.is_zero() {
            ExpectedRelease::default()
        } else {
            self.releases.expect(self.clock.now())
        }
    }

    /// What counts the volume's space.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// What clients have left to be done.
    pub(crate) const fn chores(&self) -> &Chores {
        &self.chores
    }

    /// The collection of what only deleted versions saw.
    pub(crate) const fn collector(&self) -> &Collector {
        &self.collector
    }

    /// Acts on a shortage. The caller holds no lock. When this returns, the caller must check the
    /// shortage again, and nodes of the map may have moved.
    ///
    /// # Errors
    /// [`Error::NoSpace`](dendro_disk::Error::NoSpace) when nothing more can be done.
    pub(crate) fn mend_shortage(
        &self,
        shortage: Shortage,
        need: Need,
        tries: &mut Tries,
    ) -> Result<()> {
        let is_worth_it = match shortage {
            // What only deleted versions had can be freed and used.
            Shortage::OfSpace(_) => {
                self.free(tries.seen_pruning())?
                    || self.collector.collect_behind_forks()
                    || self.accounts.host().has_grown()
            }
            Shortage::OnHost(_) => {
                let may_free = !need.reclaims() && !self.accounts.waits_for_host();
                (may_free && self.free(tries.seen_pruning())?)
                    || self.room_maker.try_to_mend(shortage, need, tries)?
            }
            Shortage::OfRoom(_) => {
                let mut is_worth_it = self.room_maker.try_to_mend(shortage, need, tries)?;
                // Cleaning gains nothing either where most of what fills the segments belongs only
                // to deleted versions. A collection itself needs room as a unit that gives space
                // back does.
                if !is_worth_it && !need.reclaims() && self.collect_for_room()? {
                    *tries = Tries::default();
                    is_worth_it = true;
                }
                is_worth_it || tries.try_last_resort(need)
            }
        };
        if is_worth_it { Ok(()) } else { Err(shortage.error(need)) }
    }

    /// Frees some of what no version sees, for a caller for whom there was too little space when it
    /// looked. If there is nothing to free, it waits for what clients are about to give back.
    /// Returns false if nothing came of that either, and no other thread has freed anything since
    /// the call before with the same `seen`: looking again is of no use then.
    pub(crate) fn free(&self, seen: &mut SeenPruning) -> Result<bool> {
        let released_count = self.releases.ended_count();
        let is_freed = self.free_step()?;
        if self.pruner.has_pruned_since(seen) || is_freed {
            return Ok(true);
        }
        Ok(self.releases.await_more_than(released_count, self.release_wait, &*self.clock))
    }

    /// As [`Self::free`], for a unit that a quota has no room for. What branches have replaced that
    /// other branches were made from counts for the quota too.
    pub(crate) fn free_for_quota(&self, seen: &mut SeenPruning) -> Result<bool> {
        Ok(self.free(seen)? || self.collector.collect_behind_forks())
    }

    /// Performs one step that frees what no version sees, or what a client has left to be freed.
    /// Returns whether there was anything to free.
    pub(crate) fn free_step(&self) -> Result<bool> {
        Ok(self.remover.step()? || self.chores.step() || self.collector.step()?)
    }

    /// Collects what only deleted versions had, until cleaning gains some segments from it or
    /// nothing is left. Returns whether that has freed anything, or others have written meanwhile
    /// and may have used what it freed.
    fn collect_for_room(&self) -> Result<bool> {
        let live_and_written_bytes = || {
            let engine = self.volume.read();
            (engine.state().segments().live_bytes(), engine.user_bytes())
        };
        let before = live_and_written_bytes();
        let freed_bytes =
            u64::from(MIN_CLEANED_AT_ONCE) * self.volume.layout().segment_size_bytes();
        let enough = before.0.saturating_sub(freed_bytes);
        while live_and_written_bytes().0 > enough
            && (self.free_step()? || self.collector.collect_behind_forks())
        {}
        let after = live_and_written_bytes();
        Ok(after.0 < before.0 || after.1 > before.1)
    }

    /// Makes room for `need` and calls `change`, which concerns versions, as [`Volume::change`]
    /// does.
    ///
    /// # Errors
    /// What `change` returns, or as [`Self::mend_shortage`].
    pub(crate) fn with_room<T>(
        &self,
        need: Need,
        change: impl FnMut(&mut Engine, &dyn Nodes) -> Outcome<T>,
    ) -> Result<T> {
        self.room_maker.with_room(LockHolder::Versions, need, change, |shortage, tries| {
            self.mend_shortage(shortage, need, tries)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dendro_base::sync::Arc;
    use dendro_base::units::PAGE_SIZE;
    use dendro_disk::{Aru, Chore, ChoreStep, Error, ListHints, LogicalDisk, View};

    use dendro_format::Head;
    use dendro_policy::Class;

    use crate::OpenOptions;
    use crate::disk::LogDisk;
    use crate::reclaim::make_room::SeenPruning;
    use crate::testing::{disk_in_memory, make_list};

    /// A disk with a deleted list of which much is left.
    fn disk_with_removal() -> LogDisk {
        let disk = disk_in_memory(64, 4096, OpenOptions::default());
        let list = make_list(&disk);
        let mut aru = Aru::new(View::HEAD);
        for index in 0..1000 {
            aru.put_record(list, index, vec![7; 200]);
        }
        disk.commit(aru).unwrap();
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(list);
        disk.commit(aru).unwrap();
        disk
    }

    #[test]
    fn space_can_be_given_back_even_if_the_reserve_is_used_up() {
        let disk = disk_in_memory(16, 128, OpenOptions::default());
        let lists = [(); 2].map(|()| make_list(&disk));
        let write = |page: u64| {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(lists[page as usize % 2], page, vec![7; PAGE_SIZE]);
            disk.commit(aru)
        };
        assert!((0..).find_map(|page| write(page).err()).is_some());
        disk.checkpoint().unwrap();
        // The device cannot write most of the reserve.
        {
            let mut engine = disk.volume().write();
            let segments = engine.state_mut().segments_mut();
            while segments.clean_count() > 4 {
                segments.open(Head::Payload, Class::MAIN).unwrap();
            }
        }
        let mut aru = Aru::new(View::HEAD);
        aru.delete_list(lists[0]);
        assert!(matches!(disk.commit(aru), Err(Error::NoSpace { .. })));
        for list in lists {
            let mut aru = Aru::new(View::HEAD);
            aru.delete_list(list).set_reclaims();
            disk.commit(aru).unwrap();
        }
        disk.checkpoint().unwrap();
    }

    #[test]
    fn a_unit_waits_for_space_that_another_client_is_about_to_give_back() {
        let release_wait = Duration::from_secs(600);
        let disk = disk_in_memory(64, 4096, OpenOptions { release_wait, ..OpenOptions::default() });
        let make = |len_bytes: u64| {
            let list = disk.allocate_list().unwrap();
            let mut aru = Aru::new(View::HEAD);
            aru.create_list(list, ListHints::default());
            aru.write_pages(list, 0, vec![7; len_bytes as usize]);
            disk.commit(aru).map(|_| list)
        };
        let half_bytes = disk.space().available_bytes / 5 * 3;
        let first = make(half_bytes).unwrap();
        assert!(matches!(make(half_bytes), Err(Error::NoSpace { .. })), "nothing is expected");
        let expected = disk.expect_release();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // The other one most likely waits by now.
                std::thread::sleep(Duration::from_millis(30));
                let mut aru = Aru::new(View::HEAD);
                aru.delete_list(first).set_reclaims();
                disk.commit(aru).unwrap();
                drop(expected);
            });
            make(half_bytes).unwrap();
        });
    }

    #[test]
    fn a_unit_that_lacks_space_has_done_what_clients_left_to_be_done() {
        let disk = Arc::new(disk_in_memory(64, 4096, OpenOptions::default()));
        let write = |list, len_bytes: u64| {
            let mut aru = Aru::new(View::HEAD);
            aru.write_pages(list, 0, vec![7; len_bytes as usize]);
            disk.commit(aru)
        };
        let most_bytes = disk.space().available_bytes / 5 * 3;
        let [first, second] = [(); 2].map(|()| make_list(&disk));
        write(first, most_bytes).unwrap();
        assert!(matches!(write(second, most_bytes), Err(Error::NoSpace { .. })));
        let punched_disk = Arc::clone(&disk);
        let chore: Arc<dyn Chore> = Arc::new(move || {
            let page_count = most_bytes / PAGE_SIZE as u64 + 1;
            let next = punched_disk.next_data(View::HEAD, first, 0).unwrap();
            let Some(page) = next.filter(|page| *page < page_count) else {
                return ChoreStep::Finished;
            };
            let mut aru = Aru::new(View::HEAD);
            aru.punch_pages(first, page, 1000).set_reclaims();
            punched_disk.commit(aru).unwrap();
            ChoreStep::Done
        });
        disk.do_later(Arc::downgrade(&chore));
        write(second, most_bytes).unwrap();
        while disk.background_step().unwrap() {}
        assert_eq!(disk.next_data(View::HEAD, first, 0), Ok(None));
    }

    #[test]
    fn who_found_too_little_space_looks_again_if_others_have_freed_the_last_of_it() {
        let disk = disk_with_removal();
        let reclaimer = disk.reclaimer();
        let mut seen = SeenPruning::default();
        assert!(reclaimer.free(&mut seen).unwrap());
        // The caller looks, and before it goes on another thread frees all that is left.
        let mut step_count = 0;
        while reclaimer.free_step().unwrap() {
            step_count += 1;
        }
        assert!(step_count > 1, "{step_count}");
        assert!(reclaimer.free(&mut seen).unwrap());
        assert!(!reclaimer.free(&mut seen).unwrap());
    }
}
