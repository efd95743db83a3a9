//! Segments that mirror others. A mirror is opened for a segment of the map and becomes clean with
//! it; it is neither filled nor picked by itself.

use dendro_format::{Head, SegmentNo, Usage};

use roaring::RoaringBitmap;

use super::{SegmentState, Segments};
use crate::log::mirrors::Mirrors;

impl Segments {
    /// The mirrors.
    pub(crate) const fn mirrors(&self) -> &Mirrors {
        &self.mirrors
    }

    /// Live bytes in segments of the map that have no mirror.
    pub(crate) fn unmirrored_bytes(&self) -> u64 {
        let live_bytes = |segment| match self.usage(segment) {
            Usage { head: Head::Map, live_bytes, .. } => u64::from(live_bytes),
            _ => 0,
        };
        let mirrors = self.mirrors.list();
        let all: u64 = self.layout.log_segments().map(live_bytes).sum();
        let mirrored: u64 = mirrors.into_iter().map(|(of, _)| live_bytes(of)).sum();
        all - mirrored
    }

    /// Opens a mirror for a segment if more than `kept` segments are clean: one that is not lost
    /// with it if there is one, and as far from it as may be. `domain` says which segments are lost
    /// together ([`dendro_device::Device::part_at`]).
    pub(crate) fn open_mirror(
        &mut self,
        of: SegmentNo,
        kept: usize,
        domain: impl Fn(SegmentNo) -> Option<u32>,
    ) -> Option<SegmentNo> {
        if !self.has_free(kept) {
            return None;
        }
        let is_free = |number: &u32| !self.pins.is_pinned(SegmentNo(*number));
        let ends = || {
            let (first, last) = (self.clean.iter().find(is_free), self.clean.iter().rfind(is_free));
            first.into_iter().chain(last).max_by_key(|number| number.abs_diff(of.0))
        };
        let apart = self.free_apart(of, domain);
        let mirror = apart.or_else(|| self.far_from(of, is_free)).or_else(ends)?;
        let mirror = SegmentNo(mirror);
        self.set_mirror(of, mirror);
        Some(mirror)
    }

    /// A clean segment of which this holds, a half of the volume away, so that images stay as short
    /// as they can.
    fn far_from(&self, of: SegmentNo, is_good: impl Fn(&u32) -> bool) -> Option<u32> {
        let half = self.layout.segment_count() / 2;
        let far_in = |segments: &RoaringBitmap| match of.0.checked_sub(half) {
            Some(before) => segments.range(..=before).find(&is_good),
            None => segments.range(of.0 + half..).find(&is_good),
        };
        far_in(&self.backed.all).or_else(|| far_in(&self.clean))
    }

    /// A clean segment that is not lost with `of`. `None`: there is none, or all are.
    fn free_apart(&self, of: SegmentNo, domain: impl Fn(SegmentNo) -> Option<u32>) -> Option<u32> {
        let own = domain(of)?;
        let is_apart = |number: &u32| {
            !self.pins.is_pinned(SegmentNo(*number)) && domain(SegmentNo(*number)) != Some(own)
        };
        self.far_from(of, is_apart).or_else(|| self.clean.iter().find(is_apart))
    }

    /// Whether a segment of the map should have another mirror than it has: it has none, or one
    /// that is lost with it while a segment is clean that is not.
    pub(crate) fn lacks_mirror(
        &self,
        of: SegmentNo,
        domain: impl Fn(SegmentNo) -> Option<u32>,
    ) -> bool {
        let Some(mirror) = self.mirrors.of(of) else { return true };
        domain(of).is_some_and(|own| domain(mirror) == Some(own))
            && self.free_apart(of, domain).is_some()
    }

    fn set_mirror(&mut self, of: SegmentNo, mirror: SegmentNo) {
        self.change(mirror, |entry| {
            entry.set_mirror();
            entry.opened = entry.opened.wrapping_add(1);
        });
        self.mirrors.insert(of, mirror);
    }

    /// Takes over the mirrors that a checkpoint lists. What it states of a mirror's live bytes is
    /// of an earlier use.
    pub(crate) fn restore_mirrors(&mut self, mirrors: Mirrors) {
        let list = mirrors.list();
        self.mirrors = mirrors;
        for (of, mirror) in list {
            // It may hold the checkpoint alone.
            if self.state(of) == SegmentState::Clean {
                self.close(of);
            }
            self.set_mirror(of, mirror);
        }
    }

    /// Gives up the mirror of a segment, which nobody needs any more or which cannot be written.
    pub(crate) fn release_mirror(&mut self, of: SegmentNo) {
        let Some(mirror) = self.mirrors.remove(of) else { return };
        // Only a forged image can list a mirror that a stream fills, or in which something is live.
        if self.state(mirror) != SegmentState::Mirror {
            return;
        }
        let is_empty = self.live_bytes_of(mirror) == 0;
        let state = if is_empty { self.state_when_clean(mirror) } else { SegmentState::Dirty };
        self.change(mirror, |entry| entry.set_state(state));
    }
}
