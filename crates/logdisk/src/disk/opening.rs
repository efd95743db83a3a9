//! Opening a disk: recovery provides the parts, and the rooms are put together from them.

use dendro_base::Clock;
use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_disk::{CommitSeq, Error, LogicalDisk, Result, Versions};
use dendro_format::Compression;

use super::LogDisk;
use crate::background::Background;
use crate::checkpoint::Checkpointer;
use crate::clean::cleaner::Cleaner;
use crate::clean::coalesce::{IdleCoalescing, Mover};
use crate::clean::external::ExternalAccess;
use crate::commit::committer::Committer;
use crate::flush::Flusher;
use crate::options::{FormatOptions, OpenOptions};
use crate::read::Reader;
use crate::rearranger::Rearranger;
use crate::reclaim::collection::Collector;
use crate::reclaim::make_room::RoomMaker;
use crate::reclaim::no_space::Reclaimer;
use crate::reclaim::prune::Pruner;
use crate::reclaim::removal::Remover;
use crate::reclaim::throttle::Throttle;
use crate::recovery::{self, FirstSteps, Recovered};
use crate::resize::Resizer;
use crate::snapshots::manage::VersionManager;
use crate::space::reserve::Accounts;
use crate::space::reuse::Reuse;
use crate::volume::Volume;

/// Makes an empty volume on `device`. Everything that was on the device is lost.
///
/// # Errors
/// [`Error::Io`](dendro_disk::Error::Io) when the options do not fit the device;
/// [`Error::Failed`](dendro_disk::Error::Failed) when it cannot be written.
pub fn format(
    device: &Arc<dyn Device>,
    options: &FormatOptions,
    clock: &Arc<dyn Clock>,
) -> Result<()> {
    create(device, options, OpenOptions::default(), clock)?.shut_down()
}

/// As [`format()`], and opens the volume. No volume is found on the device until this one is shut
/// down or takes a checkpoint. What was put into it by then is found with it.
///
/// # Errors
/// As [`format()`].
pub fn create(
    device: &Arc<dyn Device>,
    options: &FormatOptions,
    open_options: OpenOptions,
    clock: &Arc<dyn Clock>,
) -> Result<LogDisk> {
    recovery::make(device, options, open_options, clock).map(LogDisk::assemble)
}

impl LogDisk {
    /// Opens the volume on `device` and rolls its log forward.
    ///
    /// # Errors
    /// [`Error::Corrupted`] when there is no volume or when its superblocks or checkpoints are
    /// damaged; [`Error::Lost`] when something is damaged that was durable; [`Error::Io`] when the
    /// device cannot be read; [`Error::Failed`] when it cannot be written.
    ///
    /// [`Error::Corrupted`]: dendro_disk::Error::Corrupted
    /// [`Error::Lost`]: dendro_disk::Error::Lost
    /// [`Error::Io`]: dendro_disk::Error::Io
    /// [`Error::Failed`]: dendro_disk::Error::Failed
    pub fn open(
        device: Arc<dyn Device>,
        options: OpenOptions,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let (parts, FirstSteps { marks_unclean, takes_checkpoint, keeps_heads }) =
            recovery::open(device, options, clock)?;
        let mut disk = Self::assemble(parts);
        disk.was_unclean = takes_checkpoint;
        if disk.volume.is_writable() {
            disk.volume.find_backed_segments();
        }
        if marks_unclean {
            disk.volume.mark_unclean()?;
        }
        if disk.volume.is_writable() {
            let notes = disk.versions.count_unknown()?;
            disk.recovery_notes.extend(notes);
        }
        if takes_checkpoint {
            disk.checkpointer.take_always()?;
        }
        disk.finish_rearrangement()?;
        if keeps_heads {
            disk.collect_remains()?;
            disk.keep_heads()?;
        }
        Ok(disk)
    }

    /// Finishes what a unit had put off when the disk was closed; space was reserved for it then.
    /// If something cannot be read, or the device has become too small, its lists cannot be read
    /// until that changes.
    fn finish_rearrangement(&mut self) -> Result<()> {
        if self.volume.read().state().versions().rearrangement().is_none() {
            return Ok(());
        }
        let finished = match self.volume.is_writable() {
            true => self.volume.settle(),
            false => self.rearranger.finish_in_memory(),
        };
        match finished {
            Err(error @ (Error::NoSpace { .. } | Error::Corrupted(_) | Error::Io(_))) => {
                self.recovery_notes
                    .push(format!("a unit that moves pages cannot be finished: {error}"));
                Ok(())
            }
            finished => finished,
        }
    }

    /// Takes out what no version sees, after a loss was accepted. An older checkpoint has items
    /// that were collected since, and others may lie where their blocks were. What is left of
    /// them, for lack of room or because it cannot be read, is taken out in the background.
    fn collect_remains(&self) -> Result<()> {
        while self.removal_step()? || self.collection_step()? {}
        self.checkpointer.take_if_it_fits(&|_| false)
    }

    /// Keeps the present state of every head as a snapshot, before anything is overwritten. The
    /// name of the snapshot states the reason.
    fn keep_heads(&mut self) -> Result<()> {
        let now = self.volume.now();
        let heads: Vec<(u32, String)> = Versions::versions(self)
            .branches()
            .filter(|branch| !branch.is_receiving())
            .map(|branch| (branch.branch, branch.name.clone()))
            .collect();
        for (branch, branch_name) in heads {
            // The names are unique, whatever the names of the branches are.
            let name = format!("recovered-{}-{branch}", now.secs());
            self.recovery_notes.push(match self.snapshot(branch, Some(&name)) {
                Ok(_) => format!("snapshot \"{name}\" keeps what was left of \"{branch_name}\""),
                Err(error) => {
                    format!("what was left of \"{branch_name}\" is not kept as a snapshot: {error}")
                }
            });
        }
        self.flush(CommitSeq::LATEST)
    }

