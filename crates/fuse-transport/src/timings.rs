//! How many requests there were, of which kind, and how long they took.
//!
//! A request is measured from where it has been read to where its answer is ready: what the kernel's
//! queue and the way back take is not in it. Counting takes no lock: each thread adds to one of some
//! shards, which are added up when somebody asks. That may then be off by what is under way.

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

/// The shard of this thread.
fn own_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    OWN.with(|own| *own)
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
        let since = now();
        let answer = serve();
        if let Some(result) = &answer {
            let took = now().saturating_duration_since(since);
            self.note(kind, took.as_nanos().try_into().unwrap_or(u64::MAX), result);
        }
        answer
    }

    fn note(&self, kind: Kind, ns: u64, result: &Result<usize>) {
        let shard = &self.shards[own_shard()];
        let add = |counter: &AtomicU64, more| {
            counter.fetch_add(more, Ordering::Relaxed);
        };
        add(&shard.buckets[kind as usize][bucket(ns)], 1);
        add(&shard.total_ns[kind as usize], ns);
        match result {
            Ok(len) if kind == Kind::Read => add(&shard.read_bytes, *len as u64),
            Ok(_) => {}
            Err(errno) => {
                if let Some(failure) = Failure::of(*errno) {
                    add(&shard.failures[failure as usize], 1);
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
                    timings.note(Kind::Read, 5000, &Ok(100));
                    timings.note(Kind::Read, 5000, &Err(Errno::IO));
                    timings.note(Kind::Change, 10, &Err(Errno::NOENT));
                });
            }
        });
        let threads = SHARDS as u64 + 3;
        let reads = timings.of(Kind::Read);
        assert_eq!(reads.total_ns, threads * 10_000);
        assert_eq!(reads.counts, [(bound(bucket(5000)), 2 * threads)]);
        assert_eq!(timings.read_bytes(), 100 * threads);
        assert_eq!(timings.failures(Failure::Io), threads);
        assert_eq!(timings.failures(Failure::NoSpace), 0);
        assert_eq!(timings.of(Kind::Change).counts, [(Some(1 << LOW_BITS), threads)]);
        assert_eq!(timings.of(Kind::Sync), Requests::default());
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
