#!/usr/bin/env python3
"""Unmodified file systems on block devices of a volume, whose server is killed.

    sudo testing/nbd/filesystems.py [--kinds ext4,xfs] [--kills 10] [--seed N] [DENDRO]
    sudo testing/nbd/filesystems.py --planted [--kinds ext4] [DENDRO]
    sudo testing/nbd/filesystems.py --reference [--kinds btrfs-log] [DENDRO]
    sudo testing/nbd/filesystems.py --speed [--rounds 3] [DENDRO]

Each kind that mkfs and the kernel have is put on an export of `dendro nbd`, through nbdfuse and a
loop device. Threads write, map, truncate and punch files there; make, rename and remove files, hard
and symbolic links and directories; and note what fsync and msync have returned for. If fsstress is
installed, it runs beside them. At a random moment the server is killed with SIGKILL. After its
restart the file system is mounted, which replays its log; then all that was synced must be there,
what was removed must not, and the checker of the file system must find nothing wrong.

--planted puts the volume back to what it was before the work of the second round, which loses what
was synced since, and fails unless that is found.

--reference has nbdkit serve plain files instead. A kill of it loses nothing that a client wrote, so
what fails there is a fault of the file system.

--speed measures random writes of 4 KiB and fsyncs of ext4 there, beside ext4 on a raw image on the
same disk: on a loop device, and through nbdkit and nbdfuse, which is the same way.

DENDRO is the command, by default target/release/dendro. Debian has the rest in libnbd-bin, fuse3,
e2fsprogs, xfsprogs, btrfs-progs, util-linux; for --speed fio and nbdkit.
"""

import argparse
import collections
import ctypes
import errno
import itertools
import json
import mmap
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
HOLE = bytes(BLOCK_BYTES)
SIZE = "768M"
DIRECTORY = ("a directory",)
LITTER = "litter"

# What a worker does, and how often, beside the others.
OPERATIONS = {
    "create": 4,
    "replace": 3,
    "change": 6,
    "store": 3,
    "rename": 2,
    "link": 1,
    "link_symbolically": 1,
    "make_directory": 1,
    "remove": 2,
    "disturb": 2,
}

# How each is made and checked. A checker finds nothing wrong if it exits with 0.
KINDS = {
    "ext4": (["mkfs.ext4", "-q", "-F"], ["e2fsck", "-f", "-n"]),
    "xfs": (["mkfs.xfs", "-q", "-f"], ["xfs_repair", "-n"]),
    "btrfs": (["mkfs.btrfs", "-q", "-f"], ["btrfs", "check", "--readonly"]),
    "minix": (["mkfs.minix", "-3"], ["fsck.minix", "-f"]),
}
ON_REQUEST = "btrfs-log"
KINDS[ON_REQUEST] = KINDS["btrfs"]
# How each is mounted. What becomes free is trimmed, so that the device has the holes too. When
# Linux 6.18 replays the log that btrfs has of fsyncs, it loses names that were synced, with
# --reference too. So btrfs makes each fsync a commit; with its log it is tried on request.
MOUNT_OPTIONS = {
    "ext4": ["-o", "discard"],
    "xfs": ["-o", "discard"],
    "btrfs": ["-o", "discard,notreelog"],
    "btrfs-log": ["-t", "btrfs", "-o", "discard"],
    "minix": [],
}
# It has no log: what a crash leaves is mended before it is mounted. Exit status 3 and 7 say so.
MENDERS = {"minix": ["fsck.minix", "-a"]}

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
KEEP_SIZE, PUNCH_HOLE = 1, 2


def punch(file, at, count):
    """Makes a hole; zeros, where the file system has no holes to punch."""
    if libc.fallocate(file, KEEP_SIZE | PUNCH_HOLE, at, count) != 0:
        if ctypes.get_errno() != errno.EOPNOTSUPP:
            raise OSError(ctypes.get_errno(), "fallocate")
        os.pwrite(file, bytes(count), at)


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
        self.dendro, self.volume = dendro, volume
        self.socket, self.process = scratch / "socket", None

    def make(self, name):
        """Makes a block device."""
        run(self.dendro, "-q", "block", "create", f"{self.volume}/{name}", SIZE)

    def check(self):
        """Looks at the volume, once the server has ended."""
        run(self.dendro, "check", self.volume)

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


