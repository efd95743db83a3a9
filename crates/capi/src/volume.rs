//! Volumes, and their threads.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dendrofs::disk::{CommitSeq, Lid, Outlasts, Versions};
use dendrofs::{Compression, CreateOptions, OpenOptions, Runner};

use crate::border::{Handle, Health, call, close, hand_out, on, place, put_text};
use crate::failure::{Failure, Result};
use crate::raw::{Call, Wrong};
use crate::types::{
    DENDRO_COMPRESS_LZ4, DENDRO_COMPRESS_NONE, DENDRO_COMPRESS_ZSTD, DENDRO_DEGRADED, DENDRO_FILES,
    DENDRO_LISTS, DENDRO_NO_DISCARD, DENDRO_OUTLASTS_MACHINE, DENDRO_OUTLASTS_MEDIUM,
    DENDRO_OUTLASTS_PROCESS, DENDRO_READ_ONLY, DENDRO_UUID_SIZE, Options, Space, View,
};

/// An open volume: an image file, a block device, or memory.
pub struct Volume {
    health: Health,
    volume: dendrofs::Volume,
    runner: Mutex<Option<Runner>>,
}

impl Handle for Volume {
    fn health(&self) -> &Health {
        &self.health
    }
}

impl Volume {
    fn new(volume: dendrofs::Volume) -> Self {
        Self { health: Health::default(), volume, runner: Mutex::default() }
    }

    /// The volume of the library.
    pub(crate) const fn inner(&self) -> &dendrofs::Volume {
        &self.volume
    }

    /// Lists and versions.
    pub(crate) fn disk(&self) -> &dyn Versions {
        self.volume.disk()
    }

    /// What other handles of this volume are made with.
    pub(crate) fn shared(&self) -> Shared {
        Shared { health: self.health.clone(), disk: self.volume.shared_disk() }
    }

    fn runner(&self) -> MutexGuard<'_, Option<Runner>> {
        self.runner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A volume for handles that live on their own.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) health: Health,
    pub(crate) disk: Arc<dyn Versions>,
}

/// The options for opening, of which those for making must be unset.
fn open_options(call: Call<'_>, options: Option<&Options>) -> Result<OpenOptions> {
    let Some(options) = options else { return Ok(OpenOptions::new()) };
    let is_for_making =
        options.metadata_copies != 0 || options.segment_size_bytes != 0 || !options.label.is_null();
    if is_for_making {
        return Err(Failure::invalid("an option of new volumes, and the volume is not new"));
    }
    let mut made = common_options(options)?.degraded(options.flags & DENDRO_DEGRADED != 0);
    for device in call.paths(options.devices) {
        made = made.device(device);
    }
    Ok(match compression(options)? {
        Some(compression) => made.compression(compression),
        None => made,
    })
}

/// The compression that options name, if they do.
fn compression(options: &Options) -> Result<Option<Compression>> {
    Ok(Some(match (options.compression, options.compression_level) {
        (0, 0) => return Ok(None),
        (DENDRO_COMPRESS_NONE, 0) => Compression::None,
        (DENDRO_COMPRESS_LZ4, 0) => Compression::Lz4,
        (DENDRO_COMPRESS_ZSTD, 0) => Compression::ZSTD,
        // A number that is too large stays so.
        (DENDRO_COMPRESS_ZSTD, level) => {
            Compression::Zstd { level: u8::try_from(level).unwrap_or(u8::MAX) }
        }
        (kind, level) => {
            let why = format!("there is no compression {kind} of level {level}");
            return Err(Failure::invalid(why));
        }
    }))
}

fn common_options(options: &Options) -> Result<OpenOptions> {
    if options.flags & !(DENDRO_READ_ONLY | DENDRO_NO_DISCARD | DENDRO_DEGRADED) != 0 {
        return Err(Failure::invalid(format!("there are no flags {:#x}", options.flags)));
    }
    if options.reserved != [0; 2] {
        return Err(Failure::invalid("reserved options are not 0"));
    }
    let made = OpenOptions::new()
        .read_only(options.flags & DENDRO_READ_ONLY != 0)
        .discard(options.flags & DENDRO_NO_DISCARD == 0);
    Ok(match options.cache_size_bytes {
        0 => made,
        len_bytes => made.cache_size_bytes(len_bytes),
    })
}

