#!/usr/bin/env python3
"""A volume is made longer and shorter while it is worked on, and the daemon is killed meanwhile.

A volume is filled with files whose contents are known. Programs are built, a tree is copied, files
are written over, fsx works (where it is installed), and writers write down what they do (see
kill9.py), all the time. Meanwhile

1. the volume is made eight times as long, in four steps;
2. it is made as short as one and a half times what is in it;
3. as 1 and 2 in turn, and at a random moment the command or the daemon is killed (kill -9). The
   volume is mounted again and has the size before or the new one; what had been made durable is
   there byte for byte, and all writers' files are of one moment; the same command again does it.
   Now and then the volume is unmounted and checked, its data too;
4. the same with a volume on a loop device whose file gets longer (needs root): the volume takes all
   of it with `resize max`, and at last becomes short again, and the file with it.

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
from kill9 import Load
from nearly_full import PIECE_BYTES, Ballast, build_and_run, fsx

LONGEST_MOUNT_S = 2.0
MIB = 1 << 20
# The sizes that it grows to, in times of the first one.
STEPS = [2, 4, 6, 8]


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
        # What fails when the daemon is gone is no complaint. The kernel never answers this itself.
        try:
            os.statvfs(where)
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
        steps = [step * arguments.bytes for step in STEPS]
        return next(step for step in steps if step > size_bytes(disk))
    goal = short_size(disk)
    return goal + (rng.randrange(goal // 4) if rng.random() < 0.5 else 0)


def scatter(disk, ballast):
    """Has what is in the volume lie all over it."""
    junk, live = disk.root / "junk", live_bytes(disk)
    figures = os.statvfs(disk.root)
    with open(junk, "wb", buffering=0) as file:
        for _ in range(figures.f_bavail * figures.f_frsize * 4 // 10 // MIB):
            file.write(os.urandom(MIB))
    ballast.overwrite(0.6)
    junk.unlink()
    disk.dendro("sync", disk.root)
    # Its space comes back in steps.
    for _ in range(600):
        if live_bytes(disk) < live + 64 * MIB:
            return
        time.sleep(0.1)
    raise volume.Failed("the space of a removed file does not come back")


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
    for factor in STEPS:
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
        8 * arguments.bytes // MIB, len(STEPS), size_bytes(disk) // MIB, took_s), flush=True)
    return complaints


def killed(disk, command, load, work, kills_daemon, after_s):
    """Kills the daemon or the command; answers complaints, how it was, and how long mounting took.
    """
    pid = disk.pid()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(after_s)
    when = "meanwhile" if process.poll() is None else "afterwards"
    took_s, complaints = 0.0, []
    if kills_daemon:
        volume.kill_and_wait(pid)
        process.wait()
        work.stop()
        complaints += load.join()
        volume.run("umount", "-l", disk.root, check=False)
        took_s = disk.mount()
        if took_s > LONGEST_MOUNT_S:
            complaints.append("mounting took %.2f s" % took_s)
    else:
        process.kill()
        process.wait()
        complaints += work.stop() + load.stop()
    found, line = load.check()
    how = "%s killed %s after %.2f s, mounted in %.2f s; %s" % (
        "daemon" if kills_daemon else "command", when, after_s, took_s, line)
    return complaints + found, how


def round_of(disk, number, kind, arguments, ballast, rng):
    """Resizes and kills; answers complaints, and a line about it."""
    clear_work(disk)
    if kind == "shrink":
        scatter(disk, ballast)
    ballast.overwrite(0.05)
    disk.dendro("sync", disk.root)
    load = Load(disk, "load", (arguments.seed, number))
    work = Work(disk, arguments, number)
    time.sleep(rng.random() * 0.5)
    before, goal = size_bytes(disk), goal_of(disk, kind, arguments, rng)
    command = resize_command(disk, goal)
    # Some of the time in the first moments, and else in all that it takes, and right behind the end.
    after_s = rng.choice([0.003, 0.05, 1.1 * arguments.takes_s[kind]]) * rng.random()
    complaints, how = killed(disk, command, load, work, rng.random() < 0.75, after_s)
    after = size_bytes(disk)
    whole = goal - goal % disk.info()["segment_bytes"]
    if after not in (before, whole):
        complaints.append("%d bytes before, %d wanted, %d now" % (before, whole, after))
    complaints += ballast.differences()
    clear_work(disk)
    started = time.monotonic()
    try:
        disk.dendro("resize", disk.root, goal, timeout_s=600)
    except volume.Failed as error:
        complaints.append("the second try: %s" % error)
    if after == before:
        arguments.takes_s[kind] = time.monotonic() - started
    if size_bytes(disk) != whole:
        complaints.append("%d bytes, and not %d, after the second try" % (size_bytes(disk), whole))
    complaints += list(ballast.differences()) + load.check()[0]
    shutil.rmtree(load.base)
    if number % 5 == 4:
        complaints += check_offline(disk)
    return complaints, "%s %d to %d MiB, %d MiB when the %s" % (
        kind, before // MIB, whole // MIB, after // MIB, how)


class LoopVolume(volume.Volume):
    """A volume on a loop device."""

    def __init__(self, directory, size):
        super().__init__(directory, size, "loop")
        self.backing = self.image
        with open(self.backing, "wb"):
            pass
        volume.run("truncate", "-s", size, self.backing)
        found = volume.run("losetup", "-f", "--show", self.backing).stdout.decode().strip()
        self.image = pathlib.Path(found)
        self.dendro("mkfs", "--force", self.image)

    def give(self, size):
        """Makes the device longer or shorter."""
        os.truncate(self.backing, size)
        volume.run("losetup", "-c", self.image)

    def device_bytes(self):
        return self.info()["device_size_bytes"]

    def detach(self):
        volume.run("umount", "-l", self.root, check=False)
        volume.run("losetup", "-d", self.image, check=False)
        self.backing.unlink()


def loop_rounds(disk, arguments, rng, report):
    """Part 4."""
    disk.mount()
    ballast = Ballast(disk.root, rng)
    ballast.fill(arguments.fill)
    backing = arguments.bytes
    segment = disk.info()["segment_bytes"]
    for number in range(arguments.rounds):
        backing += arguments.bytes // 2 + rng.randrange(MIB)
        ballast.overwrite(0.05)
        disk.dendro("sync", disk.root)
        load = Load(disk, "load", (arguments.seed, "loop", number))
        work = Work(disk, arguments, number)
        before = disk.device_bytes()
        disk.give(backing)
        after_s = rng.choice([0.01, 0.1]) * rng.random()
        complaints, how = killed(
            disk, resize_command(disk, "max"), load, work, rng.random() < 0.75, after_s)
        after = disk.device_bytes()
        disk.dendro("resize", disk.root, "max")
        now = disk.device_bytes()
        if after not in (before, now) or not backing - 2 * segment < now <= backing:
            complaints.append("%d bytes before, %d after the kill, %d after the second try of %d" % (
                before, after, now, backing))
        complaints += list(ballast.differences()) + load.check()[0]
        shutil.rmtree(load.base)
        clear_work(disk)
        if backing >= 8 * arguments.bytes or number == arguments.rounds - 1:
            disk.dendro("resize", disk.root, short_size(disk), timeout_s=600)
            # Room for the backups of the superblock.
            backing = disk.device_bytes() + 64 * 1024
            disk.umount()
            disk.give(backing)
            disk.mount()
            complaints += check_offline(disk)
            complaints += ballast.differences()
            backing = max(backing, arguments.bytes)
        report(complaints)
        print("loop %d: %d to %d MiB, %d MiB when the %s" % (
            number, before // MIB, now // MIB, after // MIB, how), flush=True)
    disk.umount()


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
    failures, rounds = 0, {"grow": 0, "shrink": 0}
    arguments.takes_s = {"grow": 1.0, "shrink": 1.0}

    def report(complaints):
        nonlocal failures
        for complaint in complaints[:5]:
            print("    FAILED: " + complaint, flush=True)
        failures += bool(complaints)
        if complaints and os.environ.get("DENDRO_TEST_KEEP"):
            sys.exit(1)

    with volume.scratch("resize") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs(*arguments.options)
        arguments.bytes = size_bytes(disk)
        disk.mount()
        ballast = Ballast(disk.root, rng)
        ballast.fill(arguments.fill)
        report(quiet_steps(disk, arguments, ballast))
        while min(rounds.values()) < arguments.rounds:
            size = size_bytes(disk)
            is_long = size >= STEPS[-1] * arguments.bytes
            is_half = size >= STEPS[-1] * arguments.bytes // 2 and rng.random() < 0.4
            kind = "shrink" if is_long or is_half else "grow"
            number = sum(rounds.values())
            complaints, line = round_of(disk, number, kind, arguments, ballast, rng)
            print("round %d: %s" % (number, line), flush=True)
            rounds[kind] += 1
            report(complaints)
        report(check_offline(disk) + list(ballast.differences()) + disk.panics())
        disk.umount()
        disk.discard()
        if os.geteuid() == 0:
            disk = LoopVolume(directory, arguments.size)
            try:
                loop_rounds(disk, arguments, rng, report)
                report(disk.panics())
            finally:
                disk.detach()
    print("%d times longer, %d times shorter, %d failed; %d files of pieces of %d KiB" % (
        rounds["grow"], rounds["shrink"], failures, len(ballast.files), PIECE_BYTES >> 10))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
