//! Every request in full, cut short at every byte, and with every byte changed.

use zerocopy::IntoBytes;

use super::*;

/// A request with these arguments and this rest.
fn message(opcode: u32, arguments: &[u8], rest: &[u8]) -> Vec<u8> {
    let len = 40 + arguments.len() + rest.len();
    let header = InHeader {
        len: len as u32,
        opcode,
        unique: 2,
        node: 5,
        uid: 1000,
        gid: 100,
        pid: 7,
        extension_len_8: 0,
        padding: 0,
    };
    [header.as_bytes(), arguments, rest].concat()
}

fn parsed(message: &[u8], setxattr_ext: bool) -> Result<Operation<'_>, Errno> {
    let (header, arguments, rest) = split(message, setxattr_ext).map_err(|(_, errno)| errno)?;
    parse(&header, arguments, rest, setxattr_ext)
}

/// Numbers that distinguish the fields of `len` bytes: 1, 2, 3 …, each of 32 bits.
fn numbered(len: usize) -> Vec<u8> {
    (1..=len as u32 / 4).flat_map(|number| number.as_bytes().to_vec()).collect()
}

const fn wide(low: u64) -> u64 {
    low | (low + 1) << 32
}

/// One request of each kind, with the operation that it must be parsed to.
fn examples() -> Vec<(Vec<u8>, Operation<'static>)> {
    let how = OpenHow { flags: 1, kill_priv: false };
    let create = CreateHow { mode: 2, umask: 3, open: how };
    let names = b"one\0two\0";
    let ranged = numbered(32);
    vec![
        (message(opcode::LOOKUP, &[], b"one\0"), Operation::Lookup { name: b"one" }),
        (message(opcode::FORGET, &numbered(8), &[]), Operation::Forget { count: wide(1) }),
        (message(opcode::INTERRUPT, &numbered(8), &[]), Operation::Interrupt { unique: wide(1) }),
        (message(opcode::DESTROY, &[], &[]), Operation::Destroy),
        (message(opcode::READLINK, &[], &[]), Operation::Readlink),
        (
            message(
                opcode::IOCTL,
                &[&numbered(24)[..], &[3, 0, 0, 0, 8, 0, 0, 0]].concat(),
                b"two",
            ),
            Operation::Ioctl { command: 4, input: b"two", out_len: 8 },
        ),
        (
            message(opcode::GETATTR, &numbered(16), &[]),
            Operation::Getattr { handle: Some(wide(3)) },
        ),
        (
            message(opcode::STATX, &numbered(24), &[]),
            Operation::Statx { handle: Some(wide(3)), mask: 6 },
        ),
        (message(opcode::SYMLINK, &[], names), Operation::Symlink { name: b"one", target: b"two" }),
        (
            message(opcode::MKNOD, &numbered(16), b"one\0"),
            Operation::Mknod { name: b"one", mode: 1, rdev: 2, umask: 3 },
        ),
        (
            message(opcode::MKDIR, &numbered(8), b"one\0"),
            Operation::Mkdir { name: b"one", mode: 1, umask: 2 },
        ),
        (message(opcode::UNLINK, &[], b"one\0"), Operation::Unlink { name: b"one" }),
        (message(opcode::RMDIR, &[], b"one\0"), Operation::Rmdir { name: b"one" }),
        (
            message(opcode::RENAME, &numbered(8), names),
            Operation::Rename { name: b"one", new_parent: wide(1), new_name: b"two", flags: 0 },
        ),
        (
            message(opcode::RENAME2, &numbered(16), names),
            Operation::Rename { name: b"one", new_parent: wide(1), new_name: b"two", flags: 3 },
        ),
        (
            message(opcode::LINK, &numbered(8), b"two\0"),
            Operation::Link { old_node: wide(1), new_name: b"two" },
        ),
        (message(opcode::OPEN, &numbered(8), &[]), Operation::Open(how)),
        (message(opcode::OPENDIR, &numbered(8), &[]), Operation::Opendir(how)),
        (
            message(opcode::READ, &numbered(40), &[]),
            Operation::Read { handle: wide(1), offset: wide(3), len: 5 },
        ),
        (
            message(opcode::READDIR, &numbered(40), &[]),
            Operation::Readdir { handle: wide(1), offset: wide(3), len: 5 },
        ),
        (
            message(opcode::READDIRPLUS, &numbered(40), &[]),
            Operation::Readdirplus { handle: wide(1), offset: wide(3), len: 5 },
        ),
        (
            message(opcode::WRITE, &numbered(40), b"12345"),
            Operation::Write {
                how: WriteHow {
                    handle: wide(1),
                    offset: wide(3),
                    flags: 9,
                    is_cached: false,
                    kill_priv: true,
                },
                data: b"12345",
            },
        ),
        (message(opcode::STATFS, &[], &[]), Operation::Statfs),
        (
            message(opcode::RELEASE, &numbered(24), &[]),
            Operation::Release { handle: wide(1), flags: 3 },
        ),
        (
            message(opcode::RELEASEDIR, &numbered(24), &[]),
            Operation::Releasedir { handle: wide(1), flags: 3 },
        ),
        (
            message(opcode::FSYNC, &numbered(16), &[]),
            Operation::Fsync { handle: wide(1), data_only: true },
        ),
        (
            message(opcode::FSYNCDIR, &numbered(16), &[]),
            Operation::Fsyncdir { handle: wide(1), data_only: true },
        ),
        (
            message(opcode::GETXATTR, &numbered(8), b"user.a/b\0"),
            Operation::Getxattr { name: b"user.a/b", len: 1 },
        ),
        (message(opcode::LISTXATTR, &numbered(8), &[]), Operation::Listxattr { len: 1 }),
        (
            message(opcode::REMOVEXATTR, &[], b"user.a\0"),
            Operation::Removexattr { name: b"user.a" },
        ),
        (message(opcode::FLUSH, &numbered(24), &[]), Operation::Flush { handle: wide(1) }),
        (message(opcode::ACCESS, &numbered(8), &[]), Operation::Access { mask: 1 }),
        (
            message(opcode::CREATE, &numbered(16), b"one\0"),
            Operation::Create { name: b"one", how: create },
        ),
        (message(opcode::TMPFILE, &numbered(16), b"/\0"), Operation::Tmpfile(create)),
        (
            message(opcode::FALLOCATE, &ranged, &[]),
            Operation::Fallocate { handle: wide(1), offset: wide(3), length: wide(5), mode: 7 },
        ),
        (
            message(opcode::LSEEK, &numbered(24), &[]),
            Operation::Lseek { handle: wide(1), offset: wide(3), whence: 5 },
        ),
        (message(opcode::SYNCFS, &[0; 8], &[]), Operation::Syncfs),
    ]
}

