#!/usr/bin/env python3
"""Whatever a volume was filled with, everything can be removed, and all space comes back.

A volume of some size is filled with many of one kind of thing, a snapshot is made or not, and a
last file takes what is left. Then everything is removed and the snapshots are deleted. No removal
may be refused, no mount may fail, and what can be used must be what it was at first. With --kills
the daemon is killed now and then on the way, and mounted again.

    emptied.py [--cycles 20] [--seed 1] [--kills 0] [--case NAME] [--list]

Without --case the sizes and the shapes are drawn; the cases are such as were once refused.
"""

import argparse
import contextlib
import errno
import os
import random
import subprocess
import sys
import time

import volume

# Of what could be used at first, so much must be there again at the end.
LEAST_GIVEN_BACK = 0.97
# Longest until the background has given everything back.
GIVEN_BACK_WITHIN_S = 300
PIECE = 256 << 10
PAGE = 4096
MIB = 1 << 20


class Shape:
    """What a volume is filled with: files of so many pieces, each so long and so far from the next."""

    def __init__(self, files, pieces=0, piece_len=0, stride=PAGE):
        self.files, self.pieces, self.piece_len, self.stride = files, pieces, piece_len, stride

    def __str__(self):
        if not self.pieces:
            return "%d empty files" % self.files
        return "%d files of %d pieces of %d bytes, %d KiB apart" % (
            self.files, self.pieces, self.piece_len, self.stride >> 10)


class Case:
    """A size, options, a shape, and how many snapshots."""

    def __init__(self, size_mib, shape, snapshots=1, options=""):
        self.size_mib, self.shape, self.snapshots, self.options = size_mib, shape, snapshots, options

    def __str__(self):
        return "%d MiB, %s, %d snapshots%s" % (
            self.size_mib, self.shape, self.snapshots, self.options and ", -o " + self.options)


CASES = {
    "names": Case(256, Shape(250_000)),
    "all-names": Case(256, Shape(257_587)),
    "small-names": Case(128, Shape(156_547)),
    "pages": Case(512, Shape(300, 1_000, PAGE, 128 << 10), options="cache=16M"),
    "short-pages": Case(256, Shape(1, 1_000_000, 64, 128 << 10)),
    "short-pages-alone": Case(256, Shape(1, 1_000_000, 64, 128 << 10), snapshots=0),
}


