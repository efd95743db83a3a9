#!/usr/bin/env python3
"""Bad input: damaged, truncated and foreign images give errors or the right data, nothing else.

A volume is filled with files whose checksums are known. Then, many times over, a copy of its image
is damaged (bytes flipped, sectors or blocks overwritten, swapped or zeroed, the end cut off) and
mounted, if it can be. Everything is read, some things are changed, and it is unmounted. No file may
have other data than it had, no name may be missing without an error, and no daemon may panic, die
or hang. Where the volume was not unmounted, damage in the log since its last checkpoint may look
like its end: then what is there has to be an earlier state, whole.

    damage.py [--rounds 100] [--seed 1] [--size 64M]
"""

import argparse
import collections
import hashlib
import os
import random
import shutil
import subprocess
import sys
import time

import volume

SECTOR_BYTES = 512
BLOCK_BYTES = 4096


class Known:
    """What a volume holds, and in which order it was made."""

    def __init__(self):
        self.checksums, self.made, self.removed = {}, {}, {}

    def add(self, path, checksum, number):
        self.checksums[path] = checksum
        self.made.setdefault(path, number)

    def remove(self, path, number):
        del self.checksums[path]
        self.removed[path] = number

    def is_earlier_state(self, problems, found):
        """Whether what differs is what was not done yet at one moment."""
        moments = [self.removed.get(path, self.made.get(path, -1)) for path in problems]
        first = min(moments)
        later = [path for path in found if self.made.get(path, -1) > first]
        return first >= 0 and not later


