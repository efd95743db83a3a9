//! `dendro mkfs`.

mod format;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use dendro_base::Uuid;
use dendro_control::VolumeInfo;
use dendro_daemon::text;
use dendro_daemon::volume::devices::Devices;
use dendro_daemon::volume::{clock, random_bytes, signature};
use dendro_device::{
    AlignedBuf, Device, Direct, Error as DeviceError, FileDevice, FileKind, OpenOptions,
};
use dendro_format::layout::{FIRST_LOG_SEGMENT, good_segment_size_bytes};
use dendro_format::roster::{MAX_MEMBERS, ROSTER_AREA_LEN_BYTES};
use dendro_format::superblock::LABEL_LEN_BYTES;
use dendro_set::{part_needed_bytes, part_segments};

use self::format::NewVolume;
use crate::args::mkfs::MkfsArgs;
use crate::failure::{Failure, code};
use crate::output::{self, json};

/// How much of the end of a device is cleared: two labels of a ZFS pool take 512 KiB, others less.
const END_BYTES: u64 = 1 << 20;

pub(crate) fn run(args: &MkfsArgs, quiet: bool) -> Result<(), Failure> {
    check_arguments(args)?;
    let mut opened = Vec::new();
    let mut new_files = Vec::new();
    let made = targets(args).try_for_each(|target| {
        let (device, is_new) = open_or_create(args, target)?;
        new_files.extend(Some(target).filter(|_| is_new));
        opened.push((target.as_path(), device));
        Ok(())
    });
    let made = made.and_then(|()| fill(args, opened)).inspect_err(|_| {
        for target in new_files {
            // The file is new and useless; the error that matters is the other.
            let _ = fs::remove_file(target);
        }
    });
    let info = made?;
    match (args.json, quiet) {
        (true, _) => json::print(&json::volume::Volume::from(&info)),
        (false, false) => output::print(&summary(&info)),
        (false, true) => Ok(()),
    }
}

/// All devices, the fast ones last.
fn targets(args: &MkfsArgs) -> impl Iterator<Item = &PathBuf> {
    std::iter::once(&args.target).chain(&args.others).chain(&args.fast)
}

/// Refuses other numbers of copies than of devices, and sets of images that grow.
fn check_copies(args: &MkfsArgs) -> Result<(), Failure> {
    let count = targets(args).count();
    let wrong = |why: String| Err(Failure::new(why).with_code(code::USAGE));
    match args.copies {
        Some(copies) if copies != 1 && usize::from(copies) != count => wrong(format!(
            "--copies {copies}: {count} devices are named, and each holds all of the volume; name \
             {copies}, or say --copies 1 to spread the volume over them"
        )),
        _ if !args.fast.is_empty() && args.copies != Some(1) => wrong(
            "--fast: each device holds all of the volume; say --copies 1 to spread it over them"
                .into(),
        ),
        _ if count > MAX_MEMBERS => {
            wrong(format!("a volume lies on {MAX_MEMBERS} devices at most; name fewer"))
        }
        _ if count > 1 && args.max_size.is_some() => wrong(
            "--max-size: a volume on several devices does not grow by itself; leave it out".into(),
        ),
        _ => Ok(()),
    }
}

/// Whether the volume is to be spread over the devices.
fn is_spread(args: &MkfsArgs) -> bool {
    args.copies == Some(1) && targets(args).count() > 1
}

fn check_arguments(args: &MkfsArgs) -> Result<(), Failure> {
    check_copies(args)?;
    if args.label.len() > LABEL_LEN_BYTES || args.label.contains('\0') {
        return Err(Failure::new(format_args!(
            "label \"{}\": has {} bytes; it can have {LABEL_LEN_BYTES}, and none may be zero",
            args.label,
            args.label.len()
        ))
        .with_code(code::USAGE));
    }
    if args.label.contains(char::is_control) {
        return Err(Failure::new(format_args!(
            "label \"{}\": has control characters",
            text::printable(&args.label)
        ))
        .with_code(code::USAGE));
    }
    match args.segment_size {
        Some(size) if !size.is_power_of_two() || !(128 << 10..=64 << 20).contains(&size) => {
            Err(Failure::new(format_args!(
                "segment size {}: is no power of two from 128K to 64M",
                text::size(size)
            ))
            .with_code(code::USAGE))
        }
        _ => Ok(()),
    }
}

