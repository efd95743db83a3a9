#!/usr/bin/env python3
"""How fast a file is read in order that was written in disorder.

A file is written by 4 KiB in a random order, and made durable. In each turn, with cold caches, it is
read in order by 1 MiB; so is the same file on ext4 on a loop device, where it lies in order. Beside
it, `fio` reads as much by 4 KiB at random from the volume's image, with direct I/O and 64 reads at a
time: so fast is the device where it finds each block by itself. Coalescing is off. Each line has
MiB/s, and medians of the ratios in the same turn.

    disorder.py [--mib 16,64,512] [--turns 5]
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import time

import volume

MIB = 1 << 20
PAGE = 4096


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def write_in_disorder(path, mib):
    pages = list(range(mib * MIB // PAGE))
    random.Random(mib).shuffle(pages)
    block = bytearray(os.urandom(PAGE))
    with open(path, "wb", buffering=0) as file:
        for page in pages:
            block[:8] = page.to_bytes(8, "little")
            os.pwrite(file.fileno(), block, page * PAGE)
        os.fsync(file.fileno())


def read_in_order(path, mib):
    """MiB/s. The contents are checked at the beginning of each page."""
    buffer = bytearray(MIB)
    began = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        for at in range(mib):
            count = file.readinto(buffer)
            first = int.from_bytes(buffer[:8], "little")
            if count != MIB or first != at * MIB // PAGE:
                raise volume.Failed("%s: wrong at MiB %d" % (path, at))
    return mib / (time.monotonic() - began)


def device_rate(image, mib):
    """MiB/s of reads at random, 64 at a time."""
    told = subprocess.run(
        ["fio", "--name=r", "--filename=%s" % image, "--rw=randread", "--bs=4k", "--iodepth=64",
         "--ioengine=io_uring", "--direct=1", "--size=%dM" % min(mib, 256), "--output-format=json"],
        check=True, capture_output=True, text=True).stdout
    return json.loads(told[told.index("{"):])["jobs"][0]["read"]["bw"] / 1024


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", default="16,64,512")
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    sizes = [int(text) for text in asked.mib.split(",")]
    size = "%dM" % (4 * max(sizes) + 1024)
    with volume.scratch("disorder") as work:
        ours = volume.Volume(work, size=size, name="disorder")
        other, other_root = work / "ext4.img", work / "ext4.mnt"
        other_root.mkdir()
        volume.run("truncate", "-s", size, other)
        volume.run("mkfs.ext4", "-q", other)
        try:
            ours.mkfs().mount("coalesce=off")
            volume.run("mount", "-o", "loop", other, other_root)
            for mib in sizes:
                write_in_disorder(ours.root / str(mib), mib)
                write_in_disorder(other_root / str(mib), mib)
            ours.umount()
            volume.run("umount", other_root)
            for mib in sizes:
                rates = {}

                def note(what, rate):
                    rates.setdefault(what, []).append(rate)

                for _ in range(asked.turns):
                    drop_caches()
                    ours.mount("coalesce=off")
                    note("dendrofs", read_in_order(ours.root / str(mib), mib))
                    ours.umount()
                    drop_caches()
                    volume.run("mount", "-o", "loop", other, other_root)
                    note("ext4, in order", read_in_order(other_root / str(mib), mib))
                    volume.run("umount", other_root)
                    if shutil.which("fio"):
                        drop_caches()
                        note("device, 4 KiB at random", device_rate(ours.image, mib))
                for what, found in rates.items():
                    ratios = [a / b for a, b in zip(rates["dendrofs"], found)]
                    print("%4d MiB  %-24s %7.0f MiB/s   dendrofs has %.2f of it" % (
                        mib, what, statistics.median(found), statistics.median(ratios)),
                        flush=True)
        finally:
            ours.discard()
            subprocess.run(["umount", other_root], check=False, capture_output=True)


if __name__ == "__main__":
    main()
