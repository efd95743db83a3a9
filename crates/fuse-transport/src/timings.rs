//! Statistics of requests: how many there were of each kind, and how long they took.
//!
//! The time of a request is measured from when it has been read until its reply is ready. The time
//! in the kernel's queue, and of the reply on its way back, is not included. Counting takes no
//! lock: each thread adds to a shard, and the shards are summed up when the statistics are read. So
//! the sums may miss requests that are in progress.
//!
//! To read the clock twice and to count takes 2 % of the time of the shortest requests. So of the
//! kinds that are short and frequent, each thread measures only one request in eight. The requests
//! between two measured ones are counted together with the second, and with the time of the first.
//! Until then they are missing: at most seven for each thread and kind.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::errno::{Errno, Result};
use crate::protocol::abi::opcode;

/// The kinds of requests that are counted separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Makes data durable.
    Sync,
    /// Reads names, attributes or listings.
    Lookup,
    /// Changes names, attributes or ranges of data.
    Change,
}

/// Errors that are caused by the volume, not by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Data cannot be read or written (`EIO`).
    Io,
    /// There is no room (`ENOSPC`).
    NoSpace,
    /// The file system accepts no changes (`EROFS`).
    ReadOnly,
}

/// The number of shards. If there are more threads, some share one.
const SHARDS: usize = 16;

/// Of a short kind, one in this many requests is measured.
const SAMPLED: u8 = 8;

/// Durations have this many buckets for each power of two, …
const PARTS: u32 = 4;
/// … beginning with this power, which is about a microsecond, …
const LOW_BITS: u32 = 10;
/// … for this many powers: up to about a minute.
const POWERS: u32 = 26;
/// One more bucket is for all shorter durations, and one for all longer ones.
const BUCKETS: usize = (POWERS * PARTS + 2) as usize;

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Sync, Self::Lookup, Self::Change];

    /// The name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Lookup => "lookup",
            Self::Change => "change",
        }
    }

    /// One in this many requests of the kind is measured.
    const fn sampled(self) -> u8 {
        match self {
            Self::Sync => 1,
            Self::Read | Self::Write | Self::Lookup | Self::Change => SAMPLED,
        }
    }

    /// The kind of a request; `None` if no caller waits for it, or if it does nothing.
    const fn of(number: u32) -> Option<Self> {
        Some(match number {
            opcode::READ => Self::Read,
            opcode::WRITE => Self::Write,
            opcode::FSYNC | opcode::FSYNCDIR | opcode::SYNCFS => Self::Sync,
            opcode::LOOKUP
            | opcode::GETATTR
            | opcode::STATX
            | opcode::READLINK
            | opcode::STATFS
            | opcode::ACCESS
            | opcode::GETXATTR
            | opcode::LISTXATTR
            | opcode::READDIR
            | opcode::READDIRPLUS
            | opcode::LSEEK => Self::Lookup,
            opcode::SETATTR
            | opcode::SYMLINK
            | opcode::MKNOD
            | opcode::MKDIR
            | opcode::UNLINK
            | opcode::RMDIR
            | opcode::RENAME
            | opcode::RENAME2
            | opcode::LINK
            | opcode::CREATE
            | opcode::TMPFILE
            | opcode::SETXATTR
            | opcode::REMOVEXATTR
            | opcode::FALLOCATE
            | opcode::COPY_FILE_RANGE
            | opcode::COPY_FILE_RANGE_64 => Self::Change,
            _ => return None,
        })
    }
}

impl Failure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Io, Self::NoSpace, Self::ReadOnly];

    /// The name in statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Io => "io",
            Self::NoSpace => "no_space",
            Self::ReadOnly => "read_only",
        }
    }

    fn of(errno: Errno) -> Option<Self> {
        match errno {
            Errno::IO => Some(Self::Io),
            Errno::NOSPC => Some(Self::NoSpace),
            Errno::ROFS => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

/// The bucket of a duration.
const fn bucket(ns: u64) -> usize {
    if ns < 1 << LOW_BITS {
        return 0;
    }
    let power = ns.ilog2() - LOW_BITS;
    if power >= POWERS {
        return BUCKETS - 1;
    }
    let part = (ns >> (power + LOW_BITS - PARTS.ilog2())) as u32 % PARTS;
    (1 + power * PARTS + part) as usize
}

/// The upper bound of the durations in a bucket; `None` for the last one.
const fn bound(bucket: usize) -> Option<u64> {
    if bucket >= BUCKETS - 1 {
        return None;
    }
    let (power, part) = (bucket as u32 / PARTS, bucket as u32 % PARTS);
    let unit = 1_u64 << (power + LOW_BITS - PARTS.ilog2());
    Some(unit * (PARTS + part) as u64)
}

/// The counts of one or more threads, on cache lines of its own.
#[repr(align(128))]
#[derive(Debug)]
struct Shard {
    buckets: [[AtomicU64; BUCKETS]; Kind::ALL.len()],
    total_ns: [AtomicU64; Kind::ALL.len()],
    read_bytes: AtomicU64,
    failures: [AtomicU64; Failure::ALL.len()],
}

impl Shard {
    fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            buckets: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            total_ns: std::array::from_fn(|_| zero()),
            read_bytes: zero(),
            failures: std::array::from_fn(|_| zero()),
        }
    }
}