/// The device, locked, and whether its file is new.
fn open_or_create(args: &MkfsArgs, target: &Path) -> Result<(FileDevice, bool), Failure> {
    let fail = |why: &str| Failure::new(format_args!("{}: {why}", target.display()));
    // Formatting is a few small writes, for which the page cache is good enough and works
    // everywhere.
    let options = OpenOptions::new().direct(Direct::Never);
    match fs::metadata(target) {
        Ok(metadata) if metadata.is_file() || metadata.file_type().is_block_device() => {
            if metadata.is_file() && metadata.len() == 0 && args.size.is_none() {
                return Err(fail("is empty; say with --size how large the image is to be"));
            }
            if metadata.is_file()
                && let Some(size) = args.size.filter(|&size| size > metadata.len())
            {
                lengthen(args, target, size)?;
            }
            let device = options.open(target)?;
            if args.size.is_some_and(|size| size < device.len_bytes()) {
                return Err(fail(&format!(
                    "is larger than --size says ({}); leave --size out, or remove the file first",
                    text::size(device.len_bytes())
                )));
            }
            Ok((device, false))
        }
        Ok(_) => Err(fail("is neither a regular file nor a block device")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => match args.size {
            Some(size) => Ok((options.create(target, size)?, true)),
            None => Err(fail("does not exist; --size makes an image file of that size")),
        },
        Err(error) => Err(fail(&error.to_string())),
    }
}

/// Extends an image file, unless another process has it open or it must not be destroyed. An empty
/// file cannot be opened as a device. A refused file stays as it was.
fn lengthen(args: &MkfsArgs, target: &Path, size: u64) -> Result<(), Failure> {
    let fail = |error| Failure::new(format_args!("{}: {error}", target.display()));
    let file = fs::File::options().read(true).write(true).open(target).map_err(fail)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive).map_err(
        |_| {
            let path = target.display().to_string();
            Failure::new(dendro_device::Error::InUse { path })
        },
    )?;
    let mut start = Vec::new();
    (&file).take(signature::LOOKED_AT_BYTES).read_to_end(&mut start).map_err(fail)?;
    check_replaceable(args, target, signature::find_in(&start, true))?;
    format::check_segments(target, size, args.segment_size)?;
    file.set_len(size).map_err(fail)
}

fn check_replaceable(args: &MkfsArgs, target: &Path, found: Option<&str>) -> Result<(), Failure> {
    match found {
        Some(found) if !args.force => Err(Failure::new(format_args!(
            "{}: holds {found}; --force destroys it",
            target.display()
        ))),
        _ => Ok(()),
    }
}

/// Makes the volume on devices that are open and locked.
fn fill(args: &MkfsArgs, opened: Vec<(&Path, FileDevice)>) -> Result<VolumeInfo, Failure> {
    let rosters_bytes = if opened.len() > 1 { ROSTER_AREA_LEN_BYTES } else { 0 };
    // These checks come before anything is destroyed.
    let segment_size_bytes = match is_spread(args) {
        true => Some(check_parts(args, &opened)?),
        false => args.segment_size,
    };
    for (target, device) in &opened {
        let is_image = device.kind() == FileKind::Image;
        check_replaceable(args, target, signature::find(device, is_image)?)?;
        check_max_size(args, device)?;
        let len_bytes = device.len_bytes().saturating_sub(rosters_bytes);
        if !is_spread(args) {
            format::check_segments(target, len_bytes, args.segment_size)?;
        }
    }
    for (target, device) in &opened {
        if args.allocate {
            allocate(target, device)?;
        }
        // The superblocks go first: else a power cut would leave a part of the old volume that can
        // be mounted.
        dendro_logdisk::invalidate(device)
            .map_err(|error| Failure::new(format_args!("{}: {error}", target.display())))?;
        if !args.nodiscard && !args.allocate {
            // This releases an old image's blocks. A failure does no harm.
            let _ = device.discard(0, device.len_bytes());
        }
        clear_end(device)?;
    }
    let metadata_copies = match &opened[..] {
        [(_, device)] => default_metadata_copies(device),
        // What lies on the others can be named when one is lost.
        _ if is_spread(args) => 2,
        // The other device has the second copy.
        _ => 1,
    };
    let uuid = match args.uuid {
        Some(uuid) => uuid,
        None => Uuid::from_random(random_bytes()?),
    };
    let fast_from = opened.len() - args.fast.len();
    format::format(
        &args.target,
        devices(uuid, opened, segment_size_bytes.filter(|_| is_spread(args)), fast_from)?,
        NewVolume {
            label: args.label.clone(),
            uuid,
            segment_size_bytes,
            is_allocated: args.allocate,
            metadata_copies: args.metadata_copies.unwrap_or(metadata_copies),
            max_len_bytes: args.max_size.unwrap_or(0),
            compression: args.compress,
            cold_compression: args.compress_cold,
        },
    )
}

/// The segments' size for a volume that is to be spread over the devices. Refuses one that is too
/// short.
fn check_parts(args: &MkfsArgs, opened: &[(&Path, FileDevice)]) -> Result<u64, Failure> {
    let all_bytes: u64 = opened.iter().map(|(_, device)| device.len_bytes()).sum();
    let size_bytes = args.segment_size.unwrap_or_else(|| good_segment_size_bytes(all_bytes));
    let log2 = size_bytes.ilog2() as u8;
    let mut segments = u64::from(FIRST_LOG_SEGMENT.0);
    for (target, device) in opened {
        let own = part_segments(device.len_bytes(), log2);
        if own == 0 {
            let (path, len_bytes) = (target.display().to_string(), device.len_bytes());
            let needed_bytes = part_needed_bytes(log2);
            let error = dendro_set::Error::TooShort { path, len_bytes, needed_bytes };
            return Err(Failure::new(error));
        }
        segments += u64::from(own);
    }
    format::check_segments(&args.target, segments * size_bytes, Some(size_bytes))?;
    Ok(size_bytes)
}

