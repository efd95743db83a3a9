#!/usr/bin/env python3
"""A volume is made longer and shorter while it is worked on, and the daemon is killed meanwhile.

A volume is filled with files whose contents are known. Programs are built, a tree is copied, files
are written over and fsx works (where it is installed), all the time. Meanwhile

1. the volume is made eight times as long, in four steps;
2. it is made as short as one and a half times what is in it;
3. as 1 and 2 in turn, and at a random moment the command or the daemon is killed (kill -9). The
   volume is mounted again and has the size before or the new one; what had been made durable is
   there byte for byte; the same command again does it. Now and then the volume is unmounted and
   checked, its data too.

    resize.py [--rounds 30] [--from 128M] [--seed 1] [--tree DIRECTORY]
"""

import argparse
import contextlib
import multiprocessing
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time

import volume
from nearly_full import PIECE_BYTES, Ballast, build_and_run, fsx

LONGEST_MOUNT_S = 2.0
MIB = 1 << 20


def work_along(root, tree, seed, errors):
    """Works until the mount goes away: writes over files, builds, copies; fsx by and by."""
    rng = random.Random(seed)
    where = pathlib.Path(root) / ("work%d" % os.getpid())
    with contextlib.suppress(OSError):
        where.mkdir()

    class Here:
        root = where

    for turn in range(1 << 30):
        try:
            if not where.exists():
                return
            with open(where / "hot", "a+b", buffering=0) as file:
                for _ in range(20):
                    os.pwrite(file.fileno(), rng.randbytes(5000), rng.randrange(8 * MIB))
                os.fsync(file.fileno())
            complaints = list(build_and_run(Here)) if shutil.which("cc") else []
            complaints += fsx(Here, str(turn)) if turn % 4 == 3 else []
            to = where / "tree"
            shutil.copytree(tree, to, symlinks=True)
            shutil.rmtree(to)
        except (OSError, shutil.Error, volume.Failed) as error:
            complaints = [str(error)]
        # What fails when the daemon is gone is no complaint.
        try:
            os.stat(where)
        except OSError:
            return
        for complaint in complaints:
            errors.put(complaint)
        if complaints:
            return


class Work:
    """Processes that work on the mount."""

    def __init__(self, disk, arguments, seed):
        self.errors = multiprocessing.Queue()
        of = (str(disk.root), arguments.tree, seed, self.errors)
        self.process = multiprocessing.Process(target=work_along, args=of, daemon=True)
        self.process.start()

    def stop(self):
        """Ends it; answers what failed."""
        self.process.kill()
        self.process.join(60)
        complaints = []
        while not self.errors.empty():
            complaints.append("the work: " + self.errors.get())
        if self.process.is_alive():
            complaints.append("a process hangs on the mount")
        return complaints


def size_bytes(disk):
    return disk.image.stat().st_size


def live_bytes(disk):
    figures = os.statvfs(disk.root)
    return (figures.f_blocks - figures.f_bfree) * figures.f_frsize


def resize_command(disk, goal):
    return [volume.command(), "resize", "--json", str(disk.root), str(goal)]


