#!/usr/bin/env python3
"""How fast `dendro send` reads and `dendro receive` writes, beside the device and `btrfs send`.

A volume gets files of 64 MiB and of 4 KiB with random bytes, and a snapshot. In each turn, with
cold caches: a sequential read of the image's data with direct I/O, and the snapshot sent through a
pipe; a sequential write of the stream with direct I/O and fsync, and the stream received into a new
volume. Where there is mkfs.btrfs, and as root, the same files are sent from and received into btrfs
on a loop device. Each line has MiB/s, and medians of the ratios to the device in the same turn.

    stream_speed.py [--mib 2560] [--small 20000] [--turns 5]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import time

import volume

MIB = 1 << 20
LARGE_MIB = 64


def timed(work):
    began = time.monotonic()
    work()
    return time.monotonic() - began


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3")


def shell(line):
    subprocess.run(["bash", "-o", "pipefail", "-c", line], check=True, stderr=subprocess.DEVNULL)


def fill(root, mib, small):
    for number in range(mib // LARGE_MIB):
        with open(root / ("large-%d" % number), "wb") as file:
            for _ in range(LARGE_MIB):
                file.write(os.urandom(MIB))
    for number in range(small):
        directory = root / ("small-%d" % (number // 1000))
        directory.mkdir(exist_ok=True)
        (directory / str(number)).write_bytes(os.urandom(4096))


class Btrfs:
    """The files of a directory on btrfs, as a stream."""

    def __init__(self, work, source, size):
        self.root, self.image, self.size = work / "btrfs.mnt", work / "btrfs.img", size
        self.root.mkdir()
        self.make()
        volume.run("btrfs", "subvolume", "create", self.root / "files")
        volume.run("cp", "-a", "%s/." % source, self.root / "files", timeout_s=600)
        volume.run("btrfs", "subvolume", "snapshot", "-r", self.root / "files", self.root / "sent")
        self.kept = work / "btrfs-sent.img"
        volume.run("umount", self.root)
        self.image.rename(self.kept)

    def make(self):
        volume.run("truncate", "-s", self.size, self.image)
        volume.run("mkfs.btrfs", "-q", self.image)
        volume.run("mount", "-o", "loop", self.image, self.root)

    def send(self, stream):
        volume.run("mount", "-o", "loop", self.kept, self.root)
        try:
            drop_caches()
            took = timed(lambda: shell("btrfs send %s/sent | cat > /dev/null" % self.root))
            if not stream.exists():
                shell("btrfs send %s/sent > %s" % (self.root, stream))
            return took
        finally:
            volume.run("umount", self.root)

    def receive(self, stream):
        self.image.unlink(missing_ok=True)
        self.make()
        try:
            return timed(lambda: shell("btrfs receive %s < %s && sync -f %s" % (
                self.root, stream, self.root)))
        finally:
            volume.run("umount", self.root)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=2560)
    parser.add_argument("--small", type=int, default=20000)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    size = "%dM" % (2 * asked.mib + 1024)
    # Streams lie in memory, so that only the volumes are on the device.
    memory = volume.pathlib.Path("/dev/shm")
    stream, other = memory / "dendro-stream-speed", memory / "dendro-stream-speed-btrfs"
    with volume.scratch("stream") as work:
        source = volume.Volume(work, size=size, name="source")
        target = volume.Volume(work, size=size, name="target")
        try:
            source.mkfs().mount()
            fill(source.root, asked.mib, asked.small)
            source.dendro("snapshot", "create", "%s@sent" % source.root)
            has_btrfs = shutil.which("mkfs.btrfs") and os.geteuid() == 0
            btrfs = Btrfs(work, source.root, size) if has_btrfs else None
            source.umount()
            dendro = volume.command()
            shell("%s send %s@sent > %s" % (dendro, source.image, stream))
            mib = stream.stat().st_size / MIB
            rates = {}

            def note(what, took):
                rates.setdefault(what, []).append(mib / took)

            for _ in range(asked.turns):
                drop_caches()
                note("read", timed(lambda: shell("dd if=%s of=/dev/null bs=1M iflag=direct count=%d"
                                                 % (source.image, mib))))
                drop_caches()
                note("send", timed(lambda: shell("%s send %s@sent | cat > /dev/null"
                                                 % (dendro, source.image))))
                written = work / "written"
                note("write", timed(lambda: shell("dd if=%s of=%s bs=1M oflag=direct conv=fsync"
                                                  % (stream, written))))
                written.unlink()
                target.mkfs()
                note("receive", timed(lambda: shell("%s receive %s < %s"
                                                    % (dendro, target.image, stream))))
                target.image.unlink()
                if btrfs:
                    note("btrfs send", btrfs.send(other))
                    note("btrfs receive", btrfs.receive(other))
            for what, beside in [("send", "read"), ("btrfs send", "read"), ("receive", "write"),
                                 ("btrfs receive", "write")]:
                if what in rates:
                    ratios = [a / b for a, b in zip(rates[what], rates[beside])]
                    print("%-14s %6.0f MiB/s, device %6.0f: %.2f (%.2f to %.2f)" % (
                        what, statistics.median(rates[what]), statistics.median(rates[beside]),
                        statistics.median(ratios), min(ratios), max(ratios)))
        finally:
            source.discard()
            target.discard()
            stream.unlink(missing_ok=True)
            other.unlink(missing_ok=True)


if __name__ == "__main__":
    main()