#[test]
fn each_request_is_taken_for_what_it_is() {
    for (message, expected) in examples() {
        assert_eq!(parsed(&message, true), Ok(expected));
    }
}

#[test]
fn a_request_cut_short_is_refused() {
    for (whole, _) in examples() {
        for len in 0..whole.len() {
            let mut short = whole[..len].to_vec();
            // Set the length in the header, so that it is right.
            if let Some(field) = short.get_mut(..4) {
                field.copy_from_slice((len as u32).as_bytes());
            }
            let opcode = whole[4];
            let is_enough = u32::from(opcode) == opcode::SYNCFS && len >= 40
                || u32::from(opcode) == opcode::TMPFILE && len >= 56;
            assert_eq!(parsed(&short, true).is_err(), !is_enough, "{opcode} {len}");
            assert!(split(&whole[..len], true).is_err());
        }
    }
}

#[test]
fn an_attribute_is_set_with_and_without_the_extension() {
    let value = b"user.x\0\x01\x02\x03\x04\x05";
    let short = [5u32, 1].as_bytes().to_vec();
    let long = [5u32, 2, abi::SETXATTR_ACL_KILL_SGID, 0].as_bytes().to_vec();
    let operation = |flags, kill_sgid| Operation::Setxattr {
        name: b"user.x",
        value: &[1, 2, 3, 4, 5],
        how: SetxattrHow { flags, kill_sgid },
    };
    let request = message(opcode::SETXATTR, &short, value);
    assert_eq!(parsed(&request, false), Ok(operation(1, false)));
    let request = message(opcode::SETXATTR, &long, value);
    assert_eq!(parsed(&request, true), Ok(operation(2, true)));
    let request = message(opcode::SETXATTR, &long, &value[..11]);
    assert_eq!(parsed(&request, true), Err(Errno::IO));
}

