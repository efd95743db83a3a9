#!/usr/bin/env python3
"""A volume that stays nearly full while much is written to it: all of it is there, crash or not.

A volume is filled to a share with files whose contents are known. Then, over and over, until many
times its size has been written: records of these files are written over in place; a tree is
unpacked, compared and removed; programs are built and run; fsx does what it does (where it is
installed). The work needs less than is free, so ENOSPC is a failure. Now and then the daemon is
killed, sometimes between two rounds, sometimes in the middle of work on other files: what had been
made durable is there, and mounting again takes less than two seconds.

    nearly_full.py [--times 10] [--full 95] [--size 512M] [--seed 1] [--tree DIRECTORY]
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tarfile
import time

import compare
import volume

PIECE_BYTES = 64 << 10
LONGEST_MOUNT_S = 2.0
HERE = pathlib.Path(__file__).resolve().parent


def content(seed):
    return random.Random(seed).randbytes(PIECE_BYTES)


class Ballast:
    """Files whose contents are known: for each the seeds of its pieces."""

    def __init__(self, root, rng):
        self.root, self.rng, self.files = root / "ballast", rng, {}
        self.next_seed = rng.randrange(1 << 40)

    def seed(self):
        self.next_seed += 1
        return self.next_seed

    def fill(self, percent):
        """Makes files until the volume is so full."""
        self.root.mkdir()
        while used_percent(self.root) < percent:
            name = "file%d" % len(self.files)
            seeds = [self.seed() for _ in range(self.rng.randrange(1, 48))]
            with open(self.root / name, "wb", buffering=0) as file:
                for seed in seeds:
                    write_all(file, content(seed))
            self.files[name] = seeds

    def overwrite(self, share):
        """Writes over a share of all pieces, half of it in a tenth of the files."""
        names = list(self.files)
        hot = names[:max(1, len(names) // 10)]
        count = int(sum(map(len, self.files.values())) * share)
        for _ in range(count):
            name = self.rng.choice(hot if self.rng.random() < 0.5 else names)
            at = self.rng.randrange(len(self.files[name]))
            seed = self.seed()
            with open(self.root / name, "r+b", buffering=0) as file:
                file.seek(at * PIECE_BYTES)
                write_all(file, content(seed))
            self.files[name][at] = seed

    def differences(self):
        """What is not as it was written."""
        found = sorted(os.listdir(self.root))
        if found != sorted(self.files):
            yield "names: %s" % sorted(set(found) ^ self.files.keys())[:5]
        for name, seeds in self.files.items():
            try:
                data = (self.root / name).read_bytes()
            except OSError as error:
                yield "%s: %s" % (name, error)
                continue
            if data != b"".join(map(content, seeds)):
                yield "%s is not what was written to it" % name


def write_all(file, data):
    while data:
        data = data[file.write(data):]


def used_percent(path):
    figures = os.statvfs(path)
    return 100 * (1 - figures.f_bavail / figures.f_blocks)


def pack(tree, archive, most_bytes):
    """Packs as much of a tree as takes so many bytes when it is unpacked."""
    total = 0
    with tarfile.open(archive, "w") as packed:
        for directory, names, files in os.walk(tree):
            names.sort()
            for name in sorted(files):
                path = os.path.join(directory, name)
                # A block for what is short, and its name and i-node.
                total += os.lstat(path).st_size + 4096
                if total > most_bytes:
                    return
                packed.add(path, os.path.relpath(path, tree), recursive=False)


def unpack(archive, to):
    to.mkdir()
    volume.run("tar", "-x", "-f", archive, "-C", to, timeout_s=600)


def unpack_and_compare(disk, archive, original):
    """Unpacks, compares with what was unpacked elsewhere, and removes."""
    to = disk.root / "tree"
    unpack(archive, to)
    differences, _, _ = compare.compare(str(original), str(to), ignore_times=True)
    yield from ("unpacked: %s" % (difference,) for difference in differences[:3])
    shutil.rmtree(to)


def build_and_run(disk):
    """Builds a program of many files, and runs it."""
    where = disk.root / "build"
    where.mkdir()
    count = 20
    for number in range(count):
        (where / ("f%d.c" % number)).write_text("int f%d(void) { return %d; }\n" % (number, number))
    names = ["f%d" % number for number in range(count)]
    (where / "main.c").write_text(
        "#include <stdio.h>\n" + "".join("int %s(void);\n" % name for name in names)
        + 'int main(void) { printf("%d\\n", ' + " + ".join(name + "()" for name in names)
        + "); return 0; }\n")
    objects = " ".join(name + ".o" for name in names + ["main"])
    (where / "Makefile").write_text("all: %s\n\tcc -o all %s\n" % (objects, objects))
    volume.run("make", "-s", "-C", where, timeout_s=600)
    said = volume.run(where / "all").stdout.strip()
    if int(said) != count * (count - 1) // 2:
        yield "what was built said %r" % said
    shutil.rmtree(where)


def fsx(disk, seed):
    command = shutil.which("fsx") or str(pathlib.Path.home() / ".cargo/bin/fsx")
    if not os.path.exists(command):
        return
    file = disk.root / "fsx"
    done = volume.run(command, "-f", HERE / "fsx.toml", "-N", "500", "-S", seed, file,
                      check=False, timeout_s=600)
    if done.returncode != 0:
        yield "fsx: %s" % done.stderr.decode(errors="replace")[-200:]
    file.unlink(missing_ok=True)


def kill_in_the_middle(disk, archive, rng):
    """Kills the daemon while a tree is unpacked; answers how long mounting took."""
    to = disk.root / "tree"
    to.mkdir()
    worker = subprocess.Popen(
        ["tar", "-x", "-f", str(archive), "-C", str(to)], stderr=subprocess.DEVNULL)
    time.sleep(rng.random() * 0.6)
    disk.kill()
    worker.wait()
    volume.run("umount", "-l", disk.root, check=False)
    took_s = disk.mount()
    if to.exists():
        shutil.rmtree(to)
    return took_s


def written_bytes(disk):
    """Bytes that clients have written since the mount."""
    return json.loads(disk.dendro("stat", "--json", disk.image).stdout)["user_page_bytes"]


def work(disk, ballast, archive, original, rng, number):
    """One round; answers what is wrong."""
    ballast.overwrite(0.05)
    yield from unpack_and_compare(disk, archive, original)
    if shutil.which("cc") and shutil.which("make"):
        yield from build_and_run(disk)
    if number % 4 == 0:
        yield from fsx(disk, str(rng.randrange(1 << 30)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=float, default=10, help="how often its size is written")
    parser.add_argument("--full", type=float, default=95, help="per cent of it that live")
    parser.add_argument("--size", default="512M")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tree", default="/usr/include", help="of which a part is unpacked")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    failures, rounds, kills, before, slowest = 0, 0, 0, 0, 0.0
    with volume.scratch("nearly-full") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs()
        disk.mount()
        ballast = Ballast(disk.root, rng)
        ballast.fill(arguments.full)
        figures = os.statvfs(disk.root)
        archive, original = directory / "tree.tar", directory / "tree"
        pack(arguments.tree, archive, figures.f_bavail * figures.f_frsize // 3)
        unpack(archive, original)
        goal = arguments.times * figures.f_blocks * figures.f_frsize
        while before + written_bytes(disk) < goal:
            started = time.monotonic()
            complaints = list(work(disk, ballast, archive, original, rng, rounds))
            how = ""
            if rounds % 3 == 2:
                disk.dendro("sync", disk.root)
                before += written_bytes(disk)
                took_s = kill_in_the_middle(disk, archive, rng)
                slowest = max(slowest, took_s)
                kills += 1
                how = ", killed and mounted in %.2f s" % took_s
                if took_s > LONGEST_MOUNT_S:
                    complaints.append("mounting took %.2f s" % took_s)
                complaints += ballast.differences()
            if disk.info()["mount"]["read_only"] is not None:
                complaints.append("it has become read-only")
            print("round %d: %.1f%% full, %.1f times its size written; %.1f s%s" % (
                rounds, used_percent(disk.root), (before + written_bytes(disk)) / goal
                * arguments.times, time.monotonic() - started, how), flush=True)
            for complaint in complaints[:5]:
                print("    FAILED: " + complaint, flush=True)
            failures += bool(complaints)
            rounds += 1
        disk.umount()
        disk.mount()
        complaints = list(ballast.differences())
        for complaint in complaints[:5]:
            print("    FAILED: " + complaint)
        failures += bool(complaints) + bool(disk.panics())
        disk.umount()
        disk.discard()
    print("%d rounds, %d kills, slowest mount %.2f s, %d failed" % (
        rounds, kills, slowest, failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
