use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;

use dendro_block::Devices;
use dendro_disk::{LogicalDisk, Versions};
use dendro_logdisk::LogDisk;
use dendro_nbd::testing::{Client, command, flag, option, string};
use dendro_nbd::{Activity, Listener, Server};
use tempfile::TempDir;

use crate::{make_device, volume};

struct Served {
    _server: Server,
    directory: TempDir,
}

impl Served {
    fn new(disk: &Arc<LogDisk>) -> Self {
        let directory = TempDir::new().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let devices = Devices::new(Arc::clone(disk) as Arc<dyn Versions>, false);
        let activity = Arc::new(Activity::new(64 << 20));
        let listener = Listener::Unix(listener);
        let server = Server::start(listener, Arc::new(devices), None, activity).unwrap();
        Self { _server: server, directory }
    }

    fn connect(&self) -> Client<UnixStream> {
        let stream = UnixStream::connect(self.directory.path().join("socket")).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        Client::connect(stream).unwrap()
    }

    fn open(&self, name: &str) -> Client<UnixStream> {
        let mut client = self.connect();
        client.agree_on_all(name).unwrap();
        assert_eq!(client.go(name).unwrap(), (1, vec![]));
        client
    }
}

#[test]
fn devices_snapshots_and_clones_are_exports() {
    let disk = volume(32 << 20);
    make_device(&*disk, 100 << 30);
    let served = Served::new(&disk);
    let mut main = served.open("");
    assert_eq!(main.size_bytes(), 100 << 30);
    main.write(50 << 30, b"before", 0).unwrap().unwrap();
    let before = disk.snapshot(0, Some("before")).unwrap().view();
    disk.branch_off(before, "clone").unwrap();
    main.write(50 << 30, b"after.", flag::FUA).unwrap().unwrap();

    let mut clone = served.open("clone");
    assert_eq!(clone.read(50 << 30, 6).unwrap().unwrap().data, b"before");
    clone.write(50 << 30, b"clone!", 0).unwrap().unwrap();
    let mut snapshot = served.open("main@before");
    assert_eq!(snapshot.read(50 << 30, 6).unwrap().unwrap().data, b"before");
    assert_eq!(snapshot.write(0, b"x", 0).unwrap().error, 1);
    assert_eq!(snapshot.ask((command::FLUSH, 0), 0, 0, b"").unwrap().error, 0);
    assert_eq!(served.open("main").read(50 << 30, 6).unwrap().unwrap().data, b"after.");
    let status = |flags, at, len| (command::BLOCK_STATUS, flags, at, len);
    let (what, flags, at, len) = status(0, (50 << 30) - 8192, 16384);
    let extents = clone.ask((what, flags), at, len, b"").unwrap().unwrap().extents;
    assert_eq!(extents, [(8192, 3), (4096, 0), (4096, 3)]);

    let names: Vec<_> = served
        .connect()
        .option(option::LIST, b"")
        .unwrap()
        .into_iter()
        .filter(|(kind, _)| *kind == 2)
        .map(|(_, data)| data)
        .collect();
    let listed = |(name, about): (&str, &str)| [&*string(name), about.as_bytes()].concat();
    let (device, old) = ("a block device", "a snapshot of a block device");
    let all = [("main", device), ("main@before", old), ("clone", device), ("clone@before", old)];
    assert_eq!(names, all.map(listed));
    // A snapshot of a device that was deleted is there by its own name.
    disk.snapshot(disk.versions().branch_named("clone").unwrap().branch, Some("last")).unwrap();
    disk.delete(disk.versions().branch_named("clone").unwrap().head()).unwrap();
    let left = dendro_block::list(&(Arc::clone(&disk) as Arc<dyn Versions>)).unwrap();
    let left: Vec<_> = left.iter().map(|device| &*device.name).collect();
    assert_eq!(left, ["main", "main@before", "@last"]);
    assert_eq!(served.open("@last").read(50 << 30, 6).unwrap().unwrap().data, b"clone!");
    disk.branch_off(before, "clone").unwrap();
    for (name, why) in [
        ("none", "there is no block device 'none'"),
        ("clone@after", "there is no block device 'clone@after'"),
        ("", "the volume has several block devices; name one"),
    ] {
        let (kind, message) = served.connect().go(name).unwrap();
        assert_eq!((kind, &*String::from_utf8(message).unwrap()), (0x8000_0006, why));
    }
}

#[test]
fn connections_to_one_device_share_its_locks() {
    let disk = volume(64 << 20);
    make_device(&*disk, 1 << 20);
    let served = Served::new(&disk);
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let served = &served;
            scope.spawn(move || {
                let mut client = served.open("main");
                for round in 0..50_u64 {
                    for _ in 0..4 {
                        let at = round * 512 % 4096 / 1024 * 1024 + u64::from(writer) * 256;
                        client.send((command::WRITE, 0), at, 256, &[writer + 1; 256]).unwrap();
                    }
                    for _ in 0..4 {
                        assert_eq!(client.receive().unwrap().1.error, 0);
                    }
                }
            });
        }
    });
    let page = served.open("main").read(0, 4096).unwrap().unwrap().data;
    for (at, byte) in page.iter().enumerate() {
        assert_eq!(usize::from(*byte), at % 1024 / 256 + 1);
    }
}

#[test]
fn what_a_disk_that_has_failed_refuses_is_told() {
    let disk = volume(32 << 20);
    make_device(&*disk, 1 << 20);
    let served = Served::new(&disk);
    let mut client = served.open("main");
    disk.shut_down().unwrap();
    let refused = client.write(0, b"x", 0).unwrap();
    assert_eq!(refused.error, 1);
    assert!(refused.message.starts_with("read-only"), "{}", refused.message);
    assert_eq!(client.read(0, 1).unwrap().unwrap().data, [0]);
}
