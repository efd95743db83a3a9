#!/usr/bin/env python3
"""kill -9 of the daemon in the middle of work: what is there afterwards is a prefix of what was done.

Some writers work at the same time, each in a directory of its own, each in a known order, and keep
a common journal outside the mount of what they began, what was done, and what was made durable.
Beside them, others unpack, copy and remove, as noise. After a random time the daemon is killed and
the volume mounted again. Then

1. each writer's directory is what it was after one of the writer's operations;
2. nothing is missing that came before an fsync of any writer that succeeded;
3. all writers' directories are of one point in time: no operation is there that began after one
   that is missing had returned;
4. mounting took less than two seconds.

    kill9.py [--rounds 30] [--seed 1] [--writers 2] [--size 2G] [--noise DIRECTORY]
"""

import argparse
import errno
import hashlib
import itertools
import multiprocessing
import os
import random
import shutil
import stat
import sys
import time

import volume

LONGEST_MOUNT_S = 2.0
PAGE_SIZE = 4096
# The kernel passes a write on in pieces of 1 MiB, and one that begins inside a page in two, the
# first to the end of that page. Each is there whole or not at all.
MAX_WRITE_BYTES = 200_000
# Not an operation, but the state between the two pieces of one.
HALF = "half"


def digest(*parts):
    """A number of 128 bits for one file."""
    sha = hashlib.blake2b(digest_size=16)
    for part in parts:
        part = part if isinstance(part, bytes) else repr(part).encode()
        sha.update(len(part).to_bytes(8, "little"))
        sha.update(part)
    return int.from_bytes(sha.digest(), "little")


def content(seed, length):
    return hashlib.shake_128(repr(seed).encode()).digest(length)


class File:
    """A file of the model; directories and symbolic links too."""

    __slots__ = ("kind", "data", "mode", "xattrs", "names")

    def __init__(self, kind, data=b"", mode=0o644):
        self.kind, self.data, self.mode = kind, data, mode
        self.xattrs, self.names = {}, set()

    def signature(self, path):
        links = len(self.names) if self.kind == "file" else 0
        return digest(path, self.kind, bytes(self.data), self.mode, sorted(self.xattrs.items()), links)


class Model:
    """A writer's directory in memory, with a sum that tells states apart."""

    def __init__(self):
        self.paths = {}
        self.signed = {}
        self.sum = 0

    def sign(self, path):
        self.sum ^= self.signed.pop(path, 0)
        if path in self.paths:
            self.signed[path] = self.paths[path].signature(path)
            self.sum ^= self.signed[path]

    def touch(self, file):
        for name in file.names:
            self.sign(name)

    def add(self, path, file):
        self.paths[path] = file
        file.names.add(path)
        self.touch(file)

    def remove(self, path):
        file = self.paths.pop(path)
        file.names.discard(path)
        self.sign(path)
        self.touch(file)

    def files(self):
        return [path for path, file in self.paths.items() if file.kind == "file"]

    def directories(self):
        return [""] + [path + "/" for path, file in self.paths.items() if file.kind == "directory"]

    def is_empty(self, directory):
        return not any(path.startswith(directory + "/") for path in self.paths)


def splice(data, offset, new):
    """`data` with `new` written at `offset`."""
    out = bytearray(data)
    if len(out) < offset:
        out.extend(bytes(offset - len(out)))
    out[offset:offset + len(new)] = new
    return bytes(out)


def operations(seed):
    """The endless sequence of one writer. Each answers what to do to the model and to the mount.

    Sizes and choices depend on the seed and the model alone, so the same sequence can be replayed.
    """
    rng = random.Random(repr(seed))
    model = Model()
    number = 0
    while True:
        number += 1
        kind = rng.choices(
            ["create", "write", "append", "truncate", "punch", "rename", "link", "unlink", "mkdir",
             "rmdir", "symlink", "setxattr", "chmod", "replace", "fsync", "fsyncdir"],
            [20, 15, 12, 6, 3, 10, 5, 10, 3, 2, 3, 3, 3, 4, 1, 1])[0]
        files = model.files()
        fresh = rng.choice(model.directories()) + "f%d" % number
        if len(files) > 400:
            kind = "unlink"
        length = rng.choice([1, 100, 255, 256, 1000, 4096, 5000, 8192, 20000, 65536, MAX_WRITE_BYTES])
        length = rng.randrange(length) + 1
        if kind == "fsyncdir" or kind == "fsync" and not files:
            yield model, "fsyncdir", [""]
        elif kind == "fsync":
            yield model, kind, [rng.choice(files)]
        elif kind in ("create", "mkdir", "symlink"):
            data = content((seed, number), rng.choice([0, length])) if kind == "create" else b""
            yield from do_create(model, kind, fresh, data)
        elif not files:
            continue
        elif kind == "rmdir":
            empty = [path[:-1] for path in model.directories()[1:] if model.is_empty(path[:-1])]
            if empty:
                path = rng.choice(empty)
                model.remove(path)
                yield model, kind, [path]
        else:
            yield from do_change(model, kind, rng, files, fresh, content((seed, number), length))


