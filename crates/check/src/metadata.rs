//! A copy of a volume's metadata, for a report of an error: without the contents of files, and with
//! names hidden as the caller says.
//!
//! Copied are the superblocks, the checkpoint in force, its map, the log behind it and what of the
//! log lies behind a break. Each structure has its place, its length and its numbers; checksums are
//! made anew, those of nodes before those of their parents ([`map`]), those of partial segments in
//! their order ([`log`]). A block of a page becomes zeros ([`blocks`]).
//!
//! What is damaged stays so: in place of a damaged node nothing is copied, and where a block is
//! damaged its entry has a checksum that is not that of zeros. So a check finds the same in the
//! copy.

use dendro_device::{AlignedBuf, BLOCK_SIZE, Device};
use dendro_format::superblock::{
    COMPATIBLE_ALLOCATED, COMPATIBLE_METADATA_COPY, INCOMPATIBLE_SET, INCOMPATIBLE_SPREAD,
};
use dendro_format::usage::{FIRST_SYSTEM_LIST, USAGE_LIST};
use dendro_format::versions::VERSIONS_LIST;
use dendro_format::{
    Checkpoint, Key, Record, Space, Superblock, Usage, Value, VersionRecord, checksum, removal,
};
use serde::Serialize;

use crate::error::Result;
use crate::read::{FoundSuperblock, Volume};
use blocks::Blocks;

mod blocks;
mod log;
mod map;

/// Hides what clients keep in records.
pub trait Hide {
    /// Takes note of a record that is going to be hidden, before any is.
    fn learn(&mut self, list: u64, index: u64, record: &[u8]);

    /// Hides what a record of a client's list says.
    fn hide_record(&self, list: u64, index: u64, record: &mut [u8]);

    /// Hides a name of the volume, or of a version: UTF-8, that stays as long.
    fn hide_name(&self, name: &str) -> String;

    /// Where the file ends that a record describes, if it describes one.
    fn end_bytes(&self, index: u64, record: &[u8]) -> Option<u64>;
}

/// What to copy.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetadataOptions {
    /// Also read the blocks of pages, and copy which of them are damaged, and where there is data
    /// behind the end of a file.
    pub data: bool,
}

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MetadataReport {
    /// Nodes of the map.
    pub node_count: u64,
    /// Nodes that cannot be read, and are not there in the copy either.
    pub bad_node_count: u64,
    /// Partial segments of the log.
    pub partial_count: u64,
    /// Pages that the copy has zeros of.
    pub page_count: u64,
    /// Pages whose blocks are damaged.
    pub bad_page_count: u64,
    /// Bytes of structures.
    pub copied_bytes: u64,
}

/// Copies the metadata of the volume on `source` to `target`, which is as long and all zeros.
/// `progress` is called with the number of nodes that were copied.
///
/// # Errors
/// When there is no volume on `source`; when the target cannot be written.
pub fn copy_metadata(
    source: &dyn Device,
    target: &dyn Device,
    hide: &mut dyn Hide,
    options: &MetadataOptions,
    progress: &mut dyn FnMut(u64),
) -> Result<MetadataReport> {
    let volume = Volume::open(source)?;
    let checkpoint = volume.checkpoint().ok();
    if let Some(checkpoint) = &checkpoint {
        learn(&volume, checkpoint, hide);
    }
    let copy = MetadataCopy {
        volume: &volume,
        target: Target { device: target, copied_bytes: 0 },
        hide,
        blocks: Blocks::new(&volume, options.data),
        report: MetadataReport::default(),
    };
    copy.run(checkpoint, progress)
}

/// Lets `hide` see what describes the volume, in the map and in the log.
fn learn(volume: &Volume<'_>, checkpoint: &Checkpoint, hide: &mut dyn Hide) {
    // Clients describe their volume in low lists.
    const END: u64 = 4;
    let end = Key::first(END, Space::List, 0);
    for (key, value) in volume.entries(checkpoint, None, Some(end)).flatten() {
        if let Value::Record(bytes) = value {
            hide.learn(key.list, key.index, &bytes);
        }
    }
    for partial in volume.log(checkpoint) {
        for record in partial.records().flatten() {
            if let Record::PutRecord { list, index, value } = record.record
                && list < END
            {
                hide.learn(list, index, value);
            }
        }
    }
}

/// A copy that is being made.
struct MetadataCopy<'a> {
    volume: &'a Volume<'a>,
    target: Target<'a>,
    hide: &'a dyn Hide,
    blocks: Blocks<'a>,
    report: MetadataReport,
}

