use dendro_base::SystemClock;
use dendro_disk::LogicalDisk;
use dendro_disk::model::ModelDisk;
use dendro_fs::{FormatOptions, Options};
use dendro_fuse_transport::{FileRange, SecurityContext, SetAttr as Change};

use super::*;

fn request() -> Request<'static> {
    Request { unique: 1, uid: 0, gid: 0, pid: 1, security_context: SecurityContext::default() }
}

/// A file system over a disk, and a file in it.
fn adapter_with_file(sync_mode: SyncMode) -> (Arc<ModelDisk>, Adapter, u64) {
    let disk = Arc::new(ModelDisk::new(None));
    let options = FormatOptions {
        uid: 0,
        gid: 0,
        mode: 0o755,
        label: String::new(),
        hash_key: *b"sixteen bytes...",
    };
    dendro_fs::FileSystem::create_on(&*disk, &options, &SystemClock).unwrap();
    let dynamic = Arc::clone(&disk) as Arc<dyn LogicalDisk>;
    let clock = Arc::new(SystemClock);
    let fs = dendro_fs::FileSystem::mount(dynamic, Options::default(), clock).unwrap();
    let sync = SyncSwitch::new(sync_mode == SyncMode::All, sync_mode == SyncMode::Names);
    let adapter =
        Adapter::new(Arc::new(CurrentFs::new(Arc::new(fs))), Arc::new(|_, _| ()), sync, true);
    let file = adapter.mknod(&request(), 1, b"file", libc::S_IFREG | 0o600, 0, 0).unwrap().node;
    (disk, adapter, file)
}

fn how(flags: i32, is_cached: bool) -> WriteHow {
    WriteHow { handle: 0, offset: 0, flags: flags as u32, is_cached, kill_priv: false }
}

#[test]
fn a_write_to_a_file_opened_with_o_dsync_is_durable_when_it_is_answered() {
    let (disk, adapter, file) = adapter_with_file(SyncMode::Writes);
    let write = |flags| {
        adapter.write(&request(), file, &how(flags, false), &[7; 5000]).unwrap();
        disk.flushed()
    };
    let before = disk.flushed();
    assert_eq!(write(0), before, "nobody asked for it to be durable");
    let after = write(libc::O_DSYNC);
    assert!(after > before);
    assert!(write(libc::O_SYNC) > after);
}

#[test]
fn all_that_changes_a_file_on_a_mount_with_sync_is_durable_when_it_is_answered() {
    for sync_mode in [SyncMode::Writes, SyncMode::Names, SyncMode::All] {
        let (disk, adapter, file) = adapter_with_file(sync_mode);
        let request = request();
        adapter.write(&request, file, &how(0, false), &[7; 5000]).unwrap();
        let check = |change: &dyn Fn()| {
            let before = disk.flushed();
            change();
            assert_eq!(disk.flushed() > before, sync_mode == SyncMode::All);
        };
        check(&|| adapter.fallocate(&request, file, 0, 0, 10_000, 0).unwrap());
        check(&|| {
            let end = |offset| FileRange { node: file, handle: 0, offset };
            let (source, target) = (end(0), end(20_000));
            let range = CopyRange { source, target, len_bytes: 5000, flags: 0 };
            assert_eq!(adapter.copy_file_range(&request, &range), Ok(5000));
        });
        check(&|| {
            let cut = Change { size_bytes: Some(10), ..Change::default() };
            adapter.setattr(&request, file, &cut).unwrap();
        });
        let how = SetxattrHow { flags: 0, kill_sgid: false };
        check(&|| adapter.setxattr(&request, file, b"user.a", b"x", how).unwrap());
        check(&|| adapter.removexattr(&request, file, b"user.a").unwrap());
    }
}

#[test]
fn what_the_kernel_writes_back_to_a_disk_that_failed_is_lost_and_what_programs_write_refused() {
    let (disk, adapter, file) = adapter_with_file(SyncMode::Writes);
    disk.fail("the device is gone");
    let write = |is_cached| adapter.write(&request(), file, &how(0, is_cached), b"x");
    assert_eq!(write(true), Err(Errno::IO));
    assert_eq!(write(false), Err(Errno::ROFS));
    assert_eq!(adapter.fsync(&request(), file, 0, true), Err(Errno::IO));
}
