#!/usr/bin/env python3
"""What compression gains and costs, beside btrfs with the same algorithm.

Three kinds of data: a tree of sources (this checkout and cargo's registry, or --sources), a
directory of build products, and a database of SQLite. Each is copied to a new volume, synced, and read with cold
caches; in the database's file, pages of 4 KiB are then read at random places with cold caches, and
written at random places with fsync. Each line tells the bytes of the files over those that are
stored, MiB/s of writing and reading, and the medians and 99th percentiles of the random reads and
writes in microseconds. Where there is mkfs.btrfs, and as root, the same is done on btrfs on a loop
device. The copies are compared to what they were made of.

With compress-cold, each 64 KiB are written and synced beside as much that is deleted later, and the
volume is then cleaned in idle times until nothing changes any more. The speed of writing is no
measure there.

    compression.py [--mib 1024] [--sources DIRECTORY] [--build DIRECTORY] [--only KIND]
                   [--operations 2000] [--turns 3]
"""

import argparse
import mmap
import os
import pathlib
import random
import shutil
import sqlite3
import stat
import statistics
import time

import compare
import volume

MIB = 1 << 20
PAGE_BYTES = 4096
KINDS = ("sources", "build", "database")
# With "+", what is behind it is for what the cleaner moves.
DENDRO = ["none", "lz4", "zstd:1", "zstd:3", "zstd:9", "none+zstd:9", "lz4+zstd:9"]
BTRFS = ["none", "lzo", "zstd:1", "zstd:3", "zstd:9"]
# What is written beside as much garbage: less than a segment, so that all segments are cleaned.
PIECE_BYTES = 64 << 10
# Nothing changes for so long when cleaning has ended.
STILL_S = 15


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def collect(sources, target, limit_bytes):
    """Copies files of directories until there are so many bytes."""
    left = limit_bytes
    for number, source in enumerate(sources):
        for parent, directories, files in os.walk(source):
            directories[:] = sorted(name for name in directories if name not in (".git", "target"))
            to = target / str(number) / os.path.relpath(parent, source)
            for name in sorted(files):
                path = os.path.join(parent, name)
                if os.path.islink(path) or not os.path.isfile(path):
                    continue
                if left <= 0:
                    return
                to.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, to / name)
                left -= os.path.getsize(path)


def make_database(path, limit_bytes):
    """Accounts, orders and texts, as applications have them."""
    rng = random.Random(7)
    words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))).decode()
             for _ in range(5000)]
    with sqlite3.connect(path) as base:
        base.execute("create table orders"
                     " (id integer primary key, who text, price real, note text)")
        base.execute("create index of_who on orders (who)")
        while os.path.getsize(path) < limit_bytes:
            rows = [(" ".join(rng.choices(words, k=2)), rng.random() * 1000,
                     " ".join(rng.choices(words, k=rng.randint(3, 40)))) for _ in range(20000)]
            base.executemany("insert into orders (who, price, note) values (?, ?, ?)", rows)
            base.commit()


def bytes_of(root):
    return sum(info.st_size for info in compare.names_of(root).values()
               if stat.S_ISREG(info.st_mode))


class Dendro:
    """A volume of ours."""

    def __init__(self, work, size):
        self.volume = volume.Volume(work, size=size, name="dendro")
        self.root = self.volume.root

    def make(self, how):
        new, _, cold = how.partition("+")
        more = ",compress-cold=%s" % cold if cold else ""
        self.volume.mkfs().mount("compress=%s%s" % (new, more))

    def clean(self):
        """Has everything cleaned in which something is dead."""
        self.volume.dendro("clean", "set", "--max-clean-segments", "1000000", self.volume.image)
        last, since = None, time.monotonic()
        while time.monotonic() - since < STILL_S:
            time.sleep(0.5)
            now = self.volume.info()["space"]["live_bytes"]
            if now != last:
                last, since = now, time.monotonic()

    def remount(self):
        self.volume.umount()
        self.volume.mount()

    def used_bytes(self):
        os.sync()
        return self.volume.info()["space"]["live_bytes"]

    def remove(self):
        self.volume.umount()
        self.volume.image.unlink()


class Btrfs:
    """A file system of the kernel."""

    def __init__(self, work, size):
        self.root, self.image, self.size = work / "btrfs.mnt", work / "btrfs.img", size
        self.root.mkdir()

    def make(self, how):
        volume.run("truncate", "-s", self.size, self.image)
        volume.run("mkfs.btrfs", "-q", "-d", "single", "-m", "single", self.image)
        option = [] if how == "none" else ["-o", "compress=%s" % how]
        volume.run("mount", "-o", "loop", *option, self.image, self.root)

    def remount(self):
        volume.run("umount", self.root)
        volume.run("mount", "-o", "loop", self.image, self.root)

    def used_bytes(self):
        volume.run("btrfs", "filesystem", "sync", self.root)
        found = os.statvfs(self.root)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def remove(self):
        volume.run("umount", self.root)
        self.image.unlink()


