//! The volume gets fewer segments: those from some number on are given up.
//!
//! The steps, in order:
//! 1. What clients have must fit into the smaller volume. From then on they are told its free
//!    space.
//! 2. The last segments are given up, which means that nothing is written to them any more: as many
//!    at a time as leave enough clean ones for the next checkpoint and for cleaning. So at each
//!    moment the volume works like one that has only the others.
//! 3. The cleaner empties them, whatever is live in them. Streams leave them, and checkpoints make
//!    them clean. If too few segments are clean to go on, room is made as for a commit.
//! 4. When nothing is needed in any of them, a checkpoint is taken that refers to none of them, and
//!    a superblock states the new number (resize 2). A further checkpoint repeats it.
//! 5. A backup of the superblock is written to the new end of the device, and the device is cut off
//!    there (resize 3).
//!
//! Nothing on the device says that a volume becomes shorter, until step 4. So after a crash it has
//! the old size or the new one, and giving up changes only what is in memory.

use std::collections::BTreeSet;

use dendro_base::sync::Arc;
use dendro_disk::{Error, Result};
use dendro_format::retired::Retired;
use dendro_format::{Layout, SegmentNo};

use super::standing::{ShrinkProgress, Shrinking, Standing};
use super::{Resizer, refuse_while};
use crate::checkpoint::unless_put_off;
use crate::clean::pick::Choice;
use crate::log::backups;
use crate::log::segments::{SegmentState, Segments};
use crate::reclaim::make_room::{SeenPruning, Tries};
use crate::space::shortage::{Need, Shortage};

/// After so many steps in a row that gained nothing, fewer segments are kept clean.
const GENTLE_STEPS: u32 = 4;
/// After so many, the volume stays as it was.
const MAX_FRUITLESS: u32 = 24;
/// How many steps count as fruitless when no room could be made.
const STEPS_WITHOUT_ROOM: u32 = 4;

impl Resizer {
    /// See [`LogDisk::begin_shrinking`](crate::LogDisk::begin_shrinking).
    pub(crate) fn begin_shrinking(&self, len_bytes: u64, device_len_bytes: u64) -> Result<()> {
        let mut shrinking = self.shrinking.lock();
        refuse_while(&shrinking)?;
        let superblock = self.volume.newest_superblock();
        let layout = superblock
            .layout_on(len_bytes, device_len_bytes)
            .map_err(|malformed| Error::Io(malformed.problem.to_owned()))?;
        let count = superblock.layout.segment_count().checked_sub(layout.segment_count());
        let count = count.ok_or_else(|| Error::Io("the volume is smaller already".into()))?;
        let mut seen = SeenPruning::default();
        loop {
            let engine = self.volume.write();
            self.volume.check_writable(&engine)?;
            if count == 0 || self.accounts.fits_into(&engine, layout) {
                self.volume.set_usable_layout(layout);
                break;
            }
            drop(engine);
            // What is deleted can be freed.
            if !self.reclaimer.free(&mut seen)? {
                let needed_bytes = self.smallest_layout().len_bytes();
                return Err(Error::NoSpace { needed_bytes, available_bytes: layout.len_bytes() });
            }
        }
        if count == 0 {
            return self.cut_device(device_len_bytes);
        }
        *shrinking = Some(Shrinking {
            layout,
            device_len_bytes,
            count,
            standing: Standing { kept_count: count, needed_count: 0 },
            next: 0,
            damaged: BTreeSet::new(),
            suspect: BTreeSet::new(),
            fruitless: 0,
            most_clean: 0,
            tries: Tries::default(),
        });
        Ok(())
    }

    /// The smallest layout into which fits what clients have.
    pub(crate) fn smallest_layout(&self) -> Layout {
        self.accounts.smallest_layout(&self.volume.read())
    }

    /// See [`LogDisk::shrink_step`](crate::LogDisk::shrink_step).
    pub(crate) fn shrink_step(&self) -> Result<Option<ShrinkProgress>> {
        let mut shrinking = self.shrinking.lock();
        let Some(now) = shrinking.as_mut() else { return Ok(None) };
        let stepped = self.step(now);
        let is_over = match stepped {
            Ok(is_done) => is_done,
            Err(_) => true,
        };
        let progress = now.progress();
        if is_over {
            *shrinking = None;
            self.take_back();
        }
        stepped.map(|is_done| (!is_done).then_some(progress))
    }

    /// See [`LogDisk::stop_shrinking`](crate::LogDisk::stop_shrinking).
    pub(crate) fn stop_shrinking(&self) {
        if self.shrinking.lock().take().is_some() {
            self.take_back();
        }
    }

