//! `dendro mkfs`.

mod format;

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;

use dendro_control::VolumeInfo;
use dendro_daemon::text;
use dendro_daemon::volume::signature;
use dendro_device::{
    AlignedBuf, Device, Direct, Error as DeviceError, FileDevice, FileKind, OpenOptions,
};
use dendro_format::superblock::LABEL_LEN_BYTES;

use self::format::NewVolume;
use crate::args::MkfsArgs;
use crate::failure::{Failure, code};
use crate::output::{self, json};

/// How much of the end of a device is cleared: two labels of a ZFS pool take 512 KiB, others less.
const END_BYTES: u64 = 1 << 20;

pub(crate) fn run(args: &MkfsArgs, quiet: bool) -> Result<(), Failure> {
    check_arguments(args)?;
    let target = args.target.as_path();
    let (device, is_new) = open_or_create(args)?;
    let made = fill(args, device).inspect_err(|_| {
        if is_new {
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

fn check_arguments(args: &MkfsArgs) -> Result<(), Failure> {
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
fn open_or_create(args: &MkfsArgs) -> Result<(FileDevice, bool), Failure> {
    let target = args.target.as_path();
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
                lengthen(args, size)?;
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
fn lengthen(args: &MkfsArgs, size: u64) -> Result<(), Failure> {
    let target = args.target.as_path();
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
    check_replaceable(args, signature::find_in(&start, true))?;
    format::check_segments(target, size, args.segment_size)?;
    file.set_len(size).map_err(fail)
}

fn check_replaceable(args: &MkfsArgs, found: Option<&str>) -> Result<(), Failure> {
    match found {
        Some(found) if !args.force => Err(Failure::new(format_args!(
            "{}: holds {found}; --force destroys it",
            args.target.display()
        ))),
        _ => Ok(()),
    }
}

fn fill(args: &MkfsArgs, device: FileDevice) -> Result<VolumeInfo, Failure> {
    let target = args.target.as_path();
    check_replaceable(args, signature::find(&device, device.kind() == FileKind::Image)?)?;
    // These checks come before anything is destroyed.
    check_max_size(args, &device)?;
    format::check_segments(target, device.len_bytes(), args.segment_size)?;
    if args.allocate {
        allocate(args, &device)?;
    }
    // The superblocks go first: else a power cut would leave a part of the old volume that can be
    // mounted.
    dendro_logdisk::invalidate(&device)
        .map_err(|error| Failure::new(format_args!("{}: {error}", target.display())))?;
    if !args.nodiscard && !args.allocate {
        // This releases an old image's blocks. A failure does no harm.
        let _ = device.discard(0, device.len_bytes());
    }
    clear_end(&device)?;
    let metadata_copies = args.metadata_copies.unwrap_or_else(|| default_metadata_copies(&device));
    format::format(
        target,
        device,
        NewVolume {
            label: args.label.clone(),
            uuid: args.uuid,
            segment_size_bytes: args.segment_size,
            is_allocated: args.allocate,
            metadata_copies,
            max_len_bytes: args.max_size.unwrap_or(0),
        },
    )
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
fn allocate(args: &MkfsArgs, device: &FileDevice) -> Result<(), Failure> {
    let fail = |why: String| Failure::new(format_args!("{}: {why}", args.target.display()));
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