/// The statistics of all threads, for any number of mounts.
#[derive(Debug)]
pub struct Timings {
    shards: Vec<Shard>,
}

impl Default for Timings {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::new()).collect() }
    }
}

/// What a thread keeps about its own requests of a kind. A process has only one [`Timings`]: with
/// several, requests of one could be counted in another.
struct Own {
    /// How many of the next requests are not measured.
    left: Cell<u8>,
    /// How many requests were not counted yet.
    uncounted: Cell<u8>,
    /// How long the last measured request took.
    last_ns: Cell<u64>,
}

thread_local! {
    static OWN: [Own; Kind::ALL.len()] = const {
        [const { Own { left: Cell::new(0), uncounted: Cell::new(0), last_ns: Cell::new(0) } };
            Kind::ALL.len()]
    };
}

impl Own {
    /// Whether the next request is not measured. If so, it is added to those to be counted later.
    fn skips_next(&self) -> bool {
        let Some(left) = self.left.get().checked_sub(1) else { return false };
        self.left.set(left);
        self.uncounted.set(self.uncounted.get() + 1);
        true
    }
}

/// The shard of this thread.
fn shard_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.with(|shard| *shard)
}

#[allow(clippy::disallowed_methods, reason = "only durations are measured")]
fn now() -> Instant {
    Instant::now()
}

impl Timings {
    /// Calls `serve`, and counts it as a request with this opcode.
    pub(crate) fn count(
        &self,
        number: u32,
        serve: impl FnOnce() -> Option<Result<usize>>,
    ) -> Option<Result<usize>> {
        let Some(kind) = Kind::of(number) else { return serve() };
        if OWN.with(|own| own[kind as usize].skips_next()) {
            let reply = serve();
            if let Some(result) = &reply {
                self.note(kind, result);
            }
            return reply;
        }
        let since = now();
        let reply = serve();
        if let Some(result) = &reply {
            let took = now().saturating_duration_since(since);
            self.note_timed(kind, took.as_nanos().try_into().unwrap_or(u64::MAX));
            self.note(kind, result);
        }
        reply
    }

    /// Counts a measured request, and the requests before it that were not measured.
    fn note_timed(&self, kind: Kind, ns: u64) {
        let shard = &self.shards[shard_of_thread()];
        let (uncounted, last_ns) = OWN.with(|own| {
            let own = &own[kind as usize];
            own.left.set(kind.sampled() - 1);
            (u64::from(own.uncounted.take()), own.last_ns.replace(ns))
        });
        let add = |ns, count| {
            shard.buckets[kind as usize][bucket(ns)].fetch_add(count, Ordering::Relaxed);
        };
        if uncounted > 0 {
            add(last_ns, uncounted);
        }
        add(ns, 1);
        let total_ns = last_ns.saturating_mul(uncounted).saturating_add(ns);
        shard.total_ns[kind as usize].fetch_add(total_ns, Ordering::Relaxed);
    }

    /// Counts the bytes that a request has read, or why it failed.
    fn note(&self, kind: Kind, result: &Result<usize>) {
        let add = |counter: &AtomicU64, more| {
            counter.fetch_add(more, Ordering::Relaxed);
        };
        match result {
            Ok(len) if kind == Kind::Read => {
                add(&self.shards[shard_of_thread()].read_bytes, *len as u64);
            }
            Ok(_) => {}
            Err(errno) => {
                if let Some(failure) = Failure::of(*errno) {
                    add(&self.shards[shard_of_thread()].failures[failure as usize], 1);
                }
            }
        }
    }

    /// The requests of this kind so far.
    #[must_use]
    pub fn of(&self, kind: Kind) -> Requests {
        let mut counts = vec![0; BUCKETS];
        let mut total_ns = 0_u64;
        for shard in &self.shards {
            for (count, counter) in counts.iter_mut().zip(&shard.buckets[kind as usize]) {
                *count += counter.load(Ordering::Relaxed);
            }
            total_ns = total_ns.wrapping_add(shard.total_ns[kind as usize].load(Ordering::Relaxed));
        }
        let counts = counts.into_iter().enumerate();
        let counts = counts.filter(|&(_, count)| count > 0);
        Requests { total_ns, counts: counts.map(|(at, count)| (bound(at), count)).collect() }
    }