def short_size(disk):
    """One and a half times what is in it; more where that leaves too little for the work."""
    return max(live_bytes(disk) * 3 // 2, live_bytes(disk) + 48 * MIB)


def goal_of(disk, kind, arguments, rng):
    """The next size: longer, or about as short as it may be."""
    if kind == "grow":
        return min(size_bytes(disk) * 2, 8 * arguments.bytes)
    goal = short_size(disk)
    return goal + (rng.randrange(goal // 4) if rng.random() < 0.5 else 0)


def scatter(disk, ballast):
    """Has what is in the volume lie all over it."""
    junk = disk.root / "junk"
    figures = os.statvfs(disk.root)
    with open(junk, "wb", buffering=0) as file:
        for _ in range(figures.f_bavail * figures.f_frsize * 7 // 10 // MIB):
            file.write(os.urandom(MIB))
    ballast.overwrite(0.6)
    junk.unlink()
    disk.dendro("sync", disk.root)


def clear_work(disk):
    for left in disk.root.glob("work*"):
        shutil.rmtree(left, ignore_errors=True)


def check_offline(disk):
    """What a check of the unmounted volume finds, its data too."""
    disk.umount()
    done = disk.dendro("check", "-n", "--data", disk.image, check=False, timeout_s=600)
    disk.mount()
    return [] if done.returncode == 0 else ["check: " + done.stdout.decode()[-500:]]


def quiet_steps(disk, arguments, ballast):
    """Grows in four steps and shrinks back, with work beside it and no kills."""
    work = Work(disk, arguments, "quiet")
    complaints = []
    factors = [2, 4, 6, 8]
    for factor in factors:
        disk.dendro("resize", disk.root, factor * arguments.bytes)
        if size_bytes(disk) != factor * arguments.bytes:
            complaints.append("it has %d bytes after it grew" % size_bytes(disk))
        ballast.overwrite(0.1)
    scatter(disk, ballast)
    goal = short_size(disk)
    started = time.monotonic()
    disk.dendro("resize", disk.root, goal, timeout_s=600)
    took_s = time.monotonic() - started
    if not goal - 8 * MIB < size_bytes(disk) <= goal:
        complaints.append("it has %d bytes after it shrank to %d" % (size_bytes(disk), goal))
    complaints += work.stop()
    complaints += ballast.differences()
    print("grown to %d MiB in %d steps, shrunk to %d MiB in %.1f s" % (
        8 * arguments.bytes // MIB, len(factors), size_bytes(disk) // MIB, took_s), flush=True)
    return complaints


def round_of(disk, number, kind, arguments, ballast, rng):
    """Resizes and kills; answers complaints, and a line about it."""
    clear_work(disk)
    if kind == "shrink":
        scatter(disk, ballast)
    ballast.overwrite(0.05)
    disk.dendro("sync", disk.root)
    before, goal = size_bytes(disk), goal_of(disk, kind, arguments, rng)
    work = Work(disk, arguments, number)
    time.sleep(rng.random() * 0.5)
    pid = disk.pid()
    command = subprocess.Popen(
        resize_command(disk, goal), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    kills_daemon = rng.random() < 0.75
    # Some of the time in the middle, some of it in the first moments and right behind the end.
    time.sleep(rng.choice([0.003, 0.03, 0.2, 1]) * rng.random())
    was_done = command.poll() is not None
    if kills_daemon:
        volume.kill_and_wait(pid)
    else:
        command.kill()
    command.wait()
    complaints = [] if kills_daemon else work.stop()
    took_s = 0.0
    if kills_daemon:
        work.stop()
        volume.run("umount", "-l", disk.root, check=False)
        took_s = disk.mount()
        if took_s > LONGEST_MOUNT_S:
            complaints.append("mounting took %.2f s" % took_s)
    after = size_bytes(disk)
    segment = disk.info()["segment_bytes"]
    whole = goal - goal % segment
    if after not in (before, whole):
        complaints.append("%d bytes before, %d wanted, %d now" % (before, whole, after))
    complaints += ballast.differences()
    clear_work(disk)
    disk.dendro("resize", disk.root, goal, timeout_s=600)
    if size_bytes(disk) != whole:
        complaints.append("%d bytes, and not %d, after the second try" % (size_bytes(disk), whole))
    complaints += ballast.differences()
    if number % 5 == 4:
        complaints += check_offline(disk)
    line = "%s %d to %d MiB, %s killed %s: %d MiB, mounted in %.2f s" % (
        kind, before // MIB, whole // MIB, "daemon" if kills_daemon else "command",
        "afterwards" if was_done else "meanwhile", after // MIB, took_s)
    return complaints, line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30, help="of each kind")
    parser.add_argument("--from", dest="size", default="128M", help="the size that it grows from")
    parser.add_argument("--fill", type=float, default=40, help="per cent of it that live")
    parser.add_argument("--options", default="", help="options of mkfs", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", default="/usr/include/linux", help="a tree that is copied around")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    failures = 0
    with volume.scratch("resize") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs(*arguments.options)
        arguments.bytes = size_bytes(disk)
        disk.mount()
        ballast = Ballast(disk.root, rng)
        ballast.fill(arguments.fill)
        complaints = quiet_steps(disk, arguments, ballast)
        for number in range(2 * arguments.rounds + 1):
            for complaint in complaints[:5]:
                print("    FAILED: " + complaint, flush=True)
            failures += bool(complaints)
            if number == 2 * arguments.rounds or complaints and os.environ.get("DENDRO_TEST_KEEP"):
                break
            kind = ["grow", "shrink"][number % 2]
            complaints, line = round_of(disk, number, kind, arguments, ballast, rng)
            print("round %d: %s" % (number, line), flush=True)
        complaints = check_offline(disk) + list(ballast.differences()) + disk.panics()
        for complaint in complaints[:5]:
            print("    FAILED: " + complaint)
        failures += bool(complaints)
        disk.umount()
        disk.discard()
    print("%d rounds, %d failed; %d files of pieces of %d KiB" % (
        2 * arguments.rounds, failures, len(ballast.files), PIECE_BYTES >> 10))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
