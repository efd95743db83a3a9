//! Changes of several records that one atomic recovery unit commits together.

use dendro_disk::{Aru, Lid, LogicalDisk, Record, View};
use smallvec::SmallVec;

use crate::error::Result;

/// A record that was read or changed.
struct Edit {
    list: Lid,
    index: u64,
    /// The record on the disk.
    old: Old,
    /// The record after the unit, if the unit changes it; empty: the unit deletes it.
    new: Option<Vec<u8>>,
}

enum Old {
    Known(Option<Record>),
    /// It was not read, since it is replaced in any case.
    Unread,
}

impl Old {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Known(Some(record)) => record,
            Self::Known(None) | Self::Unread => &[],
        }
    }
}

/// The changed records of one unit. A record that is read and then changed, or changed twice in the
/// unit (two names with one hash), is read from the disk once. The second change sees the first.
pub(crate) struct RecordEdits<'d> {
    disk: &'d dyn LogicalDisk,
    view: View,
    edits: SmallVec<[Edit; 2]>,
}

impl<'d> RecordEdits<'d> {
    pub(crate) fn new(disk: &'d dyn LogicalDisk, view: View) -> Self {
        Self { disk, view, edits: SmallVec::new() }
    }

    fn position(&self, list: Lid, index: u64) -> Option<usize> {
        self.edits.iter().position(|edit| (edit.list, edit.index) == (list, index))
    }

    fn edit(&mut self, list: Lid, index: u64) -> Result<&mut Edit> {
        let position = match self.position(list, index) {
            Some(position) => position,
            None => {
                let old = Old::Known(self.disk.record(self.view, list, index)?);
                self.edits.push(Edit { list, index, old, new: None });
                self.edits.len() - 1
            }
        };
        Ok(&mut self.edits[position])
    }

    /// The record as the unit will leave it, for reading; empty if there is none.
    pub(crate) fn peek(&mut self, list: Lid, index: u64) -> Result<&[u8]> {
        let edit = self.edit(list, index)?;
        Ok(edit.new.as_deref().unwrap_or_else(|| edit.old.bytes()))
    }

    /// As [`Self::peek`], for changing.
    pub(crate) fn load(&mut self, list: Lid, index: u64) -> Result<&mut Vec<u8>> {
        let Edit { old, new, .. } = self.edit(list, index)?;
        Ok(new.get_or_insert_with(|| old.bytes().to_vec()))
    }

    /// Puts a record without reading the one it replaces; an empty `value` deletes it.
    pub(crate) fn put(&mut self, list: Lid, index: u64, value: Vec<u8>) {
        match self.position(list, index) {
            Some(position) => self.edits[position].new = Some(value),
            None => self.edits.push(Edit { list, index, old: Old::Unread, new: Some(value) }),
        }
    }

    /// Adds the changes to `aru`.
    pub(crate) fn apply(mut self, aru: &mut Aru<'_>) {
        for Edit { list, index, old, new } in &mut self.edits {
            let (list, index) = (*list, *index);
            match new.take() {
                None => {}
                Some(value) if !value.is_empty() => {
                    aru.put_record(list, index, value);
                }
                Some(_) if matches!(old, Old::Known(None)) => {}
                Some(_) => {
                    aru.delete_record(list, index);
                }
            }
        }
    }
}
