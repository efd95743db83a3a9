//! Volumes, versions and runners.

use std::time::Duration;

use dendrofs::disk::{Aru, ListHints};
use dendrofs::{ClientKind, Compression, CreateOptions, Error, OpenOptions, Runner, Volume};

const LEN_BYTES: u64 = 64 << 20;

#[test]
fn a_volume_is_there_again_when_it_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let volume = Volume::create(&path, LEN_BYTES, &CreateOptions::files().label("mine")).unwrap();
    let uuid = volume.uuid();
    volume.files(volume.main()).unwrap().write("file", b"kept").unwrap();
    volume.close().unwrap();
    let volume = Volume::open(&path, &OpenOptions::new()).unwrap();
    assert_eq!((volume.uuid(), volume.label()), (uuid, "mine".into()));
    assert_eq!(volume.files(volume.main()).unwrap().read("file").unwrap(), b"kept");
}

#[test]
fn wrong_use_gets_an_error_that_says_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let files = CreateOptions::files();
    let too_small = Volume::create(&path, 1 << 20, &files.clone().segment_size_bytes(1 << 20));
    assert!(matches!(too_small, Err(Error::BadSize { .. })));
    for size in [0, 64 << 10, 3 << 20, 128 << 20] {
        let made = Volume::create(&path, 4 << 30, &files.clone().segment_size_bytes(size));
        assert!(matches!(made, Err(Error::BadSegmentSize { .. })), "{size}");
    }
    assert!(!path.exists());
    assert_eq!(Volume::open(&path, &OpenOptions::new()).unwrap_err().errno(), libc::ENOENT);

    let volume = Volume::create(&path, LEN_BYTES, &files).unwrap();
    assert_eq!(Volume::create(&path, LEN_BYTES, &files).unwrap_err().errno(), libc::EEXIST);
    assert_eq!(Volume::open(&path, &OpenOptions::new()).unwrap_err().errno(), libc::EBUSY);
    assert!(matches!(volume.view("@none"), Err(Error::NoSuchVersion(_))));
    let snapshot = volume.snapshot("one").unwrap();
    assert_eq!(volume.snapshot("one").unwrap_err().errno(), libc::EEXIST);
    assert!(volume.snapshot_of(snapshot, "two").is_err());
    drop(volume);

    std::fs::write(&path, vec![7; LEN_BYTES as usize]).unwrap();
    assert!(matches!(Volume::open(&path, &OpenOptions::new()), Err(Error::Disk(_))));
    let lists = Volume::in_memory(LEN_BYTES, &CreateOptions::lists()).unwrap();
    assert!(matches!(lists.files(lists.main()), Err(Error::Files(_))));
}

#[test]
fn options_that_cannot_be_are_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let files = CreateOptions::files();
    for wrong in [
        files.clone().label("x".repeat(65)),
        files.clone().label("one\0two"),
        files.clone().metadata_copies(0),
        files.clone().metadata_copies(3),
        files.clone().open_with(OpenOptions::new().read_only(true)),
    ] {
        let on_file = Volume::create(&path, LEN_BYTES, &wrong).unwrap_err();
        let in_memory = Volume::in_memory(LEN_BYTES, &wrong).unwrap_err();
        for error in [on_file, in_memory] {
            assert!(matches!(error, Error::BadOption { .. }), "{wrong:?}: {error}");
            assert_eq!(error.errno(), libc::EINVAL);
        }
        assert!(!path.exists());
    }
    let label = "x".repeat(64);
    let made = files.label(&label).metadata_copies(2);
    let volume = Volume::in_memory(LEN_BYTES, &made).unwrap();
    assert_eq!(volume.label(), label);
    let without_a_rest = Runner::start_with_interval(&volume, Duration::ZERO);
    assert!(matches!(without_a_rest, Err(Error::BadOption { .. })));
    Runner::start(&volume).expect("that was no runner").stop();
}

