use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use dendro_nbd::testing::{Client, MemoryExport, MemoryExports, command, flag};
use dendro_nbd::{Activity, FailureKind, Listener, MAX_LEN_BYTES, Peer, RequestKind, Server};

use crate::{Served, wait_until};

/// The length of a write that needs memory of the server's.
const LONG_LEN_BYTES: u32 = 8 << 20;

#[test]
fn requests_are_counted_by_what_they_ask_for() {
    let served = Served::new();
    let mut client = served.open("disk");
    client.write(0, &[7; 70_000], 0).unwrap().unwrap();
    client.write(0, &[7; 1000], flag::FUA).unwrap().unwrap();
    client.read(0, 300_000).unwrap().unwrap();
    for (command, len_bytes) in [
        (command::WRITE_ZEROES, 5000),
        (command::TRIM, 6000),
        (command::FLUSH, 0),
        (command::BLOCK_STATUS, 8192),
        (command::CACHE, 512),
    ] {
        client.ask((command, 0), 0, len_bytes, b"").unwrap().unwrap();
    }
    // What has failed counts as a request, and its bytes do not.
    assert_eq!(client.write(1 << 20, b"x", 0).unwrap().error, 28);
    assert_eq!(client.read(1 << 20, 1).unwrap().error, 22);
    assert_eq!(served.open("old").write(0, b"x", 0).unwrap().error, 1);
    served.disk.is_broken.store(true, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(client.read(0, 1).unwrap().error, 5);
    let counted =
        RequestKind::ALL.map(|kind| (served.activity.requests(kind), served.activity.bytes(kind)));
    let expected = [(3, 300_000), (4, 71_000), (1, 5000), (1, 6000), (1, 0), (1, 0), (1, 0)];
    assert_eq!(counted, expected);
    assert_eq!(FailureKind::ALL.map(|kind| served.activity.failures(kind)), [1, 0, 3]);
}

#[test]
fn connections_are_listed_once_they_have_an_export() {
    let served = Served::new();
    let (_idle, disk, old) = (served.connect(), served.open("disk"), served.open("old"));
    let listed = served.activity.connections();
    assert_eq!(listed.len(), 2, "{listed:?}");
    for (connection, is_read_only) in listed.iter().zip([false, true]) {
        assert_eq!(connection.peer, Peer::Process(Some(std::process::id())));
        assert_eq!(connection.is_read_only, is_read_only);
        assert!(!connection.is_encrypted && connection.since.secs() > 0);
        assert_eq!(connection.has_open(&Arc::downgrade(&served.disk)), !is_read_only);
    }
    let counts = || (served.activity.open_connections(), served.activity.begun_connections());
    assert_eq!(counts(), (3, 3));
    drop(disk);
    wait_until("it has ended", || counts() == (2, 3));
    assert_eq!(served.activity.connections().len(), 1);
    drop(old);
}

#[test]
fn a_client_at_a_port_is_listed_with_its_address() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let disk = Arc::new(MemoryExport::new(4096, false));
    let exports = Arc::new(MemoryExports(vec![("disk", disk)]));
    let activity = Arc::new(Activity::new(0));
    let counting = Arc::clone(&activity);
    let _server = Server::start(Listener::Tcp(listener), exports, None, counting).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    let own = stream.local_addr().unwrap();
    assert_eq!(Client::connect(stream).unwrap().go("disk").unwrap(), (1, vec![]));
    assert_eq!(activity.connections()[0].peer, Peer::Address(own));
}

/// A server with as little memory as it may have, and clients that have sent half of a write.
fn stalled(
    count: usize,
    patience: Duration,
) -> (Served, Vec<Client<std::os::unix::net::UnixStream>>) {
    let served = Served::counting(16 << 20, None, Activity::with_patience(0, patience));
    let stall = |_| {
        let mut client = served.open("disk");
        client.send((command::WRITE, 0), 0, LONG_LEN_BYTES, &[1; 100_000]).unwrap();
        client
    };
    let clients = (0..count).map(stall).collect();
    let all = u64::from(MAX_LEN_BYTES);
    wait_until("all memory is taken", || served.activity.memory_bytes() == all);
    (served, clients)
}

#[test]
fn stalled_writers_take_no_more_than_the_memory_of_the_server() {
    let (served, stalled) = stalled(64, Duration::from_secs(600));
    // What fits into the memory of a thread does not wait, and no more does what is read in pieces.
    let mut good: Vec<_> = (0..20).map(|_| served.open("disk")).collect();
    for client in &mut good {
        client.write(0, &[5; 64 << 10], flag::FUA).unwrap().unwrap();
        let read = client.read(0, 1 << 20).unwrap().unwrap().data;
        assert!(read[..64 << 10].iter().all(|&byte| byte == 5));
        assert_eq!(served.activity.memory_bytes(), MAX_LEN_BYTES.into());
    }
    assert_eq!(served.activity.open_connections(), 84);
    drop((stalled, good));
    wait_until("all is given back", || served.activity.memory_bytes() == 0);
}

#[test]
fn a_long_write_comes_to_its_turn_although_others_have_stalled() {
    let (served, stalled) = stalled(24, Duration::from_millis(200));
    let mut good = served.open("disk");
    let highest = thread::scope(|scope| {
        let data = vec![9; LONG_LEN_BYTES as usize];
        let long = scope.spawn(move || good.write(0, &data, 0).unwrap().unwrap());
        let mut highest = 0;
        while !long.is_finished() {
            highest = highest.max(served.activity.memory_bytes());
            thread::yield_now();
        }
        long.join().unwrap();
        highest
    });
    assert!(highest <= MAX_LEN_BYTES.into(), "{highest}");
    // Those were sent away that were in its way.
    wait_until("they have gone", || served.activity.open_connections() <= 5);
    drop(stalled);
}

#[test]
fn a_slow_client_is_in_nobodys_way_as_long_as_nobody_waits() {
    let (served, mut stalled) = stalled(4, Duration::from_millis(50));
    thread::sleep(Duration::from_millis(300));
    for client in &mut stalled {
        client.send_raw(&vec![1; LONG_LEN_BYTES as usize - 100_000]).unwrap();
        client.receive().unwrap().1.unwrap();
    }
    assert_eq!(served.activity.memory_bytes(), 0);
}

/// What was read counts until the client has taken it.
#[test]
fn replies_that_are_not_taken_give_way_to_others() {
    let activity = Activity::with_patience(0, Duration::from_millis(200));
    let served = Served::counting(16 << 20, None, activity);
    let mut greedy: Vec<_> = (0..8).map(|_| served.open("disk")).collect();
    for client in &mut greedy {
        client.send((command::READ, flag::DF), 0, LONG_LEN_BYTES, b"").unwrap();
    }
    let all = u64::from(MAX_LEN_BYTES);
    wait_until("all memory is taken", || served.activity.memory_bytes() == all);
    let read = served.open("disk").ask((command::READ, flag::DF), 0, LONG_LEN_BYTES, b"");
    assert_eq!(read.unwrap().unwrap().data.len(), LONG_LEN_BYTES as usize);
    assert!(served.activity.open_connections() < 9, "none of them has given way");
}
