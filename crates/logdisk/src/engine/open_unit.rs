//! A unit while it is applied: which version its records belong to, and its place in the main log.

use crate::engine::Engine;
use crate::fault::Outcome;
use crate::log::partial::RecordContext;

/// A unit between [`Engine::begin_unit`] and [`Engine::end_unit`].
#[derive(Debug)]
pub(crate) struct OpenUnit {
    context: RecordContext,
    /// Whether it ends in a later partial segment than it begins in.
    spans: bool,
}

impl OpenUnit {
    /// The version that its records belong to.
    pub(crate) const fn context(&self) -> RecordContext {
        self.context
    }

    /// Whether it ends in a later partial segment than it begins in.
    pub(crate) const fn spans(&self) -> bool {
        self.spans
    }
}

impl Engine {
    /// The context of records that change the head of `branch`.
    pub(crate) const fn head_context(&self, branch: u32) -> RecordContext {
        RecordContext { branch, epoch: self.state.versions().epoch(), is_moved: false }
    }

    /// Finds a place for a unit that takes at most this much of the main log.
    ///
    /// # Errors
    /// The log has no segment in which it can continue.
    pub(crate) fn begin_unit(
        &mut self,
        context: RecordContext,
        pages: usize,
        short_bytes: usize,
        record_bytes: usize,
    ) -> Outcome<OpenUnit> {
        let mut spans = false;
        self.open_partial()?;
        if !self.partial().fits(pages, short_bytes, record_bytes) {
            self.close_partial();
            self.open_partial()?;
            if !self.partial().fits(pages, short_bytes, record_bytes) {
                spans = true;
                self.end_changes();
            }
        }
        Ok(OpenUnit { context, spans })
    }

    /// Continues in the next partial segment if this much does not fit into the open one, and
    /// states the unit's version there.
    ///
    /// # Errors
    /// The log has no segment in which it can continue.
    ///
    /// # Panics
    /// The unit takes more than it was begun with (engine invariant 2).
    pub(crate) fn make_room(
        &mut self,
        unit: &OpenUnit,
        pages: usize,
        short_bytes: usize,
        record_bytes: usize,
    ) -> Outcome<()> {
        while !self.partial().fits(pages, short_bytes, record_bytes) {
            assert!(unit.spans, "a unit that was found to fit fits (engine invariant 2)");
            // What a unit emptied that spans partial segments counts when the unit has ended.
            self.seal_partial();
            self.open_partial()?;
        }
        self.partial().set_context(unit.context);
        Ok(())
    }

    /// Ends a unit: what it has put into the open partial segment takes effect with that.
    pub(crate) fn end_unit(&mut self, _unit: OpenUnit) {
        self.partial().complete();
    }
}