class Reference(Server):
    """nbdkit, which serves plain files."""

    def __init__(self, scratch):
        self.socket, self.process = scratch / "socket", None
        self.files = scratch / "files"
        self.files.mkdir()

    def make(self, name):
        run("truncate", "--size", SIZE, self.files / name)

    def check(self):
        """There is nothing to look at."""

    def start(self):
        self.socket.unlink(missing_ok=True)
        command = ["nbdkit", "-f", "-U", self.socket, "file", f"dir={self.files}"]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE)
        wait_for(self.socket.exists, "nbdkit does not begin")


class Contents:
    """What the blocks of a file hold, and what each may hold after a crash."""

    def __init__(self, blocks):
        self.settle(blocks)

    def settle(self, blocks):
        """Notes that a crash leaves just these."""
        self.now = list(blocks)
        self.possible = [{block} for block in blocks]
        self.shortest = len(blocks)

    def put(self, index, block):
        """Notes that a block is about to change."""
        self.resize(max(index + 1, len(self.now)))
        self.now[index] = block
        self.possible[index].add(block)

    def resize(self, count):
        """Notes that the length is about to change. What is added is a hole."""
        self.possible += [set() for _ in range(len(self.possible), count)]
        for possible in self.possible[len(self.now) : count]:
            possible.add(HOLE)
        self.now = self.now[:count] + [HOLE] * (count - len(self.now))
        self.shortest = min(self.shortest, count)

    def fits(self, blocks):
        return self.shortest <= len(blocks) <= len(self.possible) and all(
            block in possible for block, possible in zip(blocks, self.possible)
        )


