use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dendro_base::Rng;
use dendro_nbd::testing::{command, flag};

use crate::{SIZE_BYTES, Served};

#[test]
fn what_is_written_is_read_by_another_connection() {
    let served = Served::new();
    let mut one = served.open("disk");
    one.write(4000, b"some bytes across two blocks", flag::FUA).unwrap().unwrap();
    assert_eq!(one.ask((command::FLUSH, 0), 0, 0, b"").unwrap().error, 0);
    let mut other = served.open("disk");
    let read = other.read(4000, 28).unwrap().unwrap();
    assert_eq!(read.data, b"some bytes across two blocks");
    other.ask((command::WRITE_ZEROES, 0), 4004, 6, b"").unwrap().unwrap();
    assert_eq!(one.read(4000, 14).unwrap().unwrap().data, b"some\0\0\0\0\0\0 acr");
    one.ask((command::TRIM, 0), 0, 8192, b"").unwrap().unwrap();
    for flags in [0, flag::FUA] {
        assert_eq!(one.ask((command::CACHE, flags), 0, 8192, b"").unwrap().error, 0);
    }
    // It means nothing where nothing is written.
    one.ask((command::READ, flag::FUA), 0, 512, b"").unwrap().unwrap();
    one.ask((command::FLUSH, flag::FUA), 0, 0, b"").unwrap().unwrap();
}

#[test]
fn holes_are_not_sent_unless_the_reply_has_to_be_whole() {
    let served = Served::new();
    let mut client = served.open("disk");
    client.write(8192, &[7; 4096], 0).unwrap().unwrap();
    let mut expected = vec![0; 65536];
    expected[8192..12288].fill(7);
    let sparse = client.read(0, 65536).unwrap().unwrap();
    assert_eq!((sparse.part_count, sparse.hole_len_bytes), (3, 61440));
    assert_eq!(sparse.data, expected);
    let whole = client.ask((command::READ, flag::DF), 0, 65536, b"").unwrap().unwrap();
    assert_eq!((whole.part_count, whole.data == expected), (1, true));

    let status = |client: &mut crate::Client<_>, flags, offset, len| {
        client.ask((command::BLOCK_STATUS, flags), offset, len, b"").unwrap().unwrap().extents
    };
    let all = status(&mut client, 0, 0, 65536);
    assert_eq!(all, [(8192, 3), (4096, 0), (53248, 3)]);
    assert_eq!(status(&mut client, flag::REQ_ONE, 8000, 65536), [(192, 3)]);
}

#[test]
fn many_requests_are_under_way_and_each_gets_its_own_reply() {
    let served = Served::new();
    let mut client = served.open("disk");
    let mut rng = Rng::new(1);
    let mut model = vec![0; SIZE_BYTES];
    rng.fill(&mut model);
    client.write(0, &model, 0).unwrap().unwrap();
    served.disk.hold(true);
    let mut sent = HashMap::new();
    for _ in 0..100 {
        let len = 1 + rng.below(100_000) as usize;
        let at = rng.below((SIZE_BYTES - len) as u64) as usize;
        sent.insert(
            client.send((command::READ, 0), at as u64, len as u32, b"").unwrap(),
            at..at + len,
        );
    }
    // Of the 100, those that have a thread are under way.
    while served.disk.reads.load(Ordering::SeqCst) < dendro_nbd::MAX_WORKERS as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    served.disk.hold(false);
    for _ in 0..100 {
        let (cookie, reply) = client.receive().unwrap();
        let range = sent.remove(&cookie).unwrap();
        assert_eq!(reply.unwrap().data, model[range]);
    }
}

#[test]
fn a_request_that_fails_says_why_and_the_next_one_works() {
    let served = Served::new();
    let mut client = served.open("disk");
    let size = SIZE_BYTES as u64;
    let error = |reply: std::io::Result<dendro_nbd::testing::Reply>| reply.unwrap().error;
    assert_eq!(error(client.read(size - 100, 101)), 22);
    assert_eq!(error(client.read(u64::MAX - 100, 101)), 22);
    assert_eq!(error(client.read(0, 0)), 22);
    assert_eq!(error(client.read(0, (32 << 20) + 1)), 22);
    assert_eq!(error(client.write(size - 100, &[1; 101], 0)), 28);
    assert_eq!(error(client.ask((command::WRITE_ZEROES, 0), size, 1, b"")), 28);
    assert_eq!(error(client.ask((command::TRIM, 0), size, 1, b"")), 22);
    assert_eq!(error(client.ask((command::FLUSH, 0), 0, 1, b"")), 22);
    assert_eq!(error(client.ask((command::READ, flag::REQ_ONE), 0, 512, b"")), 22);
    assert_eq!(error(client.ask((99, 0), 0, 512, b"")), 22);
    served.disk.is_broken.store(true, Ordering::SeqCst);
    let broken = client.read(0, 512).unwrap();
    assert_eq!((broken.error, &*broken.message), (5, "the memory is broken"));
    served.disk.is_broken.store(false, Ordering::SeqCst);
    client.read(0, 512).unwrap().unwrap();

    let mut old = served.open("old");
    assert_eq!(error(old.write(0, &[1; 512], 0)), 1);
    assert_eq!(error(old.ask((command::TRIM, 0), 0, 512, b"")), 1);
    assert_eq!(error(old.ask((command::WRITE_ZEROES, 0), 0, 512, b"")), 1);
    assert_eq!(old.read(0, 512).unwrap().unwrap().data, [0; 512]);
}
