//! Crash images, and the checks of what is found on them.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_device::Device;
use dendro_device::sim::{Call, CrashStyle, EventKind, Fault, Recording, SimDevice};

use crate::system::{Outcome, System};
use crate::trace::Trace;

/// How many crashes follow on each other.
const MAX_DEPTH: u32 = 3;

/// Images taken of the work that goes on after a crash.
const LATER_IMAGE_COUNT: u64 = 3;

/// The name of a crash, by which it can be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrashId {
    /// The seed of the system and its work.
    pub seed: u64,
    /// How many events of the recording had happened.
    pub event: usize,
    /// Which of the images made there.
    pub image: u64,
}

impl CrashId {
    /// The random numbers of this crash.
    #[must_use]
    pub const fn rng(&self) -> Rng {
        let mut rng = Rng::new(self.seed ^ (self.event as u64).rotate_left(24));
        Rng::new(rng.next_u64() ^ self.image)
    }

    /// What happens to the unflushed writes. The first two images need no random numbers.
    #[must_use]
    pub fn style(&self, rng: &mut Rng) -> CrashStyle {
        match self.image {
            0 => CrashStyle::Everything,
            1 => CrashStyle::Nothing,
            2 => CrashStyle::LastTorn,
            3 => CrashStyle::Torn,
            4 => CrashStyle::Subset,
            _ => CrashStyle::draw(rng),
        }
    }
}

