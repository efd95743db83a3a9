//! Damaged images of volumes: no panic, no wrong data, no work without end.
//!
//! An image of a moment of recorded work is damaged (`harm`), and then
//!
//! - each list, record and page that can be read is that of one moment of the work, the same moment
//!   for all of them; what cannot be read answers an error (`agreement`);
//! - a volume that the verifier finds sound, and finds sound again after its log was rolled
//!   forward, can be opened and read whole;
//! - opening it in any way, writing to it and shutting it down ends, in bounded memory.
//!
//! If the damage has right checksums (it is forged), the contents may be anything, and only the
//! other two hold.

mod agreement;
mod harm;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_base::sync::{Arc, Mutex};
use dendro_check::{Options as CheckOptions, Severity, verify};
use dendro_device::sim::CrashStyle;
use dendro_device::{Device, MemoryDevice};
use dendro_disk::model::ModelVersions;
use dendro_disk::{Aru, CommitSeq, LogicalDisk, PAGE_SIZE, Versions};
use dendro_images::forge::Forge;
use dendro_logdisk::{LogDisk, OnLoss, OpenOptions};

use self::agreement::find_moment;
use self::harm::{Harm, harm};
use crate::campaign::Effort;
use crate::crash::{self, Failure, Run};
use crate::disk::{DiskState, DiskSystem};
use crate::log::LogEngine;
use crate::seeds;
use crate::system::Outcome;
use crate::workload;

/// Damaged images of one run.
const IMAGES_PER_RUN: u64 = 60;

/// Background work that takes more steps has no end.
const MAX_BACKGROUND_STEPS: u64 = 100_000;

/// What became of the damaged images.
#[derive(Debug, Default)]
pub struct Tally {
    /// All of the newest state, or of an earlier one, could be read.
    whole: AtomicU64,
    /// A part of it could not be read.
    partly: AtomicU64,
    /// The volume could not be opened.
    refused: AtomicU64,
    /// Damage with right checksums.
    forged: AtomicU64,
    /// Among all these, the verifier found nothing wrong.
    sound: AtomicU64,
    /// The images that are being examined: seed and number.
    running: Mutex<BTreeSet<(u64, u64)>>,
}

impl Tally {
    /// How many images were damaged.
    pub fn count(&self) -> u64 {
        let Self { whole, partly, refused, forged, .. } = self;
        [whole, partly, refused, forged].map(|count| count.load(Ordering::Relaxed)).iter().sum()
    }

    /// How many were read in part, and how many were found sound by the verifier.
    pub fn partly_and_sound(&self) -> (u64, u64) {
        (self.partly.load(Ordering::Relaxed), self.sound.load(Ordering::Relaxed))
    }

    /// The images that are being examined: seed and number.
    pub fn running(&self) -> Vec<(u64, u64)> {
        self.running.lock().iter().copied().collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whole, partly, refused, forged, sound, .. } = self;
        let [whole, partly, refused, forged, sound] =
            [whole, partly, refused, forged, sound].map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{} damaged images: {whole} were read whole, {partly} in part, {refused} could not be \
             opened, {forged} had forged checksums; {sound} of all were found sound; 0 \
             read wrong",
            self.count()
        )
    }
}

/// Damages images of one seed after the other, until there were `image_count`.
///
/// # Errors
/// Damage was handled wrongly.
pub fn run_images(
    first_seed: u64,
    image_count: u64,
    thread_count: usize,
    tally: &Tally,
) -> Result<(), Failure> {
    seeds::run_until(
        first_seed,
        thread_count,
        || tally.count() >= image_count,
        |seed| run_seed(seed, None, tally),
    )
}

/// Damages images of one run: all of them, or `only` one.
///
/// # Errors
/// As [`run_images`].
pub fn run_seed(seed: u64, only: Option<u64>, tally: &Tally) -> Result<(), Failure> {
    let (system, effort) = small_of_seed(seed);
    let run = crash::record(&system, seed, effort.device_len_bytes, effort.step_count)?;
    for number in only.map_or(0..IMAGES_PER_RUN, |only| only..only + 1) {
        let mut rng = Rng::new(seed ^ number.rotate_left(24));
        tally.running.lock().insert((seed, number));
        let done = crash::without_panic(|| examine(&system, &run, &mut rng, tally));
        tally.running.lock().remove(&(seed, number));
        done.map_err(|message| Failure {
            seed,
            crash: None,
            message: format!("damaged image {number}: {message}"),
        })?;
    }
    Ok(())
}

/// The first system of those that follow from the seed whose images are quickly made and read.
fn small_of_seed(seed: u64) -> (DiskSystem<LogEngine>, Effort) {
    let is_small =
        |effort: &Effort| effort.device_len_bytes <= 12 << 20 && effort.step_count <= 200;
    (0_u64..)
        .map(|number| workload::of_seed(seed ^ number.rotate_left(40)))
        .find(|(_, effort)| is_small(effort))
        .unwrap_or_else(|| unreachable!("most are small"))
}