def read_all(root):
    buffer = bytearray(MIB)
    for path, info in sorted(compare.names_of(root).items()):
        if stat.S_ISREG(info.st_mode):
            with open(os.path.join(root, path), "rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass


def copy_beside_garbage(source, target, garbage):
    """Copies a tree; each piece lies beside one of another tree, which is then removed."""
    garbage.mkdir()
    count = 0
    for path, info in sorted(compare.names_of(source).items()):
        if not stat.S_ISREG(info.st_mode):
            continue
        to = target / path
        to.parent.mkdir(parents=True, exist_ok=True)
        with open(os.path.join(source, path), "rb") as whole, open(to, "wb", buffering=0) as file:
            while part := whole.read(PIECE_BYTES):
                file.write(part)
                count += len(part)
                if len(part) == PIECE_BYTES or count >= PIECE_BYTES:
                    os.fsync(file.fileno())
                    with open(garbage / str(time.monotonic_ns()), "wb", buffering=0) as other:
                        other.write(os.urandom(PIECE_BYTES))
                        os.fsync(other.fileno())
                    count = 0
    shutil.rmtree(garbage)
    volume.run("sync", "-f", target)


def latencies(path, operations):
    """Microseconds of random reads with cold caches, and of random writes with fsync."""
    rng = random.Random(3)
    pages = os.path.getsize(path) // PAGE_BYTES
    file = os.open(path, os.O_RDWR)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    took = {"read": [], "write": []}
    contents = {}
    for _ in range(operations):
        at = rng.randrange(pages) * PAGE_BYTES
        began = time.monotonic()
        contents[at] = os.pread(file, PAGE_BYTES, at)
        took["read"].append((time.monotonic() - began) * 1e6)
    for at in rng.sample(sorted(contents), min(len(contents), max(1, operations // 4))):
        # What applications change is much like what was there.
        page = mmap.mmap(-1, PAGE_BYTES)
        page.write(contents[at][:2048] + contents[at][2048:][::-1])
        began = time.monotonic()
        os.pwrite(file, page, at)
        os.fsync(file)
        took["write"].append((time.monotonic() - began) * 1e6)
    os.close(file)
    return {name: (statistics.median(all_), sorted(all_)[len(all_) * 99 // 100])
            for name, all_ in took.items()}


def measure(target, how, source, operations):
    """Ratio, MiB/s of writing and of reading, and latencies."""
    target.make(how)
    try:
        before, size = target.used_bytes(), bytes_of(source)
        began = time.monotonic()
        if "+" in how:
            copy_beside_garbage(source, target.root / "copy", target.root / "garbage")
        else:
            volume.run("cp", "-r", source, target.root / "copy", timeout_s=3600)
            volume.run("sync", "-f", target.root)
        write_s = time.monotonic() - began
        if "+" in how:
            target.clean()
        ratio = size / max(1, target.used_bytes() - before)
        target.remount()
        drop_caches()
        began = time.monotonic()
        read_all(target.root / "copy")
        read_s = time.monotonic() - began
        volume.run("python3", volume.HERE / "compare.py", source, target.root / "copy",
                   "--ignore-times", timeout_s=3600)
        found = None
        database = target.root / "copy" / "base.sqlite"
        if database.exists():
            drop_caches()
            found = latencies(database, operations)
        return ratio, size / MIB / write_s, size / MIB / read_s, found
    finally:
        target.remove()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--sources", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path)
    parser.add_argument("--only", choices=KINDS, help="leave out the other kinds of data")
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    size = "%dM" % (3 * asked.mib + 2048)
    built = asked.build or pathlib.Path(
        os.environ.get("CARGO_TARGET_DIR", volume.CHECKOUT / "target")) / "release" / "deps"
    registry = pathlib.Path.home() / ".cargo" / "registry" / "src"
    trees = {
        "sources": [asked.sources] if asked.sources else [volume.CHECKOUT, registry],
        "build": [built],
    }
    with volume.scratch("compression") as work:
        kinds = {name: work / name for name in ([asked.only] if asked.only else KINDS)}
        for kind, target in kinds.items():
            if kind == "database":
                target.mkdir()
                make_database(target / "base.sqlite", asked.mib * MIB // 4)
            else:
                collect(trees[kind], target, asked.mib * MIB)
        targets = [("dendro", Dendro(work, size), DENDRO)]
        if shutil.which("mkfs.btrfs") and os.geteuid() == 0:
            targets.append(("btrfs", Btrfs(work, size), BTRFS))
        for kind, source in kinds.items():
            if not source.is_dir():
                print("%s: %s has no files; --%s names a directory"
                      % (kind, ", ".join(map(str, trees[kind])), kind))
                continue
            # In each turn all take part, so that what else the machine does concerns all.
            turns = [{(name, how): measure(target, how, source, asked.operations)
                      for name, target, hows in targets for how in hows}
                     for _ in range(asked.turns)]
            print("%s, %d MiB" % (kind, bytes_of(source) // MIB))
            for name, how in turns[0]:
                taken = [turn[name, how] for turn in turns]
                median = lambda at: statistics.median(one[at] for one in taken)
                line = "  %-7s %-7s ratio %5.2f, write %5.0f, read %5.0f MiB/s" % (
                    name, how, median(0), median(1), median(2))
                if taken[0][3]:
                    for what in ("read", "write"):
                        pair = [statistics.median(one[3][what][at] for one in taken)
                                for at in (0, 1)]
                        line += ", random %s %.0f (%.0f) µs" % (what, *pair)
                print(line, flush=True)


if __name__ == "__main__":
    main()
