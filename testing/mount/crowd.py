#!/usr/bin/env python3
"""Many at once, and much of it: processes beside one another, huge directories, deep paths.

    crowd.py [--seed 1] [--processes 6] [--seconds 30] [--entries 1000000] [--links 100000]
             [--size 4G] [--only together,directory,links,deep]

*together*: processes create, write, rename, link, remove and list in the same few directories; each
knows what its own files hold. Others pack and unpack trees and remove them meanwhile. *directory*:
one directory with very many entries, made, listed, looked up and removed. *links*: very many names
for one file. *deep*: directories in directories.
"""

import argparse
import errno
import hashlib
import multiprocessing
import os
import random
import shutil
import sys
import time

import volume

# What one process may see when another was quicker.
RACES = (errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR, errno.EINVAL,
         errno.ELOOP)
DEPTH = 500


def mingle(root, number, seed, until, complaints):
    """Works on files of its own, in directories that it shares."""
    rng = random.Random("%d %d" % (seed, number))
    mine, made = {}, 0
    try:
        while time.time() < until:
            made += 1
            directory = os.path.join(root, "shared%d" % rng.randrange(4))
            kind = rng.choice(["create", "create", "rewrite", "rename", "link", "unlink", "read", "list",
                               "race"])
            if kind == "create" or not mine:
                path = os.path.join(directory, "p%d-%d" % (number, made))
                mine[path] = write(path, rng)
                continue
            path = rng.choice(sorted(mine)) if len(mine) < 100 else next(iter(mine))
            if kind == "rewrite":
                mine[path] = write(path, rng)
            elif kind == "rename":
                new = os.path.join(directory, "p%d-%d" % (number, made))
                os.rename(path, new)
                mine[new] = mine.pop(path)
            elif kind == "link":
                new = os.path.join(directory, "p%d-%d" % (number, made))
                os.link(path, new)
                os.unlink(path)
                mine[new] = mine.pop(path)
            elif kind == "unlink":
                os.unlink(path)
                del mine[path]
            elif kind == "list":
                names = set(os.listdir(directory))
                for own in mine:
                    if os.path.dirname(own) == directory and os.path.basename(own) not in names:
                        complaints.put("%s is not listed" % own)
            elif kind == "race":
                race(root, rng)
            else:
                check(path, mine[path], complaints)
        for path, checksum in mine.items():
            check(path, checksum, complaints)
            os.unlink(path)
    except OSError as error:
        complaints.put("process %d: %s" % (number, error))


def race(root, rng):
    """Does what others do at the same time, to the same names."""
    names = [os.path.join(root, "race", name) for name in ("a", "b", "c", "a/x", "b/x", "a/y")]
    one, other = rng.choice(names), rng.choice(names)
    try:
        work = rng.randrange(6)
        if work == 0:
            os.mkdir(one)
        elif work == 1:
            os.rename(one, other)
        elif work == 2:
            os.rmdir(one)
        elif work == 3:
            os.close(os.open(one, os.O_CREAT | os.O_WRONLY))
        elif work == 4:
            os.unlink(one)
        else:
            os.listdir(one)
    except OSError as error:
        if error.errno not in RACES:
            raise


def write(path, rng):
    data = rng.randbytes(rng.choice([10, 1000, 5000, 70_000]))
    with open(path, "wb") as file:
        file.write(data)
    return hashlib.sha256(data).digest()


def check(path, checksum, complaints):
    with open(path, "rb") as file:
        if hashlib.sha256(file.read()).digest() != checksum:
            complaints.put("%s has other data" % path)


def unpack(root, number, source, until, complaints):
    """Copies a tree, compares it, removes it."""
    try:
        while time.time() < until:
            target = os.path.join(root, "tree%d" % number)
            shutil.copytree(source, target, symlinks=True)
            done = volume.run("diff", "-r", "--no-dereference", source, target, check=False,
                              timeout_s=600)
            if done.returncode != 0:
                complaints.put(done.stdout.decode()[:300])
            shutil.rmtree(target)
    except (OSError, volume.Failed) as error:
        complaints.put("tree %d: %s" % (number, error))


