//! Cleaning: the live blocks of a segment are written to the log again, so that the segment becomes
//! empty (BSD-LFS; DESIGN §8).
//!
//! A segment is cleaned in steps, and the caller determines when each step runs:
//! 1. The segment is read and its live blocks are found.
//! 2. The live blocks are moved, one batch in each step.
//! 3. The map nodes in the segment are marked dirty. The next checkpoint writes them elsewhere.
//!
//! The segment is filled again only as (segments 2) says. The policy ([`dendro_policy`]) chooses
//! the segment that is cleaned next and the class that its blocks are written to.
//!
//! The records of a segment do not name pages that were moved from one list to another. If the
//! segment's usage shows that live blocks are left after step 2, the cleaner searches the whole map
//! for them.

use std::collections::VecDeque;
use std::time::Duration;

use dendro_base::sync::atomic::{AtomicU64, Ordering};
use dendro_base::sync::{Arc, Condvar, Mutex};
use dendro_device::AlignedBuf;
use dendro_disk::{Error, Result};
use dendro_format::{Addr, SegmentNo};

use crate::clean::job::{BATCH_BYTES, CleaningJob, batch_len};
use crate::clean::neighbours::sort_by_place;
use crate::clean::pick::{Choice, Picking, most_live_bytes};
use crate::clean::relocate::{
    MapSearch, filter_live, move_blocks, move_nodes, read_blocks, summarize,
};
use crate::clean::victim::Body;
use crate::engine::Engine;
use crate::read::Reader;
use crate::space::reserve::Accounts;
use crate::volume::Volume;

/// The nice value for a thread that cleans, and for the one that does all other background work.
///
/// A client that waits for a read of the device also waits for the kernel's threads, and these wait
/// for a thread that uses the CPU. So this work runs at a lower priority than other threads, except
/// while it holds locks for a checkpoint, and while commits may soon have to wait for the memory
/// that the checkpoint frees ([`dendro_base::priority`]). When clean segments are few, commits do a
/// part of the cleaning at their own priority.
pub const CLEANER_NICENESS: i32 = 10;

/// The number of segments that are cleaned at the same time: two by the threads of a daemon, and
/// one by a writer that waits for room.
const MAX_JOBS: usize = 3;
/// The longest time for which a thread waits on `progressed` before it checks the state
/// again.
const LONGEST_WAIT: Duration = Duration::from_millis(100);
/// The number of segment-sized buffers that are kept for later jobs.
const SPARE_BUFS: usize = MAX_JOBS;

/// The state of cleaning between its steps. Its lock is held only briefly. Several callers may
/// clean at the same time, each another segment, so that one segment is read while the blocks of
/// another are moved.
#[derive(Debug, Default)]
struct Cleaning {
    bufs: Vec<AlignedBuf>,
    /// The jobs that no thread works on now, the oldest first.
    jobs: VecDeque<CleaningJob>,
    /// The value of [`Reader::device_reads`] when the last segment was begun.
    client_reads_before: u64,
    picking: Picking,
    /// True if writers that wait for room may also have the whole map searched for the live blocks
    /// of a segment. That is so when no other segment can be emptied.
    is_last_resort: bool,
}

impl Cleaning {
    /// The number of jobs that threads are working on.
    fn running_count(&self) -> usize {
        self.picking.victim_count() - self.jobs.len()
    }

    fn keep_buf(&mut self, bytes: AlignedBuf) {
        if self.bufs.len() < SPARE_BUFS {
            self.bufs.push(bytes);
        }
    }
}

/// Statistics of cleaning since the disk was opened.
#[derive(Debug, Default)]
struct Cleaned {
    segments: AtomicU64,
    moved_bytes: AtomicU64,
    live_bytes: AtomicU64,
    /// The sequence number of the last commit, and the number of segments cleaned up to then.
    commit_seq_before: AtomicU64,
    segments_before: AtomicU64,
}