def do_create(model, kind, path, data):
    if kind == "create":
        model.add(path, File("file"))
        yield model, "create", [path]
        if data:
            model.paths[path].data = data
            model.sign(path)
            yield model, "write", [path, 0, data]
    elif kind == "mkdir":
        model.add(path, File("directory", mode=0o755))
        yield model, kind, [path]
    else:
        model.add(path, File("link", b"to " + path.encode(), 0o777))
        yield model, kind, [path, "to " + path]


def do_change(model, kind, rng, files, fresh, data):
    path = rng.choice(files)
    file = model.paths[path]
    size = len(file.data)
    if kind in ("write", "append"):
        offset = size if kind == "append" else rng.randrange(size + 5000)
        if size > 2_000_000:
            offset = 0
        head = -offset % PAGE_SIZE
        if 0 < head < len(data):
            file.data = splice(file.data, offset, data[:head])
            model.touch(file)
            yield model, HALF, []
        file.data = splice(file.data, offset, data)
        arguments = ["write", [path, offset, data]]
    elif kind == "truncate":
        length = rng.choice([0, rng.randrange(size + 1), size + rng.randrange(100_000)])
        file.data = file.data[:length] + bytes(max(0, length - size))
        arguments = [kind, [path, length]]
    elif kind == "punch":
        offset, length = rng.randrange(size + 1), len(data)
        file.data = file.data[:offset] + bytes(min(length, size - offset)) + file.data[offset + length:]
        arguments = [kind, [path, offset, length]]
    elif kind in ("rename", "replace"):
        over = rng.choice(files)
        if kind == "rename" or over == path or model.paths[over] is file:
            over = fresh
        else:
            model.remove(over)
        model.remove(path)
        model.add(over, file)
        arguments = ["rename", [path, over]]
    elif kind == "link":
        model.add(fresh, file)
        arguments = [kind, [path, fresh]]
    elif kind == "unlink":
        model.remove(path)
        arguments = [kind, [path]]
    elif kind == "setxattr":
        name = "user.x%d" % rng.randrange(3)
        file.xattrs[name] = data[:1000]
        arguments = [kind, [path, name, data[:1000]]]
    else:
        file.mode = rng.choice([0o600, 0o644, 0o755, 0o400]) | 0o200
        arguments = ["chmod", [path, file.mode]]
    model.touch(file)
    yield model, *arguments


def perform(root, kind, arguments):
    """Does one operation on the mount."""
    path = os.path.join(root, arguments[0])
    if kind == "create":
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    elif kind == "mkdir":
        os.mkdir(path)
    elif kind == "symlink":
        os.symlink(arguments[1], path)
    elif kind == "rmdir":
        os.rmdir(path)
    elif kind == "rename":
        os.rename(path, os.path.join(root, arguments[1]))
    elif kind == "link":
        os.link(path, os.path.join(root, arguments[1]))
    elif kind == "unlink":
        os.unlink(path)
    elif kind == "setxattr":
        os.setxattr(path, arguments[1], arguments[2])
    elif kind == "chmod":
        os.chmod(path, arguments[1])
    elif kind == "truncate":
        os.truncate(path, arguments[1])
    else:
        perform_open(path, kind, arguments)


def perform_open(path, kind, arguments):
    fd = os.open(path, os.O_RDONLY if kind == "fsyncdir" else os.O_RDWR)
    try:
        if kind == "write":
            count = os.pwrite(fd, arguments[2], arguments[1])
            if count != len(arguments[2]):
                raise OSError(errno.ENOTCONN, "the daemon was killed between two pieces of a write")
        elif kind == "punch":
            punch(fd, arguments[1], arguments[2])
        else:
            os.fsync(fd)
    finally:
        os.close(fd)


