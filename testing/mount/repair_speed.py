#!/usr/bin/env python3
"""What a check, a rebuild and a scrub cost, as ratios within one run.

1. check: `dendro check` of a volume with many files, beside a plain sequential read of as many bytes
   as its map has, and beside `e2fsck -f -n` of the same tree on ext4.
2. rebuild: `dendro rebuild` of a volume that has lost its first 16 MiB, with `-n`, `--to` a new
   file, and in its place, beside one sequential pass over the image (dd iflag=direct). The image has
   no holes then, as a device has none: a pass over holes takes hardly any time. With less
   `--memory` it may refuse to begin, which is told.
3. scrub: how many rounds of create, write of 4 KiB and fsync a client makes, with a scrub at its
   default pace and without, by turns; and one of the volume when it is not mounted.

Page caches are dropped before each measurement, so it takes root. Of each command the peak of its
resident memory is told. Numbers are worth something on a machine that does nothing else.

    repair_speed.py [--files 1000000] [--size 16G] [--memory 64M] [--turns 5] [--seconds 4]
"""

import argparse
import json
import os
import subprocess
import sys
import time

import volume

FILES_OF_A_DIRECTORY = 500
COPY_BYTES = 1 << 20
# Where superblocks lie at the beginning: what is zeroed so that a rebuild has something to do.
LOST_BYTES = 16 << 20


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def measure(*arguments, ends=(0,)):
    """Runs a command with cold caches; answers seconds, peak of memory in MiB, and its output."""
    drop_caches()
    started = time.monotonic()
    child = subprocess.Popen([str(of) for of in arguments], stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT)
    said = child.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(child.pid, 0)
    took_s = time.monotonic() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in ends:
        raise volume.Failed("%s: exit code %d: %s" % (arguments, child.returncode, said[-2000:]))
    return took_s, usage.ru_maxrss / 1024, said


