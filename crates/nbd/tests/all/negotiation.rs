use std::io::Read;

use dendro_nbd::testing::{command, option, string};

use crate::{SIZE_BYTES, Served};

const UNSUPPORTED: u32 = 0x8000_0001;
const POLICY: u32 = 0x8000_0002;
const INVALID: u32 = 0x8000_0003;
const UNKNOWN: u32 = 0x8000_0006;
const TOO_BIG: u32 = 0x8000_0009;

#[test]
fn exports_are_listed() {
    let served = Served::new();
    let mut client = served.connect();
    let replies = client.option(option::LIST, b"").unwrap();
    let expected = ["disk", "old"].map(|name| (2, [string(name), b"memory".to_vec()].concat()));
    assert_eq!(replies[..2], expected);
    assert_eq!(replies[2..], [(1, vec![])]);
    assert_eq!(client.option(option::LIST, b"x").unwrap()[0].0, INVALID);
}

#[test]
fn an_export_says_its_size_and_what_it_can_do() {
    let served = Served::new();
    let mut client = served.connect();
    let wanted = [string("disk"), b"\0\x02\0\x01\0\x02".to_vec()].concat();
    let replies = client.option(option::INFO, &wanted).unwrap();
    // All but structured replies, which were not asked for.
    let about = [b"\0\0\0\0\0\0\0\x10\0\0", &b"\x0d\x6d"[..]].concat();
    let sizes = b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec();
    let expected = [
        (3, about),
        (3, sizes),
        (3, b"\0\x01disk".to_vec()),
        (3, b"\0\x02memory".to_vec()),
        (1, vec![]),
    ];
    assert_eq!(replies, expected);

    client.agree_on_all("old").unwrap();
    assert_eq!(client.go("old").unwrap().0, 1);
    assert_eq!(client.size_bytes(), SIZE_BYTES as u64);
    assert_eq!(client.flags(), 0b101_1000_1111);
}

#[test]
fn the_oldest_way_to_choose_an_export_works() {
    let served = Served::new();
    for (flags, len) in [(3, 10), (1, 134)] {
        let mut stream = served.stream();
        stream.read_exact(&mut [0; 18]).unwrap();
        let mut client = dendro_nbd::testing::Client::connected(stream);
        client.send_raw(&[0, 0, 0, flags]).unwrap();
        client.send_option(option::EXPORT_NAME, b"disk").unwrap();
        let mut stream = client.into_stream();
        let mut reply = vec![0; len];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply[..10], *b"\0\0\0\0\0\x10\0\0\x0d\x6d");
        assert!(reply[10..].iter().all(|&byte| byte == 0));
        let mut client = dendro_nbd::testing::Client::connected(stream);
        assert_eq!(client.read(0, 512).unwrap().unwrap().data, [0; 512]);
    }
    let mut client = served.connect();
    client.send_option(option::EXPORT_NAME, b"none").unwrap();
    assert_eq!(client.into_stream().read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn what_cannot_be_agreed_on_is_refused_and_the_client_goes_on() {
    let served = Served::new();
    let mut client = served.connect();
    assert_eq!(client.option(77, b"?").unwrap()[0].0, UNSUPPORTED);
    assert_eq!(client.option(option::STARTTLS, b"").unwrap()[0].0, POLICY);
    assert_eq!(client.option(option::STRUCTURED_REPLY, b"x").unwrap()[0].0, INVALID);
    assert_eq!(client.option(option::GO, b"x").unwrap()[0].0, INVALID);
    assert_eq!(client.option(option::GO, &vec![0; 100_000]).unwrap()[0].0, TOO_BIG);
    let (kind, why) = client.go("none").unwrap();
    assert_eq!((kind, &*why), (UNKNOWN, &b"there is no export 'none'"[..]));
    // Contexts take structured replies.
    let all = [string("disk"), vec![0; 4]].concat();
    assert_eq!(client.option(option::LIST_META_CONTEXT, &all).unwrap()[0].0, INVALID);
    client.option(option::STRUCTURED_REPLY, b"").unwrap();
    let listed = client.option(option::LIST_META_CONTEXT, &all).unwrap();
    assert_eq!(listed, [(4, b"\0\0\0\0base:allocation".to_vec()), (1, vec![])]);
    let other = [string("disk"), b"\0\0\0\x01".to_vec(), string("x-other:1")].concat();
    assert_eq!(client.option(option::SET_META_CONTEXT, &other).unwrap(), [(1, vec![])]);
    assert_eq!(client.go("disk").unwrap().0, 1);
    assert_eq!(client.ask((command::BLOCK_STATUS, 0), 0, 512, b"").unwrap().error, 22);
}

#[test]
fn block_status_is_of_the_export_that_it_was_chosen_for() {
    let served = Served::new();
    let mut client = served.connect();
    client.agree_on_all("old").unwrap();
    assert_eq!(client.go("disk").unwrap().0, 1);
    assert_eq!(client.ask((command::BLOCK_STATUS, 0), 0, 512, b"").unwrap().error, 22);
}

#[test]
fn a_client_can_leave_before_it_chooses() {
    let served = Served::new();
    let mut client = served.connect();
    assert_eq!(client.option(option::ABORT, b"").unwrap(), [(1, vec![])]);
    assert_eq!(client.into_stream().read(&mut [0; 1]).unwrap(), 0);
}