/// A failed check.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the system and its work.
    pub seed: u64,
    /// After which crash; `None` when it was before any.
    pub crash: Option<CrashId>,
    /// What is wrong, and on which of several crashes.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}", self.seed)?;
        if let Some(CrashId { event, image, .. }) = self.crash {
            write!(f, ", crash after event {event}, image {image}")?;
        }
        write!(f, ": {}\nto see it again: soak --seed {}", self.message, self.seed)?;
        if let Some(CrashId { event, image, .. }) = self.crash {
            write!(f, " --event {event} --image {image}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// Work that was done once and recorded.
#[derive(Debug)]
pub struct Run<S> {
    /// The seed of the work.
    pub seed: u64,
    /// What happened to the device.
    pub recording: Recording,
    /// The states that a crash may leave, by the events.
    pub trace: Trace<S>,
}

/// Formats a device, works on it and records that.
///
/// # Errors
/// The work itself failed, without any crash.
pub fn record<S: System>(
    system: &S,
    seed: u64,
    device_len_bytes: u64,
    step_count: usize,
) -> Result<Run<S::State>, Failure> {
    let attempt = || {
        let mut rng = Rng::new(seed);
        let device = Arc::new(SimDevice::new(device_len_bytes, rng.next_u64()));
        let mut trace = Trace::new(system.format(&device)?);
        device.start_recording();
        system.work(&device, &mut rng, step_count, &mut trace)?;
        let recording = device.take_recording().ok_or("the recording was taken")?;
        Ok(Run { seed, recording, trace })
    };
    without_panic(attempt).map_err(|message| Failure { seed, crash: None, message })
}

/// Makes the crash image that `id` names and checks what is found on it. Returns how many images
/// were checked: more than one when work went on and crashed again.
///
/// # Errors
/// What was found is no allowed state.
pub fn check<S: System>(system: &S, run: &Run<S::State>, id: CrashId) -> Result<u64, Failure> {
    without_panic(|| {
        let mut rng = id.rng();
        let style = id.style(&mut rng);
        let image = run.recording.image_at(id.event, &mut rng, style);
        check_image(system, image, &run.trace, id.event, &mut rng, 1)
            .map_err(|message| format!("{style:?}: {message}"))
    })
    .map_err(|message| Failure { seed: run.seed, crash: Some(id), message })
}

/// Damages what the run left behind: inverts bits, exchanges blocks, or makes a place unreadable,
/// where something was written. Afterwards, opening or reading the volume may fail. What can be
/// read must belong to an earlier state. Returns whether everything could be read.
///
/// # Errors
/// What was read belongs to no earlier state, or there was a panic.
pub fn check_damaged<S: System>(
    system: &S,
    run: &Run<S::State>,
    number: u64,
) -> Result<bool, Failure> {
    without_panic(|| {
        let id = CrashId { seed: !run.seed, event: run.recording.len(), image: number };
        let mut rng = id.rng();
        let image = run.recording.image_at(id.event, &mut rng, CrashStyle::Everything);
        let what = damage(&image, &run.recording, &mut rng);
        let Ok(found) = system.inspect(&Arc::new(image), &mut rng) else { return Ok(false) };
        if run.trace.states().any(|state| system.is_state(&found, state)) {
            return Ok(true);
        }
        let state = run.trace.state(run.trace.last());
        Err(format!("damage {number}, {what}: {}", system.explain(&found, state)))
    })
    .map_err(|message| Failure { seed: run.seed, crash: None, message })
}

/// Says what it did.
fn damage(image: &SimDevice, recording: &Recording, rng: &mut Rng) -> String {
    let mut written = || loop {
        if recording.is_empty() || rng.chance(10) {
            // What lies at the start was written before the recording.
            return rng.below(image.len_bytes().min(64 << 10));
        }
        let event = recording.event(rng.below(recording.len() as u64) as usize);
        // The device may have become shorter since.
        if let EventKind::Write { offset, len_bytes } = event
            && offset + len_bytes <= image.len_bytes()
        {
            return offset + rng.below(len_bytes);
        }
    };
    let (place, other) = (written(), written());
    match rng.below(5) {
        0 => {
            image.swap_blocks(place, other);
            format!("blocks at {place} and {other} exchanged")
        }
        4 => {
            image.inject(Fault::fail(Call::Read).within(place..place + 1).forever());
            format!("byte {place} unreadable")
        }
        1 => {
            image.corrupt(place..place + 1, 1);
            format!("a bit of byte {place} inverted")
        }
        _ => {
            let end = (place + 1 + rng.below(4096)).min(image.len_bytes());
            let count = 1 + rng.below(20);
            image.corrupt(place..end, count);
            format!("{count} bits between {place} and {end} inverted")
        }
    }
}

fn check_image<S: System>(
    system: &S,
    image: SimDevice,
    trace: &Trace<S::State>,
    event: usize,
    rng: &mut Rng,
    depth: u32,
) -> Outcome<u64> {
    let image = Arc::new(image);
    if depth < MAX_DEPTH && rng.chance(15) {
        return work_on(system, &image, trace, event, rng, depth);
    }
    let found = system.inspect(&image, rng)?;
    trace.find(event, |state| system.is_state(&found, state)).map_err(|not_found| {
        let (newest, state) = trace.allowed(event).next_back().expect("one is always allowed");
        format!("{not_found}; unlike state {newest}: {}", system.explain(&found, state))
    })?;
    Ok(1)
}

/// Opens the image for work, and crashes that: during recovery or after it.
fn work_on<S: System>(
    system: &S,
    image: &Arc<SimDevice>,
    trace: &Trace<S::State>,
    event: usize,
    rng: &mut Rng,
    depth: u32,
) -> Outcome<u64> {
    let mut later = Trace::after_crash(trace.allowed(event).map(|(_, state)| state.clone()));
    image.start_recording();
    let step_count = rng.below(25) as usize;
    system
        .work(image, rng, step_count, &mut later)
        .map_err(|message| format!("going on after crash {depth}: {message}"))?;
    let recording = image.take_recording().ok_or("the recording was taken")?;
    let mut image_count = 1;
    for _ in 0..LATER_IMAGE_COUNT {
        // Half of them early, where recovery is.
        let bound = recording.len() as u64 + 1;
        let bound = if rng.chance(50) { bound.min(8) } else { bound };
        let event = rng.below(bound) as usize;
        let style = CrashStyle::draw(rng);
        let image = recording.image_at(event, rng, style);
        image_count +=
            check_image(system, image, &later, event, rng, depth + 1).map_err(|message| {
                format!("crash {}, event {event}, {style:?}: {message}", depth + 1)
            })?;
    }
    Ok(image_count)
}

/// A panic is a failure like any other, and its seed must be reported.
pub(crate) fn without_panic<T>(attempt: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(attempt)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(format!("panic: {}", text.unwrap_or("of unknown kind")))
    })
}