fn create_options(
    call: Call<'_>,
    contents: u32,
    options: Option<&Options>,
) -> Result<CreateOptions> {
    let mut made = match contents {
        DENDRO_FILES => CreateOptions::files(),
        DENDRO_LISTS => CreateOptions::lists(),
        _ => return Err(Failure::invalid(format!("there are no contents {contents}"))),
    };
    let Some(options) = options else { return Ok(made) };
    if options.flags & DENDRO_DEGRADED != 0 || !options.devices.is_null() {
        return Err(Failure::invalid("a new volume lies on one device"));
    }
    made = made.open_with(common_options(options)?);
    if !options.label.is_null() {
        made = made.label(call.text(options.label)?);
    }
    if let Some(compression) = compression(options)? {
        made = made.compression(compression);
    }
    if options.segment_size_bytes != 0 {
        made = made.segment_size_bytes(options.segment_size_bytes);
    }
    Ok(match options.metadata_copies {
        0 => made,
        // A number that is too large stays so.
        count => made.metadata_copies(u8::try_from(count).unwrap_or(u8::MAX)),
    })
}

/// Makes a volume in a new image file of `len_bytes` bytes, and opens it. `contents` is
/// DENDRO_FILES or DENDRO_LISTS. `options` may be NULL.
///
/// Returns: 0, with the handle in `*volume`; it is given back by dendro_volume_close(). After an
/// error `*volume` is NULL, and no file is left.
///
/// Errors: EEXIST: there is a file of that path. EINVAL: the size is too small or too large, or an
/// option is wrong. What open(2) and write(2) answer.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_create(
    path: *const c_char,
    len_bytes: u64,
    contents: u32,
    options: Option<&Options>,
    volume: Option<&mut MaybeUninit<Option<Box<Volume>>>>,
) -> c_int {
    call(|call| {
        hand_out(volume, || {
            let options = create_options(call, contents, options)?;
            let path: &Path = call.path(path)?;
            Ok(Volume::new(dendrofs::Volume::create(path, len_bytes, &options)?))
        })
    })
}

/// Makes a volume in memory, for tests, and opens it. It is gone when it is closed.
///
/// Returns: as dendro_volume_create().
///
/// Errors: EINVAL: the size is too small or too large, or an option is wrong.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_create_in_memory(
    len_bytes: u64,
    contents: u32,
    options: Option<&Options>,
    volume: Option<&mut MaybeUninit<Option<Box<Volume>>>>,
) -> c_int {
    call(|call| {
        hand_out(volume, || {
            let options = create_options(call, contents, options)?;
            Ok(Volume::new(dendrofs::Volume::in_memory(len_bytes, &options)?))
        })
    })
}

/// Opens the volume in an image file or on a block device, or on several that it lies on, of which
/// `path` is one and the others are where they were last. What a crash left unfinished is finished,
/// unless it is opened for reading. `options` may be NULL.
///
/// Returns: 0, with the handle in `*volume`; it is given back by dendro_volume_close(). After an
/// error `*volume` is NULL.
///
/// Errors: EBUSY: it is open already, here or in another process. EINVAL: an option is wrong. EIO:
/// there is no volume, or it is damaged. ENODEV: others of its devices are not there. What open(2)
/// answers.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_open(
    path: *const c_char,
    options: Option<&Options>,
    volume: Option<&mut MaybeUninit<Option<Box<Volume>>>>,
) -> c_int {
    call(|call| {
        hand_out(volume, || {
            let options = open_options(call, options)?;
            Ok(Volume::new(dendrofs::Volume::open(call.path(path)?, &options)?))
        })
    })
}

/// Ends the volume's threads, makes everything durable, and closes the volume. The next
/// dendro_volume_open() has nothing to recover.
///
/// Close all other handles of the volume before. Those that are not closed can still be used to
/// read, and changes answer EROFS. The image stays locked until the last of them is closed.
///
/// Returns: 0. The handle is given back in any case. NULL does nothing.
///
/// Errors: EIO: what was not durable before may be lost. ENOSPC: so it is, because the file system
/// that holds the image is full.
///
/// Threads: one, and no other may use the handle at the time or later.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_close(volume: Option<Box<Volume>>) -> c_int {
    close(volume, |volume| {
        drop(volume.runner().take());
        volume.volume.close().map_err(Failure::when_syncing)
    })
}