def punch(fd, offset, length):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size_and_punch = 3
    if libc.fallocate(fd, keep_size_and_punch, ctypes.c_long(offset), ctypes.c_long(length)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def is_gone(error, root):
    """Whether an operation failed because the daemon has gone."""
    # ECANCELED over io_uring, for a moment.
    if error.errno in (errno.ENOTCONN, errno.ECONNABORTED, errno.ECANCELED):
        return True
    # With order=close, a page that the kernel wants to read for a write cannot be read.
    if error.errno != errno.EIO:
        return False
    try:
        os.statvfs(root)
    except OSError as answer:
        return answer.errno != errno.EIO and is_gone(answer, root)
    return False


def write_along(writer, seed, base, journal, pause_s):
    """One writer's process: works until the mount dies, or is full."""
    root = os.path.join(base, "w%d" % writer)
    os.umask(0o022)
    fd = os.open(journal, os.O_WRONLY | os.O_APPEND)
    for number, (_, kind, arguments) in enumerate(operations((seed, writer)), 1):
        if kind == HALF:
            continue
        os.write(fd, b"%d %d b %s\n" % (writer, number, kind.encode()))
        try:
            perform(root, kind, arguments)
        except OSError as error:
            if error.errno != errno.ENOSPC and not is_gone(error, root):
                os.write(fd, b"%d %d x %s: %s\n" % (writer, number, kind.encode(), str(error).encode()))
            return
        os.write(fd, b"%d %d e %s\n" % (writer, number, kind.encode()))
        time.sleep(pause_s)


def make_noise(seed, root, source):
    """Copies and removes until the mount dies."""
    rng = random.Random(seed)
    number = 0
    try:
        while True:
            number += 1
            target = os.path.join(root, "noise%d-%d" % (os.getpid(), number))
            shutil.copytree(source, target, symlinks=True)
            if rng.random() < 0.7:
                shutil.rmtree(target)
    except (OSError, shutil.Error):
        return


def observe(root):
    """The sum of a writer's directory as it is on the mount."""
    total = 0
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            file = File("?", mode=stat.S_IMODE(info.st_mode))
            if stat.S_ISDIR(info.st_mode):
                file.kind = "directory"
            elif stat.S_ISLNK(info.st_mode):
                file.kind, file.data = "link", os.readlink(path).encode()
            else:
                file.kind = "file"
                with open(path, "rb") as opened:
                    file.data = opened.read()
                file.xattrs = {key: os.getxattr(path, key) for key in os.listxattr(path)}
                file.names = set(range(info.st_nlink))
            total ^= file.signature(os.path.relpath(path, root))
    return total


class Journal:
    """What the writers wrote down."""

    def __init__(self, path, writers):
        self.begun = {writer: {} for writer in range(writers)}
        self.ended = {writer: {} for writer in range(writers)}
        self.errors = []
        fsyncs = {}
        self.durable = {writer: 0 for writer in range(writers)}
        with open(path, encoding="utf-8") as lines:
            for place, line in enumerate(lines, 1):
                writer, number, mark, what = line.rstrip("\n").split(" ", 3)
                writer, number = int(writer), int(number)
                if mark == "b":
                    self.begun[writer][number] = place
                    # What had returned by then is covered by this fsync, if it succeeds.
                    fsyncs[writer] = {w: max(done, default=0) for w, done in self.ended.items()}
                elif mark == "e":
                    self.ended[writer][number] = place
                    if what.startswith("fsync"):
                        for other, done in fsyncs[writer].items():
                            self.durable[other] = max(self.durable[other], done)
                else:
                    self.errors.append(what)

    def started(self, writer):
        return max(self.begun[writer], default=0)


def states_that_match(seed, writer, last, total):
    """After which of the writer's operations its directory was like that."""
    found = [0] if total == 0 else []
    for number, (model, _, _) in enumerate(operations((seed, writer)), 1):
        if number > last:
            break
        if model.sum == total:
            found.append(number)
    return found


def is_one_moment(journal, cuts):
    """Whether no operation that is there began after one that is missing had returned."""
    for writer, cut in cuts.items():
        missing = min((place for number, place in journal.ended[writer].items() if number > cut),
                      default=None)
        if missing is None:
            continue
        for other, there in cuts.items():
            # The state between an operation's halves has no entry of its own.
            begun = journal.begun[other].get(there) or journal.begun[other].get(there + 1, 0)
            if there > 0 and begun > missing:
                return False
    return True


def check(seed, root, journal_path, writers):
    """Compares what is there with what was done; answers complaints and a line about it."""
    journal = Journal(journal_path, writers)
    complaints = ["an operation failed before the kill: " + error for error in journal.errors]
    possible, lost = {}, 0
    for writer in range(writers):
        total = observe(os.path.join(root, "w%d" % writer))
        last = journal.started(writer)
        states = states_that_match(seed, writer, last, total)
        durable = journal.durable[writer]
        if not states:
            complaints.append("writer %d: no prefix of its %d operations" % (writer, last))
        elif max(states) < durable:
            complaints.append("writer %d: state after %d, but %d were durable" % (
                writer, max(states), durable))
        possible[writer] = [state for state in states if state >= durable]
        lost += last - max(states, default=0)
    if not complaints:
        # A directory may look the same after several operations.
        cuts = [dict(zip(possible, cut)) for cut in itertools.product(*possible.values())]
        if not any(is_one_moment(journal, cut) for cut in cuts):
            complaints.append("the writers' states are of different moments: %s" % cuts)
    done = sum(journal.started(writer) for writer in range(writers))
    return complaints, "%d operations, the last %d lost" % (done, lost)


class Load:
    """Writers, and noise, in a new directory of a mount. A pause after each operation keeps the
    comparison short where they work for long."""

    def __init__(self, disk, name, seed, writers=2, noise=None, pause_s=0):
        self.seed, self.writers, self.base = seed, writers, disk.root / name
        self.base.mkdir()
        for writer in range(writers):
            (self.base / ("w%d" % writer)).mkdir()
        disk.dendro("sync", disk.root)
        self.journal = disk.directory / "journal"
        self.journal.write_bytes(b"")
        of = (seed, str(self.base), str(self.journal))
        self.processes = [
            multiprocessing.Process(target=write_along, args=(writer, *of, pause_s))
            for writer in range(writers)]
        if noise:
            self.processes.append(multiprocessing.Process(
                target=make_noise, args=(repr(seed), str(self.base), noise)))
        for process in self.processes:
            process.start()

    def join(self, timeout_s=60):
        """Waits until a dead mount has ended it; answers complaints."""
        for process in self.processes:
            process.join(timeout_s)
            if process.is_alive():
                process.kill()
                return ["a process hangs on the dead mount"]
        return []

    def stop(self):
        """Ends it on a mount that lives; answers complaints."""
        for process in self.processes:
            process.kill()
        return self.join()

    def check(self):
        """Compares what is there with what was done; answers complaints and a line about it."""
        return check(self.seed, str(self.base), self.journal, self.writers)


def round_of(disk, number, arguments, noise):
    """Works, kills, mounts, checks; answers complaints and how long mounting took."""
    seed = (arguments.seed, number)
    rng = random.Random(repr(seed))
    load = Load(disk, "round%d" % number, seed, arguments.writers, noise)
    pid = disk.pid()
    time.sleep(rng.choice([0.05, 0.5, 2, 8]) * rng.random() + 0.02)
    volume.kill_and_wait(pid)
    complaints = load.join()
    if complaints:
        return complaints, 0.0, ""
    took_s = disk.mount()
    complaints, line = load.check()
    if took_s > LONGEST_MOUNT_S:
        complaints.append("mounting took %.2f s" % took_s)
    return complaints, took_s, line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--writers", type=int, default=2)
    parser.add_argument("--size", default="2G")
    parser.add_argument("--options", default="", help="mount options")
    parser.add_argument("--noise", default="/usr/include", help="a directory to copy around")
    arguments = parser.parse_args()
    failures, longest_s = 0, 0.0
    with volume.scratch("kill9") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs()
        disk.mount(arguments.options)
        for number in range(arguments.rounds):
            complaints, took_s, line = round_of(disk, number, arguments, arguments.noise)
            longest_s = max(longest_s, took_s)
            print("round %d: mounted again in %.2f s; %s" % (number, took_s, line), flush=True)
            for complaint in complaints:
                print("    FAILED: " + complaint, flush=True)
            failures += bool(complaints)
            if complaints and os.environ.get("DENDRO_TEST_KEEP"):
                print("    kept in %s" % directory)
                return 1
            shutil.rmtree(disk.root / ("round%d" % number))
        for line in disk.panics():
            print("    FAILED: " + line)
            failures += 1
        disk.umount()
        disk.discard()
    print("%d rounds, %d failed; the longest mount took %.2f s" % (
        arguments.rounds, failures, longest_s))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