#[test]
fn pages_are_compressed_as_it_was_said_when_the_volume_was_made_or_opened() {
    let dir = tempfile::tempdir().unwrap();
    let taken = |volume: &Volume, name: &str| {
        let before = volume.disk().space().live_bytes;
        volume.files(volume.main()).unwrap().write(name, &b"same".repeat(1 << 18)).unwrap();
        volume.flush().unwrap();
        volume.disk().space().live_bytes - before
    };
    let (plain, small) = (1 << 20.., 1..1 << 18);
    for compression in [Compression::Lz4, Compression::ZSTD, Compression::Zstd { level: 15 }] {
        let path = dir.path().join(format!("{compression:?}.img"));
        let options = CreateOptions::files().compression(compression);
        let volume = Volume::create(&path, LEN_BYTES, &options).unwrap();
        assert!(small.contains(&taken(&volume, "made")), "{compression:?}");
        volume.close().unwrap();
        let open = |options: &OpenOptions| Volume::open(&path, options).unwrap();
        let volume = open(&OpenOptions::new());
        assert!(small.contains(&taken(&volume, "opened")), "{compression:?}");
        volume.close().unwrap();
        let volume = open(&OpenOptions::new().compression(Compression::None));
        assert!(plain.contains(&taken(&volume, "otherwise")), "{compression:?}");
        volume.close().unwrap();
    }
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::files()).unwrap();
    assert!(plain.contains(&taken(&volume, "not compressed")));
    let open = OpenOptions::new().compression("zstd:1".parse().unwrap());
    let options = CreateOptions::files().open_with(open);
    let volume = Volume::in_memory(LEN_BYTES, &options).unwrap();
    assert!(small.contains(&taken(&volume, "compressed this time")));

    for level in [0, 16] {
        let wrong = Compression::Zstd { level };
        let options = CreateOptions::files().compression(wrong);
        let made = Volume::in_memory(LEN_BYTES, &options).unwrap_err();
        let opened = Volume::open(dir.path(), &OpenOptions::new().compression(wrong)).unwrap_err();
        for error in [made, opened] {
            assert!(matches!(error, Error::BadOption { .. }), "{error}");
        }
    }
    assert!("gzip".parse::<Compression>().is_err());
}

#[test]
fn a_volume_that_is_read_only_takes_no_change() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    Volume::create(&path, LEN_BYTES, &CreateOptions::lists()).unwrap().close().unwrap();
    let before = std::fs::read(&path).unwrap();
    let volume = Volume::open(&path, &OpenOptions::new().read_only(true)).unwrap();
    assert!(volume.read_only_reason().is_some());
    assert_eq!(volume.snapshot("one").unwrap_err().errno(), libc::EROFS);
    drop(volume);
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_snapshot_keeps_lists_as_they_were_until_it_is_deleted() {
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::lists()).unwrap();
    let put = |value: &[u8]| {
        let mut unit = Aru::new(volume.main());
        unit.put_record(Volume::ROOT, 7, value);
        volume.disk().commit(unit).unwrap();
    };
    let get = |view| volume.disk().record(view, Volume::ROOT, 7).unwrap().map(|of| of.to_vec());
    put(b"old");
    let kept = volume.snapshot("kept").unwrap();
    put(b"new");
    assert_eq!(get(kept), Some(b"old".to_vec()));
    assert_eq!(get(volume.main()), Some(b"new".to_vec()));
    assert_eq!(volume.disk().versions().past(volume.main()).len(), 1);
    volume.delete(kept).unwrap();
    assert!(volume.disk().record(kept, Volume::ROOT, 7).is_err());
    while volume.step().unwrap() {}
}

#[test]
fn mistakes_of_programs_with_lists_have_numbers_of_their_own() {
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::lists()).unwrap();
    let list = volume.disk().allocate_list().unwrap();
    let commit = |change: &dyn Fn(&mut Aru<'_>)| {
        let mut unit = Aru::new(volume.main());
        change(&mut unit);
        let error = Error::from(volume.disk().commit(unit).unwrap_err());
        error.errno()
    };
    let put = |len: usize| {
        move |unit: &mut Aru<'_>| {
            unit.put_record(list, 0, vec![1; len]);
        }
    };
    assert_eq!(commit(&put(1)), libc::ENOENT);
    let create = |unit: &mut Aru<'_>| {
        unit.create_list(Volume::ROOT, ListHints::default());
    };
    assert_eq!(commit(&create), libc::EEXIST);
    for len in [0, 1025] {
        assert_eq!(commit(&put(len)), libc::EMSGSIZE);
    }
}

#[test]
fn a_branch_is_rolled_back_to_a_snapshot() {
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::files()).unwrap();
    volume.files(volume.main()).unwrap().write("file", b"old").unwrap();
    let kept = volume.snapshot("kept").unwrap();
    volume.files(volume.main()).unwrap().write("file", b"new").unwrap();
    assert!(volume.roll_back(kept, kept).is_err());
    let head = volume.roll_back(volume.main(), kept).unwrap();
    assert_eq!(head, volume.main());
    assert_eq!(volume.files(head).unwrap().read("file").unwrap(), b"old");
}

