//! What is on the medium after the power went.

use dendro_base::Rng;
use dendro_base::sync::Arc;

use super::blocks::BlockMap;
use super::change::Change;

/// What becomes of the unflushed writes and discards in a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CrashStyle {
    /// All are lost.
    Nothing,
    /// All have happened.
    Everything,
    /// Any of them have happened, each whole, in any order.
    Subset,
    /// Any 512-byte sectors of them have happened, in any order.
    Torn,
    /// All have happened but the last, of which any sectors have.
    LastTorn,
}

impl CrashStyle {
    /// All styles.
    pub const ALL: [Self; 5] =
        [Self::Nothing, Self::Everything, Self::Subset, Self::Torn, Self::LastTorn];

    /// Any style, those of many outcomes more often.
    #[must_use]
    pub fn draw(rng: &mut Rng) -> Self {
        match rng.below(10) {
            0 => Self::Nothing,
            1 => Self::Everything,
            2..5 => Self::Subset,
            5..8 => Self::Torn,
            _ => Self::LastTorn,
        }
    }

    /// Whether an image in this style is what it is without random numbers.
    #[must_use]
    pub fn is_certain(self) -> bool {
        matches!(self, Self::Nothing | Self::Everything)
    }
}

/// Does to `map`, the durable content, what a crash in one of the random styles leaves of
/// `pending`.
pub(super) fn apply_some(
    map: &mut BlockMap,
    pending: &[&Arc<Change>],
    style: CrashStyle,
    rng: &mut Rng,
) {
    match style {
        CrashStyle::Nothing => {}
        CrashStyle::Everything => pending.iter().for_each(|change| change.apply(map)),
        CrashStyle::LastTorn => {
            if let Some((last, before)) = pending.split_last() {
                before.iter().for_each(|change| change.apply(map));
                last.apply_torn(map, rng);
            }
        }
        CrashStyle::Subset => {
            let percent = draw_percent(rng);
            let mut chosen: Vec<&Arc<Change>> =
                pending.iter().copied().filter(|_| rng.chance(percent)).collect();
            reorder(&mut chosen, rng);
            chosen.iter().for_each(|change| change.apply(map));
        }
        CrashStyle::Torn => {
            let percent = draw_percent(rng);
            let mut chosen: Vec<&Arc<Change>> = pending.to_vec();
            reorder(&mut chosen, rng);
            for change in chosen {
                if rng.chance(50) {
                    change.apply_torn(map, rng);
                } else if rng.chance(percent) {
                    change.apply(map);
                }
            }
        }
    }
}

/// Few, half or most: with one half alone, long histories would never lose just a write or two.
fn draw_percent(rng: &mut Rng) -> u64 {
    [10, 50, 90, 97][rng.below(4) as usize]
}

/// Half the time, any order; which matters where writes overlap.
fn reorder(changes: &mut [&Arc<Change>], rng: &mut Rng) {
    if rng.chance(50) {
        return;
    }
    for last in (1..changes.len()).rev() {
        changes.swap(last, rng.below(last as u64 + 1) as usize);
    }
}
