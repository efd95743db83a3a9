//! Versions as streams.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

use std::io::{self, Read};

use dendrofs::disk::{Aru, Error as DiskError, View};
use dendrofs::{CreateOptions, Error, Volume};

fn volume() -> Volume {
    Volume::in_memory(32 << 20, &CreateOptions::files()).unwrap()
}

/// Writes a file and makes a snapshot called after it.
fn version(volume: &Volume, name: &str) -> View {
    volume.files(volume.main()).unwrap().write(name, name.as_bytes()).unwrap();
    volume.snapshot(name).unwrap()
}

fn sent(volume: &Volume, of: View, base: Option<View>) -> Vec<u8> {
    let mut stream = Vec::new();
    volume.send(of, base, &mut stream).unwrap();
    stream
}

fn errno(received: dendrofs::Result<View>) -> i32 {
    match received {
        Err(error @ Error::Stream { .. }) => error.errno(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn versions_go_from_one_volume_to_another() {
    let (from, to) = (volume(), volume());
    let first = version(&from, "first");
    let full = sent(&from, first, None);
    let second = version(&from, "second");
    let rest = sent(&from, second, Some(first));
    assert_eq!(errno(to.receive(&rest[..], None)), libc::ENOENT);
    let received = to.receive(&full[..], Some("copy")).unwrap();
    assert_eq!(to.view("@copy").unwrap(), received);
    assert_eq!(to.files(received).unwrap().read("first").unwrap(), b"first");
    // The rest is based on what is called otherwise here.
    let received = to.receive(&rest[..], None).unwrap();
    assert_eq!(to.view("@second").unwrap(), received);
    let files = to.files(received).unwrap();
    assert_eq!(files.read("first").unwrap(), b"first");
    assert_eq!(files.read("second").unwrap(), b"second");
    assert_eq!(errno(to.receive(&full[..], None)), libc::EEXIST);
    to.close().unwrap();
}

/// Gives all but the end of a stream, and then an error if there is one.
struct Broken<'a>(&'a [u8], Option<io::ErrorKind>);

impl Read for Broken<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match (self.0.read(buf)?, self.1) {
            (0, Some(kind)) => Err(kind.into()),
            (count, _) => Ok(count),
        }
    }
}

#[test]
fn a_stream_that_breaks_off_changes_nothing() {
    let (from, to) = (volume(), volume());
    let of = version(&from, "first");
    let full = sent(&from, of, None);
    let before = to.versions().snapshots().count();
    for len in [0, 10, full.len() / 2, full.len() - 1] {
        let cut = &full[..len];
        assert_eq!(errno(to.receive(cut, None)), libc::EBADMSG, "{len}");
        let failing = Broken(cut, Some(io::ErrorKind::ConnectionReset));
        match to.receive(failing, None) {
            Err(Error::System(error)) => assert_eq!(error.kind(), io::ErrorKind::ConnectionReset),
            other => panic!("{len}: {other:?}"),
        }
    }
    let mut changed = full.clone();
    changed[full.len() / 2] ^= 1;
    assert_eq!(errno(to.receive(&changed[..], None)), libc::EBADMSG);
    assert_eq!(to.versions().snapshots().count(), before);
    assert_eq!(to.versions().branches().count(), 1, "nothing is left of it");
    to.receive(Broken(&full, None), None).unwrap();
}

#[test]
fn only_snapshots_are_sent() {
    let volume = volume();
    let of = version(&volume, "first");
    let none = |error| matches!(error, Error::Disk(DiskError::NoSuchView(_)));
    assert!(none(volume.send(volume.main(), None, io::sink()).unwrap_err()));
    assert!(none(volume.send(of, Some(volume.main()), io::sink()).unwrap_err()));
}

#[test]
fn a_branch_is_promoted() {
    let volume = volume();
    let first = version(&volume, "first");
    let work = volume.branch(first, "work").unwrap();
    assert!(volume.promote(first).is_err());
    let before = volume.main();
    volume.promote(work).unwrap();
    assert_eq!((volume.main(), volume.view("work").unwrap()), (work, before));
    let mut unit = Aru::new(work);
    unit.set_reclaims();
    volume.disk().commit(unit).unwrap();
}