/// What the volume is to lie on: a set of the devices, if there are several. It is spread over them
/// if the segments' size is given; then those from number `fast_from` on are fast ones.
fn devices(
    set: Uuid,
    opened: Vec<(&Path, FileDevice)>,
    spread_segment_bytes: Option<u64>,
    fast_from: usize,
) -> Result<Devices, Failure> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let is_alone = opened.len() == 1;
    let mut members = Vec::new();
    for (target, device) in opened {
        if is_alone {
            return Ok(Devices::single(device, absolute(target), clock()));
        }
        members.push((Uuid::from_random(random_bytes()?), absolute(target), device));
    }
    let fast: Vec<Uuid> = members[fast_from..].iter().map(|(uuid, ..)| *uuid).collect();
    let devices = match spread_segment_bytes {
        Some(bytes) => Devices::create_spread(set, bytes.ilog2() as u8, members, clock()),
        None => Devices::create(set, members, clock()),
    }
    .map_err(Failure::new)?;
    for uuid in &fast {
        devices.set_fast(uuid, true).map_err(Failure::new)?;
    }
    Ok(devices)
}

/// Refuses a limit that the volume exceeds already, and one for something that does not grow.
fn check_max_size(args: &MkfsArgs, device: &FileDevice) -> Result<(), Failure> {
    let fail = |why: &str| Failure::new(format_args!("{}: {why}", args.target.display()));
    match args.max_size {
        Some(_) if device.kind() == FileKind::BlockDevice => {
            Err(fail("is a block device; --max-size is for image files"))
        }
        Some(size) if size < device.len_bytes() => Err(fail(&format!(
            "has {} already, more than --max-size says",
            text::size(device.len_bytes())
        ))),
        _ => Ok(()),
    }
}

/// A disk gets bad sectors one by one, and what the second copy takes and costs does not count on a
/// large one. Who holds an image file cares for its sectors.
fn default_metadata_copies(device: &FileDevice) -> u8 {
    const LARGE_BYTES: u64 = 1 << 30;
    let is_disk = device.kind() == FileKind::BlockDevice;
    if is_disk && device.len_bytes() >= LARGE_BYTES { 2 } else { 1 }
}

/// Allocates the whole image in the file system that holds it.
fn allocate(target: &Path, device: &FileDevice) -> Result<(), Failure> {
    let fail = |why: String| Failure::new(format_args!("{}: {why}", target.display()));
    if device.kind() == FileKind::BlockDevice {
        return Err(fail("is a block device; --allocate is for image files".into()));
    }
    // Without so much room the allocation would fail only after taking all that there is.
    if let Some(room) = device.host_room() {
        let missing_bytes = device.len_bytes().saturating_sub(room.allocated_bytes);
        if missing_bytes > room.free_bytes {
            return Err(fail(format!(
                "cannot be allocated: {} are missing, and the file system that holds it has {} free; \
                 make it smaller with --size, or leave --allocate out",
                text::size(missing_bytes),
                text::size(room.free_bytes)
            )));
        }
    }
    device.allocate().map_err(|error| match error {
        DeviceError::Open { source, .. } => {
            fail(format!("cannot be allocated on the file system that holds it: {source}"))
        }
        other => Failure::new(other),
    })
}

/// Clears the end of the device. Other formats have marks there: members of RAID arrays, ZFS pools,
/// the second table of GPT. blkid, udev and the boot process would take old ones for what is there
/// now.
fn clear_end(device: &FileDevice) -> Result<(), Failure> {
    let len_bytes = device.len_bytes().min(END_BYTES);
    let zeros = AlignedBuf::zeroed(usize::try_from(len_bytes).unwrap_or(0));
    Ok(device.write_at(device.len_bytes() - len_bytes, &zeros)?)
}

fn summary(info: &VolumeInfo) -> String {
    let label = match info.label.as_str() {
        "" => String::new(),
        label => format!(" \"{}\"", text::printable(label)),
    };
    format!("{}: dendrofs volume{label}, {}\n", info.source, text::size(info.device_size_bytes))
        + &output::table(&[
            ("UUID", info.uuid.clone()),
            (
                "segments",
                format!(
                    "{} of {}; {}",
                    info.segments.total,
                    text::size(info.segments.size_bytes),
                    text::SUPERBLOCKS_HELD
                ),
            ),
            ("for data", text::size(info.space.available_bytes)),
        ])
}
