//! Changes of the state that take effect whole or not at all (apply 1).

use dendro_format::Record;
use dendro_format::record::{PUT_RECORD_LEN_BYTES, VERSION_LEN_BYTES};

use crate::engine::Engine;
use crate::fault::{Fault, Outcome};
use crate::map::Nodes;

impl Engine {
    /// Changes the state with `change`, whole or not at all (apply 1).
    ///
    /// # Errors
    /// The error of `change`; nothing has changed then.
    pub(crate) fn transact<T>(
        &mut self,
        nodes: &dyn Nodes,
        change: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        self.state.begin();
        let outcome = change(self);
        match outcome {
            Ok(_) => {
                self.state.settle_changes(nodes);
                self.streams.settle_placed();
            }
            Err(_) => {
                self.state.roll_back();
                self.streams.take_back_placed();
                if let Some(open) = &mut self.log.open {
                    open.take_back_placed();
                }
            }
        }
        outcome
    }

    /// Changes the state with `change` and undoes it. After that the same changes need no node from
    /// the device, as long as the lock is held.
    ///
    /// # Errors
    /// The error of `change`.
    pub(crate) fn rehearse<T>(
        &mut self,
        change: impl FnOnce(&mut Self) -> Outcome<T>,
    ) -> Outcome<T> {
        self.state.begin();
        let outcome = change(self);
        self.state.roll_back();
        outcome
    }

    /// Puts or deletes records of one of the disk's own lists, as a unit.
    ///
    /// # Errors
    /// The reason why the records cannot be changed, or not now; nothing has changed then.
    pub(crate) fn apply_system_records(
        &mut self,
        list: u64,
        changes: &[(u64, Option<Vec<u8>>)],
        nodes: &dyn Nodes,
    ) -> Outcome<()> {
        let len =
            |value: &Option<Vec<u8>>| PUT_RECORD_LEN_BYTES + value.as_ref().map_or(0, Vec::len);
        let record_bytes = changes.iter().map(|(_, value)| len(value)).sum::<usize>();
        let unit = self.begin_unit(self.head_context(0), 0, 0, VERSION_LEN_BYTES + record_bytes)?;
        self.transact(nodes, |engine| {
            changes.iter().try_for_each(|(index, value)| {
                engine.state.put_system_record(list, *index, value.as_deref(), nodes)
            })?;
            for (index, value) in changes {
                // A record never replaces an earlier one in the partial segment: the records
                // between them depend on the order.
                let index = *index;
                let record = match value {
                    Some(value) => Record::PutRecord { list, index, value },
                    None => Record::DeleteRecord { list, index },
                };
                engine.make_room(&unit, 0, 0, len(value)).map_err(Fault::unfinished)?;
                engine.partial().push(&record);
            }
            Ok(())
        })?;
        self.commit_seq += 1;
        self.end_unit(unit);
        Ok(())
    }
}
