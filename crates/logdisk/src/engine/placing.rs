//! Which stream a block goes to, and placing it there.

use dendro_base::sync::Arc;
use dendro_format::{Addr, Head, PageRef, SegmentNo};
use dendro_policy::{Class, Policy};

use crate::engine::open_unit::OpenUnit;
use crate::engine::streams::Streams;
use crate::engine::{Engine, PARTIAL_LEN_BYTES};
use crate::log::partial::{Content, MIN_CAPACITY_BYTES, Partial, page_record_bytes};

impl Engine {
    /// Replaces the policy.
    pub(crate) fn set_policy(&mut self, policy: Arc<dyn Policy>) {
        self.retire_streams();
        self.streams = Streams::new(policy, self.streams.stream_bytes, &self.state.present());
    }

    /// Closes the segments of all payload streams, so that they can be cleaned as any others.
    pub(crate) fn retire_streams(&mut self) {
        self.close_streams();
        for stream in std::mem::take(&mut self.streams.all) {
            if let Some(segment) = stream.segment {
                self.state.segments_mut().close(segment);
            }
        }
    }

    /// The class that the policy chooses for a page that a client writes over a block of the
    /// segment `left`, or writes first.
    pub(crate) fn user_class(&self, left: Option<SegmentNo>) -> Class {
        let segment = left.map(|left| self.state.segments().policy_view(left));
        self.streams.policy().user_class(segment.as_ref(), &self.state.present())
    }

    /// Notes that the unit that is being applied has placed a block.
    pub(crate) fn note_placed(&mut self, block: &PageRef) {
        self.streams.note_block(block);
    }

    /// The class that the policy chooses for survivors of the segment of `addr`.
    pub(crate) fn survivor_class(&self, addr: Addr) -> Class {
        self.streams
            .policy()
            .survivor_class(&self.state.segments().policy_view_at(addr), &self.state.present())
    }

    /// The class that a block is written to if the policy chose `class`. For a class of survivors,
    /// when clean segments are few and its stream would need one, it is the next colder class, or
    /// else the next hotter one, whose stream has room in its segment. If there is none, it is the
    /// main log's class.
    pub(crate) fn class_with_room(&self, class: Class) -> Class {
        let Some(index) = class.survivor_index() else { return class };
        let size = self.state.segments().layout().segment_size_bytes();
        let has_room = |class: &Class| {
            let mut streams = self.streams.all.iter();
            streams.any(|stream| stream.class == *class && stream.room_bytes(size) > 0)
        };
        if has_room(&class) || self.state.segments().has_free(self.kept_segments) {
            return class;
        }
        let colder = index + 1..self.streams.classes.survivors;
        let mut others = colder.chain((0..index).rev()).map(Class::survivor);
        others.find(has_room).unwrap_or(Class::MAIN)
    }

    /// Places what is stored of pages, one or those of a frame, in the stream of `class`;
    /// [`Self::record_page`] then names them in the main log. `None` means that there is no such
    /// stream or no segment for it, so the block must go to the main log.
    pub(crate) fn place_apart(
        &mut self,
        unit: &OpenUnit,
        class: Class,
        list: u64,
        named: &[(u64, Content<'_>)],
    ) -> Option<PageRef> {
        let number = self.streams.find(class)?;
        let (_, content) = &named[0];
        let (pages, short) = content.room();
        let record_bytes = page_record_bytes(named.len());
        // Segments that are filled in order leave no block between them, so that an image has long
        // extents.
        let fits = |partial: &Partial| {
            partial.fits(pages, short, record_bytes)
                || (content.is_whole() && partial.fits_up_to_the_end(pages, record_bytes))
        };
        if !self.streams.all[number].open.as_ref().is_some_and(fits) {
            self.close_stream(number);
            self.open_stream(number)?;
        }
        let stream = &mut self.streams.all[number];
        let open = stream.open.as_mut()?;
        stream.mark.get_or_insert_with(|| open.mark());
        open.set_context(unit.context());
        let block = open.place(content);
        for (page_index, content) in named {
            open.record_page(list, *page_index, &content.page_in(&block));
        }
        Some(block)
    }

    /// Records in the main log that a page was written as `block`, which was placed there or in a
    /// stream.
    pub(crate) fn record_page(
        &mut self,
        unit: &OpenUnit,
        list: u64,
        page_index: u64,
        block: &PageRef,
    ) {
        let main = self.log.open.as_mut().expect("a partial segment was opened");
        main.set_context(unit.context());
        let record_ref = main.record_page(list, page_index, block);
        if main.offset_of(block.addr).is_none() {
            self.streams.set_named(block, record_ref);
        }
    }

    fn open_stream(&mut self, number: usize) -> Option<()> {
        let layout = self.state.segments().layout();
        let size = layout.segment_size_bytes();
        let stream = &mut self.streams.all[number];
        let segments = self.state.segments();
        let is_bad = stream.segment.is_some_and(|segment| segments.is_retired(segment));
        let is_full = is_bad || size - u64::from(stream.offset_bytes) < MIN_CAPACITY_BYTES as u64;
        if let Some(full) = stream.segment.filter(|_| is_full) {
            self.state.segments_mut().close(full);
            stream.segment = None;
        }
        if stream.segment.is_none() {
            stream.segment = Some(self.state.segments_mut().open(Head::Payload, stream.class)?);
            stream.offset_bytes = 0;
        }
        let (segment, offset_bytes) = (stream.segment?, stream.offset_bytes);
        let room = (size - u64::from(offset_bytes)) as usize;
        let buf = self.take_buf();
        // The last partial segment of a segment takes the room that would be too little for another
        // one.
        let capacity = if room <= buf.len() { room } else { PARTIAL_LEN_BYTES };
        let segment_offset = layout.segment_offset(segment);
        let epoch = self.state.versions().epoch();
        let tables = self.spare_tables.pop().unwrap_or_default();
        self.streams.all[number].open =
            Some(Partial::new(buf, capacity, segment, segment_offset, offset_bytes, epoch, tables));
        Some(())
    }
}