#[test]
fn only_the_attributes_that_are_valid_are_changed() {
    let mut wire: abi::SetattrIn = zerocopy::FromZeros::new_zeroed();
    wire.valid = fattr::MODE | fattr::ATIME | fattr::MTIME | fattr::MTIME_NOW | fattr::KILL_SUIDGID;
    (wire.mode, wire.uid, wire.size) = (0o644, 9, 9);
    (wire.atime, wire.atime_nsec) = (-1, 999_999_999);
    let expected = SetAttr {
        mode: Some(0o644),
        atime: Some(SetTime::At(Time { secs: -1, nanos: 999_999_999 })),
        mtime: Some(SetTime::Now),
        kill_priv: true,
        ..SetAttr::default()
    };
    let request = message(opcode::SETATTR, wire.as_bytes(), &[]);
    assert_eq!(parsed(&request, true), Ok(Operation::Setattr(expected)));
    wire.valid = !(fattr::MTIME_NOW | fattr::ATIME_NOW);
    let request = message(opcode::SETATTR, wire.as_bytes(), &[]);
    let Ok(Operation::Setattr(all)) = parsed(&request, true) else { panic!("it is well-formed") };
    assert_eq!((all.uid, all.size_bytes, all.handle), (Some(9), Some(9), Some(0)));
    assert_eq!(all.ctime, Some(Time::default()));
    wire.ctime_nsec = 1_000_000_000;
    let request = message(opcode::SETATTR, wire.as_bytes(), &[]);
    assert_eq!(parsed(&request, true), Err(Errno::INVAL));
}

#[test]
fn forgets_are_as_many_as_there_are_bytes_for() {
    let ones = [[7u64, 1], [8, 2]];
    let count = |count: u32| [count, 0].as_bytes().to_vec();
    let request = message(opcode::BATCH_FORGET, &count(2), ones.as_bytes());
    let Ok(Operation::BatchForget(forgets)) = parsed(&request, true) else {
        panic!("it is well-formed")
    };
    assert_eq!(forgets.iter().collect::<Vec<_>>(), [(7, 1), (8, 2)]);
    for too_many in [3, u32::MAX] {
        let request = message(opcode::BATCH_FORGET, &count(too_many), ones.as_bytes());
        assert_eq!(parsed(&request, true), Err(Errno::IO));
    }
}

#[test]
fn copies_are_no_longer_than_their_answer_can_say() {
    let arguments = [1u64, 2, 3, 4, 5, 1 << 40, 0];
    for (opcode, len_bytes, wide) in
        [(opcode::COPY_FILE_RANGE, 0xffff_f000, false), (opcode::COPY_FILE_RANGE_64, 1 << 40, true)]
    {
        let request = message(opcode, arguments.as_bytes(), &[]);
        let source = FileRange { node: 5, handle: 1, offset: 2 };
        let target = FileRange { node: 3, handle: 4, offset: 5 };
        let range = CopyRange { source, target, len_bytes, flags: 0 };
        assert_eq!(parsed(&request, true), Ok(Operation::CopyFileRange { range, is_wide: wide }));
    }
}

#[test]
fn names_that_are_none_are_refused() {
    for name in [&b"\0"[..], b"a/b\0", b"/\0"] {
        let request = message(opcode::LOOKUP, &[], name);
        assert_eq!(parsed(&request, true), Err(Errno::INVAL));
    }
    assert_eq!(parsed(&message(opcode::LOOKUP, &[], b"no end"), true), Err(Errno::IO));
    let request = message(opcode::GETXATTR, &[0; 8], b"\0");
    assert_eq!(parsed(&request, true), Err(Errno::INVAL));
}

#[test]
fn what_is_not_spoken_here_is_refused() {
    for (opcode, errno) in [(0, Errno::NOSYS), (37, Errno::NOSYS), (40, Errno::NOSYS)] {
        assert_eq!(parsed(&message(opcode, &[0; 40], &[]), true), Err(errno));
    }
    assert_eq!(parsed(&message(u32::MAX, &[], &[]), true), Err(Errno::NOSYS));
}

#[test]
fn extensions_are_cut_off_and_cannot_be_longer_than_the_request() {
    let mut request =
        message(opcode::MKDIR, &numbered(8), b"one\0\x01\x02\x03\x04\x05\x06\x07\x08");
    request[36] = 1;
    let expected = Operation::Mkdir { name: b"one", mode: 1, umask: 2 };
    assert_eq!(parsed(&request, true), Ok(expected));
    request[36] = 2;
    assert_eq!(parsed(&request, true), Err(Errno::IO));
}

#[test]
fn no_change_of_a_byte_is_more_than_an_error() {
    // Miri takes long for each byte.
    let (step, values) = match cfg!(miri) {
        true => (7, &[0xff][..]),
        false => (1, &[0, 1, 0x7f, 0x80, 0xff][..]),
    };
    for (whole, _) in examples() {
        for at in (0..whole.len()).step_by(step) {
            for &byte in values {
                let mut changed = whole.clone();
                changed[at] = byte;
                crate::testing::request(&changed);
                let (header, rest) = changed.split_first_chunk().expect("there is a header");
                let mut op_in = [byte; 128];
                let len = rest.len().min(128);
                op_in[..len].copy_from_slice(&rest[..len]);
                for len in [0, 4, 16, 17, usize::MAX] {
                    crate::testing::arrival(*header, &op_in, len, &[byte; 16]);
                }
            }
        }
    }
}