/// Makes everything durable that was done before.
///
/// Returns: 0.
///
/// Errors: EIO: what was not durable before may be lost, and the volume takes no more changes.
///
/// Threads: any. Those that wait at the same time share one flush of the device.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_flush(volume: Option<&Volume>) -> c_int {
    on(volume, |_, volume| {
        volume.inner().flush().map_err(Failure::when_syncing)?;
        Ok(0)
    })
}

/// Makes all units up to the one with the number `commit` durable, which dendro_unit_commit()
/// returned. DENDRO_LATEST stands for all.
///
/// Returns: 0.
///
/// Errors: as dendro_volume_flush().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_flush_to(volume: Option<&Volume>, commit: u64) -> c_int {
    on(volume, |_, volume| {
        let flushed = volume.disk().flush(CommitSeq(commit));
        flushed.map_err(|error| Failure::when_syncing(error.into()))?;
        Ok(0)
    })
}

/// Makes all units up to the one with the number `commit` outlast what `outlasts` says, one of
/// DENDRO_OUTLASTS_PROCESS, DENDRO_OUTLASTS_MACHINE and DENDRO_OUTLASTS_MEDIUM. DENDRO_LATEST
/// stands for all units. dendro_volume_flush_to() is for DENDRO_OUTLASTS_MACHINE; for less it may
/// cost less.
///
/// Returns: 0.
///
/// Errors: as dendro_volume_flush(). ENODEV: the volume lies on one device; it is durable there.
/// EINVAL: there is no such kind.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_flush_for(
    volume: Option<&Volume>,
    outlasts: u32,
    commit: u64,
) -> c_int {
    on(volume, |_, volume| {
        let outlasts = match outlasts {
            DENDRO_OUTLASTS_PROCESS => Outlasts::Process,
            DENDRO_OUTLASTS_MACHINE => Outlasts::Machine,
            DENDRO_OUTLASTS_MEDIUM => Outlasts::Medium,
            _ => return Err(Failure::invalid(format!("nothing is called {outlasts} to outlast"))),
        };
        let flushed = volume.disk().flush_for(outlasts, CommitSeq(commit));
        flushed.map_err(|error| Failure::when_syncing(error.into()))?;
        Ok(0)
    })
}

/// Makes what the list `list` of the version `version` has durable. Nothing is written if it has
/// not changed since something later became durable.
///
/// Returns: 0.
///
/// Errors: as dendro_volume_flush().
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_flush_list(
    volume: Option<&Volume>,
    version: View,
    list: u64,
) -> c_int {
    on(volume, |_, volume| {
        let flushed = volume.disk().flush_list(version.into(), Lid(list));
        flushed.map_err(|error| Failure::when_syncing(error.into()))?;
        Ok(0)
    })
}

/// Tells the number of the last unit that is visible. What is read after this call is as old as
/// that or newer; see dendro_unit_require_unchanged().
///
/// Returns: 0, with the number in `*commit`.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_last_commit(
    volume: Option<&Volume>,
    commit: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    on(volume, |_, volume| {
        commit.ok_or(Wrong::Null)?.write(volume.disk().last_commit().0);
        Ok(0)
    })
}

/// Has `done` called once when all units up to the one with the number `commit` are durable, or
/// when that has failed, and returns without waiting. `done` is given `data`, and 0 or a negative
/// error number as of dendro_volume_flush(). It is called by this thread or another one, and must
/// not wait nor call functions of the library: it wakes an event loop. The volume's threads make
/// the units durable soon; without them, dendro_volume_step() does. At the latest it is called when
/// the volume is closed.
///
/// Returns: 0.
///
/// Errors: EINVAL: there is no function. `done` is not called then.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_when_durable(
    volume: Option<&Volume>,
    commit: u64,
    done: Option<extern "C" fn(data: *mut c_void, error: c_int)>,
    data: *mut c_void,
) -> c_int {
    on(volume, |_, volume| {
        let done = done.ok_or(Wrong::Null)?;
        // The pointer is the program's: it is only handed back, to whichever thread calls.
        let data = data.expose_provenance();
        let then = move |outcome: dendrofs::disk::Result<()>| {
            let error = outcome.err().map_or(0, |error| -Failure::when_syncing(error.into()).errno);
            done(ptr::with_exposed_provenance_mut(data), error);
        };
        volume.disk().when_durable(CommitSeq(commit), Box::new(then));
        Ok(0)
    })
}

