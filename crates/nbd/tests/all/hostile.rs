use std::io::{Read, Write};
use std::net::Shutdown;

use dendro_base::Rng;
use dendro_nbd::MAX_CONNECTIONS;
use dendro_nbd::testing::{command, flag, option, string, take_any};

use crate::{Served, wait_until};

/// Waits until the server has at most `count` connections.
fn wait_for_connections(served: &Served, count: usize) {
    wait_until("others have ended", || served.server.connection_count() <= count);
}

#[test]
fn clients_that_vanish_leave_nothing_and_others_are_served() {
    let served = Served::new();
    let mut good = served.open("disk");
    let mut bad = Vec::new();
    for number in 0..60_u64 {
        let mut client = served.open("disk");
        match number % 4 {
            // In the middle of a request.
            0 => client.send_raw(b"\x25\x60\x95\x13\0\0").unwrap(),
            // In the middle of its data.
            1 => {
                client.send((command::WRITE, 0), 0, 32 << 20, &[1; 100_000]).unwrap();
            }
            // With replies that it does not take.
            2 => {
                for _ in 0..100 {
                    client.send((command::READ, 0), 0, 1 << 20, b"").unwrap();
                }
            }
            _ => {}
        }
        bad.push(client);
        good.write(4096 * number, &[number as u8; 4096], 0).unwrap().unwrap();
    }
    for number in 0..60_u64 {
        let read = good.read(4096 * number, 4096).unwrap().unwrap();
        assert_eq!(read.data, [number as u8; 4096]);
    }
    drop(bad);
    wait_for_connections(&served, 1);
    good.read(0, 512).unwrap().unwrap();
}

#[test]
fn those_who_only_connect_keep_nobody_out() {
    let served = Served::new();
    let mut good = served.open("disk");
    let idle: Vec<_> = (0..MAX_CONNECTIONS + 5).map(|_| served.connect()).collect();
    // The oldest of them were closed, and none that has an export.
    assert_eq!(idle.into_iter().next().unwrap().into_stream().read(&mut [0; 1]).unwrap(), 0);
    good.read(0, 512).unwrap().unwrap();
    served.open("disk").read(0, 512).unwrap().unwrap();
    wait_for_connections(&served, 1);
}

#[test]
fn one_connection_too_many_is_closed_at_once() {
    let served = Served::new();
    let clients: Vec<_> = (0..MAX_CONNECTIONS).map(|_| served.open("disk")).collect();
    assert_eq!(served.stream().read(&mut [0; 1]).unwrap(), 0);
    drop(clients);
    wait_for_connections(&served, 0);
    served.open("disk").read(0, 512).unwrap().unwrap();
}

#[test]
fn a_request_that_is_too_long_is_refused_without_memory_for_it() {
    let served = Served::with(40 << 20, None);
    let mut client = served.open("disk");
    let len_bytes = (32 << 20) + 4096;
    client.send((command::WRITE, 0), 0, len_bytes, b"").unwrap();
    for _ in 0..len_bytes / 4096 {
        client.send_raw(&[1; 4096]).unwrap();
    }
    // EINVAL for a write, and EOVERFLOW for a read alone.
    assert_eq!(client.receive().unwrap().1.error, 22);
    for flags in [0, flag::DF] {
        let read = client.ask((command::READ, flags), 0, len_bytes, b"").unwrap();
        assert_eq!(read.error, 75);
    }
    assert_eq!(client.read(0, 512).unwrap().unwrap().data, [0; 512]);
}

#[test]
fn a_server_stops_although_a_client_takes_no_replies() {
    let served = Served::new();
    let mut client = served.open("disk");
    client.write(0, &[1; 1 << 20], 0).unwrap().unwrap();
    for _ in 0..100 {
        client.send((command::READ, 0), 0, 1 << 20, b"").unwrap();
    }
    let idle = served.connect();
    served.server.stop();
    drop((client, idle));
}

/// A session that works, as bytes.
fn good_session() -> Vec<u8> {
    let option = |number: u32, data: &[u8]| {
        let head = [number, data.len() as u32].map(zerocopy_u32).concat();
        [b"IHAVEOPT", &*head, data].concat()
    };
    let context = [string("disk"), zerocopy_u32(1), string("base:allocation")].concat();
    let request = |command: u16, offset: u64, len: u32, data: &[u8]| {
        let offset = [zerocopy_u32((offset >> 32) as u32), zerocopy_u32(offset as u32)].concat();
        let head = [b"\x25\x60\x95\x13\0\0\0", &[command as u8][..], b"cookiess", &offset].concat();
        [&*head, &zerocopy_u32(len), data].concat()
    };
    [
        b"\0\0\0\x03".to_vec(),
        option(option::LIST, b""),
        option(option::STRUCTURED_REPLY, b""),
        option(option::SET_META_CONTEXT, &context),
        option(option::GO, &[string("disk"), b"\0\x01\0\x03".to_vec()].concat()),
        request(command::WRITE, 4096, 16, &[5; 16]),
        request(command::READ, 0, 100_000, b""),
        request(command::BLOCK_STATUS, 0, 100_000, b""),
        request(command::TRIM, 4096, 5000, b""),
        request(command::WRITE_ZEROES, 0, 5000, b""),
        request(command::FLUSH, 0, 0, b""),
        request(command::DISC, 0, 0, b""),
    ]
    .concat()
}

fn zerocopy_u32(value: u32) -> Vec<u8> {
    zerocopy::IntoBytes::as_bytes(&zerocopy::big_endian::U32::new(value)).to_vec()
}

/// The decoders alone, on many more bytes.
#[test]
fn no_bytes_are_taken_for_what_they_are_not() {
    let option = |number: u32, data: &[u8]| [&[number as u8, data.len() as u8], data].concat();
    let context = [string("disk"), zerocopy_u32(1), string("base:allocation")].concat();
    let good = [
        vec![3],
        option(option::STRUCTURED_REPLY, b""),
        option(option::SET_META_CONTEXT, &context),
        option(option::LIST, b""),
        option(option::GO, &[string("disk"), b"\0\x01\0\x03".to_vec()].concat()),
        (0..20)
            .flat_map(|command| {
                [b"\x25\x60\x95\x13\0\0\0", &[command % 9][..]]
                    .concat()
                    .into_iter()
                    .chain([0; 16])
                    .chain(*b"\0\0\x10\0")
            })
            .collect(),
    ]
    .concat();
    for seed in 0..20_000 {
        let mut rng = Rng::new(seed);
        let mut bytes = good.clone();
        for _ in 0..rng.below(6) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                _ => bytes.truncate(at + 1),
            }
        }
        take_any(&bytes);
    }
}

/// Whatever bytes arrive, the server answers or ends the connection, and goes on serving others.
#[test]
fn no_bytes_stop_the_server() {
    let served = Served::new();
    let good = good_session();
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let mut bytes = good.clone();
        for _ in 0..rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(4) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at] = rng.next_u64() as u8,
                2 => bytes.truncate(at + 1),
                _ => drop(bytes.splice(at..at, [0xff; 3])),
            }
        }
        if rng.chance(10) {
            let kept = bytes.len().min(4);
            rng.fill(&mut bytes[kept..]);
        }
        let mut stream = served.stream();
        // The server may end it while it is sent.
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut replies = Vec::new();
        match stream.read_to_end(&mut replies) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
                panic!("seed {seed}: {error}")
            }
            _ => assert!(replies.starts_with(b"NBDMAGIC"), "seed {seed}"),
        }
    }
    wait_for_connections(&served, 0);
    served.open("disk").read(0, 512).unwrap().unwrap();
}
