//! What was read, as plain structures: they print themselves for people and serialise for
//! programs. Numbers are in the units that their names say; identities and checksums are
//! hexadecimal text.

mod checkpoint;
mod entry;
mod key;
mod partial;
mod place;
mod record;
mod superblock;
mod text;
mod usage;

pub use checkpoint::CheckpointInfo;
pub use entry::{EntryInfo, HintsInfo, NodeInfo, ValueInfo};
pub use key::KeyInfo;
pub use partial::{PartialInfo, PartialRecordInfo};
pub use place::{NodePlace, PageInfo, PositionInfo};
pub use record::RecordInfo;
pub use superblock::SuperblockInfo;
pub use usage::UsageInfo;
