//! A volume on several devices: the images of its members, which are kept together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use dendro_base::units::KIB;
use dendro_base::{Clock, ManualClock, Uuid};
use dendro_device::{Device, MemoryDevice};
use dendro_disk::{CommitSeq, LogicalDisk};
use dendro_logdisk::{FormatOptions, LogDisk, OpenOptions, format};
use dendro_set::{DeviceSet, Found};

use crate::contents::{End, first_part, second_part};
use crate::{golden, manifest, pack, unpack};

/// A member.
pub type Member = Arc<MemoryDevice>;
/// An error of any layer.
pub type Failed = Box<dyn std::error::Error>;

/// Bytes of a segment.
const SEGMENT_LEN_BYTES: u64 = 128 * KIB;
/// The lengths of the members, in segments. The first leaves to the last, which is longer.
const LENS_SEGMENTS: [u64; 3] = [24, 20, 40];

/// How a volume lies on the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It is spread over them.
    Spread,
    /// Likewise, and the first of those that are kept is a fast one.
    Tiers,
    /// Each has all of it.
    Mirror,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Spread, Self::Tiers, Self::Mirror];
}

/// The golden images of a set.
#[derive(Clone, Debug)]
pub struct GoldenSet {
    /// Its name: the version and how it ended.
    pub name: String,
    /// The image of each member.
    pub members: Vec<Vec<u8>>,
    /// What the volume holds.
    pub manifest: String,
}

/// Opens the set of these members, of which some may be absent if it is opened for reading only.
///
/// # Errors
/// When they are none.
pub fn assemble<D: Device>(members: Vec<D>) -> Result<DeviceSet<D>, Failed> {
    let look = |(at, member): (usize, D)| Found::look(member, format!("{at}").into()).ok();
    let found: Vec<_> = members.into_iter().enumerate().filter_map(look).collect();
    let is_degraded = found.iter().any(|one| one.device().is_read_only());
    Ok(DeviceSet::assemble(found, is_degraded, clock())?)
}

/// Opens the volume on a set.
///
/// # Errors
/// When the engine refuses.
pub fn open<D: Device + 'static>(
    set: &Arc<DeviceSet<D>>,
    read_only: bool,
) -> Result<LogDisk, Failed> {
    let options = OpenOptions { read_only, is_on_set: true, ..OpenOptions::default() };
    Ok(LogDisk::open(Arc::clone(set) as Arc<dyn Device>, options, clock())?)
}

/// Writes the members of a mirror, `one.img` and `two.img`, to a folder.
///
/// # Errors
/// When the images cannot be read, or the folder cannot be written.
///
/// # Panics
/// If there is no image of a mirror.
pub fn lay_out_mirror(folder: &Path) -> Result<(), Failed> {
    let mirror = all()?.into_iter().find(|set| set.name.ends_with("-mirror-clean"));
    let members = mirror.expect("there is one").members;
    for (name, member) in ["one.img", "two.img"].into_iter().zip(members) {
        fs::write(folder.join(name), member)?;
    }
    Ok(())
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::default())
}

/// A volume with lists, records and pages, on two members, one of which has taken the place of a
/// third.
///
/// # Errors
/// When a layer refuses.
pub fn members(kind: Kind, end: End) -> Result<Vec<Member>, Failed> {
    let device = |segments| Arc::new(MemoryDevice::new(segments * SEGMENT_LEN_BYTES));
    let all: Vec<Member> = LENS_SEGMENTS.into_iter().map(device).collect();
    let uuid = |at: usize| Uuid::from_random([at as u8 + 1; 16]);
    let named = |at: usize| (uuid(at), format!("{at}").into(), Arc::clone(&all[at]));
    let volume = Uuid::from_random(*b"golden spread v1");
    let log2 = SEGMENT_LEN_BYTES.ilog2() as u8;
    let is_spread = kind != Kind::Mirror;
    let first = vec![named(0), named(1)];
    let set = if is_spread {
        DeviceSet::create_spread(volume, log2, first, clock())?
    } else {
        DeviceSet::create(volume, first, clock())?
    };
    let options = FormatOptions {
        metadata_copies: if is_spread { 2 } else { 1 },
        segment_size_bytes: SEGMENT_LEN_BYTES,
        label: "golden".into(),
        uuid: volume,
        hash_key: *b"known hash key..",
        is_on_set: true,
        is_spread,
        ..FormatOptions::default()
    };
    let set = Arc::new(set);
    format(&(Arc::clone(&set) as Arc<dyn Device>), &options, &clock())?;
    if kind == Kind::Tiers {
        set.set_fast(&uuid(1), true)?;
    }
    let disk = open(&set, false)?;
    first_part(&disk, 100)?;
    set.add(Arc::clone(&all[2]), "2".into(), uuid(2), Some(uuid(0)))?;
    disk.grow(u64::MAX, set.most_len_bytes().unwrap_or(0))?;
    while set.bring_up_step()?.is_some() {}
    second_part(&disk)?;
    match end {
        End::Clean => {
            disk.shut_down()?;
            set.close()?;
        }
        End::Crashed => disk.flush(CommitSeq::LATEST)?,
    }
    Ok(all.into_iter().skip(1).collect())
}

/// The name of the current version's set that ended so.
#[must_use]
pub fn name(kind: Kind, end: End) -> String {
    let kind = match kind {
        Kind::Spread => "-spread",
        Kind::Tiers => "-tiers",
        Kind::Mirror => "-mirror",
    };
    golden::name_of(kind, end)
}

/// The images of today.
///
/// # Errors
/// When a layer refuses.
pub fn make(kind: Kind, end: End) -> Result<GoldenSet, Failed> {
    let members: Vec<Vec<u8>> =
        members(kind, end)?.iter().map(|member| member.to_bytes()).collect();
    let set = assemble(devices(&members))?;
    let manifest = manifest::of(&open(&Arc::new(set), false)?)?;
    Ok(GoldenSet { name: name(kind, end), members, manifest })
}

/// Devices with these images.
#[must_use]
pub fn devices(members: &[Vec<u8>]) -> Vec<Member> {
    members.iter().map(|bytes| Arc::new(MemoryDevice::from_bytes(bytes))).collect()
}

fn dir() -> PathBuf {
    golden::dir().join("sets")
}

/// All golden sets, of every version, by name.
///
/// # Errors
/// When they cannot be read.
pub fn all() -> io::Result<Vec<GoldenSet>> {
    let mut sets = Vec::new();
    for entry in fs::read_dir(dir())? {
        let path = entry?.path();
        let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
            continue;
        };
        let mut members = Vec::new();
        while let Ok(packed) = fs::read(path.join(format!("{}.packed", members.len()))) {
            members.push(unpack(&packed));
        }
        let manifest = fs::read_to_string(path.join("manifest"))?;
        sets.push(GoldenSet { name, members, manifest });
    }
    sets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(sets)
}

/// Keeps a set, unless there is one of that name; says whether it did.
///
/// # Errors
/// When it cannot be written.
pub fn keep(set: &GoldenSet) -> io::Result<bool> {
    let path = dir().join(&set.name);
    if path.exists() {
        return Ok(false);
    }
    fs::create_dir_all(&path)?;
    for (at, member) in set.members.iter().enumerate() {
        fs::write(path.join(format!("{at}.packed")), pack(member))?;
    }
    fs::write(path.join("manifest"), &set.manifest)?;
    Ok(true)
}