/// Does one step of the work that the volume's threads do in the background. A program without them
/// calls it now and then, best when it has nothing else to do. Otherwise changes do that work when
/// they find no room.
///
/// Returns: 1 if there was any, or 0.
///
/// Errors: EIO, ENOSPC, EROFS.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_step(volume: Option<&Volume>) -> c_int {
    on(volume, |_, volume| Ok(c_int::from(volume.inner().step()?)))
}

/// Starts threads that write the log, clean segments, and make everything durable after each
/// `interval_ms` milliseconds: so much can be missing after a crash. 0 stands for 5,000. They end
/// with dendro_volume_stop_threads() or dendro_volume_close().
///
/// Returns: 0.
///
/// Errors: EBUSY: the volume has them, or had them. EAGAIN: the system refuses a thread.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_start_threads(volume: Option<&Volume>, interval_ms: u64) -> c_int {
    on(volume, |_, volume| {
        let mut runner = volume.runner();
        let started = match interval_ms {
            0 => Runner::start(volume.inner()),
            _ => Runner::start_with_interval(volume.inner(), Duration::from_millis(interval_ms)),
        };
        *runner = Some(started?);
        Ok(0)
    })
}

/// Ends the threads and waits for them. What was done before is durable then, unless
/// dendro_volume_threads_error() says otherwise before the call. They cannot be started again.
/// Without threads nothing happens.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_stop_threads(volume: Option<&Volume>) -> c_int {
    on(volume, |_, volume| {
        let runner = volume.runner().take();
        drop(runner);
        Ok(0)
    })
}

/// Whether the volume's threads do their work.
///
/// Returns: 0 if they do, or if there are none.
///
/// Errors: the last error of work that has not succeeded since: EIO, ENOSPC, EROFS. EIO stays if a
/// thread has ended because of a bug.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_threads_error(volume: Option<&Volume>) -> c_int {
    on(volume, |_, volume| match volume.runner().as_ref().and_then(Runner::failure) {
        Some(error) => Err(error.into()),
        None => Ok(0),
    })
}

/// Puts the identity of the volume into `text`, which has room for DENDRO_UUID_SIZE bytes: 36
/// characters and a zero byte.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_uuid(volume: Option<&Volume>, text: *mut c_char) -> c_int {
    on(volume, |call, volume| {
        let buf = call.buffer(text.cast::<c_void>(), DENDRO_UUID_SIZE)?;
        put_text(&volume.inner().uuid(), buf);
        Ok(0)
    })
}

/// Puts the volume's name for people into `buf` of `len` bytes, in UTF-8 with a zero byte, cut off
/// if there is no room. `buf` may be NULL if `len` is 0.
///
/// Returns: the length of the whole name in bytes, without the zero byte; at most 64.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_label(
    volume: Option<&Volume>,
    buf: *mut c_char,
    len: usize,
) -> i64 {
    on(volume, |call, volume| {
        let buf = call.buffer(buf.cast::<c_void>(), len)?;
        Ok(put_text(&volume.inner().label(), buf))
    })
}

/// Puts the reason why the volume takes no changes into `buf` of `len` bytes, as
/// dendro_volume_label() does with the name.
///
/// Returns: the length of the whole reason in bytes, or 0 if the volume takes changes.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_read_only_reason(
    volume: Option<&Volume>,
    buf: *mut c_char,
    len: usize,
) -> i64 {
    on(volume, |call, volume| {
        let buf = call.buffer(buf.cast::<c_void>(), len)?;
        Ok(put_text(&volume.inner().read_only_reason().unwrap_or_default(), buf))
    })
}

/// Puts into `*space` how the bytes of the volume are used.
///
/// Returns: 0.
///
/// Errors: none but those of any call.
///
/// Threads: any.
#[unsafe(no_mangle)]
pub extern "C" fn dendro_volume_space(
    volume: Option<&Volume>,
    space: Option<&mut MaybeUninit<Space>>,
) -> c_int {
    on(volume, |_, volume| {
        let place = place(space)?;
        let space = volume.disk().space();
        place.write(Space {
            capacity_bytes: space.capacity_bytes,
            live_bytes: space.live_bytes,
            available_bytes: space.available_bytes,
            reserved_bytes: space.reserved_bytes,
        });
        Ok(0)
    })
}
