#!/usr/bin/env python3
"""A volume on two devices, one of which is lost, returns, and takes the other's place.

Writers write files and fsync them all the time; what was fsynced is known by its checksum.

1. One device is taken offline, a twentieth of the volume is written, and the device is added again.
   Less than a tenth of it is copied. Then the other one is taken offline: everything is there.
2. The daemon is killed with kill -9 while a device is brought up, and the volume is mounted on the
   device that has everything, and on both. What was fsynced is there.
3. A volume moves from an image to a loop device and back, with a kill -9 on the way (needs root).

    devices.py [--size 512M] [--rounds 3] [--seed 1]
"""

import argparse
import hashlib
import json
import os
import random
import threading
import time

import volume


class Writers:
    """Threads that write files and fsync them."""

    def __init__(self, root, seed, count=2):
        self.root, self.known, self.may, self.lock = root, {}, {}, threading.Lock()
        self.stop, self.threads = threading.Event(), []
        for number in range(count):
            rng = random.Random("%s %d" % (seed, number))
            self.threads.append(threading.Thread(target=self.write, args=(number, rng)))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def write(self, number, rng):
        while not self.stop.is_set():
            name = "w%d-%d" % (number, rng.randrange(40))
            data = rng.randbytes(rng.randrange(1, 200_000))
            try:
                with open(self.root / (name + ".new"), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                digest = hashlib.sha256(data).hexdigest()
                with self.lock:
                    self.may[name] = digest
                    os.rename(self.root / (name + ".new"), self.root / name)
                    directory = os.open(self.root, os.O_RDONLY)
                    os.fsync(directory)
                    os.close(directory)
                    self.known[name] = digest
            except OSError:
                # The daemon was killed.
                self.stop.set()

    def verify(self):
        for name, digest in self.known.items():
            found = hashlib.sha256((self.root / name).read_bytes()).hexdigest()
            # A rename that was not acknowledged may have happened.
            if found not in (digest, self.may[name]):
                raise volume.Failed("%s is not as it was fsynced" % name)


def devices(of):
    return json.loads(of.dendro("device", "list", "--json", of.root).stdout)


def wait_in_sync(of):
    for _ in range(300):
        if all(one["state"] == "in_sync" for one in devices(of)["devices"]):
            return
        time.sleep(0.1)
    raise volume.Failed("not all devices come in sync: %s" % devices(of))


def kill_daemon(of):
    info = json.loads(of.dendro("info", "--json", of.root).stdout)
    volume.kill_and_wait(info["mount"]["pid"])
    volume.run("umount", "-l", of.root)


def lose_and_return(of, other, rng):
    """Part 1."""
    size = os.path.getsize(of.image)
    with open(of.root / "large", "wb") as file:
        for _ in range(size // 2 >> 20):
            file.write(rng.randbytes(1 << 20))
    of.dendro("sync", of.root)
    with Writers(of.root, rng.random()) as writers:
        time.sleep(1)
    of.dendro("device", "offline", of.root, other)
    with open(of.root / "large", "r+b") as file:
        for _ in range(size // 20 >> 16):
            file.seek(rng.randrange(size // 2 >> 16) << 16)
            file.write(rng.randbytes(1 << 16))
    of.dendro("sync", of.root)
    added = json.loads(
        of.dendro("device", "add", "--no-wait", "--json", of.root, other).stdout)
    share = added["left_to_copy_bytes"] / size
    print("after 5 %% was written anew, %.1f %% are copied" % (100 * share))
    with Writers(of.root, rng.random()) as during:
        wait_in_sync(of)
    digest = hashlib.sha256((of.root / "large").read_bytes()).hexdigest()
    of.dendro("device", "offline", of.root, of.image)
    of.dendro("umount", of.root)
    of.image, kept = other, of.image
    os.rename(kept, str(kept) + ".away")
    of.mount("nofuseblk,degraded")
    if hashlib.sha256((of.root / "large").read_bytes()).hexdigest() != digest:
        raise volume.Failed("the large file differs")
    for one in (during, writers):
        one.known = {name: of_it for name, of_it in one.known.items()
                     if one is during or name not in during.known}
        one.verify()
    of.dendro("umount", of.root)
    os.rename(str(kept) + ".away", kept)
    of.mount("nofuseblk")
    wait_in_sync(of)
    return share


def kill(of, other, rng):
    """Part 2."""
    of.dendro("device", "offline", of.root, other)
    with Writers(of.root, rng.random()) as writers:
        time.sleep(0.5)
        of.dendro("device", "add", "--no-wait", of.root, other)
        time.sleep(rng.random())
        kill_daemon(of)
    for _ in range(2):
        of.mount("nofuseblk")
        writers.verify()
        wait_in_sync(of)
        of.dendro("umount", of.root)
    of.dendro("check", "--data", other)
    of.mount("nofuseblk")


def migrate(of, rng):
    """Part 3."""
    size = os.path.getsize(of.image)
    backing = of.directory / "loop.backing"
    with open(backing, "wb") as file:
        file.truncate(size)
    loop = volume.run("losetup", "-f", "--show", backing).stdout.decode().strip()
    try:
        for there in (loop, of.image):
            with Writers(of.root, rng.random()) as writers:
                of.dendro("migrate", "--force", "--no-wait", of.root, there)
                time.sleep(rng.random() / 2)
                kill_daemon(of)
            source = of.image if there == loop else loop
            image, of.image = of.image, source
            of.mount("nofuseblk")
            of.image = image
            writers.verify()
            with Writers(of.root, rng.random()) as more:
                wait_in_sync(of)
                # The old device leaves a moment later.
                for _ in range(100):
                    if len(devices(of)["devices"]) == 1:
                        break
                    time.sleep(0.1)
            listed = devices(of)
            if listed["source"] != str(there) or len(listed["devices"]) != 1:
                raise volume.Failed("it is not on %s: %s" % (there, listed))
            more.verify()
        of.dendro("umount", of.root)
        of.dendro("check", "--data", of.image)
    finally:
        volume.run("losetup", "-d", loop, check=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="512M")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with volume.scratch("devices") as directory:
        of = volume.Volume(directory, arguments.size)
        other = of.directory / "other.img"
        of.dendro("mkfs", "--force", "--size", of.size, "--copies", "2", of.image, other)
        of.mount("nofuseblk")
        share = lose_and_return(of, other, rng)
        first, second = of.directory / "disk.img", of.directory / "other.img"
        of.image = first
        for _ in range(arguments.rounds):
            kill(of, second, rng)
        if os.geteuid() == 0:
            of.dendro("device", "remove", of.root, second)
            migrate(of, rng)
        else:
            of.dendro("umount", of.root)
        if share >= 0.1:
            raise volume.Failed("too much is copied")
    print("all held")


if __name__ == "__main__":
    main()
