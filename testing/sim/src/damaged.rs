//! Damaged images of volumes: no panic, no wrong data, no work without end.
//!
//! A `source` makes images of the moments of recorded work: on lists (`disk`), or on files in
//! several versions (`volume`, `files`). An image is damaged in many ways, one after the other
//! (`harm`), where it hurts (`anatomy`), and then
//!
//! - everything that can be read is that of one moment of the work, the same moment for all of it;
//!   what cannot be read answers an error (`agreement` for lists, `look` for files);
//! - what the damage has not touched can be read;
//! - a volume that the check finds clean can be opened, read whole and written to, and is clean
//!   then;
//! - what was rebuilt and repaired is clean, and has each undamaged file byte for byte;
//! - opening it in any way, writing to it and shutting it down ends, in bounded memory.
//!
//! If the damage has right checksums (it is forged), the contents may be anything, and only what
//! the check says must hold.

mod agreement;
mod anatomy;
mod disk;
mod files;
mod harm;
mod look;
mod source;
mod volume;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use dendro_base::Rng;
use dendro_base::sync::{Arc, Mutex};
use dendro_images::forge::Forge;

use self::anatomy::Anatomy;
use self::disk::Lists;
use self::files::Files;
use self::harm::{Harm, harm};
use self::source::{Kind, Source};
use crate::crash::{self, Failure};
use crate::seeds;
use crate::system::Outcome;

/// Images of one run that are damaged.
const IMAGES_PER_RUN: u64 = 5;

/// How often each of them is damaged.
const DAMAGES_PER_IMAGE: u64 = 40;

/// What became of the damaged images.
#[derive(Debug, Default)]
pub struct Tally {
    whole: AtomicU64,
    partly: AtomicU64,
    refused: AtomicU64,
    forged: AtomicU64,
    /// Among all these, the check found nothing wrong.
    sound: AtomicU64,
    /// Among all these, something was rebuilt or repaired.
    mended: AtomicU64,
    /// The images that are being examined: seed and number.
    running: Mutex<BTreeSet<(u64, u64)>>,
}

impl Tally {
    fn note(&self, kind: Kind) {
        let (counter, is_sound, mended) = match kind {
            Kind::Whole { is_sound, mended } => (&self.whole, is_sound, mended),
            Kind::Partly { mended } => (&self.partly, false, mended),
            Kind::Refused { mended } => (&self.refused, false, mended),
            Kind::Forged { is_sound, mended } => (&self.forged, is_sound, mended),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        self.sound.fetch_add(is_sound.into(), Ordering::Relaxed);
        self.mended.fetch_add(mended.into(), Ordering::Relaxed);
    }

    /// How many images were damaged.
    pub fn count(&self) -> u64 {
        let Self { whole, partly, refused, forged, .. } = self;
        [whole, partly, refused, forged].map(|count| count.load(Ordering::Relaxed)).iter().sum()
    }

    /// How many could be read in part, how many were sound, and how many were mended.
    pub fn partly_sound_and_mended(&self) -> [u64; 3] {
        [&self.partly, &self.sound, &self.mended].map(|count| count.load(Ordering::Relaxed))
    }

    /// The images that are being examined: seed and number.
    pub fn running(&self) -> Vec<(u64, u64)> {
        self.running.lock().iter().copied().collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { whole, partly, refused, forged, sound, mended, .. } = self;
        let [whole, partly, refused, forged, sound, mended] =
            [whole, partly, refused, forged, sound, mended]
                .map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{} damaged images: {whole} were read whole, {partly} in part, {refused} could not be \
             opened, {forged} had forged checksums; of all, {sound} were found sound and {mended} \
             were mended; 0 read wrong",
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
    let failure = |message| Failure { seed, crash: None, message };
    // Of files there is more to be seen.
    let made = crash::without_panic(|| -> Outcome<Box<dyn Source>> {
        Ok(match seed % 4 {
            0 => Box::new(Lists::record(seed)?),
            _ => Box::new(Files::record(seed)?),
        })
    });
    let mut source = made.map_err(failure)?;
    for which in 0..IMAGES_PER_RUN {
        let numbers = which * DAMAGES_PER_IMAGE..(which + 1) * DAMAGES_PER_IMAGE;
        if only.is_some_and(|only| !numbers.contains(&only)) {
            continue;
        }
        let mut rng = Rng::new(seed ^ which.rotate_left(24));
        let mut images = [source.image(&mut rng), source.image(&mut rng)];
        // A device may have lost writes, but it has none that are still to come.
        images.sort_by_key(|(event, _)| *event);
        let [(_, other), (_, image)] = images;
        // A crash may have left no sound one: while the volume was made.
        let Some(anatomy) = Anatomy::of(&image).map(Arc::new) else { continue };
        crash::without_panic(|| source.look_at(&image, &anatomy)).map_err(failure)?;
        let forge = Forge::new(&image).ok();
        let subject = Subject { image, other, anatomy, forge };
        for number in numbers {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            tally.running.lock().insert((seed, number));
            let mut rng = Rng::new(seed ^ number.rotate_left(40));
            let done = crash::without_panic(|| subject.damage(&*source, &mut rng));
            tally.running.lock().remove(&(seed, number));
            let kind = done.map_err(|why| failure(format!("damaged image {number}: {why}")))?;
            tally.note(kind);
        }
    }
    Ok(())
}

/// An image that is damaged again and again.
struct Subject {
    image: Vec<u8>,
    /// That of an earlier moment.
    other: Vec<u8>,
    anatomy: Arc<Anatomy>,
    forge: Option<Forge>,
}

impl Subject {
    fn damage(&self, source: &dyn Source, rng: &mut Rng) -> Outcome<Kind> {
        match &self.forge {
            Some(forge) if rng.chance(20) => {
                let image = harm::forge(rng, forge);
                source.examine(&image, true).map_err(|why| format!("forged: {why}"))
            }
            _ => {
                let mut image = self.image.clone();
                let harms: Vec<Harm> = (0..=rng.below(5) / 3)
                    .map(|_| harm(rng, &mut image, &self.other, &self.anatomy))
                    .collect();
                source.examine(&image, false).map_err(|why| format!("{harms:?}: {why}"))
            }
        }
    }
}
