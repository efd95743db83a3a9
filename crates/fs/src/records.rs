//! Changes to several records of one atomic recovery unit, before it is committed.

use dendro_disk::{Aru, Lid, LogicalDisk, View};

use crate::error::Result;

/// A record as it will be: empty when it is to go.
struct Edit {
    list: Lid,
    index: u64,
    value: Vec<u8>,
    /// Whether the disk has it, so far as is known.
    on_disk: bool,
}

/// Records being changed. A record that is changed twice in one unit (two names with one hash) is
/// read from the disk once, and the second change sees the first.
pub(crate) struct RecordEdits<'d> {
    disk: &'d dyn LogicalDisk,
    view: View,
    edits: Vec<Edit>,
}

impl<'d> RecordEdits<'d> {
    pub(crate) const fn new(disk: &'d dyn LogicalDisk, view: View) -> Self {
        Self { disk, view, edits: Vec::new() }
    }

    fn position(&self, list: Lid, index: u64) -> Option<usize> {
        self.edits.iter().position(|edit| (edit.list, edit.index) == (list, index))
    }

    /// The record as the unit will leave it; empty when there is none.
    pub(crate) fn load(&mut self, list: Lid, index: u64) -> Result<&mut Vec<u8>> {
        let position = match self.position(list, index) {
            Some(position) => position,
            None => {
                let record = self.disk.record(self.view, list, index)?;
                let on_disk = record.is_some();
                let value = record.map(|record| record.to_vec()).unwrap_or_default();
                self.edits.push(Edit { list, index, value, on_disk });
                self.edits.len() - 1
            }
        };
        Ok(&mut self.edits[position].value)
    }

    /// Puts a record without reading the one it replaces; an empty `value` takes it away.
    pub(crate) fn put(&mut self, list: Lid, index: u64, value: Vec<u8>) {
        match self.position(list, index) {
            Some(position) => self.edits[position].value = value,
            None => self.edits.push(Edit { list, index, value, on_disk: true }),
        }
    }

    /// Adds the changes to `aru`.
    pub(crate) fn apply(self, aru: &mut Aru<'_>) {
        for Edit { list, index, value, on_disk } in self.edits {
            if !value.is_empty() {
                aru.put_record(list, index, value);
            } else if on_disk {
                aru.delete_record(list, index);
            }
        }
    }
}
