//! How many requests there were, of which kind, and how long they took.
//!
//! A request is measured from where it has been read to where its answer is ready: what the kernel's
//! queue and the way back take is not in it. Counting takes no lock: each thread adds to one of some
//! shards, which are added up when somebody asks. That may then be off by what is under way.
//!
//! Looking at the clock twice, and counting, takes a fiftieth of the shortest requests. So of kinds that are
//! short and many, each thread does so for one of eight. With the next one it counts those between as having
//! taken as long as the one before: as many are missing meanwhile, seven of a thread and kind at most.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use crate::abi::opcode;
use crate::errno::Errno;
use crate::filesystem::Result;

/// What requests are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Data is read.
    Read,
    /// Data is written.
    Write,
    /// What was written is made durable.
    Sync,
    /// Names, attributes and listings are looked up.
    Lookup,
    /// Names, attributes or whole ranges of data are changed.
    Change,
}

/// Errors that say something of the volume, rather than of who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Something cannot be read or written (`EIO`).
    Io,
    /// There is no room (`ENOSPC`).
    NoSpace,
    /// Nothing is written any more, or never was (`EROFS`).
    ReadOnly,
}

/// Threads that count at the same place, where there are more than this.
const SHARDS: usize = 16;

/// Of so many requests of a kind that is short one is timed.
const SAMPLED: u8 = 8;

/// Durations are told apart by so many parts of each power of two, …
const PARTS: u32 = 4;
/// … from this many bits on, which is about a microsecond, …
const LOW_BITS: u32 = 10;
/// … for so many powers: to about a minute.
const POWERS: u32 = 26;
/// What is shorter, and what is longer, has a bucket each.
const BUCKETS: usize = (POWERS * PARTS + 2) as usize;

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Sync, Self::Lookup, Self::Change];

    /// What it is called.
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

    /// How many requests of this kind one look at the clock is for.
    const fn sampled(self) -> u8 {
        match self {
            Self::Sync => 1,
            Self::Read | Self::Write | Self::Lookup | Self::Change => SAMPLED,
        }
    }

    /// That of a request; nothing where nobody waits for it, or it does nothing.
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

    /// What it is called.
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

/// What all durations of a bucket are below; nothing for the last one.
const fn bound(bucket: usize) -> Option<u64> {
    if bucket >= BUCKETS - 1 {
        return None;
    }
    let (power, part) = (bucket as u32 / PARTS, bucket as u32 % PARTS);
    let unit = 1_u64 << (power + LOW_BITS - PARTS.ilog2());
    Some(unit * (PARTS + part) as u64)
}

/// Counts by one thread, or some. On cache lines of its own.
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

/// Counts of what all threads have served, of any number of mounts.
#[derive(Debug)]
pub struct Timings {
    shards: Vec<Shard>,
}

impl Default for Timings {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Shard::new()).collect() }
    }
}

/// What a thread knows of its own requests of a kind. A process has one [`Timings`]; of several, the counts
/// of one might be another's.
struct Own {
    /// So many are not timed,
    left: Cell<u8>,
    /// so many have not been counted yet,
    uncounted: Cell<u8>,
    /// and so long the last one took that was timed.
    last_ns: Cell<u64>,
}

thread_local! {
    static OWN: [Own; Kind::ALL.len()] = const {
        [const { Own { left: Cell::new(0), uncounted: Cell::new(0), last_ns: Cell::new(0) } };
            Kind::ALL.len()]
    };
}

impl Own {
    /// Whether the next request need not be timed; it is noted if so.
    fn is_untimed(&self) -> bool {
        let Some(left) = self.left.get().checked_sub(1) else { return false };
        self.left.set(left);
        self.uncounted.set(self.uncounted.get() + 1);
        true
    }
}

/// The shard of this thread.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    SHARD.with(|shard| *shard)
}

#[allow(clippy::disallowed_methods, reason = "how long something took is all that is wanted")]
fn now() -> Instant {
    Instant::now()
}

impl Timings {
    /// Calls `serve`, and counts it as a request with this number.
    pub(crate) fn count(
        &self,
        number: u32,
        serve: impl FnOnce() -> Option<Result<usize>>,
    ) -> Option<Result<usize>> {
        let Some(kind) = Kind::of(number) else { return serve() };
        if OWN.with(|own| own[kind as usize].is_untimed()) {
            let answer = serve();
            if let Some(result) = &answer {
                self.note(kind, result);
            }
            return answer;
        }
        let since = now();
        let answer = serve();
        if let Some(result) = &answer {
            let took = now().saturating_duration_since(since);
            self.note_timed(kind, took.as_nanos().try_into().unwrap_or(u64::MAX));
            self.note(kind, result);
        }
        answer
    }

    /// Counts a request that took so long, and those before it that were not timed.
    fn note_timed(&self, kind: Kind, ns: u64) {
        let shard = &self.shards[own_shard()];
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

    /// Counts what a request has read, or why it failed.
    fn note(&self, kind: Kind, result: &Result<usize>) {
        let add = |counter: &AtomicU64, more| {
            counter.fetch_add(more, Ordering::Relaxed);
        };
        match result {
            Ok(len) if kind == Kind::Read => {
                add(&self.shards[own_shard()].read_bytes, *len as u64);
            }
            Ok(_) => {}
            Err(errno) => {
                if let Some(failure) = Failure::of(*errno) {
                    add(&self.shards[own_shard()].failures[failure as usize], 1);
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

    /// Bytes that were read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.read_bytes.load(Ordering::Relaxed)).sum()
    }

    /// How many requests failed so.
    #[must_use]
    pub fn failures(&self, failure: Failure) -> u64 {
        let of = |shard: &Shard| shard.failures[failure as usize].load(Ordering::Relaxed);
        self.shards.iter().map(of).sum()
    }
}

/// How long requests took.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// All of them together.
    pub total_ns: u64,
    /// How many took less than so many nanoseconds, and not less than the bound before; nothing: more
    /// than any bound. Bounds without any are left out.
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
        // The first and the ninth, and no other, take long; the last is a ninth, too.
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
        // Each sync is.
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