    /// Puts the rooms together, from the bottom up.
    fn assemble(parts: Recovered) -> Self {
        let Recovered { device, options, superblock, store, engine, checkpoints, notes } = parts;
        let new_pages =
            options.compression.unwrap_or(Compression::from_byte(superblock.compression));
        let cold =
            options.cold_compression.unwrap_or(Compression::from_byte(superblock.cold_compression));
        let ways = (new_pages, cold);
        let volume = shared(Volume::new(device, superblock, store, engine, ways));
        let reader = shared(Reader::new(volume()));
        let flusher = shared(Flusher::new(volume()));
        let accounts = shared(Accounts::new(volume(), options.reserve_percent, options.cleaning));
        let reuse = shared(Reuse::new(volume(), flusher(), accounts()));
        let checkpointer =
            shared(Checkpointer::new(volume(), flusher(), accounts(), &options, checkpoints));
        let cleaner = shared(Cleaner::new(volume(), accounts(), reader()));
        let mover = shared(Mover::new(volume(), accounts(), checkpointer()));
        let room_maker =
            shared(RoomMaker::new(volume(), accounts(), checkpointer(), reuse(), cleaner()));
        let pruner = shared(Pruner::new(volume(), checkpointer(), room_maker()));
        let remover = shared(Remover::new(volume(), pruner()));
        let collector = Collector::new(volume(), pruner());
        let reclaimer = shared(Reclaimer::new(
            volume(),
            accounts(),
            room_maker(),
            pruner(),
            remover(),
            collector,
            options.release_wait,
        ));
        let resizer =
            shared(Resizer::new(volume(), accounts(), checkpointer(), cleaner(), reclaimer()));
        let rearranger = Rearranger::new(volume(), reclaimer(), resizer(), options.put_off_groups);
        let background = shared(Background::new(
            volume(),
            accounts(),
            checkpointer(),
            reuse(),
            cleaner(),
            reclaimer(),
            Arc::clone(&rearranger),
        ));
        let committer = Committer::new(
            volume(),
            accounts(),
            checkpointer(),
            remover(),
            reclaimer(),
            Throttle::new(volume(), accounts(), cleaner(), room_maker()),
            background(),
        );
        Self {
            volume: volume(),
            reader: reader(),
            committer,
            flusher: flusher(),
            accounts: accounts(),
            checkpointer: checkpointer(),
            cleaner: cleaner(),
            mover: mover(),
            idle_coalescing: IdleCoalescing::new(volume(), accounts(), mover()),
            external: ExternalAccess::new(volume(), accounts(), checkpointer()),
            room_maker: room_maker(),
            remover: remover(),
            reclaimer: reclaimer(),
            rearranger,
            resizer: resizer(),
            versions: VersionManager::new(volume(), accounts(), reclaimer()),
            background: background(),
            recovery_notes: notes,
            was_unclean: false,
        }
    }
}

/// Returns a function that gives references to `room` to those who use it.
fn shared<T>(room: T) -> impl Fn() -> Arc<T> {
    let room = Arc::new(room);
    move || Arc::clone(&room)
}

#[cfg(test)]
mod tests {
    use dendro_base::ManualClock;
    use dendro_base::units::PAGE_SIZE;
    use dendro_device::MemoryDevice;
    use dendro_disk::{Aru, ListHints, LogicalDisk, View};
    use dendro_format::Head;
    use dendro_policy::Class;

    use super::*;
    use crate::{FormatOptions, format};

    #[test]
    fn the_first_checkpoint_after_a_crash_needs_no_clean_segment_for_the_map() {
        for metadata_copies in [1, 2] {
            let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20));
            let segment_size_bytes = 256 << 10;
            let made = FormatOptions { segment_size_bytes, metadata_copies, ..Default::default() };
            format(&device, &made, &clock).unwrap();
            let open = || LogDisk::open(Arc::clone(&device), OpenOptions::default(), clock.clone());
            let disk = open().unwrap();
            let list = disk.allocate_list().unwrap();
            let mut aru = Aru::new(View::HEAD);
            aru.create_list(list, ListHints::default());
            disk.commit(aru).unwrap();
            for page in 0..300 {
                let mut aru = Aru::new(View::HEAD);
                aru.write_pages(list, page, vec![7; PAGE_SIZE]);
                disk.commit(aru).unwrap();
                if page == 200 {
                    disk.checkpoint().unwrap();
                }
            }
            disk.flush(CommitSeq::LATEST).unwrap();
            drop(disk);
            let (parts, first_steps) =
                recovery::open(Arc::clone(&device), OpenOptions::default(), clock.clone()).unwrap();
            assert!(first_steps.takes_checkpoint);
            let disk = LogDisk::assemble(parts);
            {
                let mut engine = disk.volume.write();
                let segments = engine.state_mut().segments_mut();
                while segments.open(Head::Payload, Class::MAIN).is_some() {}
            }
            disk.checkpointer.take_always().unwrap();
            // Only once: what was before is not needed any more, and may be filled by others.
            disk.checkpointer.take_always().unwrap();
            drop(disk);
            let disk = open().unwrap();
            let mut page = [0; PAGE_SIZE];
            for number in 0..300 {
                disk.read_pages(View::HEAD, list, number, &mut page).unwrap();
                assert_eq!(page, [7; PAGE_SIZE], "{number}");
            }
        }
    }
}
