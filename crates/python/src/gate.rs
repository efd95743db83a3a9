//! What every call on a volume goes through: closing, forks and panics end there.
//!
//! # Invariants
//!
//! 1. Nobody waits for a lock of this module while he holds Python's global lock, except for locks
//!    whose holders wait for nothing.
//! 2. A call on a volume holds `open` for reading. So nothing is in use when [`Gate::close`] has it
//!    for writing.
//! 3. What a panic has left half done, and what belongs to the process that has forked this one, is
//!    neither used nor dropped: both would write to the device.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dendrofs::{Runner, Volume};
use parking_lot::{Mutex, RwLock};
use pyo3::prelude::*;

use crate::failure::{Failure, Result};

/// How often this process was forked off, since the first one loaded the module.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Python calls it in a process that was just forked off.
#[pyfunction]
#[pyo3(name = "_after_fork")]
pub(crate) fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// What is open of a volume.
struct Open {
    volume: Volume,
    runner: Option<Runner>,
}

/// An open volume, which all objects share that belong to it.
pub(crate) struct Gate {
    forks: u64,
    is_broken: AtomicBool,
    open: RwLock<Option<Open>>,
    /// What is closed with the volume.
    slots: Mutex<Slots>,
    /// Held while something is appended to a file.
    appending: Mutex<()>,
}

#[derive(Default)]
struct Slots {
    all: Vec<Weak<dyn Close>>,
    /// How many there may be before the dead are removed.
    limit: usize,
}

/// Something that is closed with its volume.
trait Close: Send + Sync {
    fn close(&self);
}

impl<T: Send + Sync> Close for Mutex<Option<Arc<T>>> {
    fn close(&self) {
        let value = self.lock().take();
        drop(value);
    }
}

/// The error that a panic is.
fn panicked(panic: &(dyn Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    Failure::os(libc::EIO, format!("dendrofs has a bug, please report it: {text}"))
}

/// Does `work`, which ends in an error if it panics.
pub(crate) fn guarded<R: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
    })
}

impl Gate {
    pub(crate) fn new(volume: Volume, runner: Option<Runner>) -> Arc<Self> {
        Arc::new(Self {
            forks: FORKS.load(Ordering::Relaxed),
            is_broken: AtomicBool::new(false),
            open: RwLock::new(Some(Open { volume, runner })),
            slots: Mutex::default(),
            appending: Mutex::default(),
        })
    }

    fn is_foreign(&self) -> bool {
        self.forks != FORKS.load(Ordering::Relaxed)
    }

    /// Upholds invariant 3.
    fn check(&self) -> Result<()> {
        if self.is_foreign() {
            return Err(Failure::os(
                libc::EBUSY,
                "the volume belongs to the process that has forked this one; use multiprocessing's \
                 \"spawn\"",
            ));
        }
        match self.is_broken.load(Ordering::Acquire) {
            false => Ok(()),
            true => Err(Failure::os(
                libc::EIO,
                "a call on this volume failed inside dendrofs; end the program and open the volume \
                 again",
            )),
        }
    }

