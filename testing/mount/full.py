#!/usr/bin/env python3
"""A full disk: ENOSPC comes from the call, nothing else is lost, removing works, and then writing.

A small volume is filled, over and over: with files of many sizes, with names, with a file that
grows, with overwriting in place. Each time the disk is full, everything accepted is read back and
compared; then some of it is removed, at random, and it is filled again. In the end all is removed,
and the space is back.

    full.py [--cycles 8] [--seed 1] [--size 96M]
"""

import argparse
import errno
import hashlib
import os
import random
import sys
import time

import volume

# How far what can be used may differ from one cycle to the next.
MAX_SHRINKING = 0.8


class Contents:
    """What was accepted."""

    def __init__(self, root):
        self.root, self.files, self.number = root, {}, 0

    def path(self, name):
        return self.root / name

    def sum(self, data):
        return hashlib.sha256(data).digest()

    def create(self, rng, length):
        """Makes a file; answers whether all of it fitted."""
        self.number += 1
        name = "file%d" % self.number
        data = rng.randbytes(length)
        taken = 0
        try:
            fd = os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except OSError as error:
            expect_full(error)
            return False
        try:
            while taken < length:
                taken += os.write(fd, data[taken:taken + 65536])
            return True
        except OSError as error:
            expect_full(error)
            return False
        finally:
            os.close(fd)
            self.files[name] = (taken, self.sum(data[:taken]))

    def overwrite(self, rng):
        """Writes over a file in place; answers whether it worked."""
        if not self.files:
            return True
        name = rng.choice(sorted(self.files))
        length, _ = self.files[name]
        data = rng.randbytes(length)
        old = self.path(name).read_bytes()
        done = 0
        try:
            with open(self.path(name), "r+b", buffering=0) as file:
                while done < length:
                    done += file.write(data[done:done + 65536])
        except OSError as error:
            expect_full(error)
        self.files[name] = (length, self.sum(data[:done] + old[done:]))
        return done == length

    def remove(self, rng, share):
        for name in sorted(self.files):
            if rng.random() < share:
                os.unlink(self.path(name))
                del self.files[name]

    def used_bytes(self):
        return sum(length for length, _ in self.files.values())

    def differences(self):
        """What is not as it was accepted."""
        found = sorted(os.listdir(self.root))
        if found != sorted(self.files):
            yield "names: %s" % sorted(set(found) ^ self.files.keys())[:5]
        for name, (length, checksum) in self.files.items():
            try:
                data = self.path(name).read_bytes()
            except OSError as error:
                yield "%s: %s" % (name, error)
                continue
            if len(data) != length or self.sum(data) != checksum:
                yield "%s: %d bytes of %d, or other ones" % (name, len(data), length)


def expect_full(error):
    if error.errno != errno.ENOSPC:
        raise error


def fill(contents, rng):
    """Fills it; first with large files, then with what still fits."""
    for length in (rng.choice([200_000, 1 << 20, 5 << 20]), 50_000, 4096, 100):
        refused = 0
        while refused < 3:
            refused += not contents.create(rng, rng.randrange(length) + 1)


def use_while_full(contents, rng):
    """What has to work when nothing more fits, and what may be refused but must do no harm."""
    for _ in range(10):
        contents.overwrite(rng)
    names = sorted(contents.files)
    for work in (
        lambda: os.rename(contents.path(names[0]), contents.path("moved")),
        lambda: os.rename(contents.path("moved"), contents.path(names[0])),
        lambda: os.mkdir(contents.path("directory")),
        lambda: os.rmdir(contents.path("directory")),
        lambda: os.chmod(contents.path(names[-1]), 0o600),
    ):
        try:
            work()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOENT):
                raise
    fd = os.open(contents.path(names[0]), os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def is_writable(disk):
    return disk.info()["mount"]["read_only"] is None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", default="96M")
    parser.add_argument("--options", default="", help="mount options")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    failures, most = 0, 0
    with volume.scratch("full") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs()
        disk.mount(arguments.options)
        free_at_first = os.statvfs(disk.root).f_bavail
        contents = Contents(disk.root)
        for cycle in range(arguments.cycles):
            started = time.monotonic()
            fill(contents, rng)
            use_while_full(contents, rng)
            if os.path.exists(contents.path("moved")):
                raise volume.Failed("a file could be renamed, but not back")
            used = contents.used_bytes()
            if cycle % 3 == 1:
                disk.umount()
                disk.mount(arguments.options)
            elif cycle % 3 == 2:
                disk.dendro("sync", disk.root)
                disk.kill()
                disk.mount(arguments.options)
            complaints = list(contents.differences())
            if used < most * MAX_SHRINKING:
                complaints.append("only %d bytes fit, it were %d" % (used, most))
            if not is_writable(disk):
                complaints.append("it has become read-only")
            most = max(most, used)
            contents.remove(rng, rng.choice([0.3, 0.6, 1.0]))
            print("cycle %d: %d files, %.1f MB fitted; %.1f s" % (
                cycle, len(contents.files), used / 1e6, time.monotonic() - started), flush=True)
            for complaint in complaints[:5]:
                print("    FAILED: " + complaint, flush=True)
            failures += bool(complaints)
        contents.remove(rng, 2)
        disk.umount()
        disk.mount(arguments.options)
        free = os.statvfs(disk.root).f_bavail
        print("free: %d pages at first, %d now" % (free_at_first, free))
        if free < free_at_first * 0.98:
            print("    FAILED: space is lost")
            failures += 1
        disk.umount()
        failures += bool(disk.panics())
        disk.discard()
    print("%d cycles, %d failed" % (arguments.cycles, failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