/// Damages one image, and examines it.
fn examine(
    system: &DiskSystem<LogEngine>,
    run: &Run<DiskState>,
    rng: &mut Rng,
    tally: &Tally,
) -> Outcome<()> {
    let image_at = |rng: &mut Rng| {
        // Later, there is more to be lost.
        let len = run.recording.len() as u64 + 1;
        let event = rng.below(len).max(rng.below(len)) as usize;
        let style = CrashStyle::draw(rng);
        (event, run.recording.image_at(event, rng, style).to_bytes())
    };
    let (event, mut image) = image_at(rng);
    let (_, other) = image_at(rng);
    let is_forged = rng.chance(15);
    let what = match Forge::new(&image) {
        Ok(forge) if is_forged => {
            image = forge.forge(|image| harm::forge(rng, &forge.targets(), image));
            "forged".to_owned()
        }
        _ => {
            let harms: Vec<Harm> =
                (0..=rng.below(5) / 3).map(|_| harm(rng, &mut image, &other)).collect();
            format!("{harms:?}")
        }
    };
    let examined = examine_image(system, run, &image, what == "forged", tally);
    examined.map_err(|why| format!("event {event}, {what}: {why}"))
}

fn device_of(image: &[u8]) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::from_bytes(image))
}

fn is_sound(device: &dyn Device) -> bool {
    let report = verify(device, &CheckOptions { data: true });
    report.worst().is_none_or(|worst| worst == Severity::Note)
}

fn examine_image(
    system: &DiskSystem<LogEngine>,
    run: &Run<DiskState>,
    image: &[u8],
    is_forged: bool,
    tally: &Tally,
) -> Outcome<()> {
    let count = |counter: &AtomicU64| {
        counter.fetch_add(1, Ordering::Relaxed);
    };
    let options =
        |read_only, on_loss| OpenOptions { read_only, on_loss, ..system.engine.open.clone() };
    let open = |device, options| system.engine.open_disk(device, options);
    // As `dendro check` does: the blocks of the log behind the checkpoint are verified after it was
    // rolled forward.
    let verified = device_of(image);
    let sound = is_sound(&*verified)
        && open(Arc::clone(&verified), options(false, OnLoss::Stop))
            .is_ok_and(|disk| disk.shut_down().is_ok())
        && is_sound(&*verified);
    if sound {
        count(&tally.sound);
    }
    // What is made of the rest behind damage may be of several moments.
    if let Ok(disk) = open(device_of(image), options(true, OnLoss::Skip)) {
        drop(ModelVersions::read_from(&disk));
    }
    let mut states = run.trace.states().map(|state| &state.contents);
    if let Ok(disk) = open(device_of(image), options(true, OnLoss::Stop))
        && !is_forged
    {
        find_moment(&disk, &mut states).map_err(|why| format!("opened for reading only: {why}"))?;
    }
    let device = device_of(image);
    let disk = match open(Arc::clone(&device), options(false, OnLoss::Stop)) {
        Ok(disk) => disk,
        Err(error) if sound => {
            return Err(format!("the check finds it sound, and it cannot be opened: {error}"));
        }
        Err(_) => {
            count(if is_forged { &tally.forged } else { &tally.refused });
            return give_up(system, image);
        }
    };
    let is_whole = match ModelVersions::read_from(&disk) {
        Ok(_) => true,
        Err(error) if sound => {
            return Err(format!("the check finds it sound, and it cannot be read: {error}"));
        }
        Err(_) => false,
    };
    if !is_forged {
        let mut states = run.trace.states().map(|state| &state.contents);
        find_moment(&disk, &mut states)?;
    }
    count(match (is_forged, is_whole) {
        (true, _) => &tally.forged,
        (false, true) => &tally.whole,
        (false, false) => &tally.partly,
    });
    use_it(&disk)?;
    let shut_down = disk.shut_down();
    drop(disk);
    if sound && shut_down.is_ok() && !is_forged && !is_sound(&*device) {
        return Err("it was sound, and is not any more after it was written to".into());
    }
    Ok(())
}

/// Gives up what is lost, if anything is, and uses the rest.
fn give_up(system: &DiskSystem<LogEngine>, image: &[u8]) -> Outcome<()> {
    let options = OpenOptions { on_loss: OnLoss::Truncate, ..system.engine.open.clone() };
    let Ok(disk) = system.engine.open_disk(device_of(image), options) else { return Ok(()) };
    drop(ModelVersions::read_from(&disk));
    use_it(&disk)?;
    drop(disk.shut_down());
    Ok(())
}

/// Writes something, and does the background work that is due.
fn use_it(disk: &LogDisk) -> Outcome<()> {
    let view = disk.versions().main_head();
    for list in disk.lists(view, dendro_disk::Lid(0), 8).unwrap_or_default() {
        let mut aru = Aru::new(view);
        aru.put_record(list, 1, b"new")
            .write_pages(list, 2, &[7; PAGE_SIZE])
            .punch_pages(list, 0, 2);
        drop(disk.commit(aru));
    }
    drop(disk.flush(CommitSeq::LATEST));
    for _ in 0..MAX_BACKGROUND_STEPS {
        if !matches!(disk.background_step(), Ok(true)) {
            return Ok(());
        }
    }
    Err("background work has no end".into())
}