def fill(disk, rng):
    """Makes the files; answers what there is."""
    disk.mount("checkpoint=4M")
    known = Known()
    for number in range(600):
        directory = "d%d" % (number % 23)
        os.makedirs(disk.root / directory, exist_ok=True)
        known.add(directory, None, number)
        path = "%s/file%d" % (directory, number)
        data = rng.randbytes(rng.choice([0, 100, 3000, 4096, 20000, 100_000]))
        (disk.root / path).write_bytes(data)
        if number % 5 == 0:
            os.setxattr(disk.root / path, "user.x", data[:300])
        known.add(path, hashlib.sha256(data).digest(), number)
        if number % 7 == 0:
            victim = "d%d/file%d" % ((number // 2) % 23, number // 2)
            if victim in known.checksums and victim != path:
                os.unlink(disk.root / victim)
                known.remove(victim, number)
    return known


def used_blocks(image):
    """Numbers of blocks that are not all zeros."""
    blocks = []
    with open(image, "rb") as file:
        number = 0
        while piece := file.read(BLOCK_BYTES):
            if piece.strip(b"\0"):
                blocks.append(number)
            number += 1
    return blocks


def damage(image, blocks, rng):
    """Damages a copy of the image; answers what was done."""
    kind = rng.choice(["flip", "flip", "flip", "sector", "block", "zero", "swap", "truncate", "head"])
    count = rng.choice([1, 1, 3, 10, 100])
    with open(image, "r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if kind == "truncate":
            file.truncate(rng.choice([rng.randrange(size), size - 1, 4096, size // 2]))
            return kind
        for _ in range(count):
            # Where everything starts is hit more often than its size makes likely.
            block = rng.choice(blocks[:4] if kind == "head" else blocks)
            start = block * BLOCK_BYTES
            file.seek(start)
            old = bytearray(file.read(BLOCK_BYTES))
            sector = rng.randrange(BLOCK_BYTES // SECTOR_BYTES) * SECTOR_BYTES
            if kind in ("flip", "head"):
                used = len(bytes(old).rstrip(b"\0")) or 1
                old[rng.randrange(used)] ^= 1 << rng.randrange(8)
            elif kind == "sector":
                old[sector:sector + SECTOR_BYTES] = rng.randbytes(SECTOR_BYTES)
            elif kind == "block":
                old[:] = rng.randbytes(BLOCK_BYTES)
            elif kind == "zero":
                old[sector:sector + SECTOR_BYTES] = bytes(SECTOR_BYTES)
            else:
                file.seek(rng.choice(blocks) * BLOCK_BYTES)
                old[:] = file.read(BLOCK_BYTES)
            file.seek(start)
            file.write(old)
    return "%s, %d times" % (kind, count)


class Reading:
    """Everything that could be read of a damaged volume."""

    def __init__(self, root, known):
        self.found, self.errors, self.wrong, self.unlisted = set(), 0, [], False
        self.problems = []
        self.read_directory(root, "", known)
        # What an unreadable directory has is not missing.
        names = known.checksums.keys()
        self.missing = [] if self.unlisted else sorted(names - self.found)
        self.problems += self.missing
        self.is_earlier = bool(self.problems) and known.is_earlier_state(self.problems, self.found)

    def read_directory(self, root, below, known):
        try:
            with os.scandir(os.path.join(root, below)) as entries:
                names = [entry.name for entry in entries]
        except OSError:
            self.errors += 1
            self.unlisted = True
            return
        for name in names:
            path = os.path.join(below, name)
            self.found.add(path)
            if path not in known.checksums:
                self.wrong.append("%s was not there" % path)
                self.problems.append(path)
                continue
            try:
                if known.checksums[path] is None:
                    self.read_directory(root, path, known)
                else:
                    self.read_file(root, path, known.checksums[path])
            except OSError:
                self.errors += 1

    def read_file(self, root, path, checksum):
        with open(os.path.join(root, path), "rb") as file:
            data = file.read()
        for name in os.listxattr(os.path.join(root, path)):
            if os.getxattr(os.path.join(root, path), name) != data[:300]:
                self.wrong.append("%s has another attribute" % path)
                self.problems.append(path)
        if hashlib.sha256(data).digest() != checksum:
            self.wrong.append("%s has other data" % path)
            self.problems.append(path)


def change(root):
    """Tries what changes things; errors are no matter."""
    for work in (
        lambda: (root / "new").write_bytes(b"x" * 50_000),
        lambda: os.mkdir(root / "directory"),
        lambda: os.rename(root / "d1", root / "directory" / "d1"),
        lambda: shutil.rmtree(root / "d2"),
        lambda: os.sync(),
    ):
        try:
            work()
        except OSError:
            pass


def try_volume(disk, known, is_crashed):
    """Mounts a damaged volume and uses it; answers complaints, and how it went."""
    complaints = []
    for command in (["info"], ["info", "--json"], ["dump"]):
        done = disk.dendro(*command, disk.image, check=False)
        if done.returncode not in (0, 1, 2, 4, 8) or b"panick" in done.stderr:
            complaints.append("dendro %s: exit code %d: %s" % (
                " ".join(command), done.returncode, done.stderr[-300:]))
    try:
        disk.mount()
    except volume.Failed as failed:
        text = str(failed)
        if "panick" in text or "signal" in text:
            complaints.append(text)
        return complaints, "not mounted"
    pid = disk.pid()
    reading = Reading(disk.root, known)
    is_earlier = is_crashed and reading.is_earlier
    if not is_earlier:
        complaints += reading.wrong[:3]
    if reading.missing and not is_earlier:
        complaints.append("%d names are missing without an error, such as %s" % (
            len(reading.missing), reading.missing[0]))
    change(disk.root)
    if not os.path.exists("/proc/%d" % pid):
        complaints.append("the daemon has died")
    try:
        disk.umount()
    except volume.Failed as failed:
        # An unclean end is what damage may lead to, but not a mount that stays.
        if disk.is_mounted():
            complaints.append("it stays mounted: %s" % failed)
    for _ in range(100):
        if not os.path.exists("/proc/%d" % pid):
            break
        time.sleep(0.1)
    else:
        complaints.append("the daemon does not end")
    if is_earlier:
        return complaints, "an earlier state"
    return complaints, "%d errors" % reading.errors if reading.errors else "all of it is right"


def check_foreign(disk, complaints):
    """Files that are no volumes, and volumes in use."""
    def refused(what, *arguments, says=None):
        done = disk.dendro(*arguments, check=False, timeout_s=30)
        message = done.stderr.decode(errors="replace")
        if done.returncode == 0 or "panick" in message or done.returncode < 0:
            complaints.append("%s: exit code %d: %s" % (what, done.returncode, message))
        elif says and says not in message:
            complaints.append("%s: %r does not say %r" % (what, message, says))
    foreign = disk.directory / "foreign"
    for what, content in (
        ("an empty file", b""), ("a short file", b"hello"), ("zeros", bytes(1 << 20)),
        ("noise", random.Random(1).randbytes(8 << 20)),
    ):
        foreign.write_bytes(content)
        refused("mounting " + what, "mount", foreign, disk.root)
        refused("info of " + what, "info", foreign)
    if shutil.which("mkfs.ext4"):
        foreign.write_bytes(bytes(8 << 20))
        subprocess.run(["mkfs.ext4", "-qF", foreign], check=True)
        refused("mounting ext4", "mount", foreign, disk.root)
        refused("mkfs over ext4", "mkfs", foreign, says="ext4")
    refused("mounting a directory", "mount", disk.directory, disk.root)
    refused("mounting what is not there", "mount", disk.directory / "absent", disk.root)
    refused("mounting a device that is none", "mount", "/dev/null", disk.root)
    refused("mkfs over a volume", "mkfs", disk.image)
    elsewhere = disk.directory / "elsewhere"
    elsewhere.mkdir()
    disk.mount()
    refused("mounting it twice", "mount", disk.image, elsewhere, says="mounted already")
    linked = disk.directory / "linked.img"
    os.link(disk.image, linked)
    refused("mounting it twice by another name", "mount", linked, elsewhere)
    refused("mkfs of what is mounted", "mkfs", "--force", disk.image)
    os.unlink(linked)
    (disk.root / "still").write_bytes(b"works")
    (disk.root / "still").unlink()
    disk.umount()


def check_read_only(disk, known, complaints):
    """An image that cannot be written is mounted for reading."""
    subprocess.run(["chattr", "+i", disk.image], check=False, stderr=subprocess.DEVNULL)
    try:
        disk.mount("ro")
        reading = Reading(disk.root, known)
        if reading.errors or reading.wrong or reading.missing:
            complaints.append("mounted for reading, it is not all there")
        try:
            (disk.root / "new").write_bytes(b"x")
            complaints.append("mounted for reading, it takes a file")
        except OSError:
            pass
        disk.umount()
    finally:
        subprocess.run(["chattr", "-i", disk.image], check=False, stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--size", default="64M")
    arguments = parser.parse_args()
    outcomes, failures = collections.Counter(), 0
    with volume.scratch("damage") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs("--segment-size", "512K")
        known = fill(disk, random.Random(arguments.seed))
        images = {"crashed": directory / "crashed", "clean": directory / "clean"}
        disk.dendro("sync", disk.root)
        shutil.copyfile(disk.image, images["crashed"])
        disk.umount()
        shutil.copyfile(disk.image, images["clean"])
        complaints = []
        check_foreign(disk, complaints)
        shutil.copyfile(images["clean"], disk.image)
        check_read_only(disk, known, complaints)
        blocks = {name: used_blocks(image) for name, image in images.items()}
        for number in range(-1, arguments.rounds):
            rng = random.Random("%d %d" % (arguments.seed, number))
            name = rng.choice(["crashed", "clean"])
            if number >= 0:
                disk.image.unlink(missing_ok=True)
                shutil.copyfile(images[name], disk.image)
                what = damage(disk.image, blocks[name], rng)
                complaints, outcome = try_volume(disk, known, name == "crashed")
                complaints += disk.panics()
                disk.log.unlink(missing_ok=True)
                outcomes[outcome.lstrip("0123456789 ")] += 1
            for complaint in complaints:
                print("round %d (%s image, %s): FAILED: %s" % (
                    number, name, what if number >= 0 else "foreign files", complaint), flush=True)
            failures += bool(complaints)
        disk.discard()
    print("%d rounds: %s; %d failed" % (
        arguments.rounds, ", ".join("%s: %d" % pair for pair in sorted(outcomes.items())), failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
