//! Requests about damage.

use dendro_control::AdminError;
use dendro_control::check::CheckState;
use dendro_control::damage::{DamageInfo, DamageRequest};

use super::refusal::refuse;
use crate::state::Daemon;

impl Daemon<'_> {
    /// Reports the damage that is known and the last check, and forgets the damage if `request`
    /// says so.
    pub(super) fn answer_damage(&self, request: DamageRequest) -> Result<DamageInfo, AdminError> {
        let disk = self.volume.disk();
        self.record_damage();
        let mut info = self.damage.info(disk, true);
        let check = self.checks.info();
        info.last_check = Some(check).filter(|check| check.state != CheckState::Never);
        if request.clear {
            self.damage.clear(disk).map_err(refuse)?;
            self.volume.commit().map_err(refuse)?;
        }
        Ok(info)
    }
}
