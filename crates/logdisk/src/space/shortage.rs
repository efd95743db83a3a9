//! Whether something fits: the volume's logical free space, the room in clean segments, and what
//! the host has for the image.

use dendro_base::units::MIB;
use dendro_disk::Error;

use crate::engine::Engine;
use crate::space::reserve::{Accounts, KeptSegments, MAP_SHARE_CLEAN};

/// What superblocks and the host's own metadata of the image may take.
const SLACK_BYTES: u64 = MIB;
/// What only units that give space back may use.
const RECLAIM_BYTES: u64 = MIB;

/// What a unit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes of log, at most.
    log_bytes: u64,
    /// Bytes that must stay free besides.
    kept_bytes: u64,
    /// Bytes that the unit surely gives back.
    given_back_bytes: u64,
    /// What others have reserved; `None` stands for all reservations.
    reserved_bytes: Option<u64>,
    reclaims: bool,
}

impl Need {
    /// The need of something that takes space.
    pub(crate) const fn space(log_bytes: u64) -> Self {
        Self {
            log_bytes,
            kept_bytes: 0,
            given_back_bytes: 0,
            reserved_bytes: None,
            reclaims: false,
        }
    }

    /// The need of something that gives space back.
    pub(crate) const fn reclaiming(log_bytes: u64) -> Self {
        Self::space(log_bytes).reclaiming_if(true)
    }

    /// The same, with bytes that must stay free besides.
    pub(crate) const fn keeping(self, kept_bytes: u64) -> Self {
        Self { kept_bytes, ..self }
    }

    /// The same for a unit beside which others have reserved so many bytes. It may have a
    /// reservation of its own.
    pub(crate) const fn beside(self, reserved_bytes: u64) -> Self {
        Self { reserved_bytes: Some(reserved_bytes), ..self }
    }

    /// The same for a unit that surely gives so many bytes back.
    pub(crate) const fn giving_back(self, given_back_bytes: u64) -> Self {
        Self { given_back_bytes, ..self }
    }

    /// The same for something that gives space back if `reclaims`, and otherwise takes it.
    pub(crate) const fn reclaiming_if(self, reclaims: bool) -> Self {
        Self { reclaims, ..self }
    }

    /// Whether the unit gives space back. Then it needs room only, not logical free space.
    pub(crate) const fn reclaims(&self) -> bool {
        self.reclaims
    }

    /// Bytes that must be free.
    pub(crate) const fn total_bytes(&self) -> u64 {
        self.log_bytes.saturating_add(self.kept_bytes)
    }
}

/// The reason why a unit does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shortage {
    /// Too many bytes are live, so only deleting helps. The value is the free bytes.
    OfSpace(u64),
    /// Too few segments are clean. The value is the bytes that can be written.
    OfRoom(u64),
    /// The file system that holds the image is full or nearly so. The value is the bytes that can
    /// be written.
    OnHost(u64),
}

impl Shortage {
    /// The error for a unit that needs `need`.
    pub(crate) const fn error(self, need: Need) -> Error {
        let (Self::OfSpace(available_bytes)
        | Self::OfRoom(available_bytes)
        | Self::OnHost(available_bytes)) = self;
        Error::NoSpace { needed_bytes: need.total_bytes(), available_bytes }
    }
}