    /// Gives up no segments any more.
    fn take_back(&self) {
        let mut engine = self.volume.write();
        self.volume.set_usable_layout(self.volume.layout());
        engine.state_mut().segments_mut().take_back();
    }

    /// Returns whether the volume has become shorter.
    fn step(&self, now: &mut Shrinking) -> Result<bool> {
        let (standing, is_short) = self.give_up(now)?;
        if standing != now.standing {
            now.standing = standing;
            now.note_gain();
        }
        if standing == Standing::default() {
            let is_done = self.finish(now)?;
            now.fruitless += 1;
            return if is_done { Ok(true) } else { self.go_on(now) };
        }
        self.cleaner.drop_empty_jobs();
        let victim = self.next_victim(now);
        // Emptying one takes clean segments, which others should yield first.
        let is_ready = !is_short || now.fruitless >= GENTLE_STEPS;
        if let Some((victim, live_bytes)) = victim.filter(|_| is_ready) {
            now.next = victim.0;
            self.volume.write_queued()?;
            self.cleaner.clean_now(Choice::Only(victim), false, &|_| false)?;
            if self.live_bytes_of(victim) < live_bytes {
                now.note_gain();
                return Ok(false);
            }
            if self.cleaner.is_damaged(victim) {
                if !now.suspect.insert(victim) {
                    now.damaged.insert(victim);
                }
                return Ok(false);
            }
            // Another one may need less room.
            now.next = victim.0 + 1;
        }
        // Whoever reads what is empty ends by itself.
        now.fruitless += u32::from(victim.is_some() || !self.is_read());
        self.go_on(now)?;
        // What is empty becomes clean with a checkpoint.
        let clean_count = || self.volume.read().state().segments().clean_count();
        let clean_before = clean_count();
        let is_taken = unless_put_off(self.checkpointer.take_always())?;
        if !is_taken || clean_count() <= clean_before && (is_short || standing.kept_count > 0) {
            self.make_room(now)?;
        }
        if is_short {
            now.note_clean(clean_count());
        }
        Ok(false)
    }

    /// Returns an error if the volume must stay as it is.
    fn go_on(&self, now: &Shrinking) -> Result<bool> {
        let damaged = now.damaged.iter().find(|segment| self.live_bytes_of(**segment) > 0);
        match damaged {
            Some(damaged) if self.next_victim(now).is_none() => Err(Error::Corrupted(format!(
                "segment {damaged}, which the volume is to give up, has blocks that cannot be read \
                 or whose checksums are wrong"
            ))),
            _ if now.fruitless > MAX_FRUITLESS => {
                Err(Error::NoSpace { needed_bytes: 0, available_bytes: 0 })
            }
            _ => Ok(false),
        }
    }

    /// Makes room for a segment, if that is possible.
    fn make_room(&self, now: &mut Shrinking) -> Result<()> {
        let need = Need::space(self.volume.layout().segment_size_bytes());
        match self.reclaimer.mend_shortage(Shortage::OfRoom(0), need, &mut now.tries) {
            Err(Error::NoSpace { .. }) => {
                now.tries = Tries::default();
                now.fruitless += STEPS_WITHOUT_ROOM;
                Ok(())
            }
            made => made,
        }
    }

    /// Gives up as many segments as is possible now, and has streams leave them. Returns how it
    /// stands, and whether too few segments are clean for cleaning and checkpoints.
    fn give_up(&self, now: &Shrinking) -> Result<(Standing, bool)> {
        let superblock = self.volume.newest_superblock();
        let mut engine = self.volume.write();
        self.volume.check_writable(&engine)?;
        // Segments that wait for those who look at a held state would never become empty.
        engine.state().segments().end_hold();
        let least = self.accounts.checkpoint_reserve(&engine);
        let kept = match now.fruitless < GENTLE_STEPS {
            true => self.accounts.scarce_segments(&engine) + self.accounts.pace_segments(),
            false => least,
        };
        let target = now.layout.segment_count();
        engine.state_mut().segments_mut().lower_end(target, kept);
        engine.leave_retired().map_err(|fault| self.volume.latch(fault))?;
        let segments = engine.state().segments();
        let spared = spared(segments, &superblock.retired);
        let is_needed = |segment: &SegmentNo| segments.state(*segment) != SegmentState::Retired;
        let standing = Standing {
            kept_count: segments.end() - target,
            needed_count: segments.leaving_count() + spared.filter(is_needed).count() as u32,
        };
        Ok((standing, segments.clean_count() < least))
    }