#[test]
fn a_runner_makes_changes_durable_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("disk.img"), dir.path().join("copy.img"));
    let volume = Volume::create(&path, LEN_BYTES, &CreateOptions::files()).unwrap();
    let runner = Runner::start_with_interval(&volume, Duration::from_millis(20)).unwrap();
    assert!(matches!(Runner::start(&volume), Err(Error::HasRunner)));
    let files = volume.files(volume.main()).unwrap();
    files.write("file", b"soon durable").unwrap();
    for tries in 0.. {
        // A crash of the process now leaves what the image has.
        std::fs::copy(&path, &copy).unwrap();
        let left = Volume::open(&copy, &OpenOptions::new()).unwrap();
        let found = left.files(left.main()).unwrap().read("file");
        if found.is_ok_and(|bytes| bytes == b"soon durable") {
            break;
        }
        assert!(tries < 1000, "it never became durable");
    }
    assert!(runner.failure().is_none());
    runner.stop();
    // Without it the volume goes on.
    files.write("file", b"again").unwrap();
    drop(files);
    volume.close().unwrap();
}

#[test]
fn a_thread_that_panics_is_a_failure_that_stays() {
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::lists()).unwrap();
    let runner = Runner::start_with_interval(&volume, Duration::from_millis(50)).unwrap();
    let put = |index: u64| {
        let mut unit = Aru::new(volume.main());
        unit.put_record(Volume::ROOT, index, [1]);
        volume.disk().commit(unit).unwrap()
    };
    volume.disk().when_durable(put(1), Box::new(|_| panic!("on {}", "purpose")));
    let failure = (0..2000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        runner.failure()
    });
    let failure = failure.expect("the panic is noted");
    assert!(matches!(&failure, Error::Panic { why } if why == "on purpose"), "{failure}");
    assert_eq!(failure.errno(), libc::EIO);
    // What is told of later is told when something else makes it durable.
    let (done, is_done) = std::sync::mpsc::channel();
    volume.disk().when_durable(put(2), Box::new(move |outcome| drop(done.send(outcome))));
    volume.flush().unwrap();
    is_done.recv_timeout(Duration::from_secs(20)).expect("it is called once").unwrap();
    assert!(matches!(runner.failure(), Some(Error::Panic { .. })));
    runner.stop();
    volume.close().unwrap();
}

#[test]
fn a_full_volume_says_so_and_takes_changes_again_when_something_is_removed() {
    let volume = Volume::in_memory(16 << 20, &CreateOptions::files()).unwrap();
    let files = volume.files(volume.main()).unwrap();
    let bytes: Vec<u8> =
        (0..1_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut count = 0;
    let error = loop {
        match files.write(format!("file-{count}"), &bytes) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.errno(), libc::ENOSPC);
    assert!(count > 4, "{count} files of 1 MiB");
    for number in 0..count / 2 {
        files.remove_file(format!("file-{number}")).unwrap();
    }
    files.write("again", &bytes).unwrap();
    assert_eq!(files.read("again").unwrap(), bytes);
}

#[test]
fn a_check_of_files_finds_nothing_wrong_with_a_volume_of_lists() {
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::lists()).unwrap();
    let list = volume.disk().allocate_list().unwrap();
    let mut unit = Aru::new(volume.main());
    unit.create_list(list, ListHints::default());
    unit.put_record(list, 0, b"no i-node".as_slice());
    unit.put_record(Volume::ROOT, 0, b"no root directory".as_slice());
    volume.disk().commit(unit).unwrap();
    let snapshot = volume.snapshot("one").unwrap();
    for view in [volume.main(), snapshot] {
        assert_eq!(dendro_fs::verify(volume.disk(), view).unwrap(), []);
    }
}