impl Accounts {
    /// Returns why a unit does not fit, if so: there is no logical free space for it, or there is
    /// no room to write it before segments have been cleaned.
    pub(crate) fn shortage(
        &self,
        engine: &Engine,
        need: Need,
        kept: KeptSegments,
    ) -> Option<Shortage> {
        if need.reclaims {
            let room = engine.room_bytes(kept.for_checkpoint);
            let shortage = (need.log_bytes > room).then_some(Shortage::OfRoom(room));
            return shortage.or_else(|| self.shortage_on_host(engine, need));
        }
        let reserved = need.reserved_bytes.unwrap_or_else(|| self.reserved_bytes());
        let charged = self.charged_bytes(engine).saturating_add(reserved);
        let free = self.capacity_bytes(engine).saturating_sub(charged);
        if need.total_bytes() > free.saturating_add(need.given_back_bytes) {
            return Some(Shortage::OfSpace(free));
        }
        let on_host = self.free_on_host(engine, charged).unwrap_or(u64::MAX);
        if need.log_bytes > on_host.saturating_add(need.given_back_bytes) {
            return Some(Shortage::OfSpace(on_host));
        }
        let room = engine.room_bytes(kept.all());
        let shortage = (need.log_bytes > room).then_some(Shortage::OfRoom(room));
        shortage.or_else(|| self.shortage_on_host(engine, need))
    }

    /// Whether a write found the host full and waits for room.
    pub(crate) fn waits_for_host(&self) -> bool {
        self.volume().writer().is_out_of_room() || self.map_stream().is_out_of_room()
    }

    /// The capacity at present. It is at most what the host gives the image, so that the free space
    /// that clients see can be used.
    pub(crate) fn present_capacity_bytes(&self, engine: &Engine) -> u64 {
        let of_host = self.capacity_on_host(engine).unwrap_or(u64::MAX);
        self.capacity_bytes(engine).min(of_host)
    }

    /// What is free on the host if clients have `charged_bytes`. Pages of zeros take nothing there
    /// and are not counted, so that space promised before the host became full prevents no writes.
    fn free_on_host(&self, engine: &Engine, charged_bytes: u64) -> Option<u64> {
        let stored_bytes =
            charged_bytes.saturating_sub(engine.state().segments().zero_pages_bytes());
        Some(self.capacity_on_host(engine)?.saturating_sub(stored_bytes))
    }

    /// The capacity of the volume if it were only as large as the host allows it to become.
    fn capacity_on_host(&self, engine: &Engine) -> Option<u64> {
        let total = self.host().total_bytes()?;
        let superblocks = (0..2).map(|log| self.volume().layout().superblock_area(log));
        let of_superblocks: u64 = superblocks.map(|area| area.end - area.start).sum();
        let kept = self.host_reserve_bytes(engine) + RECLAIM_BYTES + of_superblocks;
        let usable = total.saturating_sub(kept);
        let size = self.volume().layout().segment_size_bytes();
        let share = u128::from(usable) * u128::from(self.fillable_bytes()) / u128::from(size);
        Some(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// What is kept on the host for the nodes of the next checkpoint and for cleaning a segment.
    fn host_reserve_bytes(&self, engine: &Engine) -> u64 {
        let unwritten = self.in_all_copies(self.unwritten_len_bytes(engine));
        let to_clean =
            self.map_bytes(engine) / MAP_SHARE_CLEAN + self.volume().layout().segment_size_bytes();
        unwritten + unwritten / 2 + to_clean + SLACK_BYTES
    }

    /// Whether the host lacks room to write a unit now.
    pub(crate) fn shortage_on_host(&self, engine: &Engine, need: Need) -> Option<Shortage> {
        let waits = if need.reclaims { self.volume().writer().is_over_limit() } else { true };
        if waits && self.waits_for_host() {
            return Some(Shortage::OnHost(0));
        }
        let left = self.host().left_bytes(engine)?;
        let kept_for_others = if need.reclaims { 0 } else { RECLAIM_BYTES };
        let available = left.saturating_sub(self.host_reserve_bytes(engine) + kept_for_others);
        (need.log_bytes > available).then_some(Shortage::OnHost(available))
    }

    /// Whether the host has room for `len_bytes` and for a checkpoint after that.
    pub(crate) fn host_takes(&self, engine: &Engine, len_bytes: u64) -> bool {
        let checkpoint_bytes = self.in_all_copies(self.unwritten_len_bytes(engine)) + SLACK_BYTES;
        self.host().left_bytes(engine).is_none_or(|left| left > len_bytes + checkpoint_bytes)
    }
}