class Worker:
    """Changes files in a directory of its own, and knows what must be there.

    `states` has what its names were after each change since the last sync. For each path that is
    the `Contents` of a file, which its other links share; the target of a symbolic link; or
    DIRECTORY. A crash leaves one of these states. Blocks are written whole, and stores in mapped
    memory are of one byte, so a crash leaves each block as it was at one moment. A file that is
    being created may be of any length until it is synced: `creating` is its path.
    """

    def __init__(self, directory, seed, has_log):
        self.directory, self.random, self.has_log = directory, random.Random(seed), has_log
        self.states, self.creating = [{}], None
        self.numbers, self.counts = itertools.count(), collections.Counter()
        self.all_bytes = os.memfd_create("bytes")
        os.write(self.all_bytes, bytes(range(256)))

    def start(self):
        self.is_ending, self.is_killed = threading.Event(), threading.Event()
        self.sync_count, self.failure = 0, None
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while not self.is_ending.is_set():
            (name,) = self.random.choices(list(OPERATIONS), OPERATIONS.values())
            if len(self.states[-1]) > 60:
                name = "remove"
            elif len(self.states[-1]) < 8 or not self.paths(Contents):
                name = "create"
            try:
                getattr(self, name)()
            except Exception as error:
                if not self.is_killed.is_set() or not isinstance(error, OSError):
                    self.failure = f"{self.directory}: {name}: {error!r}"
                return
            self.counts[name] += 1

    def full(self, path):
        return os.path.join(self.directory, path)

    def paths(self, *kinds):
        return [path for path, what in self.states[-1].items() if isinstance(what, kinds)]

    def new_path(self, what):
        """A path that never was, in the directory or in one below."""
        parent = self.random.choice(["", *self.paths(type(DIRECTORY))])
        return os.path.join(parent, f"{what}-{next(self.numbers)}")

    def new_block(self):
        line = f"{self.directory} block {next(self.numbers)}\n".encode()
        return (line * (BLOCK_BYTES // len(line) + 1))[:BLOCK_BYTES]

    def note(self, changes):
        """Notes how names are about to change. None is for what will not be there."""
        state = {**self.states[-1], **changes}
        self.states.append({path: what for path, what in state.items() if what is not None})

    def note_synced(self):
        """Notes that a sync has returned. After the kill that says nothing: the journal of the file
        system is aborted then, and what is in no journal need not make the sync fail."""
        if self.is_killed.is_set():
            raise OSError("the server is being killed")
        self.sync_count += 1

    def sync_names(self, *paths):
        """Makes the last state durable, by an fsync of the directories of these paths."""
        for parent in {os.path.dirname(self.full(path)) for path in paths}:
            directory = os.open(parent, os.O_RDONLY)
            try:
                os.fsync(directory)
                # Without a log, that makes the names durable, and not what they name.
                if not self.has_log and libc.syncfs(directory) != 0:
                    raise OSError(ctypes.get_errno(), "syncfs")
            finally:
                os.close(directory)
        self.note_synced()
        self.states = self.states[-1:]

    def write_new(self, path):
        """Writes a new file and makes its contents durable."""
        self.creating = path
        contents = Contents([self.new_block() for _ in range(self.random.randint(1, 48))])
        with open(self.full(path), "wb") as file:
            file.write(b"".join(contents.now))
            file.flush()
            os.fsync(file.fileno())
        self.note_synced()
        return contents

    def create(self):
        path = self.new_path("file")
        self.note({path: self.write_new(path)})
        self.sync_names(path)
        self.creating = None

    def replace(self):
        path = self.random.choice(self.paths(Contents, str))
        self.note({path: self.write_new("temporary")})
        os.rename(self.full("temporary"), self.full(path))
        self.sync_names("temporary", path)
        self.creating = None

    def change(self):
        """Writes blocks, some far behind the end; punches holes; truncates and extends."""
        path = self.random.choice(self.paths(Contents))
        contents = self.states[-1][path]
        with open(self.full(path), "r+b", buffering=0) as file:
            for _ in range(self.random.randint(1, 8)):
                length = len(contents.now)
                index = self.random.randrange(length)
                kind = self.random.choice(["overwrite", "overwrite", "beyond", "punch", "truncate"])
                if kind == "truncate":
                    count = self.random.randint(1, 64)
                    contents.resize(count)
                    file.truncate(count * BLOCK_BYTES)
                elif kind == "punch":
                    end = self.random.randint(index + 1, length)
                    for hole in range(index, end):
                        contents.put(hole, HOLE)
                    punch(file.fileno(), index * BLOCK_BYTES, (end - index) * BLOCK_BYTES)
                else:
                    index = length + self.random.randrange(16) if kind == "beyond" else index
                    contents.put(index, self.new_block())
                    os.pwrite(file.fileno(), contents.now[index], index * BLOCK_BYTES)
            self.random.choice([os.fsync, os.fdatasync])(file.fileno())
        self.note_synced()
        contents.settle(contents.now)

    def store(self):
        """Stores bytes in mapped memory, and makes them durable by msync."""
        path = self.random.choice(self.paths(Contents))
        contents = self.states[-1][path]
        with open(self.full(path), "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
            for _ in range(self.random.randint(1, 16)):
                at, byte = self.random.randrange(len(memory)), self.random.randrange(256)
                index = at // BLOCK_BYTES
                block = bytearray(contents.now[index])
                block[at % BLOCK_BYTES] = byte
                contents.put(index, bytes(block))
                # The kernel stores it. If it cannot, that is an error, not SIGBUS.
                os.preadv(self.all_bytes, [memoryview(memory)[at : at + 1]], byte)
            memory.flush()
        self.note_synced()
        contents.settle(contents.now)

    def rename(self):
        """Renames, mostly over something else."""
        state = self.states[-1]
        source, target = self.random.choices(self.paths(Contents, str), k=2)
        if state[source] is state[target]:
            # Between two links to one file it would do nothing.
            target = self.new_path("renamed")
        self.note({source: None, target: state[source]})
        os.rename(self.full(source), self.full(target))
        self.sync_names(source, target)

    def link(self):
        source, path = self.random.choice(self.paths(Contents)), self.new_path("link")
        self.note({path: self.states[-1][source]})
        os.link(self.full(source), self.full(path))
        self.sync_names(path)

    def link_symbolically(self):
        # A short target is kept in the inode, a long one in a block.
        target = f"nowhere-{next(self.numbers)}" + "-far" * self.random.choice([0, 220])
        path = self.new_path("symbolic")
        self.note({path: target})
        os.symlink(target, self.full(path))
        self.sync_names(path)

    def make_directory(self):
        path = self.new_path("directory")
        self.note({path: DIRECTORY})
        os.mkdir(self.full(path))
        self.sync_names(path)

    def remove(self):
        """Removes a name; if it is a directory, first all below."""
        path = self.random.choice(list(self.states[-1]))
        below = [other for other in self.states[-1] if other.startswith(f"{path}/")]
        for gone in [*sorted(below, reverse=True), path]:
            remove = os.rmdir if self.states[-1][gone] is DIRECTORY else os.unlink
            self.note({gone: None})
            remove(self.full(gone))
        self.sync_names(path)

    def disturb(self):
        """Changes of which nothing is noted, and nothing is fsynced."""
        litter = self.full(LITTER)
        shutil.rmtree(litter, ignore_errors=True)
        for number in range(self.random.randint(1, 30)):
            inside = os.path.join(litter, str(number % 5))
            os.makedirs(inside, exist_ok=True)
            with open(os.path.join(inside, f"{number}"), "wb") as file:
                file.write(os.urandom(self.random.randint(0, 30_000)))
            if number % 3 == 0:
                os.rename(os.path.join(inside, f"{number}"), os.path.join(litter, f"r-{number}"))

    def found(self, parent=""):
        """What is there. In place of `Contents`, an inode's number and blocks."""
        found = {}
        for entry in os.scandir(self.full(parent)):
            path = os.path.join(parent, entry.name)
            if entry.is_symlink():
                found[path] = os.readlink(entry)
            elif not entry.is_dir():
                data = Path(entry).read_bytes()
                blocks = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
                found[path] = (entry.inode(), blocks)
            elif path != LITTER:
                found |= {path: DIRECTORY, **self.found(path)}
        return found

    @staticmethod
    def wrong_paths(state, found):
        """The paths that are not as in this state."""
        wrong, files = set(), {}
        for path in state.keys() | found.keys():
            what, here = state.get(path), found.get(path)
            is_right = what == here
            if isinstance(what, Contents) and isinstance(here, tuple):
                inode, blocks = here
                is_one_file = files.setdefault(what, inode) == inode
                is_one_file &= files.setdefault(inode, what) is what
                is_right = is_one_file and what.fits(blocks)
            if not is_right:
                wrong.add(path)
        return wrong

    def check(self):
        """Begins anew with what is there. Returns what is wrong with it."""
        found = self.found()
        creating, self.creating = self.creating, None
        if creating in found and not any(creating in state for state in self.states):
            os.unlink(self.full(creating))
            del found[creating]
        states = [(self.wrong_paths(state, found), state) for state in self.states]
        if self.has_log:
            states = [min(states, key=lambda pair: len(pair[0]))]
        # Without a log, each name may be as in another state.
        wrong = set.intersection(*(wrong for wrong, _ in states))
        known = {}
        for path in found.keys() - wrong:
            known[path] = next(state[path] for wrong, state in states if path not in wrong)
            if isinstance(known[path], Contents):
                known[path].settle(found[path][1])
        self.states = [known]
        return [self.full(path) for path in wrong]


def mount(loop, place, *options):
    """Mounts it; False if the kernel does not have that kind."""
    place.mkdir(exist_ok=True)
    return subprocess.run(["mount", *options, loop, place], capture_output=True).returncode == 0


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
        self.kind, self.server, self.has_log = kind, server, kind not in MENDERS
        self.random = random.Random(f"{seed} {kind}")
        self.device = Device(scratch, server.uri(kind))
        self.place = scratch / "mounted"
        self.workers = []

    def mount(self, loop):
        return mount(loop, self.place, *MOUNT_OPTIONS[self.kind])

    def prepare(self):
        """Makes the file system. Returns whether the kernel has it."""
        loop = self.device.attach()
        run(*KINDS[self.kind][0], loop)
        is_there = self.mount(loop)
        if is_there:
            for number in range(3):
                directory = self.place / str(number)
                directory.mkdir()
                self.workers.append(Worker(str(directory), self.random.random(), self.has_log))
            run("sync", "-f", self.place)
            unmount(self.place)
        self.device.detach()
        return is_there

    def start_fsstress(self):
        """Further load of which nothing is noted, if it is installed."""
        if not shutil.which("fsstress"):
            return None
        directory = self.place / "fsstress"
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(exist_ok=True)
        command = ["fsstress", "-d", directory, "-p", 2, "-n", 1_000_000]
        command += ["-s", self.random.randrange(1 << 30)]
        null = subprocess.DEVNULL
        return subprocess.Popen(
            list(map(str, command)), stdout=null, stderr=null, start_new_session=True
        )

    def kill_once(self, plant=lambda: None):
        """Works, kills the server, and looks at what is left, after `plant` has changed it. Returns
        what is wrong."""
        loop = self.device.attach()
        if not self.mount(loop):
            sys.exit(f"FAILED: {self.kind} does not mount")
        stress = self.start_fsstress()
        for worker in self.workers:
            worker.start()
        time.sleep(self.random.uniform(0.5, 3))
        if stress and stress.poll() is not None:
            sys.exit(f"FAILED: {stress.args} ended by itself: {stress.returncode}")
        for worker in self.workers:
            worker.is_killed.set()
        self.server.end(signal.SIGKILL)
        for worker in self.workers:
            worker.is_ending.set()
        for worker in self.workers:
            worker.thread.join()
        if stress:
            os.killpg(stress.pid, signal.SIGKILL)
            stress.wait()
        for worker in self.workers:
            if worker.failure:
                sys.exit(f"FAILED: {self.kind}: before the kill: {worker.failure}")
        sync_count = sum(worker.sync_count for worker in self.workers)
        unmount(self.place)
        self.device.detach()
        plant()

        self.server.start()
        loop = self.device.attach()
        if not self.has_log:
            subprocess.run([*MENDERS[self.kind], loop], capture_output=True)
        if not self.mount(loop):
            sys.exit(f"FAILED: {self.kind} does not mount after a kill")
        wrong = [found for worker in self.workers for found in worker.check()]
        kept = sum(len(worker.states[0]) for worker in self.workers)
        unmount(self.place)
        check_unmounted(self.kind, loop)
        self.device.detach()
        print(f"{self.kind}: a kill after {sync_count} syncs; {kept} names are right", flush=True)
        return wrong

    def clean_up(self):
        subprocess.run(["umount", "-l", self.place], capture_output=True)
        self.device.detach()


def find_planted(campaign, volume, scratch):
    """Loses what was synced, which must be found."""
    before = scratch / "before"
    copy = ["cp", "--sparse=always", "--reflink=auto"]
    if campaign.kill_once(lambda: run(*copy, volume, before)):
        sys.exit("FAILED: something is wrong before anything is planted")
    if not campaign.kill_once(lambda: run(*copy, before, volume)):
        sys.exit(f"FAILED: {campaign.kind}: what was planted is not found")
    print(f"{campaign.kind}: what was planted is found")


def kill(options, scratch, volume):
    """The kills of all kinds."""
    if options.reference:
        server = Reference(scratch)
    else:
        server = Server(options.dendro, volume, scratch)
    if not shutil.which("fsstress"):
        print("fsstress is not installed: the workers alone make the load")
    for kind in options.kinds:
        if not shutil.which(KINDS[kind][0][0]) or not shutil.which(KINDS[kind][1][0]):
            print(f"{kind}: its mkfs or its checker is not installed: left out")
            continue
        server.make(kind)
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
                    sys.exit(f"FAILED: {kind}: synced, and not as it was: {', '.join(wrong)}")
            counts = sum((worker.counts for worker in campaign.workers), collections.Counter())
            print(f"{kind}: " + ", ".join(f"{counts[name]} {name}" for name in OPERATIONS))
        finally:
            campaign.clean_up()
            server.end(signal.SIGTERM)
    server.check()
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
    parser.add_argument("--kinds", type=lambda text: text.split(","))
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--planted", action="store_true")
    parser.add_argument("--reference", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.dendro = str(Path(options.dendro).resolve())
    options.kinds = options.kinds or [kind for kind in KINDS if kind != ON_REQUEST]
    unknown = [kind for kind in options.kinds if kind not in KINDS]
    if unknown:
        parser.error(f"there are no kinds {', '.join(unknown)}; there are {', '.join(KINDS)}")
    if options.reference and options.planted:
        parser.error("--planted changes a volume, and --reference has none")
    if os.geteuid() != 0:
        parser.error("to mount takes root")
    missing = [name for name in ("nbdfuse", "fusermount3", "losetup") if not shutil.which(name)]
    missing += ["nbdkit"] if options.reference and not shutil.which("nbdkit") else []
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
