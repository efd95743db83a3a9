//! How writers are slowed down when clean segments get few.

use dendro_base::sync::Arc;
use dendro_base::sync::atomic::{AtomicI64, Ordering};
use dendro_disk::Result;

use crate::clean::cleaner::Cleaner;
use crate::engine::Engine;
use crate::reclaim::make_room::RoomMaker;
use crate::space::reserve::{Accounts, KeptSegments};
use crate::volume::Volume;

/// The most steps of background work that one commit does.
const MAX_ASSIST_STEPS: usize = 8;

/// Makes commits do a part of the cleaning.
pub(crate) struct Throttle {
    volume: Arc<Volume>,
    accounts: Arc<Accounts>,
    cleaner: Arc<Cleaner>,
    room_maker: Arc<RoomMaker>,
    /// The room that commits owe to cleaning.
    owed_bytes: AtomicI64,
}

impl Throttle {
    pub(crate) const fn new(
        volume: Arc<Volume>,
        accounts: Arc<Accounts>,
        cleaner: Arc<Cleaner>,
        room_maker: Arc<RoomMaker>,
    ) -> Self {
        Self { volume, accounts, cleaner, room_maker, owed_bytes: AtomicI64::new(0) }
    }

    /// Adds to what is owed, and returns the sum.
    fn owe(&self, bytes: i64) -> i64 {
        self.owed_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes
    }

    /// The room that a commit which took `bytes` should make itself. It is nothing while clean
    /// segments are many, and grows as they get fewer, up to twice what the commit took. So commits
    /// are slowed down gradually, long before one would have to stop.
    #[inline]
    pub(crate) fn share_of_cleaning(&self, engine: &Engine, bytes: u64, kept: KeptSegments) -> i64 {
        let size = self.volume.layout().segment_size_bytes();
        let window = u64::from(self.accounts.pace_segments() + 2) * size;
        let room = engine.room_bytes(kept.all());
        let pending = u64::from(engine.state().segments().counts().pending) * size;
        let missing = window.saturating_sub(room + pending);
        if missing == 0 {
            return 0;
        }
        (u128::from(2 * bytes) * u128::from(missing) / u128::from(window)) as i64
    }

    /// Performs background work until it has made so much room, or until there is nothing to do.
    pub(crate) fn assist_cleaning(&self, owed_bytes: i64) -> Result<()> {
        let began = self.volume.now();
        let mut owed = self.owe(owed_bytes);
        for _ in 0..MAX_ASSIST_STEPS {
            if owed <= 0 {
                break;
            }
            let Some(gained) = self.cleaner.step_for_commit()? else {
                // There is nothing to gain now, and later commits do not have to make up for it.
                self.owed_bytes.store(0, Ordering::Relaxed);
                break;
            };
            owed = self.owe(-gained);
        }
        self.room_maker.note_stall(began);
        Ok(())
    }
}
