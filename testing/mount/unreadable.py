#!/usr/bin/env python3
"""A device whose reads fail now and then, while everything is done to a volume that reads.

Scattered files and a snapshot are made and the volume mounted with a small cache. Then versions are
compared, counted, made and deleted, segments cleaned and files coalesced, while others read and
write, and in the middle of each strace lets all reads of the daemon's threads fail from some read on.
Each may fail, but has to say why; the daemon lives on; nobody gets other data than was written. When
the device reads again, all of it is there, before and after another mount. A checkpoint that cannot
read the map stops the volume from taking writes: then it has to say so, and is mounted anew. Needs
strace, and root to use it.

    unreadable.py [--rounds 6] [--seed 1] [--size 256M]
"""

import argparse
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import volume

PAGE_BYTES = 4096
FILE_PAGES = 256
SMALL_FILES = 10_000


class Tree:
    """Files whose contents are known, page by page."""

    def __init__(self, root, rng):
        self.root, self.rng, self.files = root, rng, {}
        self.failed_reads = 0
        self.stop_count = 0

    def fill(self, count):
        for number in range(count):
            name = "file%d" % number
            self.files[name] = [self.rng.randbytes(PAGE_BYTES) for _ in range(FILE_PAGES)]
            (self.root / name).write_bytes(b"".join(self.files[name]))

        # So that the map does not stay in a small cache.
        (self.root / "small").mkdir()
        for number in range(SMALL_FILES):
            (self.root / "small" / ("a-name-of-some-length-%d" % number)).write_bytes(b"x" * 150)

    def scatter(self, count):
        """Writes over pages here and there; one that fails may have been written or not."""
        failed = []
        for _ in range(count):
            name = self.rng.choice(list(self.files))
            at = self.rng.randrange(FILE_PAGES)
            page = self.rng.randbytes(PAGE_BYTES)
            try:
                with open(self.root / name, "r+b", buffering=0) as file:
                    file.seek(at * PAGE_BYTES)
                    file.write(page)
            except OSError as error:
                failed.append((name, at, page, error))
                continue
            self.files[name][at] = page
        return failed

    def adopt(self):
        """Takes what is there for what was written: what no fsync covered may be gone."""
        for name in self.files:
            data = (self.root / name).read_bytes()
            self.files[name] = [data[at:at + PAGE_BYTES] for at in range(0, len(data), PAGE_BYTES)]

    def differences(self, count=None, may_fail=False):
        """Reads all files or so many; yields what is other than it was written."""
        names = self.rng.sample(list(self.files), count or len(self.files))
        for name in names:
            pages = self.files[name]
            try:
                data = (self.root / name).read_bytes()
            except OSError as error:
                self.failed_reads += 1
                if not may_fail:
                    yield "%s: %s" % (name, error)
                continue
            if data != b"".join(pages):
                bad = [at for at, page in enumerate(pages)
                       if data[at * PAGE_BYTES:(at + 1) * PAGE_BYTES] != page]
                yield "%s is not what was written, pages %s" % (name, bad[:8])


@contextlib.contextmanager
def failing_reads(pid, first):
    """Each of the daemon's threads reads until its `first` read, which answers EIO as do all others."""
    calls = "pread64,preadv,preadv2"
    command = ["strace", "-f", "-qq", "-o", "/dev/null", "-p", str(pid), "-e", "trace=" + calls,
               "-e", "inject=%s:error=EIO:when=%d+" % (calls, first)]
    tracer = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        time.sleep(0.5)
        if tracer.poll() is not None:
            raise volume.Failed("strace: %s" % tracer.stderr.read().decode(errors="replace"))
        yield
    finally:
        tracer.terminate()
        tracer.wait()


def drop_caches():
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def commands(disk, number):
    """What is asked for while reads fail."""
    root = disk.root
    return [
        ["usage", root], ["diff", "%s@base" % root], ["history", root / "file1"],
        ["clean", "coalesce", root / "file2"], ["clean", "run", root],
        ["snapshot", "create", "%s@more%d" % (root, number)],
        ["diff", "%s@base..more%d" % (root, number)],
        ["clean", "coalesce", root], ["segments", root], ["info", root], ["stat", root],
        ["snapshot", "delete", "%s@more%d" % (root, number)],
        ["clone", "%s@base" % root, "side%d" % number],
        ["diff", "%s:side%d" % (root, number), "@base"],
        ["snapshot", "delete", "%s:side%d" % (root, number)],
        ["sync", root],
    ]


def round_of(disk, tree, number):
    """Yields what is wrong."""
    pid = disk.pid()
    tree.scatter(300)
    for command in commands(disk, number):
        drop_caches()
        with failing_reads(pid, tree.rng.choice([1, 2, 5, 20, 60])):
            done = disk.dendro(*command, check=False, timeout_s=300)
            said = done.stderr.decode(errors="replace").strip()
            if done.returncode != 0:
                print("    %s: %s" % (" ".join(map(str, command[:2])), said[:300]))
                if not said:
                    yield "%s fails and says nothing" % command
            for name, at, _, error in tree.scatter(10)[:1]:
                print("    a write to %s, page %d: %s" % (name, at, error))
            yield from tree.differences(8, may_fail=True)
        if disk.pid() != pid:
            yield "the daemon is another"
        reason = disk.info()["mount"]["read_only"]
        if reason:
            print("    %s: %s" % (" ".join(map(str, command[:2])), reason))
            tree.stop_count += 1
            if "reading the map" not in reason:
                yield "after %s it takes no more writes: %s" % (command, reason)
            yield from tree.differences()
            return
        yield from tree.differences(8)
    drop_caches()
    yield from tree.differences()
    yield from disk.panics()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", default="256M")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("strace"):
        print("left out: it takes root and strace")
        return 0
    rng = random.Random(arguments.seed)
    failures = 0
    with volume.scratch("unreadable") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs()
        disk.mount()
        tree = Tree(disk.root, rng)
        tree.fill(80)
        disk.dendro("snapshot", "create", "%s@base" % disk.root)
        for number in range(0, SMALL_FILES, 7):
            os.truncate(disk.root / "small" / ("a-name-of-some-length-%d" % number), 1)
        tree.scatter(2000)
        disk.umount()
        for number in range(arguments.rounds):
            disk.mount("cache=1M,direct")
            stops_before = tree.stop_count
            found = list(round_of(disk, tree, number))
            has_stopped = tree.stop_count > stops_before
            done = disk.dendro("umount", disk.root, check=False, timeout_s=300)
            if done.returncode != (volume.UMOUNT_LOST if has_stopped else 0):
                found.append("umount: exit code %d: %s" % (
                    done.returncode, done.stderr.decode(errors="replace").strip()))
            disk.mount()
            if has_stopped:
                tree.adopt()
            found += ["after another mount: " + line for line in tree.differences()]
            disk.umount()
            print("round %d: %d failures" % (number, len(found)), flush=True)
            for complaint in found[:10]:
                print("    FAILED: " + complaint, flush=True)
            failures += bool(found)
        disk.discard()
    print("%d rounds, %d failed; %d reads of files failed; %d times it stopped taking writes" % (
        arguments.rounds, failures, tree.failed_reads, tree.stop_count))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
