#!/usr/bin/env python3
"""Unmodified file systems on block devices of a volume, whose server is killed.

    sudo testing/nbd/filesystems.py [--kinds ext4,xfs] [--kills 10] [--seed N] [DENDRO]
    sudo testing/nbd/filesystems.py --planted [--kinds ext4] [DENDRO]
    sudo testing/nbd/filesystems.py --speed [--rounds 3] [DENDRO]

Each kind that mkfs and the kernel have is put on an export of `dendro nbd`, through nbdfuse and a
loop device. Threads create, overwrite, rename and remove files there and note what fsync has
returned for. At a random moment the server is killed with SIGKILL. After its restart the file
system is mounted, which replays its log; then all that was fsynced must be there, and the checker
of the file system must find nothing wrong.

--planted puts the volume back to what it was before the work of the second round, which loses what
was fsynced since, and fails unless that is found.

--speed measures random writes of 4 KiB and fsyncs of ext4 there, beside ext4 on a raw image on the
same disk: on a loop device, and through nbdkit and nbdfuse, which is the same way.

DENDRO is the command, by default target/release/dendro. Debian has the rest in libnbd-bin, fuse3,
e2fsprogs, xfsprogs, btrfs-progs, util-linux; for --speed fio and nbdkit.
"""

import argparse
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

BLOCK_BYTES = 4096
SIZE = "768M"

# How each is made and checked. A checker finds nothing wrong if it exits with 0.
KINDS = {
    "ext4": (["mkfs.ext4", "-q", "-F"], ["e2fsck", "-f", "-n"]),
    "xfs": (["mkfs.xfs", "-q", "-f"], ["xfs_repair", "-n"]),
    "btrfs": (["mkfs.btrfs", "-q", "-f"], ["btrfs", "check", "--readonly"]),
    "minix": (["mkfs.minix", "-3"], ["fsck.minix", "-f"]),
}
# It has no log: what a crash leaves is mended before it is mounted. Exit status 3 and 7 say so.
MENDERS = {"minix": ["fsck.minix", "-a"]}