    /// The next segment that is to be emptied, and its live bytes: one that is given up, or another
    /// one whose mirror is or of which a part lies there.
    fn next_victim(&self, now: &Shrinking) -> Option<(SegmentNo, u32)> {
        let superblock = self.volume.newest_superblock();
        let engine = self.volume.read();
        let segments = engine.state().segments();
        let mirrored = segments.mirrors().list().into_iter();
        let mirrored = mirrored.filter(|(_, mirror)| segments.is_given_up(*mirror));
        let all = (segments.leaving(now.next).chain(segments.leaving(0)))
            .chain(mirrored.map(|(of, _)| of))
            .chain(spared(segments, &superblock.retired));
        let live_bytes_of = |segment| segments.live_bytes_of(segment);
        all.map(|segment| (segment, live_bytes_of(segment))).find(|(segment, live_bytes)| {
            *live_bytes > 0
                && segments.state(*segment) == SegmentState::Dirty
                && !now.damaged.contains(segment)
        })
    }

    /// Whether somebody reads one of the segments that are given up.
    fn is_read(&self) -> bool {
        let engine = self.volume.read();
        let segments = engine.state().segments();
        segments.leaving(0).any(|segment| segments.is_pinned(segment))
    }

    fn live_bytes_of(&self, segment: SegmentNo) -> u32 {
        self.volume.read().state().segments().live_bytes_of(segment)
    }

    /// Ends the volume before the segments that were given up. Returns false if the checkpoint that
    /// this takes has been put off.
    fn finish(&self, now: &Shrinking) -> Result<bool> {
        // The one before may refer to what has died since (reuse 1).
        if !unless_put_off(self.checkpointer.take_always())? {
            return Ok(false);
        }
        let layout = now.layout;
        let written = self.volume.now();
        {
            let mut superblock = self.volume.superblock();
            self.volume.append_superblock(&mut superblock, |next| {
                next.layout = layout;
                next.written = written;
                next.retired.retain(|one| layout.is_log_segment(one.segment));
                for one in &mut next.retired {
                    one.moved.take_if(|(_, spare)| !layout.is_log_segment(*spare));
                }
            })?;
            let mut engine = self.volume.write();
            self.volume.cut_off_segments(&mut engine, &superblock)?;
            // Policies divide blocks by what there is room for.
            let policy = Arc::clone(engine.streams().policy());
            engine.set_policy(policy);
            self.volume.unlock(engine);
        }
        self.state_again()?;
        self.cut_device(now.device_len_bytes)?;
        Ok(true)
    }

    /// Cuts the device off behind the volume, unless it is as short.
    fn cut_device(&self, len_bytes: u64) -> Result<()> {
        let device = self.volume.device();
        if device.len_bytes() <= len_bytes {
            return Ok(());
        }
        let failed = |error| Error::Io(format!("making the device shorter: {error}"));
        // No other backup is written meanwhile.
        let superblock = self.volume.superblock();
        if superblock.backup_area(len_bytes).is_some() {
            let end = backups::new_end(&superblock, 0, len_bytes);
            device.write_at(len_bytes - end.len() as u64, &end).map_err(failed)?;
            self.volume.flush_device()?;
        }
        self.volume.change_device_len(|device| device.truncate(len_bytes))?.map_err(failed)
    }
}

/// The segments of which a part lies in a segment that is given up.
fn spared<'r>(
    segments: &'r Segments,
    retired: &'r [Retired],
) -> impl Iterator<Item = SegmentNo> + use<'r> {
    let moved = |one: &&Retired| {
        let spare = one.moved.as_ref().map(|(_, spare)| *spare);
        spare.is_some_and(|spare| segments.is_given_up(spare)) && !segments.is_given_up(one.segment)
    };
    retired.iter().filter(moved).map(|one| one.segment)
}

#[cfg(test)]
mod tests {
    use dendro_format::Addr;

    use crate::clean::cleaner::tests::disk_half_alive;

    #[test]
    fn it_waits_for_those_who_read_what_is_given_up() {
        let disk = disk_half_alive();
        let layout = disk.volume().layout();
        let pin = {
            let engine = disk.volume().read();
            let segments = engine.state().segments();
            let last = layout.log_segments().filter(|it| segments.live_bytes_of(*it) > 0).last();
            let last = last.expect("something is live");
            segments.pin(Addr::from_bytes(layout.segment_offset(last)))
        };
        let len_bytes = disk.smallest_len_bytes();
        disk.begin_shrinking(len_bytes, layout.len_bytes()).expect("it fits");
        for _ in 0..100 {
            assert!(disk.shrink_step().expect("it fits").is_some());
        }
        drop(pin);
        while disk.shrink_step().expect("it fits").is_some() {}
        assert_eq!(disk.superblock().layout.len_bytes(), len_bytes);
    }
}
