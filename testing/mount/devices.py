#!/usr/bin/env python3
"""A volume on several devices, which come, go and take each other's place while it is worked on.

1. One of two devices is taken offline, a twentieth of the volume is written, and the device is added
   again. Less than a tenth of the volume is copied. Then the other one is taken offline: everything
   is there.
2. Programs are built, a tree is copied, fsx works (where it is installed), and writers write down
   what they do (see kill9.py). Meanwhile the volume's devices change, and the daemon is killed with
   kill -9 at a random moment. After that the volume is mounted again, from any of its devices that
   is taken for it, and the change is completed. The kinds of change are:

   halves   one half of a mirror is taken offline and added again, and then the other half;
   replace  a half is replaced by another file;
   members  a third device is added, and the first one is removed;
   migrate  the volume moves from an image to a loop device, or back (needs root).

   After each kill all writers' files are of one moment, nothing is missing that was fsynced, and a
   file that was there before is what it was. After the change the same holds on each device alone.

    devices.py [--size 512M] [--rounds 3] [--kinds halves,migrate] [--seed 1] [--tree DIRECTORY]
"""

import argparse
import hashlib
import json
import os
import random
import sys
import threading
import time

import volume
from kill9 import Load
from resize import Work, clear_work

MIB = 1 << 20


class Set:
    """A volume on several devices, and a file in it that no writer touches."""

    def __init__(self, directory, arguments):
        self.of, self.arguments = volume.Volume(directory, arguments.size), arguments
        self.of.mkfs()
        self.size = os.path.getsize(self.of.image)
        self.members = [self.of.image]
        self.of.mount("nofuseblk")

    def path(self, name):
        return self.of.directory / name

    def device(self, *arguments, timeout_s=300):
        return self.of.dendro("device", *arguments, timeout_s=timeout_s).stdout

    def listed(self):
        return json.loads(self.device("list", "--json", self.of.root))

    def states(self):
        """The state of each device, by its path."""
        return {one["device_path"]: one["state"] for one in self.listed()["devices"]}

    def wait_until(self, is_so, what):
        for _ in range(600):
            if is_so():
                return
            time.sleep(0.1)
        raise volume.Failed("%s: %s" % (what, self.listed()))

    def wait_in_sync(self):
        self.wait_until(lambda: set(self.states().values()) <= {"in_sync"}, "not all come in sync")

    def write_large(self, rng, share):
        with open(self.of.root / "large", "wb") as file:
            for _ in range(int(self.size * share) // MIB):
                file.write(rng.randbytes(MIB))
        self.of.dendro("sync", self.of.root)
        self.digest = self.large()

    def large(self):
        with open(self.of.root / "large", "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def differences(self, load):
        complaints, line = load.check()
        if self.large() != self.digest:
            complaints.append("the large file differs")
        return complaints, line

    def mount_one(self, among, rng):
        """Mounts by the first of some devices that is taken for the volume."""
        refused = []
        for path in rng.sample(among, len(among)):
            self.of.image = path
            try:
                self.of.mount("nofuseblk")
                return
            except volume.Failed as error:
                refused.append(str(error))
        raise volume.Failed("no device is taken for the volume: %s" % refused)

    def alone(self, path, load):
        """What differs on a mount of one device without the others."""
        self.of.dendro("umount", self.of.root)
        others = [member for member in self.members if member != path]
        for other in others:
            os.rename(other, str(other) + ".away")
        self.of.image = path
        self.of.mount("nofuseblk,ro,degraded")
        complaints, _ = self.differences(load)
        self.of.dendro("umount", self.of.root)
        done = self.of.dendro("check", "-n", "--data", path, check=False, timeout_s=600)
        if done.returncode != 0:
            complaints.append("check of %s: %s" % (path, done.stdout.decode()[-500:]))
        for other in others:
            os.rename(str(other) + ".away", other)
        self.of.mount("nofuseblk")
        self.wait_in_sync()
        return ["alone on %s: %s" % (path.name, complaint) for complaint in complaints]


class Halves:
    """One half goes and comes back, then the other."""

    def __init__(self, on, rng):
        self.on, self.halves = on, rng.sample(on.members, 2)
        self.among = on.members

    def change(self):
        root = self.on.of.root
        for half in self.halves:
            self.on.device("offline", root, half)
            time.sleep(0.3)
            self.on.device("add", root, half)

    def complete(self):
        """Does what the kill has left to do."""
        for path, state in self.on.states().items():
            if state == "missing":
                self.on.device("add", self.on.of.root, path)
        self.on.wait_in_sync()


class Replace:
    """A half is replaced by a new file."""

    def __init__(self, on, rng):
        self.on, self.old = on, rng.choice(on.members)
        self.new = next(path for path in map(on.path, ["disk.img", "other.img", "third.img"])
                        if path not in on.members)
        self.among = on.members + [self.new]
        self.after = [path for path in self.among if path != self.old]

    def change(self):
        self.on.device("replace", "--force", self.on.of.root, self.old, self.new)

    def complete(self):
        if str(self.new) not in self.on.states():
            self.change()
        self.on.wait_until(
            lambda: self.on.states() == {str(path): "in_sync" for path in self.after},
            "the new device does not replace the old one")
        self.on.members = self.after
        self.old.unlink()


class Members(Replace):
    """A device is added, and another one removed."""

    def change(self):
        self.on.device("add", "--force", self.on.of.root, self.new)
        self.on.device("remove", self.on.of.root, self.old)

    def complete(self):
        if str(self.new) not in self.on.states():
            self.on.device("add", "--force", self.on.of.root, self.new)
        self.on.wait_in_sync()
        if str(self.old) in self.on.states():
            self.on.device("remove", self.on.of.root, self.old)
        super().complete()


class Migrate:
    """The volume moves to the other one of an image and a loop device."""

    def __init__(self, on, rng):
        self.on, self.old = on, on.members[0]
        self.new = on.loop if self.old != on.loop else on.path("disk.img")
        self.among = [self.old, self.new]

    def change(self):
        self.on.of.dendro("migrate", "--force", self.on.of.root, self.new, timeout_s=300)
        self.wait()

    def wait(self):
        # The old device leaves a moment after the new one is in sync.
        self.on.wait_until(lambda: list(self.on.states()) == [str(self.new)], "it does not move")

    def complete(self):
        if list(self.on.states()) == [str(self.old)]:
            self.change()
        self.wait()
        self.on.members = [self.new]


def lose_and_return(on, rng):
    """Part 1; answers which share of the volume is copied."""
    first, other = on.members
    root = on.of.root
    on.device("offline", root, other)
    with open(root / "large", "r+b") as file:
        for _ in range(on.size // 20 >> 16):
            file.seek(rng.randrange(on.size // 3 >> 16) << 16)
            file.write(rng.randbytes(1 << 16))
    on.of.dendro("sync", root)
    on.digest = on.large()
    added = json.loads(on.device("add", "--no-wait", "--json", root, other))
    share = added["left_to_copy_bytes"] / on.size
    print("after 5 %% was written anew, %.1f %% are copied" % (100 * share), flush=True)
    on.wait_in_sync()
    on.device("offline", root, first)
    complaints = [] if on.large() == on.digest else ["the large file differs on the other device"]
    on.device("add", root, first)
    return complaints + (["too much is copied"] if share >= 0.1 else [])


def round_of(on, kind, number, takes_s, rng):
    """Changes the devices under load and kills; answers complaints, a line, and how long the change
    took if it was not interrupted."""
    of = on.of
    clear_work(of)
    change = kind(on, rng)
    load = Load(of, "round", (on.arguments.seed, kind.__name__, number), pause_s=0.003)
    work = Work(of, on.arguments, number)
    time.sleep(0.2 * rng.random())
    pid = json.loads(of.dendro("info", "--json", of.root).stdout)["mount"]["pid"]
    # Some of the time in the first moments.
    after_s = rng.choice([0.05, takes_s, takes_s, takes_s]) * 1.1 * rng.random()
    killer = threading.Timer(after_s, volume.kill_and_wait, [pid])
    started, took_s, complaints = time.monotonic(), None, []
    if takes_s:
        killer.start()
    try:
        change.change()
        took_s = time.monotonic() - started
    except volume.Failed as error:
        if not takes_s or time.monotonic() - started < after_s:
            complaints.append("without a kill: %s" % error)
    if takes_s:
        killer.join()
        complaints += load.join() + work.stop()
        volume.run("umount", "-l", of.root, check=False)
        on.mount_one(change.among, rng)
        found, line = on.differences(load)
    else:
        complaints += load.stop() + work.stop()
        found, line = on.differences(load)
    before = ["after the kill: " + complaint for complaint in found]
    states = sorted(on.states().values())
    change.complete()
    found, _ = on.differences(load)
    complaints += before + ["completed: " + complaint for complaint in found]
    if number % 3 == 0 or complaints:
        for member in on.members:
            complaints += on.alone(member, load)
    of.dendro("sync", of.root)
    volume.run("rm", "-rf", load.base)
    how = "killed after %.2f s, found %s" % (after_s, "+".join(states)) if takes_s else "not killed"
    return complaints, "%s; %s" % (how, line), took_s


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="512M")
    parser.add_argument("--rounds", type=int, default=3, help="of each kind")
    parser.add_argument("--kinds", default="halves,replace,members,migrate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", default="/usr/include/linux", help="a tree that is copied around")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    kinds = {"halves": Halves, "replace": Replace, "members": Members, "migrate": Migrate}
    failures, rounds = 0, 0

    def report(complaints):
        for complaint in complaints[:5]:
            print("    FAILED: " + complaint, flush=True)
        return bool(complaints)

    with volume.scratch("devices") as directory:
        on = Set(directory, arguments)
        on.write_large(rng, 1 / 3)
        on.members.append(on.path("other.img"))
        on.device("add", on.of.root, on.members[1])
        failures += report(lose_and_return(on, rng))
        try:
            for name in arguments.kinds.split(","):
                if name == "migrate":
                    if os.geteuid() != 0:
                        continue
                    on.device("remove", on.of.root, on.members.pop())
                    backing = on.path("loop.backing")
                    with open(backing, "wb") as file:
                        file.truncate(on.size)
                    on.loop = volume.pathlib.Path(
                        volume.run("losetup", "-f", "--show", backing).stdout.decode().strip())
                takes_s = 0
                for number in range(arguments.rounds + 1):
                    complaints, line, took_s = round_of(on, kinds[name], number, takes_s, rng)
                    print("%s %d: %s" % (name, number, line), flush=True)
                    takes_s = takes_s or took_s
                    failures += report(complaints)
                    rounds += 1
                    if complaints and os.environ.get("DENDRO_TEST_KEEP"):
                        return 1
            on.of.dendro("umount", on.of.root)
            failures += report(on.of.panics())
        finally:
            if hasattr(on, "loop"):
                volume.run("umount", "-l", on.of.root, check=False)
                volume.run("losetup", "-d", on.loop, check=False)
    print("%d rounds, %d failed" % (rounds, failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
