#!/usr/bin/env python3
"""fsx (random operations on one file, everything read back) with several seeds at a time, through
unmounting and kill -9.

    cargo install fsx
    fsx.py [--operations 1000000] [--round 20000] [--seeds 1,2,3] [--options OPTIONS] [--size 4G]

The operations of a seed are done in rounds, as fsx (0.3) leaves a mapping behind with each read of one:
after tens of thousands of them truncating takes it milliseconds, and then there are no more to be had.
Between two rounds the volume is left alone, unmounted and mounted, or its daemon killed after fsync, in
turn; the files must be the same afterwards.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time

import volume


def checksum(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_durable(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def interlude(disk, number, options, paths):
    """What happens to the volume after a round."""
    if number % 3 == 1:
        disk.umount()
        disk.mount(options)
    elif number % 3 == 2:
        for path in paths:
            make_durable(path)
        disk.kill()
        volume.run("umount", "-l", disk.root, check=False)
        disk.mount(options)


def play(disk, number, arguments, artifacts):
    """One round of all seeds; answers what went wrong."""
    count = min(arguments.round, arguments.operations - number * arguments.round)
    players = {}
    for seed in arguments.seeds:
        command = ["fsx", "-q", "-f", volume.HERE / "fsx.toml", "-N", str(count),
                   "-S", str(seed * 1_000_003 + number), "-P", artifacts, disk.root / ("fsx-%d" % seed)]
        players[seed] = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT)
    complaints = []
    for seed, player in players.items():
        output, _ = player.communicate(timeout=1800)
        if player.returncode != 0:
            text = output.decode(errors="replace")[-3000:]
            complaints.append("seed %d, round %d: %s" % (seed, number, text))
    paths = [disk.root / ("fsx-%d" % seed) for seed in arguments.seeds]
    before = [checksum(path) for path in paths]
    interlude(disk, number, arguments.options, paths)
    for seed, path, old in zip(arguments.seeds, paths, before):
        if checksum(path) != old:
            complaints.append("seed %d has another file after round %d" % (seed, number))
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--round", type=int, default=20_000)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--options", default="")
    parser.add_argument("--size", default="4G")
    arguments = parser.parse_args()
    arguments.seeds = [int(seed) for seed in arguments.seeds.split(",")]
    if not shutil.which("fsx"):
        print("left out: fsx is not installed (cargo install fsx)")
        return 0
    failures = 0
    with volume.scratch("fsx") as directory:
        artifacts = directory / "artifacts"
        artifacts.mkdir()
        disk = volume.Volume(directory, arguments.size).mkfs()
        disk.mount(arguments.options)
        started = time.monotonic()
        for number in range(-(-arguments.operations // arguments.round)):
            complaints = play(disk, number, arguments, artifacts)
            for complaint in complaints:
                failures += 1
                print("FAILED: %s" % complaint, flush=True)
            if complaints:
                break
        else:
            print("fsx, seeds %s: %d operations each in %.0f s" % (
                arguments.seeds, arguments.operations, time.monotonic() - started))
        disk.umount()
        for line in disk.panics():
            failures += 1
            print("FAILED: %s" % line)
        disk.discard()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