impl Cleaned {
    /// Whether each segment has been cleaned twice on average since the last commit. Then more
    /// cleaning gains nothing, and it continues only after the next commit.
    fn is_fruitless(&self, commit_seq: u64, segment_count: u32) -> bool {
        let segments = self.segments.load(Ordering::Relaxed);
        if self.commit_seq_before.swap(commit_seq, Ordering::Relaxed) != commit_seq {
            self.segments_before.store(segments, Ordering::Relaxed);
        }
        let before = self.segments_before.load(Ordering::Relaxed);
        segments.saturating_sub(before) > 2 * u64::from(segment_count)
    }
}

/// How a job ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Emptied,
    /// For lack of room, or because the search for what is left was not worth its time.
    NotEmptied,
    /// Something could not be read, or its checksum was wrong.
    Damaged,
}

impl Ending {
    const fn of(error: &Error) -> Self {
        match error {
            Error::Io(_) | Error::Corrupted(_) => Self::Damaged,
            _ => Self::NotEmptied,
        }
    }
}

/// What [`Cleaner::await_job`] returns.
enum NextStep {
    /// Other threads have cleaned enough, or the disk has failed.
    Done,
    Continue(CleaningJob),
    Begin,
}

/// Cleans segments.
pub(crate) struct Cleaner {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    reader: Arc<Reader>,
    cleaning: Mutex<Cleaning>,
    /// Notified when a job has been queued or has ended.
    progressed: Condvar,
    cleaned: Cleaned,
}

impl Cleaner {
    pub(crate) fn new(volume: Arc<Volume>, accounts: Arc<Accounts>, reader: Arc<Reader>) -> Self {
        Self {
            volume,
            accounts,
            reader,
            cleaning: Mutex::default(),
            progressed: Condvar::new(),
            cleaned: Cleaned::default(),
        }
    }

    /// Segments cleaned, bytes of blocks moved, and live bytes of the segments when their jobs
    /// began.
    pub(crate) fn totals(&self) -> (u64, u64, u64) {
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Cleaned { segments, moved_bytes, live_bytes, .. } = &self.cleaned;
        (value(segments), value(moved_bytes), value(live_bytes))
    }

