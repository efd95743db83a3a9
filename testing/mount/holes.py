#!/usr/bin/env python3
"""What fsync costs on an image of holes, beside one that was written from one end to the other.

Three volumes take turns: `discard=online` and `discard` on images of holes, and `nodiscard` on an
image of zeros. The operations, each with fsync: appends of 4 KiB, overwrites of 4 KiB at random in
32 MiB, and new files of 1 KiB. With `--stir`, so many MiB are written and removed before, twice, so
that the log has been there; with 0 all begin on holes, and `--rest` gives idle times. Each line has
the rates, and the medians of their ratios to the written image's in the same turn.

    holes.py [--size 2G] [--stir 300] [--turns 15] [--seconds 0.7] [--rest 0]
"""

import argparse
import os
import random
import statistics
import time

import volume

MIB = 1 << 20
OVERWRITTEN_BLOCKS = 8192
BASE = "written"
OPTIONS = {"online": "discard=online", "batched": "discard", BASE: "nodiscard"}


def rate(seconds, step):
    """How often a second `step` does, which takes the number of the call."""
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        step(count)
        count += 1
    return count / (time.monotonic() - began)


def append(root, seconds):
    block = os.urandom(4096)
    path = root / "appended"
    with open(path, "wb", buffering=0) as file:
        found = rate(seconds, lambda _: (file.write(block), os.fsync(file.fileno())))
    path.unlink()
    return found


def overwrite(root, seconds):
    path = root / "overwritten"
    if not path.exists():
        path.write_bytes(os.urandom(OVERWRITTEN_BLOCKS * 4096))
    block = os.urandom(4096)
    with open(path, "r+b", buffering=0) as file:
        os.fsync(file.fileno())

        def step(_):
            os.pwrite(file.fileno(), block, random.randrange(OVERWRITTEN_BLOCKS) * 4096)
            os.fsync(file.fileno())

        return rate(seconds, step)


def create(root, seconds):
    data = os.urandom(1024)

    def step(number):
        with open(root / ("new-%d" % number), "wb", buffering=0) as file:
            file.write(data)
            os.fsync(file.fileno())

    found = rate(seconds, step)
    for path in root.glob("new-*"):
        path.unlink()
    return found


def stir(root, mib):
    for _ in range(2):
        with open(root / "stirred", "wb") as file:
            for _ in range(mib):
                file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())
        (root / "stirred").unlink()
        time.sleep(1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="2G")
    parser.add_argument("--stir", type=int, default=300, metavar="MIB")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--rest", type=float, default=0, help="idle seconds before each operation")
    given = parser.parse_args()
    with volume.scratch("holes") as directory:
        volumes = {}
        for name, options in OPTIONS.items():
            of = volumes[name] = volume.Volume(directory, size=given.size, name=name).mkfs()
            if name == BASE:
                with open(of.image, "r+b") as file:
                    for at in range(0, os.stat(of.image).st_size, MIB):
                        file.seek(at)
                        file.write(bytes(MIB))
                    os.fsync(file.fileno())
                of.dendro("mkfs", "--force", "--nodiscard", of.image)
            of.mount(options)
            stir(of.root, given.stir)
        os.sync()
        operations = (append, overwrite, create)
        rates = {(operation, name): [] for operation in operations for name in volumes}
        for _ in range(given.turns):
            for operation in operations:
                for name, of in volumes.items():
                    time.sleep(given.rest)
                    rates[operation, name].append(operation(of.root, given.seconds))
        for operation in operations:
            line = "%-10s" % operation.__name__
            for name in volumes:
                found, base = rates[operation, name], rates[operation, BASE]
                ratio = statistics.median(one / other for one, other in zip(found, base))
                line += "  %s %6.0f/s %.2f" % (name, statistics.median(found), ratio)
            print(line, flush=True)
        for name, of in volumes.items():
            mib = os.stat(of.image).st_blocks * 512 // MIB
            of.umount()
            print("%s: %d MiB, unmounted %d" % (
                name, mib, os.stat(of.image).st_blocks * 512 // MIB))


if __name__ == "__main__":
    main()