    /// Does `work`. A panic of it is an error, now and from now on.
    fn watch<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        self.check()?;
        // What the panic left half done is not used again, because of the check.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
            self.is_broken.store(true, Ordering::Release);
            Err(panicked(&*panic))
        })
    }

    /// Does `work` on the volume, without Python's global lock.
    pub(crate) fn on<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Volume) -> Result<R> + Send,
    ) -> Result<R> {
        self.on_open(py, |open| work(&open.volume))
    }

    /// The last error of the volume's threads.
    pub(crate) fn background_failure(&self, py: Python<'_>) -> Result<Option<Failure>> {
        self.on_open(py, |open| {
            Ok(open.runner.as_ref().and_then(Runner::failure).map(Failure::from))
        })
    }

    fn on_open<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Open) -> Result<R> + Send,
    ) -> Result<R> {
        // Before the lock: it may have been held when the process forked.
        self.check()?;
        py.detach(|| {
            let open = self.open.read();
            let open = open.as_ref().ok_or_else(|| Failure::value("the volume is closed"))?;
            self.watch(|| work(open))
        })
    }

    /// Does `work`, which appends to a file, while nobody else does so.
    pub(crate) fn append<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<R> {
        let _appending = self.appending.lock();
        work()
    }

    pub(crate) fn is_closed(&self, py: Python<'_>) -> bool {
        !self.is_foreign() && py.detach(|| self.open.read().is_none())
    }

    /// Makes everything durable and closes the volume, and all that belongs to it. Nothing happens
    /// if it is closed already.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<()> {
        self.check()?;
        py.detach(|| {
            let mut open = self.open.write();
            if open.is_none() {
                return Ok(());
            }
            self.watch(|| {
                let slots = mem::take(&mut self.slots.lock().all);
                for slot in slots.iter().filter_map(Weak::upgrade) {
                    slot.close();
                }
                let Some(Open { volume, runner }) = open.take() else { return Ok(()) };
                drop(runner);
                volume.close().map_err(Failure::when_syncing)
            })
        })
    }

    /// Drops what is open of a volume, or of something that belongs to it.
    fn let_go<T: Send>(&self, value: T) {
        if self.is_foreign() || self.is_broken.load(Ordering::Acquire) {
            mem::forget(value);
            return;
        }
        let mut value = Some(value);
        let mut let_go = || {
            let gone = self.watch(|| {
                drop(value.take());
                Ok(())
            });
            if let Err(error) = gone {
                log::error!("a volume could not be closed: {error:?}");
            }
        };
        // While the interpreter ends there is no global lock to give back.
        if Python::try_attach(|py| py.detach(&mut let_go)).is_none() {
            let_go();
        }
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(open) = self.open.get_mut().take() {
            // The threads end before the volume is closed.
            self.let_go((open.runner, open.volume));
        }
    }
}

/// Something that belongs to a volume and is closed with it.
pub(crate) struct Slot<T: Send + Sync + 'static> {
    gate: Arc<Gate>,
    value: Arc<Mutex<Option<Arc<T>>>>,
    /// What it is called in errors.
    what: &'static str,
}

impl<T: Send + Sync + 'static> Slot<T> {
    /// Makes it out of the volume.
    pub(crate) fn make(
        gate: &Arc<Gate>,
        py: Python<'_>,
        what: &'static str,
        make: impl FnOnce(&Volume) -> Result<T> + Send,
    ) -> Result<Self> {
        let value = gate.on(py, |volume| Ok(gate.register(make(volume)?)))?;
        Ok(Self { gate: Arc::clone(gate), value, what })
    }

    /// Makes another one out of it.
    pub(crate) fn derive<U: Send + Sync + 'static>(
        &self,
        py: Python<'_>,
        what: &'static str,
        make: impl FnOnce(&T) -> Result<U> + Send,
    ) -> Result<Slot<U>> {
        let value = self.on(py, |value| Ok(self.gate.register(make(value)?)))?;
        Ok(Slot { gate: Arc::clone(&self.gate), value, what })
    }

    pub(crate) const fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Does `work` on it, without Python's global lock.
    pub(crate) fn on<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&T) -> Result<R> + Send,
    ) -> Result<R> {
        self.gate.on(py, |_| {
            let value = self.value.lock().clone();
            let value = value.ok_or_else(|| Failure::value(format!("the {} closed", self.what)))?;
            work(&value)
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        !self.gate.is_foreign() && self.value.lock().is_none()
    }

    /// Closes it. Nothing happens if it is closed already, or if its volume is.
    pub(crate) fn close(&self, py: Python<'_>) -> Result<()> {
        self.gate.check()?;
        py.detach(|| {
            let _open = self.gate.open.read();
            self.gate.watch(|| {
                let value = self.value.lock().take();
                drop(value);
                Ok(())
            })
        })
    }
}

impl Gate {
    /// Has `value` closed with the volume.
    fn register<T: Send + Sync + 'static>(&self, value: T) -> Arc<Mutex<Option<Arc<T>>>> {
        let value = Arc::new(Mutex::new(Some(Arc::new(value))));
        let weak = Arc::downgrade(&value);
        let mut slots = self.slots.lock();
        if slots.all.len() >= slots.limit {
            slots.all.retain(|slot| slot.strong_count() > 0);
            slots.limit = slots.all.len() * 2 + 16;
        }
        slots.all.push(weak);
        value
    }
}

impl<T: Send + Sync + 'static> Drop for Slot<T> {
    fn drop(&mut self) {
        // A lock that was held when the process forked stays so.
        let Some(mut value) = self.value.try_lock() else { return };
        if let Some(value) = value.take() {
            self.gate.let_go(value);
        }
    }
}