    /// The bytes that were read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read_bytes.load(Ordering::Relaxed)).sum()
    }

    /// How many requests failed in this way.
    #[must_use]
    pub fn failures(&self, failure: Failure) -> u64 {
        let of = |shard: &Shard| shard.failures[failure as usize].load(Ordering::Relaxed);
        self.shards.iter().map(of).sum()
    }
}

/// How long the requests of a kind took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// The sum of all durations.
    pub total_ns: u64,
    /// Upper bounds in nanoseconds, each with the number of requests below it that are not below
    /// the bound before. `None`: above all bounds. Bounds without requests are left out.
    pub counts: Vec<(Option<u64>, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_duration_lies_below_its_bound_and_not_far() {
        let mut ns = 1_u64;
        while ns < 1 << (LOW_BITS + POWERS) {
            for ns in [ns - 1, ns, ns + 1, ns * 3 / 2] {
                let at = bucket(ns);
                let upper = bound(at).unwrap();
                assert!(ns < upper, "{ns} in {at}");
                let lower = at.checked_sub(1).and_then(bound).unwrap_or(0);
                assert!(lower <= ns, "{ns} in {at}");
                assert!(lower == 0 || upper * 4 <= lower * 5, "{at}: {lower} to {upper}");
            }
            ns *= 2;
        }
        assert_eq!((bucket(u64::MAX), bound(BUCKETS - 1)), (BUCKETS - 1, None));
        assert_eq!(bound(BUCKETS - 2), Some(1 << (LOW_BITS + POWERS)));
    }

    #[test]
    fn what_threads_count_is_added_up() {
        let timings = Timings::default();
        std::thread::scope(|scope| {
            for _ in 0..SHARDS + 3 {
                scope.spawn(|| {
                    timings.note_timed(Kind::Sync, 5000);
                    timings.note_timed(Kind::Sync, 5000);
                    timings.note_timed(Kind::Change, 10);
                    timings.note(Kind::Sync, &Err(Errno::IO));
                    timings.note(Kind::Read, &Ok(100));
                    timings.note(Kind::Change, &Err(Errno::NOENT));
                });
            }
        });
        let threads = SHARDS as u64 + 3;
        let syncs = timings.of(Kind::Sync);
        assert_eq!(syncs.total_ns, threads * 10_000);
        assert_eq!(syncs.counts, [(bound(bucket(5000)), 2 * threads)]);
        assert_eq!(timings.read_bytes(), 100 * threads);
        assert_eq!(timings.failures(Failure::Io), threads);
        assert_eq!(timings.failures(Failure::NoSpace), 0);
        assert_eq!(timings.of(Kind::Change).counts, [(Some(1 << LOW_BITS), threads)]);
        assert_eq!(timings.of(Kind::Write), Requests::default());
    }

    #[test]
    fn one_of_many_short_requests_is_timed_and_all_are_counted() {
        let timings = Timings::default();
        let pause = std::time::Duration::from_millis(2);
        // The first and the ninth take long, and no others. The 17th is measured, too.
        for number in 0..17_u8 {
            let is_slow = number.is_multiple_of(SAMPLED) && number < 16;
            let serve = || {
                if is_slow {
                    std::thread::sleep(pause);
                }
                Some(Ok(10))
            };
            assert_eq!(timings.count(opcode::READ, serve), Some(Ok(10)));
        }
        let reads = timings.of(Kind::Read);
        let is_slow = |bound: Option<u64>| bound.is_none_or(|ns| ns > 2_000_000);
        let counted = |is_wanted: bool| -> u64 {
            let of = reads.counts.iter().filter(|(bound, _)| is_slow(*bound) == is_wanted);
            of.map(|(_, count)| count).sum()
        };
        assert_eq!((counted(true), counted(false)), (16, 1), "{reads:?}");
        assert!(reads.total_ns >= 16 * 2_000_000, "{reads:?}");
        assert_eq!(timings.read_bytes(), 170);
        // Each sync is measured.
        for must_wait in [true, false] {
            let serve = || {
                if must_wait {
                    std::thread::sleep(pause);
                }
                Some(Ok(0))
            };
            timings.count(opcode::FSYNC, serve);
        }
        let syncs = timings.of(Kind::Sync).counts;
        let slow = syncs.iter().filter(|(bound, _)| is_slow(*bound)).count();
        assert_eq!((syncs.len(), slow), (2, 1), "{syncs:?}");
    }

    #[test]
    fn what_nobody_waits_for_is_not_counted() {
        let timings = Timings::default();
        assert_eq!(timings.count(opcode::FORGET, || None), None);
        assert_eq!(timings.count(opcode::DESTROY, || Some(Ok(0))), Some(Ok(0)));
        assert_eq!(timings.count(opcode::WRITE, || Some(Ok(8))), Some(Ok(8)));
        let counted = |kind| timings.of(kind).counts.iter().map(|(_, count)| count).sum::<u64>();
        assert_eq!(Kind::ALL.map(counted), [0, 1, 0, 0, 0]);
    }
}