#[test]
fn clients_keep_what_they_have_apart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.img");
    let volume = Volume::create(&path, LEN_BYTES, &CreateOptions::lists()).unwrap();
    let files = volume.create_client("files", ClientKind::Files).unwrap();
    let lists = volume.create_client("lists", ClientKind::Application).unwrap();
    volume.files(files).unwrap().write("file", b"kept").unwrap();
    for (view, value) in [(volume.main(), b"of the first"), (lists, b"of the other")] {
        let mut unit = Aru::new(view);
        unit.put_record(Volume::ROOT, 0, value.to_vec());
        volume.disk().commit(unit).unwrap();
        assert_eq!(volume.files(view).unwrap_err().errno(), libc::EOPNOTSUPP);
    }
    let error = volume.create_client("files", ClientKind::Files).unwrap_err();
    assert_eq!(error.errno(), libc::EEXIST);
    assert!(volume.create_client("odd", ClientKind::Unknown(9)).is_err());
    // One that is only begun is no client, and is gone when the volume is opened the next time.
    volume.disk().begin_receive(None, Some(ClientKind::Files)).unwrap();
    assert_eq!(volume.versions().branches().count(), 4);
    volume.close().unwrap();
    let volume = Volume::open(&path, &OpenOptions::new()).unwrap();
    assert_eq!(volume.versions().branches().count(), 3);
    let known = |of: &dendrofs::Client| (of.name.clone().unwrap(), of.kind);
    let clients: Vec<_> = volume.clients().unwrap().iter().map(known).collect();
    let expected = [
        ("main", ClientKind::Application),
        ("files", ClientKind::Files),
        ("lists", ClientKind::Application),
    ];
    assert_eq!(clients, expected.map(|(name, kind)| (name.to_owned(), kind)));
    let files = volume.view("files").unwrap();
    assert_eq!(volume.files(files).unwrap().read("file").unwrap(), b"kept");
    let lists = volume.view("lists").unwrap();
    let record = volume.disk().record(lists, Volume::ROOT, 0).unwrap().unwrap();
    assert_eq!(&*record, b"of the other");
    assert_eq!(volume.client_kind(lists).unwrap(), ClientKind::Application);
}

#[test]
fn a_block_device_has_the_length_that_it_is_made_with() {
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::files()).unwrap();
    let error = volume.create_client("device", ClientKind::Block).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    assert!(error.to_string().contains("create_block_device"), "{error}");
    for len_bytes in [0, 4095, (1 << 63) + 4096] {
        let error = volume.create_block_device("device", len_bytes).unwrap_err();
        assert!(matches!(error, Error::BlockDevice { errno: libc::EINVAL, .. }), "{error}");
    }
    let device = volume.create_block_device("device", 1 << 20).unwrap();
    assert_eq!(volume.block_device_len_bytes(device).unwrap(), 1 << 20);
    assert_eq!(volume.client_kind(device).unwrap(), ClientKind::Block);
    // As `dendro block list` and servers find it.
    let listed = dendro_block::list(&volume.shared_disk()).unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].view, &*listed[0].name, listed[0].size_bytes),
        (device, "device", 1 << 20)
    );

    let taken = volume.create_block_device("device", 4096).unwrap_err();
    assert_eq!(taken.errno(), libc::EEXIST);
    let error = volume.block_device_len_bytes(volume.main()).unwrap_err();
    assert!(matches!(error, Error::BlockDevice { errno: libc::EOPNOTSUPP, .. }), "{error}");
}

#[test]
fn a_quota_bounds_all_versions_of_a_client() {
    let volume = Volume::in_memory(LEN_BYTES, &CreateOptions::files()).unwrap();
    let records = volume.create_client("records", ClientKind::Application).unwrap();
    assert_eq!(volume.quota(records).unwrap(), None);
    volume.set_quota(records, Some(64 << 10)).unwrap();
    let write = |page_count: usize, reserves: bool| {
        let mut unit = Aru::new(records);
        if reserves {
            unit.use_reservation(volume.disk().reserve_in(records, 8 << 12)?);
        }
        unit.write_pages(Volume::ROOT, 0, vec![7; page_count << 12]);
        volume.disk().commit(unit).map(drop)
    };
    write(8, true).unwrap();
    let before = volume.quota(records).unwrap().unwrap();
    assert_eq!((before.limit_bytes, before.reserved_bytes), (64 << 10, 0));
    assert!(before.used_bytes >= 8 << 12 && before.used_bytes < 9 << 12, "{before:?}");
    // What the snapshot keeps counts too, and belongs to the same client.
    let snapshot = volume.snapshot_of(records, "before").unwrap();
    let refused = Error::from(write(8, false).unwrap_err());
    assert_eq!(refused.errno(), libc::EDQUOT);
    assert_eq!(Error::from(write(8, true).unwrap_err()).errno(), libc::EDQUOT);
    assert_eq!(volume.quota(snapshot).unwrap(), Some(before));
    // The other client has none.
    assert_eq!(volume.quota(volume.main()).unwrap(), None);
    volume.files(volume.main()).unwrap().write("large", &[7; 1 << 20]).unwrap();
    volume.set_quota(snapshot, None).unwrap();
    write(8, false).unwrap();
    let gone = dendrofs::disk::View { branch: 99, epoch: None };
    assert_eq!(volume.quota(gone).unwrap_err().errno(), libc::ESTALE);
    assert_eq!(volume.set_quota(gone, Some(1)).unwrap_err().errno(), libc::ESTALE);
    volume.close().unwrap();
}
