use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn an_inode_has_these_bytes() {
    let inode = InodeV1 {
        version: 1,
        reserved0: 0,
        header_len: 120.into(),
        mode: 0o100_644.into(),
        uid: 1000.into(),
        gid: 100.into(),
        nlink: 2.into(),
        flags: 0x10.into(),
        state: STATE_EOF_PAGES.into(),
        generation: 7.into(),
        size: 0x0102_0304_0506_0708.into(),
        pages: 9.into(),
        parent: 1.into(),
        atime_secs: (-1).into(),
        mtime_secs: 2.into(),
        ctime_secs: 3.into(),
        btime_secs: 4.into(),
        atime_nanos: 999_999_999.into(),
        mtime_nanos: 5.into(),
        ctime_nanos: 6.into(),
        btime_nanos: 7.into(),
        rdev: 8.into(),
        project: 9.into(),
        xattr_names_len: 10.into(),
        reserved1: 0.into(),
    };
    assert_eq!(
        hex(inode.as_bytes()),
        concat!(
            "01007800a4810000e80300006400000002000000100000000400000007000000",
            "080706050403020109000000000000000100000000000000ffffffffffffffff",
            "020000000000000003000000000000000400000000000000ffc99a3b05000000",
            "06000000070000000800000009000000",
            "0a00000000000000"
        )
    );
}

#[test]
fn a_volume_has_these_bytes() {
    let volume = VolumeV1 {
        magic: VOLUME_MAGIC,
        version: 1.into(),
        header_len: 64.into(),
        compatible: 1.into(),
        read_only_compatible: 2.into(),
        incompatible: 3.into(),
        hash_key: *b"0123456789abcdef",
        created_secs: 4.into(),
        created_nanos: 5.into(),
        label_len: 6.into(),
        reserved: [0; 10],
    };
    assert_eq!(
        hex(volume.as_bytes()),
        concat!(
            "64656e64726f465301004000010000000200000003000000",
            "3031323334353637383961626364656604000000000000000500000006000000",
            "0000000000000000"
        )
    );
}

#[test]
fn entries_attributes_and_orphans_have_these_bytes() {
    let entry = DirEntryV1 { ino: 0x0102.into(), slot: 3, kind: 4, name_len: 5, reserved: 0 };
    assert_eq!(hex(entry.as_bytes()), "020100000000000003040500");
    let xattr = XattrV1 { value_len: 65_536.into(), slot: 1, name_len: 2, reserved: 0.into() };
    assert_eq!(hex(xattr.as_bytes()), "0000010001020000");
    let orphan = OrphanV1 { version: 1, kind: ORPHAN_TRUNCATE, reserved: [0; 6] };
    assert_eq!(hex(orphan.as_bytes()), "0102000000000000");
    let punched = PunchedV1 { first_page: 0x0102.into(), end_page: 0x0304.into() };
    assert_eq!(hex(punched.as_bytes()), "02010000000000000403000000000000");
}

#[test]
fn the_maker_of_a_version_has_these_bytes() {
    let maker = MakerV1 {
        version: 1,
        reserved: [0; 3],
        uid: 1000.into(),
        branch: 2.into(),
        reserved1: 0.into(),
        epoch: 0x0102.into(),
    };
    assert_eq!(hex(maker.as_bytes()), "01000000e803000002000000000000000201000000000000");
}

#[test]
fn damage_has_these_bytes() {
    let damage = DamageV1 {
        version: 1,
        part: 1,
        path_len: 2.into(),
        problem_len: 3.into(),
        reserved1: 0.into(),
        branch: 4.into(),
        reserved2: 0.into(),
        epoch: DAMAGE_OF_HEAD.into(),
        addr: 0x0102.into(),
        list: 5.into(),
        page: 6.into(),
        first_nanos: (-1).into(),
        last_nanos: 7.into(),
        met_count: 8.into(),
    };
    assert_eq!(
        hex(damage.as_bytes()),
        concat!(
            "01010200030000000400000000000000ffffffffffffffff0201000000000000",
            "05000000000000000600000000000000ffffffffffffffff0700000000000000",
            "0800000000000000"
        )
    );
}

#[test]
fn a_scrub_has_these_bytes() {
    let scrub = ScrubV1 {
        version: 1,
        state: 2,
        position_len: 3.into(),
        memory_kib: 9.into(),
        started_nanos: (-1).into(),
        rate: 4.into(),
        last_started_nanos: 5.into(),
        last_ended_nanos: 6.into(),
        last_checked_bytes: 7.into(),
        last_found_count: 8.into(),
    };
    assert_eq!(
        hex(scrub.as_bytes()),
        concat!(
            "0102030009000000ffffffffffffffff04000000000000000500000000000000",
            "060000000000000007000000000000000800000000000000"
        )
    );
}

#[test]
fn what_is_too_short_is_damaged() {
    assert!(split_head::<InodeV1>(&[1; 119], "i-node").is_err());
    assert!(split_bytes(b"abc", 4, "name").is_err());
    assert!(split_version(b"", "record").is_err());
    assert!(split_version(&[2, 0], "record").is_err());
    assert_eq!(split_version(&[1, 9], "record").unwrap(), [9]);
}
