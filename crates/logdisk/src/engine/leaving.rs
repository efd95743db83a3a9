//! Leaving segments that are out of use: streams go on in others.

use dendro_format::record::VERSION_LEN_BYTES;
use dendro_format::{Head, Record};
use dendro_policy::Class;

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::log::partial::MIN_CAPACITY_BYTES;

impl Engine {
    /// Has the main log and the payload streams leave segments that are out of use, as far as there
    /// are others. No unit may be open. The map stream leaves such segments by itself.
    pub(crate) fn leave_retired(&mut self) -> Outcome<()> {
        let segments = self.state.segments();
        let streams = self.streams.all.iter();
        if streams.filter_map(|stream| stream.segment).any(|segment| segments.is_retired(segment)) {
            self.retire_streams();
        }
        let size = self.state.segments().layout().segment_size_bytes();
        // Headers state which segment is next. If this segment gets another header, that can be
        // another segment than the last header states.
        let is_retired = |segment| self.state.segments().is_retired(segment);
        let has_room = size - u64::from(self.log.offset_bytes) >= MIN_CAPACITY_BYTES as u64;
        let gets_header = self.log.open.is_some() || (has_room && !is_retired(self.log.segment));
        if let Some(before) = self.log.next_segment.filter(|next| gets_header && is_retired(*next))
            && let Some(next) = self.state.segments_mut().open(Head::Main, Class::MAIN)
        {
            self.log.next_segment = Some(next);
            self.state.segments_mut().close(before);
        }
        let is_retired = |segment| self.state.segments().is_retired(segment);
        let leaves = is_retired(self.log.segment) || self.log.next_segment.is_some_and(is_retired);
        if !leaves || self.log.next_segment.is_none() || !self.state.segments().has_free(0) {
            return Ok(());
        }
        // The log leads from a segment to the next by a header in each, so one is written.
        let context = self.head_context(0);
        let unit = self.begin_unit(context, 0, 0, VERSION_LEN_BYTES)?;
        self.partial().push(&Record::Version {
            branch: context.branch,
            epoch: context.epoch,
            is_moved: false,
        });
        self.end_unit(unit);
        self.close_partial();
        self.open_partial()
    }
}
