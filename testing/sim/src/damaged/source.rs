//! Where images come from, and what becomes of them.

use dendro_base::Rng;
use dendro_base::sync::Arc;
use dendro_logdisk::LogDisk;

use super::anatomy::Anatomy;
use crate::system::Outcome;

/// Background work that takes more steps has no end.
const MAX_BACKGROUND_STEPS: u64 = 100_000;

/// What makes images of recorded work.
pub(super) trait Source {
    /// An image of any moment, and after how many events that is.
    fn image(&self, rng: &mut Rng) -> (usize, Vec<u8>);

    /// Notes what an image holds that is to be damaged.
    fn look_at(&mut self, image: &[u8], anatomy: &Arc<Anatomy>) -> Outcome<()>;

    /// Examines that image after it was damaged.
    fn examine(&self, image: &[u8], is_forged: bool) -> Outcome<Kind>;
}

/// What became of a damaged image. The check found nothing wrong with those that are sound.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// All of the newest state, or of an earlier one, could be read.
    Whole { is_sound: bool, mended: bool },
    /// A part of it could not be read.
    Partly { mended: bool },
    /// The volume could not be opened.
    Refused { mended: bool },
    /// The damage had right checksums.
    Forged { is_sound: bool, mended: bool },
}

/// Does the background work that is due.
pub(super) fn finish_background(disk: &LogDisk) -> Outcome<()> {
    for _ in 0..MAX_BACKGROUND_STEPS {
        if !matches!(disk.background_step(), Ok(true)) {
            return Ok(());
        }
    }
    Err("background work has no end".into())
}