def read_through(path, len_bytes):
    """Seconds for a sequential read of so many bytes of a file with data, past the page cache."""
    blocks = max(1, len_bytes // COPY_BYTES)
    return measure("dd", "if=%s" % path, "of=/dev/null", "bs=1M", "iflag=direct", "count=%d" % blocks)[0]


def fill_holes(path):
    """Writes zeros where a file has holes."""
    zeros = bytes(COPY_BYTES)
    with open(path, "r+b", buffering=0) as file:
        end = os.path.getsize(path)
        at = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        while at < end:
            try:
                data = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                data = end
            while at < data:
                at += os.pwrite(file.fileno(), zeros[:data - at], at)
            at = os.lseek(file.fileno(), at, os.SEEK_HOLE) if at < end else end


def make_tree(root, count):
    for number in range(count):
        if number % FILES_OF_A_DIRECTORY == 0:
            directory = os.path.join(root, "d%d" % (number // FILES_OF_A_DIRECTORY))
            os.mkdir(directory)
        with open(os.path.join(directory, "file%d" % number), "wb") as file:
            file.write(b"%d" % number)


def tell(name, took_s, memory_mib, beside=()):
    ratios = "".join("; %.2f times %s (%.1f s)" % (took_s / other, what, other)
                     for what, other in beside if other)
    print("%s: %.1f s, %.0f MiB%s" % (name, took_s, memory_mib, ratios), flush=True)


def ext4_check(directory, arguments):
    """Seconds and memory of e2fsck of the same tree on ext4."""
    image, root = directory / "ext4.img", directory / "ext4.mnt"
    root.mkdir()
    with open(image, "wb") as file:
        file.truncate(size_bytes(arguments.size))
    volume.run("mkfs.ext4", "-q", "-N", str(arguments.files * 5 // 4 + 10_000), image, timeout_s=600)
    volume.run("mount", "-o", "loop", image, root)
    try:
        make_tree(root, arguments.files)
    finally:
        volume.run("umount", root, timeout_s=600)
    took_s, memory_mib, _ = measure("e2fsck", "-f", "-n", image)
    image.unlink()
    return took_s, memory_mib


def size_bytes(text):
    return int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]


def map_len_bytes(image):
    done = volume.run(volume.command(), "check", "--json", image, timeout_s=3000)
    nodes = volume.run(volume.command(), "dump", "--json", image, "nodes", timeout_s=3000).stdout
    places = [json.loads(line)["node"]["place"] for line in nodes.splitlines() if b'"node"' in line]
    return json.loads(done.stdout)["counts"], sum(place["len_bytes"] for place in places)


def client_rounds(root, seconds, turn):
    """Rounds of create, write and fsync within so many seconds."""
    page, rounds = os.urandom(4096), 0
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        path = os.path.join(root, "client%d-%d" % (turn, rounds))
        descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
        os.write(descriptor, page)
        os.fsync(descriptor)
        os.close(descriptor)
        rounds += 1
    return rounds


def scrub_cost(disk, arguments):
    """Rounds of a client without a scrub and with one, by turns."""
    disk.mount()
    totals = {False: 0, True: 0}
    beside = 0
    for turn in range(2 * arguments.turns):
        with_scrub = turn % 2 == 1
        drop_caches()
        if with_scrub:
            disk.dendro("scrub", "start", disk.root, check=False)
        totals[with_scrub] += client_rounds(disk.root, arguments.seconds, turn)
        if with_scrub:
            done = json.loads(disk.dendro("scrub", "status", "--json", disk.root).stdout)
            beside += done.get("state") == "running"
            disk.dendro("scrub", "cancel", disk.root, check=False)
    disk.umount()
    print("scrub: a client makes %d rounds with it, %d without: %.3f of that; it ran to the end of %d "
          "turns of %d" % (totals[True], totals[False], totals[True] / max(1, totals[False]), beside,
                           arguments.turns))


def run(arguments):
    with volume.scratch("repair-speed") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs()
        disk.mount()
        make_tree(disk.root, arguments.files)
        disk.umount()
        counts, map_bytes = map_len_bytes(disk.image)
        print("%d lists, map of %.0f MiB, %.0f MiB live" % (
            counts["list_count"], map_bytes / 2**20, counts["live_bytes"] / 2**20), flush=True)
        copy = directory / "sequential"
        volume.run("dd", "if=/dev/urandom", "of=%s" % copy, "bs=1M",
                   "count=%d" % max(1, map_bytes // COPY_BYTES), timeout_s=3000)
        reading = read_through(copy, map_bytes)
        copy.unlink()
        beside = [("a sequential read of the map's length", reading)]
        if not arguments.no_ext4:
            took_s, memory_mib = ext4_check(directory, arguments)
            tell("e2fsck -f", took_s, memory_mib)
            beside.append(("e2fsck -f", took_s))
        command = volume.command()
        for options in ([], ["--memory", arguments.memory]):
            took_s, memory_mib, _ = measure(command, "check", *options, disk.image)
            tell(" ".join(["check", *options]), took_s, memory_mib, beside)
        scrub_cost(disk, arguments)
        for options in ([], ["--memory", "8M"]):
            took_s, memory_mib, _ = measure(command, "scrub", *options, disk.image)
            tell(" ".join(["scrub", *options]), took_s, memory_mib)
        with open(disk.image, "r+b") as file:
            file.write(bytes(LOST_BYTES))
        fill_holes(disk.image)
        bounds = [["-n", "--memory", bound] for bound in ("64M", "128M", "256M", "512M", "1G")]
        for options in (["-n"], *bounds, ["--to", directory / "rebuilt.img"], []):
            passing = read_through(disk.image, os.path.getsize(disk.image))
            took_s, memory_mib, said = measure(
                command, "rebuild", *options, disk.image, ends=(0, 1, 4, 8))
            name = " ".join(["rebuild", *map(str, options)])
            if "--memory" in said:
                print("%s: refused after %.1f s, %.0f MiB" % (name, took_s, memory_mib), flush=True)
                continue
            tell(name, took_s, memory_mib, [("a sequential pass over the image", passing)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--size", default="16G")
    parser.add_argument("--memory", default="64M", help="the memory of a second check")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--no-ext4", action="store_true")
    run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