def together(disk, arguments):
    root = str(disk.root / "together")
    for number in range(4):
        os.makedirs(os.path.join(root, "shared%d" % number))
    os.mkdir(os.path.join(root, "race"))
    until = time.time() + arguments.seconds
    complaints = multiprocessing.Queue()
    processes = [
        multiprocessing.Process(target=mingle, args=(root, number, arguments.seed, until, complaints))
        for number in range(arguments.processes)
    ] + [
        multiprocessing.Process(target=unpack, args=(root, number, arguments.tree, until, complaints))
        for number in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(arguments.seconds + 600)
        if process.is_alive():
            process.kill()
            complaints.put("a process hangs")
    time.sleep(0.2)
    while not complaints.empty():
        yield complaints.get()
    shutil.rmtree(os.path.join(root, "race"))
    for number in range(4):
        os.rmdir(os.path.join(root, "shared%d" % number))
    os.rmdir(root)


def timer():
    started = time.monotonic()
    return lambda: time.monotonic() - started


def directory(disk, arguments):
    root, count = disk.root / "directory", arguments.entries
    root.mkdir()
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    took = timer()
    for number in range(count):
        os.close(os.open("entry number %d" % number, os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    print("create %d entries: %.1f s" % (count, took()), flush=True)
    disk.umount_after(handle)
    disk.mount(arguments.options)
    took = timer()
    names = os.listdir(root)
    print("list them, not cached: %.1f s" % took(), flush=True)
    if len(names) != count or len(set(names)) != count:
        yield "%d names, %d different ones, of %d" % (len(names), len(set(names)), count)
    took = timer()
    for number in random.Random(arguments.seed).sample(range(count), min(count, 10_000)):
        os.stat(root / ("entry number %d" % number))
    print("look up 10000 of them: %.1f s" % took(), flush=True)
    took = timer()
    # While it is being listed, as rm -r does.
    with os.scandir(root) as entries:
        for entry in entries:
            os.unlink(entry.path)
    print("remove them: %.1f s" % took(), flush=True)
    left = len(os.listdir(root))
    if left:
        yield "%d entries are left, removed while listing" % left
        shutil.rmtree(root)
    else:
        os.rmdir(root)


def links(disk, arguments):
    root, count = disk.root / "links", arguments.links
    root.mkdir()
    (root / "first").write_bytes(b"content")
    took = timer()
    for number in range(count):
        os.link(root / "first", root / ("link%d" % number))
    print("%d links: %.1f s" % (count, took()), flush=True)
    if os.stat(root / "first").st_nlink != count + 1:
        yield "%d links, and a count of %d" % (count + 1, os.stat(root / "first").st_nlink)
    shutil.rmtree(root)


def deep(disk, arguments):
    del arguments
    path = os.path.join(disk.root, "deep")
    os.mkdir(path)
    handle = os.open(path, os.O_RDONLY)
    for level in range(DEPTH):
        os.mkdir("level %d %s" % (level, "x" * 200), dir_fd=handle)
        below = os.open("level %d %s" % (level, "x" * 200), os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = below
    fd = os.open("bottom", os.O_CREAT | os.O_RDWR, dir_fd=handle)
    os.write(fd, b"deep")
    os.close(fd)
    os.close(handle)
    disk.umount()
    disk.mount()
    found = volume.run("find", path, "-name", "bottom").stdout.count(b"\n")
    if found != 1:
        yield "the file at the bottom was found %d times" % found
    volume.run("rm", "-r", path)


class Disk(volume.Volume):
    """A volume that is unmounted with a handle to be closed first."""

    def umount_after(self, handle):
        os.close(handle)
        self.umount()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--links", type=int, default=100_000)
    parser.add_argument("--size", default="4G")
    parser.add_argument("--options", default="", help="mount options")
    parser.add_argument("--tree", default="/usr/include", help="a tree to copy")
    parser.add_argument("--only", default="together,directory,links,deep")
    arguments = parser.parse_args()
    failures = 0
    with volume.scratch("crowd") as scratch:
        disk = Disk(scratch, arguments.size).mkfs()
        disk.mount(arguments.options)
        for work in (together, directory, links, deep):
            if work.__name__ not in arguments.only.split(","):
                continue
            took = timer()
            complaints = list(work(disk, arguments))
            print("%s: %.1f s, %d complaints" % (work.__name__, took(), len(complaints)), flush=True)
            for complaint in complaints[:10]:
                print("    FAILED: " + complaint, flush=True)
            failures += bool(complaints)
        if os.listdir(disk.root):
            print("    FAILED: left: %s" % os.listdir(disk.root)[:5])
            failures += 1
        disk.umount()
        failures += bool(disk.panics())
        disk.discard()
    print("%d failed" % failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
