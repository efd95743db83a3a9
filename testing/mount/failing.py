#!/usr/bin/env python3
"""A device that fails a write: the image lies on an ext4, and becomes immutable there.

The volume has to stop taking writes and say why, in its log and in `dendro info`; what was fsynced
is read all the while, and is there, with nothing after it, when the image can be written to again and
the volume is mounted anew. Needs root, for the ext4 and for chattr.

    failing.py [--files 20]
"""

import argparse
import errno
import hashlib
import os
import pathlib
import sys
import time

import volume

FILE_BYTES = 1 << 20
LONGEST_SILENCE_S = 5


REASON = "Operation not permitted"


def write_until_it_fails(disk, count):
    """Writes and fsyncs file after file, of which that one fails; answers the checksums of those that succeeded, and what
    the first fsync said that did not, if it came to that."""
    known = {}
    root = disk.root
    for number in range(1000):
        if number == count:
            volume.run("chattr", "+i", disk.image)
        name = "file%d" % number
        data = os.urandom(FILE_BYTES)
        is_written = False
        try:
            with open(root / name, "wb", buffering=0) as file:
                file.write(data)
                is_written = True
                os.fsync(file.fileno())
        except OSError as error:
            return known, error.errno if is_written else None
        known[name] = hashlib.sha256(data).digest()
    raise volume.Failed("no write failed")


def differences(root, known):
    for name, checksum in known.items():
        try:
            if hashlib.sha256((root / name).read_bytes()).digest() != checksum:
                yield "%s has other data" % name
        except OSError as error:
            yield "%s: %s" % (name, error)


def complaints_of(disk, count):
    """The whole of it; yields what is wrong."""
    known, first_errno = write_until_it_fails(disk, count)
    if first_errno not in (None, errno.EIO):
        yield "the first fsync that failed said %s" % os.strerror(first_errno)
    reason = disk.info()["mount"]["read_only"]
    print("%d files were fsynced; then: %s" % (len(known), reason))
    if not reason or REASON not in reason:
        yield "info does not say why it takes no writes: %s" % reason
    # A thread of the daemon's own tells.
    told_by = time.monotonic() + LONGEST_SILENCE_S
    while "stopped taking writes" not in disk.log.read_text() and time.monotonic() < told_by:
        time.sleep(0.1)
    if "stopped taking writes" not in disk.log.read_text():
        yield "the log does not say that it stopped"
    yield from differences(disk.root, known)
    fd = os.open(disk.root, os.O_RDONLY)
    for what, work, expected in (
            ("a write", lambda: (disk.root / "new").write_bytes(b"x"), errno.EROFS),
            ("fsync", lambda: os.fsync(fd), errno.EIO),
            ("fsync once more", lambda: os.fsync(fd), errno.EIO)):
        try:
            work()
            yield "%s succeeds after a write was lost" % what
        except OSError as error:
            if error.errno != expected:
                yield "%s after a write was lost says %s" % (what, error)
    os.close(fd)
    done = disk.dendro("umount", disk.root, check=False, timeout_s=300)
    told = done.stderr.decode(errors="replace")
    if done.returncode != volume.UMOUNT_LOST or REASON not in told:
        yield "umount does not say that the last writes are lost: exit code %d, %s" % (
            done.returncode, told.strip())
    volume.run("chattr", "-i", disk.image)
    disk.mount()
    yield from differences(disk.root, known)
    later = set(os.listdir(disk.root)) - known.keys()
    if len(later) > 1:
        yield "there is more than was accepted: %s" % sorted(later)
    (disk.root / "new").write_bytes(b"x")
    disk.umount()
    yield from disk.panics()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=20, help="how many are written before it fails")
    parser.add_argument("--size", default="256M")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("left out: it takes root")
        return 0
    with volume.scratch("failing") as directory:
        outside = pathlib.Path(directory) / "outside"
        outside.mkdir()
        host = pathlib.Path(directory) / "host"
        volume.run("truncate", "-s", "1G", host)
        volume.run("mkfs.ext4", "-q", host)
        volume.run("mount", "-o", "loop", host, outside)
        disk = volume.Volume(outside, arguments.size)
        disk.log = directory / "log"
        disk.mkfs()
        disk.mount()
        found = list(complaints_of(disk, arguments.files))
        disk.discard()
    for complaint in found[:10]:
        print("    FAILED: " + complaint)
    print("%d failed" % len(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