    /// Bytes of blocks moved since the disk was opened.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.cleaned.moved_bytes.load(Ordering::Relaxed)
    }

    /// See [`LogDisk::clean_step`](crate::LogDisk::clean_step).
    pub(crate) fn step(&self) -> Result<bool> {
        if !self.volume.is_writable() {
            return Ok(false);
        }
        self.clean_towards(0, Choice::Policy)
    }

    /// See [`LogDisk::idle_step`](crate::LogDisk::idle_step).
    pub(crate) fn idle_step(&self) -> Result<bool> {
        if !self.volume.is_writable() {
            return Ok(false);
        }
        self.clean_towards(self.accounts.idle_segments(), Choice::Idle)
    }

    fn clean_towards(&self, at_least: u32, choice: Choice) -> Result<bool> {
        if self.accounts.clean_settings().is_suspended {
            return Ok(false);
        }
        Ok(self.do_step(at_least, choice)?.is_some() || self.begin_fast()?)
    }

    /// Performs one cleaning step for a commit. Returns the estimated number of bytes that the step
    /// gains, or `None` when there is nothing to clean.
    pub(crate) fn step_for_commit(&self) -> Result<Option<i64>> {
        self.do_step(0, Choice::Policy)
    }

    /// Continues a job, or begins one if cleaning is due. Returns the bytes that the step gains, or
    /// `None` when there is nothing to do.
    fn do_step(&self, at_least: u32, choice: Choice) -> Result<Option<i64>> {
        if self.accounts.is_claimed() {
            return Ok(None);
        }
        self.drop_empty_jobs();
        // A job that was begun while there was room may have to wait for a checkpoint now.
        let may_continue = self.may_continue(choice, BATCH_BYTES);
        let job = {
            let mut cleaning = self.cleaning.lock();
            if !may_continue && !cleaning.jobs.is_empty() {
                return Ok(None);
            }
            cleaning.jobs.pop_front()
        };
        if let Some(job) = job {
            // Another segment is not looked at at once: most may be like this one.
            let Some(job) = self.keep_if_spared(job) else { return Ok(None) };
            let gain = job.gain_of_step();
            if let Some(job) = self.continue_job(job)? {
                self.requeue(job);
            }
            return Ok(Some(gain));
        }
        let begun = self.cleaning_is_due(at_least) && self.begin_and_queue(choice)?;
        Ok(begun.then_some(0))
    }

    /// Begins to empty a fast segment, if too few are clean. Returns whether there was one.
    fn begin_fast(&self) -> Result<bool> {
        if self.accounts.is_claimed() || !self.cleaning.lock().jobs.is_empty() {
            return Ok(false);
        }
        let is_due = {
            let engine = self.volume.read();
            self.accounts.fast_is_short(&engine) && !self.is_fruitless(&engine)
        };
        Ok(is_due && self.begin_and_queue(Choice::Fast)?)
    }

    fn is_fruitless(&self, engine: &Engine) -> bool {
        let segment_count = self.volume.layout().segment_count();
        self.cleaned.is_fruitless(engine.commit_seq(), segment_count)
    }

    /// Begins a job and queues it for the next caller. Returns whether there was a segment to
    /// clean.
    fn begin_and_queue(&self, choice: Choice) -> Result<bool> {
        let (found_one, job) = self.begin_cleaning(choice, true)?;
        if let Some(job) = job {
            self.requeue(job);
        }
        Ok(found_one)
    }

    /// Queues a job for the next caller.
    fn requeue(&self, job: CleaningJob) {
        self.cleaning.lock().jobs.push_back(job);
        self.progressed.notify_all();
    }

    /// Whether cleaning is due: the segments that are clean, or will be after a checkpoint, are
    /// fewer than should be ready and than `at_least`; there is something to gain; and there is
    /// room to clean in.
    fn cleaning_is_due(&self, at_least: u32) -> bool {
        let engine = self.volume.read();
        let counts = engine.state().segments().counts();
        // The number of segments that all live blocks would take if they were packed. Cleaning
        // cannot get below it.
        let packed = self.accounts.stored_bytes(&engine).div_ceil(self.accounts.fillable_bytes());
        let possible = (self.volume.usable_layout().log_segments().count() as u64)
            .saturating_sub(packed + u64::from(counts.open));
        self.accounts.room_is_short(&engine, at_least)
            && !self.is_fruitless(&engine)
            && u64::from(counts.clean + counts.pending) < possible
            && counts.clean > self.accounts.checkpoint_reserve(&engine)
    }

    /// Whether the clean segments suffice for a step that writes `step_bytes`, for one more batch
    /// of each other cleaning thread and for a checkpoint after that. Where it does not, a step
    /// would leave its job as it is.
    fn may_continue(&self, choice: Choice, step_bytes: u64) -> bool {
        let cleaning = {
            let cleaning = self.cleaning.lock();
            cleaning.running_count().max(1) as u64
        };
        let engine = self.volume.read();
        let size = self.volume.layout().segment_size_bytes();
        let nodes = u64::from(self.accounts.node_segments(&engine));
        let batches_bytes = (cleaning - 1) * BATCH_BYTES + step_bytes;
        let moves = match choice {
            Choice::NearlyEmpty => 0,
            // Survivors go to the main log in this case and leave the reserve untouched.
            Choice::MostToGain | Choice::MostlyDead | Choice::Only(_) => {
                batches_bytes.saturating_sub(engine.log_room_bytes()).div_ceil(size)
            }
            Choice::Policy | Choice::Idle | Choice::Fast => cleaning + 1,
        };
        let clean = u64::from(engine.state().segments().clean_count());
        let suffices = match choice {
            // No segment is taken, so none has to be left.
            Choice::MostlyDead => clean >= nodes && moves == 0,
            _ => clean > nodes + moves,
        };
        suffices
            && self.accounts.one_more_move_fits(&engine)
            && self.accounts.host_takes(&engine, batches_bytes)
    }

    /// The clean segments that a job may lose, so that those for the next checkpoint and for units
    /// that give space back are left.
    fn can_lose(&self, engine: &Engine) -> u64 {
        // The next ones of the log, and of the map in all copies.
        let kept = 1 + u32::from(self.volume.metadata_copies());
        let kept = kept + self.accounts.reclaim_reserve() + self.accounts.node_segments(engine);
        u64::from(engine.state().segments().clean_count().saturating_sub(kept))
    }

    /// The clean segments that the next victim may take.
    fn limit_of_loss(&self, is_careful: bool) -> u64 {
        if is_careful { self.can_lose(&self.volume.read()) } else { u64::MAX }
    }

    /// Returns the job if no more clean segments are lost than can be spared, even if no other
    /// segment shares the leaves that it makes dirty. Otherwise its segment is left alone until
    /// there are more.
    fn keep_if_spared(&self, job: CleaningJob) -> Option<CleaningJob> {
        let size = self.volume.layout().segment_size_bytes();
        let leaf_bytes = self.accounts.in_all_copies(job.leaf_bytes_left());
        let (lost, live_bytes) = {
            let engine = self.volume.read();
            let segments = engine.state().segments();
            let packed_bytes = u64::from(segments.packed_bytes_of(job.victim));
            let lost = (packed_bytes + leaf_bytes) / size;
            if lost <= self.can_lose(&engine) {
                return Some(job);
            }
            (lost, segments.live_bytes_of(job.victim))
        };
        let mut cleaning = self.cleaning.lock();
        cleaning.picking.note_dear(job.victim, lost, live_bytes);
        self.abandon(&mut cleaning, job.victim, job.body.into_buf());
        None
    }

    /// Cleans one segment to its end, or as far as there is room. Returns whether there was a
    /// segment to gain from and room to make progress. It waits for other threads' jobs, while
    /// these are [`MAX_JOBS`] or need the room that is left, but only until `is_enough` returns
    /// true. If `is_careful`, a segment is left alone that takes more than can be spared.
    pub(crate) fn clean_now(
        &self,
        choice: Choice,
        is_careful: bool,
        is_enough: &dyn Fn(&Engine) -> bool,
    ) -> Result<bool> {
        while !self.clean_one(choice, is_careful, is_enough)? {
            if !self.await_progress(is_enough) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Waits for a job that another thread is working on. Returns false if there is none, or there
    /// is no reason to wait.
    fn await_progress(&self, is_enough: &dyn Fn(&Engine) -> bool) -> bool {
        let mut cleaning = self.cleaning.lock();
        if cleaning.running_count() == 0 {
            return false;
        }
        self.progressed.wait_for(&mut cleaning, LONGEST_WAIT);
        self.volume.failure().is_none() && !is_enough(&self.volume.read())
    }

    /// As [`Self::clean_now`], but it does not wait for room.
    fn clean_one(
        &self,
        choice: Choice,
        is_careful: bool,
        is_enough: &dyn Fn(&Engine) -> bool,
    ) -> Result<bool> {
        let mut job = match self.await_job(choice, is_careful, is_enough) {
            NextStep::Done => return Ok(true),
            NextStep::Continue(job) => Some(job),
            NextStep::Begin => match self.begin_cleaning(choice, is_careful)? {
                (false, _) => return Ok(false),
                (true, job) => job,
            },
        };
        let mut has_progressed = job.is_none();
        while let Some(mut current) = job {
            if is_careful {
                let Some(kept) = self.keep_if_spared(current) else { return Ok(true) };
                current = kept;
            }
            if !self.may_continue(choice, current.step_bytes()) {
                self.cleaning.lock().jobs.push_front(current);
                self.progressed.notify_all();
                break;
            }
            job = self.continue_job(current)?;
            has_progressed = true;
            // A search of the whole map takes too long for a waiting writer, as long as other
            // segments can be emptied.
            let may_search = matches!(choice, Choice::Only(_)) || self.is_last_resort();
            if let Some(searching) = job.take_if(|job| job.search.is_some() && !may_search) {
                self.end_job(searching.victim, searching.body.into_buf(), Ending::NotEmptied);
            }
        }
        Ok(has_progressed)
    }

    /// Decides what a thread that must clean a segment now, to make room, does next.
    fn await_job(
        &self,
        choice: Choice,
        is_careful: bool,
        is_enough: &dyn Fn(&Engine) -> bool,
    ) -> NextStep {
        let can_lose = self.limit_of_loss(is_careful);
        let mut cleaning = self.cleaning.lock();
        loop {
            if let Some(job) = self.take_best_job(&mut cleaning, choice, can_lose) {
                return NextStep::Continue(job);
            }
            if cleaning.picking.victim_count() < MAX_JOBS {
                return NextStep::Begin;
            }
            self.progressed.wait_for(&mut cleaning, LONGEST_WAIT);
            if self.volume.failure().is_some() || is_enough(&self.volume.read()) {
                return NextStep::Done;
            }
        }
    }

    /// Takes the queued job whose segment has the fewest live bytes, if no other candidate has
    /// fewer. Otherwise all queued jobs are dropped: the policy may have begun segments whose
    /// cleaning moves much and gains little. Blocks that were moved already stay at their new
    /// places.
    fn take_best_job(
        &self,
        cleaning: &mut Cleaning,
        choice: Choice,
        can_lose: u64,
    ) -> Option<CleaningJob> {
        if cleaning.jobs.is_empty() {
            return None;
        }
        let least = cleaning
            .picking
            .emptiest(&self.volume, choice, can_lose)
            .map(|segment| segment.live_bytes);
        let engine = self.volume.read();
        let live_bytes_of = |segment| engine.state().segments().live_bytes_of(segment);
        let most = match choice {
            Choice::NearlyEmpty => most_live_bytes(self.volume.layout(), choice),
            _ => u32::MAX,
        };
        let jobs = cleaning.jobs.iter().enumerate();
        let jobs = jobs.filter(|(_, job)| choice.concerns(job.victim));
        let best = jobs.map(|(at, job)| (live_bytes_of(job.victim), at)).min();
        let is_best = |live: u32| live < most && least.is_none_or(|least| live <= least);
        if let Some((_, at)) = best.filter(|&(live, _)| is_best(live)) {
            return cleaning.jobs.remove(at);
        }
        if matches!(choice, Choice::Only(_)) && cleaning.picking.victim_count() < MAX_JOBS {
            return None;
        }
        for job in std::mem::take(&mut cleaning.jobs) {
            self.abandon(cleaning, job.victim, job.body.into_buf());
        }
        None
    }

    /// Drops queued jobs whose segments have become empty. Their pins would keep the segments from
    /// being filled again until there is room to continue the jobs, and these segments may be that
    /// room.
    pub(crate) fn drop_empty_jobs(&self) {
        let mut cleaning = self.cleaning.lock();
        let engine = self.volume.read();
        let is_empty = |job: &CleaningJob| engine.state().segments().live_bytes_of(job.victim) == 0;
        let (emptied, others): (VecDeque<_>, _) =
            std::mem::take(&mut cleaning.jobs).into_iter().partition(is_empty);
        cleaning.jobs = others;
        for job in emptied {
            self.abandon(&mut cleaning, job.victim, job.body.into_buf());
        }
    }

    /// Drops a job: no thread will continue it.
    fn abandon(&self, cleaning: &mut Cleaning, victim: SegmentNo, bytes: AlignedBuf) {
        cleaning.picking.end(victim);
        cleaning.keep_buf(bytes);
        self.progressed.notify_all();
    }

    /// Picks a segment, reads it and finds its live blocks. Returns whether there was a segment,
    /// and the job unless the segment could not be read or is not worth moving.
    fn begin_cleaning(
        &self,
        choice: Choice,
        is_careful: bool,
    ) -> Result<(bool, Option<CleaningJob>)> {
        let can_lose = self.limit_of_loss(is_careful);
        let (victim, pin, live_bytes, buf, clients_read) = {
            let mut cleaning = self.cleaning.lock();
            if cleaning.picking.victim_count() >= MAX_JOBS {
                return Ok((false, None));
            }
            let Some((victim, engine)) = cleaning.picking.begin(&self.volume, choice, can_lose)
            else {
                return Ok((false, None));
            };
            let base = Addr::from_bytes(self.volume.layout().segment_offset(victim));
            let segments = engine.state().segments();
            if cleaning.bufs.is_empty() {
                let size = self.volume.layout().segment_size_bytes() as usize;
                cleaning.bufs = AlignedBuf::several(SPARE_BUFS, size);
            }
            let client_reads = self.reader.device_reads();
            let before = std::mem::replace(&mut cleaning.client_reads_before, client_reads);
            let (pin, live_bytes) = (segments.pin(base), segments.live_bytes_of(victim));
            (victim, pin, live_bytes, cleaning.bufs.pop(), client_reads != before)
        };
        let size = self.volume.layout().segment_size_bytes() as usize;
        let base = Addr::from_bytes(self.volume.layout().segment_offset(victim));
        let bytes = buf.unwrap_or_else(|| AlignedBuf::zeroed(size));
        let mut body = Body::new(base, bytes, clients_read);
        let found = body.begin(&self.volume, live_bytes).and_then(|()| {
            let summary = summarize(&self.volume, victim, &mut body)?;
            let mut live = filter_live(&self.volume, summary.blocks)?;
            let blocks = &mut live.blocks;
            sort_by_place(&self.volume, blocks)?;
            let short_count = blocks.iter().filter(|block| block.page.is_short()).count();
            self.volume.write().state_mut().segments_mut().set_short_count(victim, short_count);
            read_blocks(&self.volume, blocks, &mut body)?;
            Ok((live, summary.nodes))
        });
        self.cleaned.segments.fetch_add(1, Ordering::Relaxed);
        self.cleaned.live_bytes.fetch_add(u64::from(live_bytes), Ordering::Relaxed);
        let job = match found {
            // Before the segment was read, it looked as if cleaning would gain something.
            Ok(_) if !self.is_worth_moving(victim, choice) => {
                self.abandon(&mut self.cleaning.lock(), victim, body.into_buf());
                None
            }
            Ok((live, nodes)) => Some(CleaningJob {
                victim,
                live_bytes,
                _pin: pin,
                body,
                blocks: live.blocks,
                leaf_bytes: live.leaf_bytes,
                moved: 0,
                nodes,
                search: None,
                has_searched: false,
                is_sound: true,
            }),
            // A segment that cannot be read is left alone; other segments can be cleaned.
            Err(error) => {
                self.end_job(victim, body.into_buf(), Ending::of(&error));
                None
            }
        };
        self.volume.failure().map_or(Ok((true, job)), Err)
    }

    /// Whether the live blocks of a segment, when moved, take less than a whole segment.
    fn is_worth_moving(&self, segment: SegmentNo, choice: Choice) -> bool {
        let engine = self.volume.read();
        engine.state().segments().packed_bytes_of(segment)
            < most_live_bytes(self.volume.layout(), choice)
    }

    /// Ends a job. A segment that could not be emptied is set aside for a while, so that other
    /// segments are cleaned.
    fn end_job(&self, victim: SegmentNo, bytes: AlignedBuf, ending: Ending) {
        let now = self.volume.now();
        let mut cleaning = self.cleaning.lock();
        if ending == Ending::Emptied {
            cleaning.picking.note_emptied(victim);
            cleaning.is_last_resort = false;
        } else {
            cleaning.picking.set_aside(victim, now, ending == Ending::Damaged);
        }
        self.abandon(&mut cleaning, victim, bytes);
    }

    /// Whether the segment has something that could not be read, or whose checksum was wrong, when
    /// it was cleaned last.
    pub(crate) fn is_damaged(&self, segment: SegmentNo) -> bool {
        self.cleaning.lock().picking.is_damaged(segment)
    }

    /// Allows segments that could not be emptied to be picked again at once.
    pub(crate) fn try_set_aside_again(&self) {
        let mut cleaning = self.cleaning.lock();
        cleaning.picking.try_set_aside_again();
        cleaning.is_last_resort = true;
    }

    fn is_last_resort(&self) -> bool {
        self.cleaning.lock().is_last_resort
    }

    /// Performs the next step of a job, such as moving one batch. Returns the job if it is not
    /// finished.
    fn continue_job(&self, mut job: CleaningJob) -> Result<Option<CleaningJob>> {
        let unfinished = match self.advance(&mut job) {
            Ok(true) => Some(job),
            result => {
                let is_empty = self.volume.read().state().segments().live_bytes_of(job.victim) == 0;
                let ending = match result {
                    Err(error) => Ending::of(&error),
                    Ok(_) if !job.is_sound => Ending::Damaged,
                    Ok(_) if !is_empty => Ending::NotEmptied,
                    Ok(_) => Ending::Emptied,
                };
                self.end_job(job.victim, job.body.into_buf(), ending);
                None
            }
        };
        if let Some(error) = self.volume.failure() {
            return Err(error);
        }
        self.volume.relieve_writer()?;
        Ok(unfinished)
    }

    fn advance(&self, job: &mut CleaningJob) -> Result<bool> {
        if job.moved < job.blocks.len() {
            let upto = job.moved + batch_len(&job.blocks[job.moved..]);
            let batch = &job.blocks[job.moved..upto];
            job.is_sound &= move_blocks(
                &self.volume,
                &self.accounts,
                batch,
                &job.body,
                &self.cleaned.moved_bytes,
            )?;
            job.moved = upto;
            return Ok(true);
        }
        let moved = move_nodes(&self.volume, &self.accounts, &job.nodes)?;
        job.nodes.drain(..moved);
        if !job.nodes.is_empty() {
            // A checkpoint must write what is dirty first.
            return Ok(true);
        }
        let is_empty = self.volume.read().state().segments().live_bytes_of(job.victim) == 0;
        if is_empty || job.has_searched {
            return Ok(false);
        }
        let search = job.search.get_or_insert_with(|| Box::new(MapSearch::new(job.victim)));
        if let Some(missed) = search.step(&self.volume)? {
            (job.search, job.has_searched) = (None, true);
            read_blocks(&self.volume, &missed.blocks, &mut job.body)?;
            (job.blocks, job.nodes, job.moved) = (missed.blocks, missed.nodes, 0);
            job.leaf_bytes = 0;
        }
        Ok(true)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::disk::LogDisk;
    use dendro_base::units::PAGE_SIZE;
    use dendro_disk::{Aru, Lid, LogicalDisk, View};
    use dendro_format::Head;

    use crate::OpenOptions;
    use crate::reclaim::make_room::Tries;
    use crate::space::shortage::{Need, Shortage};
    use crate::testing::{disk_in_memory, make_list};

    const SIZE: u64 = 1 << 20;

    /// Returns a disk with one list, every second page of which was written again.
    pub(crate) fn disk_half_alive() -> LogDisk {
        let options = OpenOptions { stream_bytes: 0, ..OpenOptions::default() };
        let disk = disk_in_memory(64, SIZE >> 10, options);
        let list = make_list(&disk);
        for page in 0..20 * 256 {
            write(&disk, list, page);
        }
        for page in (0..20 * 256).step_by(2) {
            write(&disk, list, page);
        }
        disk.checkpoint().unwrap();
        disk
    }

    fn write(disk: &LogDisk, list: Lid, page: u64) {
        let mut aru = Aru::new(View::HEAD);
        aru.write_pages(list, page, vec![1; PAGE_SIZE]);
        disk.commit(aru).unwrap();
    }

    #[test]
    fn a_segment_that_was_not_emptied_for_lack_of_room_is_not_taken_for_damaged() {
        let disk = disk_half_alive();
        {
            let mut engine = disk.volume().write();
            engine.retire_streams();
            let segments = engine.state_mut().segments_mut();
            while segments.clean_count() > 0 {
                segments.open(Head::Payload, dendro_policy::Class::MAIN).unwrap();
            }
        }
        // The rest of the segments that are being filled takes some.
        let live_bytes_of = |victim| disk.volume().read().state().segments().live_bytes_of(victim);
        let victim = loop {
            let job = disk.cleaner().begin_cleaning(Choice::MostToGain, false).unwrap().1.unwrap();
            let victim = job.victim;
            let mut left = Some(job);
            while let Some(job) = left.take() {
                left = disk.cleaner().continue_job(job).unwrap();
            }
            if live_bytes_of(victim) > 0 {
                break victim;
            }
        };
        assert!(disk.cleaner().cleaning.lock().picking.is_set_aside(victim));
        assert!(!disk.cleaner().is_damaged(victim));
    }

    #[test]
    fn who_needs_a_segment_waits_for_the_jobs_that_need_the_room_which_is_left() {
        let disk = disk_half_alive();
        let mut others: Vec<_> = (0..MAX_JOBS - 1)
            .map(|_| disk.cleaner().begin_cleaning(Choice::MostToGain, false).unwrap().1.unwrap())
            .collect();
        disk.checkpoint().unwrap();
        {
            let mut engine = disk.volume().write();
            let segments = engine.state_mut().segments_mut();
            while segments.clean_count() > 1 {
                segments.open(Head::Payload, dendro_policy::Class::MAIN).unwrap();
            }
            // One batch fits, but not one more for each of the others.
            let left = engine.log_room_bytes();
            assert!((BATCH_BYTES..3 * BATCH_BYTES).contains(&left), "{left} bytes are left");
        }
        std::thread::scope(|scope| {
            let cleaner = disk.cleaner();
            let waiting = scope.spawn(|| cleaner.clean_now(Choice::MostToGain, true, &|_| false));
            std::thread::sleep(Duration::from_millis(20));
            for other in others.drain(..) {
                cleaner.abandon(&mut cleaner.cleaning.lock(), other.victim, other.body.into_buf());
            }
            assert!(waiting.join().unwrap().unwrap());
        });
    }

    #[test]
    fn a_job_whose_segment_is_empty_is_dropped_even_if_nothing_more_can_be_moved() {
        let disk = disk_half_alive();
        for _ in 0..MAX_JOBS {
            assert!(disk.cleaner().begin_and_queue(Choice::MostToGain).unwrap());
        }
        let mut emptied = disk.cleaner().cleaning.lock().jobs.pop_front().unwrap();
        while disk.volume().read().state().segments().live_bytes_of(emptied.victim) > 0 {
            assert!(disk.cleaner().advance(&mut emptied).unwrap());
        }
        disk.cleaner().requeue(emptied);
        // There are no dirty nodes, and too few clean segments to move even one batch.
        disk.checkpoint().unwrap();
        disk.reuse().all().unwrap();
        {
            let mut engine = disk.volume().write();
            let segments = engine.state_mut().segments_mut();
            while segments.clean_count() > 0 {
                segments.open(Head::Payload, dendro_policy::Class::MAIN).unwrap();
            }
        }
        let shortage = Shortage::OfRoom(0);
        disk.reclaimer().mend_shortage(shortage, Need::space(SIZE), &mut Tries::default()).unwrap();
        assert!(disk.volume().read().state().segments().clean_count() > 0);
    }
}
