//! Why a set of devices cannot be opened, or not be changed.

use dendro_base::Uuid;
use dendro_format::roster::{MAX_MEMBERS, ROSTER_AREA_LEN_BYTES};

/// The result of a function of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a set of devices cannot be opened, or not be changed. Devices are named by their paths.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A device could not be opened, read or written.
    #[error("{path}: {source}")]
    Device {
        /// The device.
        path: String,
        /// What it answered.
        source: dendro_device::Error,
    },
    /// A device that belongs to another volume.
    #[error("{path}: belongs to the volume {its}, not to {wanted}")]
    Foreign {
        /// The device.
        path: String,
        /// The volume that it belongs to.
        its: Uuid,
        /// The volume that was meant.
        wanted: Uuid,
    },
    /// A device that has no roster.
    #[error("{path}: is no device of the volume {wanted}")]
    NoMember {
        /// The device.
        path: String,
        /// The volume that was meant.
        wanted: Uuid,
    },
    /// A device that the set has given up.
    #[error(
        "{path}: was removed from the devices of the volume {set}; what it holds is old. The volume \
         lies on {others}"
    )]
    Removed {
        /// The device.
        path: String,
        /// The volume.
        set: Uuid,
        /// The devices that it lies on.
        others: String,
    },
    /// Devices that belong to the volume were not found.
    #[error(
        "{missing}: not found, and the volume lies on it too; name it with -o device=PATH if it has \
         moved, or mount without it with -o degraded if it is lost"
    )]
    Incomplete {
        /// The devices.
        missing: String,
    },
    /// Devices were not found that hold parts of a spread volume.
    #[error(
        "{missing}: not found, and a part of the volume lies there alone; name it with -o \
         device=PATH if it has moved, or mount with -o ro,degraded to read what the others hold"
    )]
    LacksPart {
        /// The devices.
        missing: String,
    },
    /// A device that has an older state of a part of a spread volume.
    #[error(
        "{path}: is an older copy of one of the volume's devices, and the newer one was not found; \
         name that with -o device=PATH, or mount with -o ro,degraded to read what the others hold"
    )]
    OldPart {
        /// The device.
        path: String,
    },
    /// A spread volume that lacks a device and is to be opened for writing.
    #[error(
        "{missing}: not found, and a part of the volume lies there alone, so the volume can only \
         be read; mount with -o ro,degraded"
    )]
    NotWritable {
        /// The devices.
        missing: String,
    },
    /// A device of a spread volume holds what no other one does.
    #[error(
        "{path}: holds a part of the volume that no other device holds; `dendro device replace` \
         copies it to another one, and `dendro device remove` moves it to those that are left"
    )]
    HoldsPart {
        /// The device.
        path: String,
    },
    /// The devices hold the same, so that it does not matter which of them are fast.
    #[error(
        "{path}: holds all of the volume, as each of its devices does; only one of a volume that is \
         spread over its devices can be a fast one (`dendro mkfs --copies 1`)"
    )]
    NotSpread {
        /// The device.
        path: String,
    },
    /// What the device holds does not fit on the others.
    #[error(
        "{path}: holds {held_bytes} bytes of the volume, and the other devices have room for \
         {free_bytes}; add a device first, or take a larger one"
    )]
    NoRoomElsewhere {
        /// The device.
        path: String,
        /// The bytes that it holds.
        held_bytes: u64,
        /// The bytes that the others could take.
        free_bytes: u64,
    },
    /// No device was found that has everything.
    #[error(
        "{found}: lacks what was written since it left the volume's other devices; {wanted} has \
         everything and was not found; name it with -o device=PATH"
    )]
    OnlyStale {
        /// The devices that were found.
        found: String,
        /// Those that have everything.
        wanted: String,
    },
    /// Two devices were written to apart.
    #[error(
        "{one} and {other}: each was written to without the other, so they hold two different \
         states of the volume {set}; decide which one to keep, take the other out with \
         `dendro device forget`, and mount the one that is left with -o degraded"
    )]
    Split {
        /// One device.
        one: String,
        /// Another one.
        other: String,
        /// The volume.
        set: Uuid,
    },
    /// A device that is too short to become a member.
    #[error(
        "{path}: has {len_bytes} bytes, and a device of this volume needs {needed_bytes}; take a \
         larger one, or make the volume smaller with `dendro resize` while it lies on one device"
    )]
    TooShort {
        /// The device.
        path: String,
        /// Its length.
        len_bytes: u64,
        /// How long it has to be.
        needed_bytes: u64,
    },
    /// A single device without room for rosters.
    #[error(
        "{path}: has no room behind the volume for the list of devices, which takes \
         {ROSTER_AREA_LEN_BYTES} bytes; make the volume a segment shorter with `dendro resize`"
    )]
    NoRoom {
        /// The device.
        path: String,
    },
    /// The set has as many members as can be.
    #[error("the volume lies on {MAX_MEMBERS} devices already, and cannot lie on more")]
    Full,
    /// The device is a member already.
    #[error("{path}: is one of the volume's devices already")]
    AlreadyMember {
        /// The device.
        path: String,
    },
    /// The only device that has everything.
    #[error(
        "{path}: is the only device that has all of the volume; add another one, and wait until \
         `dendro device list` calls it in sync"
    )]
    LastCopy {
        /// The device.
        path: String,
    },
    /// Each of several devices holds all of the volume, which is to be spread.
    #[error(
        "each of the volume's devices holds all of it; remove all but one with `dendro device \
         remove`, and add the others again with --copies 1 to spread it over them"
    )]
    NotAlone,
    /// The volume is open for reading only.
    #[error("the volume is open for reading only, so its devices cannot be changed")]
    ReadOnly,
    /// No set.
    #[error("the volume lies on one device alone")]
    NoSet,
}
