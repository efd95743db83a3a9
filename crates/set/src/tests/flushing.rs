//! Members that are flushed together.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use super::*;

#[derive(Default)]
struct Meetings {
    /// How many members are flushed now.
    now: AtomicUsize,
    /// How many were flushed at the same time at most.
    most: AtomicUsize,
    /// For how many milliseconds a flush waits for another one.
    patience_ms: AtomicU64,
}

/// Counts how many of its like are flushed at the same time.
struct Meeting(Sim, Arc<Meetings>);

impl Device for Meeting {
    fn len_bytes(&self) -> u64 {
        self.0.len_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> dendro_device::Result<()> {
        self.0.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> dendro_device::Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn flush(&self) -> dendro_device::Result<()> {
        let Meetings { now, most, patience_ms } = &*self.1;
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        for _ in 0..patience_ms.load(Ordering::SeqCst) {
            if most.load(Ordering::SeqCst) < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        now.fetch_sub(1, Ordering::SeqCst);
        self.0.flush()
    }
    fn discard(&self, offset: u64, len_bytes: u64) -> dendro_device::Result<()> {
        self.0.discard(offset, len_bytes)
    }
}

/// How many members are flushed at the same time at most when all were written to.
fn flushed_at_once(is_spread: bool, is_in_turn: bool, patience_ms: u64) -> usize {
    let meetings: Arc<Meetings> = Arc::default();
    let member = |at| (uuid(at), path(at), Meeting(device(at as u64), Arc::clone(&meetings)));
    let members = vec![member(0), member(1)];
    let set = match is_spread {
        true => DeviceSet::create_spread(SET, 17, members, clock()).unwrap(),
        false => DeviceSet::create(SET, members, clock()).unwrap(),
    };
    let set = if is_in_turn { set.in_turn() } else { set };
    set.write_at(0, &block(1)).unwrap();
    meetings.patience_ms.store(patience_ms, Ordering::SeqCst);
    set.flush().unwrap();
    meetings.most.load(Ordering::SeqCst)
}

#[test]
fn members_are_flushed_at_the_same_time_unless_in_turn() {
    for is_spread in [false, true] {
        assert_eq!(flushed_at_once(is_spread, false, 60_000), 2);
        assert_eq!(flushed_at_once(is_spread, true, 20), 1);
    }
}

#[test]
fn one_that_fails_leaves_none_unflushed() {
    let devices = [device(1), device(2)];
    let named = devices.iter().enumerate().map(|(at, it)| (uuid(at), path(at), Arc::clone(it)));
    let set = DeviceSet::create_spread(SET, 17, named.collect(), clock()).unwrap();
    for failing in [0, 1] {
        set.write_at(0, &block(1)).unwrap();
        devices[failing].inject(Fault::fail(Call::Flush));
        assert!(set.flush().is_err());
        assert_eq!(devices[1 - failing].unflushed_count(), 0);
    }
}