def run(*command, **options):
    """Runs a command, which must succeed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(
            f"FAILED: {' '.join(map(str, command))}: {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


def wait_for(condition, what):
    """Waits until something is so."""
    for _ in range(400):
        if condition():
            return
        time.sleep(0.05)
    sys.exit(f"FAILED: {what}")


class Device:
    """A block device that an NBD server exports, as a loop device through nbdfuse."""

    def __init__(self, scratch, uri):
        self.fuse, self.uri = scratch / "fuse", uri
        self.client = self.loop = None

    def attach(self):
        self.fuse.mkdir(exist_ok=True)
        # It complains when its server is gone.
        self.client = subprocess.Popen(["nbdfuse", self.fuse, self.uri], stderr=subprocess.DEVNULL)
        wait_for((self.fuse / "nbd").exists, "nbdfuse does not begin")
        self.loop = run("losetup", "--find", "--show", self.fuse / "nbd").strip()
        return self.loop

    def detach(self):
        if self.loop:
            subprocess.run(["losetup", "--detach", self.loop], stderr=subprocess.DEVNULL)
        if self.client:
            subprocess.run(["fusermount3", "-uz", self.fuse], stderr=subprocess.DEVNULL)
            self.client.terminate()
            self.client.wait()
        self.client = self.loop = None


class Server:
    """`dendro nbd` of a volume."""

    def __init__(self, dendro, volume, scratch):
        self.command = [dendro, "nbd", "--json", "--socket", scratch / "socket", volume]
        self.socket, self.process = scratch / "socket", None

    def uri(self, name):
        return f"nbd+unix:///{name}?socket={self.socket}"

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith("}"):
                return
        sys.exit("FAILED: the server does not begin")

    def end(self, how):
        if self.process:
            self.process.send_signal(how)
            self.process.wait()
            self.process.stdout.close()
        self.process = None


class Worker(threading.Thread):
    """Changes files in a directory of its own, and knows what must be there.

    `allowed` has for each name the set of what it may be after a crash: None for no file, or a
    tuple of a version for each block. Once fsync has returned, that is one alone. Blocks are
    written whole, so each is as it was at one of its versions: `blocks` has those of a file that
    is being overwritten.
    """

    def __init__(self, directory, seed):
        super().__init__(daemon=True)
        self.directory, self.random = directory, random.Random(seed)
        self.allowed, self.blocks = {}, {}
        self.versions, self.names = iter(range(1 << 60)), iter(range(1 << 60))
        self.is_ending = threading.Event()
        self.is_killed = threading.Event()
        self.fsync_count = 0

    @staticmethod
    def block(name, index, version):
        """The bytes of a block."""
        line = f"{name} block {index} version {version}\n".encode()
        return (line * (BLOCK_BYTES // len(line) + 1))[:BLOCK_BYTES]

    def sync_directory(self):
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
        self.note_durable()

    def note_durable(self):
        """Notes that a sync has returned. After the kill that says nothing: the journal of the file
        system is aborted then, and what is in no journal need not make the sync fail."""
        if self.is_killed.is_set():
            raise OSError("the server is being killed")
        self.fsync_count += 1

    def write_new(self, path, name):
        """Writes a new file and makes its contents durable. Returns the versions of its blocks."""
        versions = tuple(next(self.versions) for _ in range(self.random.randint(1, 48)))
        with open(path, "wb") as file:
            for index, version in enumerate(versions):
                file.write(self.block(name, index, version))
            file.flush()
            os.fsync(file.fileno())
        self.fsync_count += 1
        return versions

    def create(self):
        name = f"file-{next(self.names)}"
        path = os.path.join(self.directory, name)
        # Until its name is durable, it may be of any length.
        self.allowed[name] = None
        versions = self.write_new(path, name)
        self.sync_directory()
        self.allowed[name] = {versions}

    def replace(self, name):
        temporary = os.path.join(self.directory, "temporary")
        versions = self.write_new(temporary, name)
        self.allowed[name] = self.allowed[name] | {versions}
        os.rename(temporary, os.path.join(self.directory, name))
        self.sync_directory()
        self.allowed[name] = {versions}

    def overwrite(self, name):
        (versions,) = self.allowed[name]
        changed = list(versions)
        self.blocks[name] = [{version} for version in versions]
        with open(os.path.join(self.directory, name), "r+b") as file:
            for _ in range(self.random.randint(1, 8)):
                index = self.random.randrange(len(changed))
                changed[index] = next(self.versions)
                self.blocks[name][index].add(changed[index])
                file.seek(index * BLOCK_BYTES)
                file.write(self.block(name, index, changed[index]))
            file.flush()
            os.fdatasync(file.fileno())
        self.note_durable()
        self.allowed[name] = {tuple(changed)}
        del self.blocks[name]

    def remove(self, name):
        self.allowed[name] = self.allowed[name] | {None}
        os.unlink(os.path.join(self.directory, name))
        self.sync_directory()
        del self.allowed[name]

    def disturb(self):
        """Changes of which nothing is noted, and nothing is fsynced."""
        litter = os.path.join(self.directory, "litter")
        shutil.rmtree(litter, ignore_errors=True)
        for number in range(self.random.randint(1, 30)):
            inside = os.path.join(litter, str(number % 5))
            os.makedirs(inside, exist_ok=True)
            with open(os.path.join(inside, f"{number}"), "wb") as file:
                file.write(os.urandom(self.random.randint(0, 30_000)))
            if number % 3 == 0:
                os.rename(os.path.join(inside, f"{number}"), os.path.join(litter, f"r-{number}"))

    def run(self):
        try:
            while not self.is_ending.is_set():
                names = list(self.allowed)
                choice = self.random.random()
                if len(names) < 5 or (choice < 0.3 and len(names) < 60):
                    self.create()
                elif choice < 0.5:
                    self.replace(self.random.choice(names))
                elif choice < 0.8:
                    self.overwrite(self.random.choice(names))
                elif choice < 0.9:
                    self.remove(self.random.choice(names))
                else:
                    self.disturb()
        except OSError:
            # The server was killed.
            pass

    def found(self, name):
        """The bytes of a file, in blocks; None if there is none."""
        try:
            data = Path(self.directory, name).read_bytes()
        except FileNotFoundError:
            return None
        return [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]

    def check(self):
        """Looks whether all is there that must be, and begins anew with what is there."""
        wrong, known = [], {}
        for name, allowed in self.allowed.items():
            blocks = self.found(name)
            if allowed is None:
                # It was being created.
                Path(self.directory, name).unlink(missing_ok=True)
                continue
            if name in self.blocks:
                allowed_blocks = self.blocks[name]
                versions = []
                for index, of in enumerate(allowed_blocks):
                    here = blocks[index] if blocks and index < len(blocks) else None
                    versions += [v for v in of if self.block(name, index, v) == here][:1]
                is_right = blocks is not None and len(blocks) == len(versions) == len(
                    allowed_blocks
                )
            else:
                fitting = [
                    of
                    for of in allowed
                    if (None if of is None else [self.block(name, *b) for b in enumerate(of)])
                    == blocks
                ]
                is_right = bool(fitting)
                versions = fitting[0] if fitting else None
            if not is_right:
                wrong.append(f"{self.directory}/{name}")
            elif versions is not None:
                known[name] = {tuple(versions)}
        self.allowed, self.blocks = known, {}
        return wrong

    def again(self, seed):
        """Another one that goes on."""
        next_one = Worker(self.directory, seed)
        next_one.allowed, next_one.versions, next_one.names = (
            self.allowed,
            self.versions,
            self.names,
        )
        return next_one


def mount(loop, place):
    """Mounts it; False if the kernel does not have that kind."""
    place.mkdir(exist_ok=True)
    return subprocess.run(["mount", loop, place], capture_output=True).returncode == 0


def unmount(place):
    if subprocess.run(["umount", place], capture_output=True).returncode != 0:
        subprocess.run(["umount", "-l", place], capture_output=True)


def check_unmounted(kind, loop):
    command = [*KINDS[kind][1], loop]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"FAILED: {' '.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}")


class Campaign:
    """One kind of file system, and the kills under it."""

    def __init__(self, kind, server, scratch, seed):
        self.kind, self.server = kind, server
        self.random = random.Random(f"{seed} {kind}")
        self.device = Device(scratch, server.uri(kind))
        self.place = scratch / "mounted"
        self.workers = []

    def prepare(self):
        """Makes the file system. Returns whether the kernel has it."""
        loop = self.device.attach()
        run(*KINDS[self.kind][0], loop)
        is_there = mount(loop, self.place)
        if is_there:
            for number in range(3):
                directory = self.place / str(number)
                directory.mkdir()
                self.workers.append(Worker(str(directory), self.random.random()))
            run("sync", "-f", self.place)
            unmount(self.place)
        self.device.detach()
        return is_there

    def kill_once(self, plant=lambda: None):
        """Works, kills the server, and looks at what is left, after `plant` has changed it. Returns
        what is wrong."""
        loop = self.device.attach()
        if not mount(loop, self.place):
            sys.exit(f"FAILED: {self.kind} does not mount")
        for worker in self.workers:
            worker.start()
        time.sleep(self.random.uniform(0.5, 3))
        for worker in self.workers:
            worker.is_killed.set()
        self.server.end(signal.SIGKILL)
        for worker in self.workers:
            worker.is_ending.set()
        for worker in self.workers:
            worker.join()
        fsync_count = sum(worker.fsync_count for worker in self.workers)
        unmount(self.place)
        self.device.detach()
        plant()

        self.server.start()
        loop = self.device.attach()
        if self.kind in MENDERS:
            subprocess.run([*MENDERS[self.kind], loop], capture_output=True)
        if not mount(loop, self.place):
            sys.exit(f"FAILED: {self.kind} does not mount after a kill")
        wrong = [found for worker in self.workers for found in worker.check()]
        kept = sum(len(worker.allowed) for worker in self.workers)
        unmount(self.place)
        check_unmounted(self.kind, loop)
        self.device.detach()
        self.workers = [worker.again(self.random.random()) for worker in self.workers]
        print(f"{self.kind}: a kill after {fsync_count} fsyncs; {kept} files are right", flush=True)
        return wrong

    def clean_up(self):
        subprocess.run(["umount", "-l", self.place], capture_output=True)
        self.device.detach()


def find_planted(campaign, volume, scratch):
    """Loses what was fsynced, which must be found."""
    before = scratch / "before"
    copy = ["cp", "--sparse=always", "--reflink=auto"]
    if campaign.kill_once(lambda: run(*copy, volume, before)):
        sys.exit("FAILED: something is wrong before anything is planted")
    if not campaign.kill_once(lambda: run(*copy, before, volume)):
        sys.exit(f"FAILED: {campaign.kind}: what was planted is not found")
    print(f"{campaign.kind}: what was planted is found")


def kill(options, scratch, volume):
    """The kills of all kinds."""
    server = Server(options.dendro, volume, scratch)
    for kind in options.kinds:
        if not shutil.which(KINDS[kind][0][0]) or not shutil.which(KINDS[kind][1][0]):
            print(f"{kind}: its mkfs or its checker is not installed: left out")
            continue
        run(options.dendro, "-q", "block", "create", f"{volume}/{kind}", SIZE)
        server.start()
        campaign = Campaign(kind, server, scratch, options.seed)
        try:
            if not campaign.prepare():
                print(f"{kind}: the kernel does not have it: left out")
                continue
            if options.planted:
                find_planted(campaign, volume, scratch)
                continue
            for _ in range(options.kills):
                wrong = campaign.kill_once()
                if wrong:
                    sys.exit(f"FAILED: {kind}: fsynced, and not there: {', '.join(wrong)}")
        finally:
            campaign.clean_up()
            server.end(signal.SIGTERM)
    run(options.dendro, "check", volume)
    print("all is well")


def fio(directory, kind):
    """Operations a second of 4 KiB writes, with an fsync after each or at the end."""
    fsync = ["--fsync=1"] if kind == "fsync" else ["--end_fsync=1"]
    command = ["fio", "--name=w", f"--directory={directory}", "--rw=randwrite", "--bs=4k"]
    command += ["--size=128M", "--ioengine=psync", "--output-format=json", "--randseed=7", *fsync]
    if kind == "fsync":
        command += ["--time_based", "--runtime=8"]
    job = json.loads(run(*command))["jobs"][0]
    # With the time of the fsync at the end.
    return job["write"]["total_ios"] / (job["job_runtime"] / 1000)


def measure(place, loop):
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", loop)
    if not mount(loop, place):
        sys.exit("FAILED: ext4 does not mount")
    try:
        return {kind: fio(place, kind) for kind in ("fsync", "writes")}
    finally:
        unmount(place)


def speed(options, scratch, volume):
    """ext4 on the logical disk beside ext4 on raw images."""
    place, raw = scratch / "mounted", scratch / "raw"
    run(options.dendro, "-q", "block", "create", f"{volume}/ext4", SIZE)
    server = Server(options.dendro, volume, scratch)

    def on_dendro():
        server.start()
        device = Device(scratch, server.uri("ext4"))
        try:
            return measure(place, device.attach())
        finally:
            device.detach()
            server.end(signal.SIGTERM)

    def on_loop():
        loop = run("losetup", "--find", "--show", raw).strip()
        try:
            return measure(place, loop)
        finally:
            run("losetup", "--detach", loop)

    def through_nbdkit():
        socket = scratch / "nbdkit"
        socket.unlink(missing_ok=True)
        command = ["nbdkit", "-f", "-U", socket, "file", raw]
        process = subprocess.Popen(list(map(str, command)))
        device = Device(scratch, f"nbd+unix:///?socket={socket}")
        try:
            wait_for(socket.exists, "nbdkit does not begin")
            return measure(place, device.attach())
        finally:
            device.detach()
            process.terminate()
            process.wait()

    # Written once, as a raw image that is in use: otherwise each write would also find room.
    run("dd", "if=/dev/zero", f"of={raw}", "bs=1M", "count=768", "conv=fsync")
    ways = {"dendro": on_dendro, "raw image": on_loop}
    if shutil.which("nbdkit"):
        ways["raw image through nbdkit"] = through_nbdkit
    found = {way: [] for way in ways}
    for _ in range(options.rounds):
        for way, measured in ways.items():
            found[way].append(measured())
    for kind in ("fsync", "writes"):
        rates = {way: statistics.median(of[kind] for of in of_way) for way, of_way in found.items()}
        for way, rate in rates.items():
            ratio = rates["dendro"] / rate
            print(f"{kind:8} {way:26} {rate:10.0f} a second; dendro {ratio:.2f} times as many")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    here = Path(__file__).resolve().parents[2]
    parser.add_argument("dendro", nargs="?", default=str(here / "target/release/dendro"))
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.dendro = str(Path(options.dendro).resolve())
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"there are no kinds {', '.join(unknown)}; there are {', '.join(KINDS)}")
    if os.geteuid() != 0:
        parser.error("to mount takes root")
    missing = [name for name in ("nbdfuse", "fusermount3", "losetup") if not shutil.which(name)]
    missing += ["fio"] if options.speed and not shutil.which("fio") else []
    if missing or not Path(options.dendro).exists():
        parser.error(f"not here: {', '.join(missing) or options.dendro}")
    scratch = Path(tempfile.mkdtemp(prefix="dendro-fs-"))
    os.environ["DENDRO_RUNTIME_DIR"] = str(scratch / "run")
    try:
        volume = scratch / "volume"
        run(options.dendro, "mkfs", "-q", "--size", "6G", volume)
        if options.speed:
            speed(options, scratch, volume)
        else:
            print(f"seed {options.seed}")
            kill(options, scratch, volume)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