def draw(rng):
    """A case of any kind."""
    size_mib = rng.choice([64, 96, 128, 128, 256, 256, 512, 1024, 2048, 4096])
    budget = size_mib * 1000
    kind = rng.randrange(5)
    if kind == 0:
        shape = Shape(rng.randrange(1, min(budget, 300_000)))
    elif kind == 1:
        shape = Shape(rng.randrange(1, min(budget // 4, 60_000)), 1, rng.randrange(1, 3000))
    elif kind == 2:
        shape = Shape(1, rng.randrange(1, min(budget * 4, 600_000)), rng.randrange(1, 300),
                      rng.randrange(1, 40) * PAGE)
    elif kind == 3:
        pieces = rng.randrange(1, 1000)
        shape = Shape(rng.randrange(1, 1 + min(budget // 4, 200_000) // pieces), pieces,
                      rng.choice([64, 700, PAGE]), rng.randrange(1, 40) * PAGE)
    else:
        shape = Shape(rng.randrange(1, 200), rng.randrange(1, 40), rng.randrange(1, MIB), MIB)
    options = rng.choice(["", "", "cache=16M", "cache=1M"])
    return Case(size_mib, shape, rng.choice([0, 1, 1, 3]), options)


class Run:
    """One volume that is filled and emptied."""

    def __init__(self, directory, case, rng, kill_share):
        self.case, self.rng, self.kill_share = case, rng, kill_share
        self.disk = volume.Volume(directory, size="%dM" % case.size_mib)
        self.kills = 0

    @property
    def tree(self):
        return self.disk.root / "tree"

    def maybe_kill(self):
        """kill -9 now and then, and a mount."""
        if self.rng.random() >= self.kill_share:
            return
        if self.rng.random() < 0.5:
            self.disk.dendro("sync", self.disk.root)
        self.disk.kill()
        self.kills += 1
        self.disk.mount(self.case.options)

    def usable(self):
        """Bytes that can be written, as df tells."""
        facts = os.statvfs(self.disk.root)
        return facts.f_bavail * facts.f_frsize

    def fill(self):
        """Fills the volume with the case's shape; what does not fit any more is left out."""
        shape = self.case.shape
        os.makedirs(self.tree, exist_ok=True)
        data = self.rng.randbytes(max(shape.piece_len, 1))
        for number in range(shape.files):
            if number % 1000 == 0:
                self.maybe_kill()
                os.makedirs(self.tree, exist_ok=True)
            try:
                fd = os.open(self.tree / ("file%07d" % number), os.O_CREAT | os.O_WRONLY, 0o644)
            except OSError as error:
                return expect_full(error)
            try:
                for piece in range(shape.pieces):
                    os.pwrite(fd, data[:shape.piece_len], piece * shape.stride)
            except OSError as error:
                return expect_full(error)
            finally:
                os.close(fd)
        return None

    def fill_up(self):
        """Takes what is left with one file."""
        data = self.rng.randbytes(PIECE)
        length = PIECE
        with open(self.disk.root / "rest", "wb", buffering=0) as rest:
            while length >= 512:
                try:
                    rest.write(data[:length])
                except OSError as error:
                    expect_full(error)
                    length //= 4

    def remove_all(self):
        """Removes every name, in order, backwards or at random, and the directory."""
        order = self.rng.randrange(3)
        for _ in range(100):
            names = sorted(os.listdir(self.tree)) if self.tree.exists() else []
            if order == 1:
                names.reverse()
            elif order == 2:
                self.rng.shuffle(names)
            for number, name in enumerate(names):
                if number % 1000 == 500:
                    self.maybe_kill()
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self.tree / name)
            try:
                os.rmdir(self.tree)
            except FileNotFoundError:
                pass
            except OSError as error:
                # A kill has brought names back.
                if error.errno != errno.ENOTEMPTY or not self.kills:
                    raise
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.disk.root / "rest")
            self.disk.dendro("sync", self.disk.root)
            if sorted(os.listdir(self.disk.root)) == []:
                return
        raise volume.Failed("what was removed and synced is there again")

    def run(self):
        self.disk.mkfs()
        self.disk.mount(self.case.options)
        first = self.usable()
        self.fill()
        made = []
        for number in range(self.case.snapshots):
            name = "s%d" % number
            done = self.disk.dendro("snapshot", "create", "%s@%s" % (self.disk.root, name),
                                    check=False)
            if done.returncode == 0:
                made.append(name)
        self.fill_up()
        self.maybe_kill()
        self.remove_all()
        for name in made:
            self.disk.dendro("snapshot", "delete", "%s@%s" % (self.disk.root, name))
        self.wait_for(first)
        self.disk.umount()
        self.disk.mount(self.case.options)
        self.wait_for(first)
        (self.disk.root / "again").write_bytes(self.rng.randbytes(MIB))
        self.disk.umount()
        if self.disk.panics():
            raise volume.Failed("the daemon panicked: %s" % self.disk.panics()[0])

    def wait_for(self, first):
        """Waits until what can be used is what it was."""
        until = time.monotonic() + GIVEN_BACK_WITHIN_S
        while self.usable() < first * LEAST_GIVEN_BACK:
            if time.monotonic() > until:
                raise volume.Failed("%d bytes can be used, of %d at first" % (self.usable(), first))
            time.sleep(0.05)


def expect_full(error):
    if error.errno != errno.ENOSPC:
        raise error


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=float, default=0, help="share of moments with a kill -9")
    parser.add_argument("--case", choices=sorted(CASES), action="append")
    parser.add_argument("--list", action="store_true", help="tell the cases")
    arguments = parser.parse_args()
    if arguments.list:
        for name, case in CASES.items():
            print("%-18s %s" % (name, case))
        return 0
    failed = kills = 0
    seeds = range(arguments.seed, arguments.seed + arguments.cycles)
    cases = [(CASES[name], arguments.seed) for name in arguments.case or []]
    for case, seed in cases or ((None, seed) for seed in seeds):
        rng = random.Random(seed)
        case = case or draw(rng)
        with volume.scratch("emptied") as directory:
            run = Run(directory, case, rng, arguments.kills)
            began = time.monotonic()
            try:
                run.run()
                outcome = "emptied"
            except (volume.Failed, OSError, subprocess.SubprocessError) as error:
                failed += 1
                outcome = "FAILED: %s" % error
            finally:
                kills += run.kills
                run.disk.discard()
            print("seed %d: %s: %s, %.1f s" % (seed, case, outcome, time.monotonic() - began),
                  flush=True)
    print("%d volumes, %d kills, %d failed" % (len(cases) or arguments.cycles, kills, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