/// The device that is written.
struct Target<'a> {
    device: &'a dyn Device,
    copied_bytes: u64,
}

impl Target<'_> {
    /// Writes bytes at any place: what shares a block of the device with them stays.
    fn put(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let block = BLOCK_SIZE as u64;
        let first = offset - offset % block;
        let end = (offset + bytes.len() as u64).next_multiple_of(block);
        let mut buf = AlignedBuf::zeroed((end - first) as usize);
        self.device.read_at(first, &mut buf)?;
        let at = (offset - first) as usize;
        buf[at..at + bytes.len()].copy_from_slice(bytes);
        self.device.write_at(first, &buf)?;
        self.copied_bytes += bytes.len() as u64;
        Ok(())
    }
}

impl MetadataCopy<'_> {
    fn run(
        mut self,
        checkpoint: Option<Checkpoint>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<MetadataReport> {
        let current = self.volume.superblock().clone();
        let mut crc32c = current.checkpoint_crc32c;
        if let Some(mut checkpoint) = checkpoint {
            self.copy_log(&checkpoint)?;
            if let Some((root, level)) = checkpoint.root {
                let root_crc32c = self.copy_map(root, level, progress)?;
                checkpoint.root =
                    Some((dendro_format::NodePtr { crc32c: root_crc32c, ..root }, level));
            }
            if let Some(identity) = &mut checkpoint.identity {
                identity.hash_key = [0; 16];
                identity.compatible |= COMPATIBLE_METADATA_COPY as u32;
            }
            let bytes = checkpoint.encode();
            crc32c = checksum(&bytes);
            for addr in [Some(current.checkpoint_addr), current.checkpoint_mirror] {
                let sound = addr.filter(|it| self.volume.checkpoint_at(&current, *it).is_ok());
                sound.map_or(Ok(()), |addr| self.target.put(addr.bytes(), &bytes))?;
            }
        }
        // A power cut leaves a copy without a superblock, which is none, or one with the newest.
        for is_current in [true, false] {
            self.target.device.flush()?;
            self.copy_superblocks(&current, is_current, crc32c)?;
        }
        self.target.device.flush()?;
        self.report.copied_bytes = self.target.copied_bytes;
        (self.report.page_count, self.report.bad_page_count) = self.blocks.counts();
        Ok(self.report)
    }

    /// Copies the superblocks that are the `current` one, or those that are not. The checkpoint
    /// that it names now has this checksum.
    fn copy_superblocks(
        &mut self,
        current: &Superblock,
        are_current: bool,
        crc32c: u32,
    ) -> Result<()> {
        for FoundSuperblock { superblock, offset } in self.volume.superblocks().all() {
            if (superblock.seq == current.seq) != are_current {
                continue;
            }
            let superblock = Superblock {
                // The copy is a sparse file.
                compatible: superblock.compatible & !COMPATIBLE_ALLOCATED
                    | COMPATIBLE_METADATA_COPY,
                // It lies in this file alone.
                incompatible: superblock.incompatible & !(INCOMPATIBLE_SET | INCOMPATIBLE_SPREAD),
                hash_key: [0; 16],
                label: self.hide.hide_name(&superblock.label),
                checkpoint_crc32c: if are_current { crc32c } else { superblock.checkpoint_crc32c },
                ..superblock.clone()
            };
            self.target.put(*offset, superblock.encode().as_slot())?;
        }
        Ok(())
    }

    /// Hides what a record says, whoever's it is.
    fn hide_record(&self, list: u64, index: u64, record: &mut [u8]) {
        if list < FIRST_SYSTEM_LIST {
            return self.hide.hide_record(list, index, record);
        }
        let is_numbers = match list {
            VERSIONS_LIST => match self.hidden_version(index, record) {
                Some(hidden) => {
                    record.copy_from_slice(&hidden);
                    true
                }
                None => false,
            },
            USAGE_LIST => Usage::decode(record).is_ok(),
            _ => removal::decode(index, record).is_ok(),
        };
        if !is_numbers {
            record.fill(0);
        }
    }

    /// The record of a version with another name.
    fn hidden_version(&self, index: u64, record: &[u8]) -> Option<Vec<u8>> {
        let mut version = VersionRecord::decode(index, record).ok()?;
        match &mut version {
            VersionRecord::Branch { name: Some(name), .. }
            | VersionRecord::Snapshot { name: Some(name), .. } => *name = self.hide.hide_name(name),
            _ => {}
        }
        let hidden = version.encode();
        (hidden.len() == record.len()).then_some(hidden)
    }
}
