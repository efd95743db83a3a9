#!/usr/bin/env python3
"""Counts what the kernel asks of a mount, by kind of request, for each of the files that programs
work on: with `order=strict` and with `order=close`.

The kernel's tracepoint of requests is read (as root). Each line has a kind, and its requests for
each file, in both modes; kinds with fewer than 0.05 in both are added up.

    requests.py [--files 2000] [--options noxattr] [--only "cp -a"]
"""

import argparse
import collections
import contextlib
import os
import pathlib
import re
import tempfile

import volume

ORDERS = ("strict", "close")
EVENT = "events/fuse/fuse_request_send"
# FORGET is not counted: nobody waits for it.
UNANSWERED = ("FORGET", "BATCH_FORGET", "INTERRUPT")
LINE = re.compile(r"connection (\d+) req \d+ opcode \d+ \(FUSE_(\w+)\)")


class Tracer:
    """The kernel's own record of requests."""

    def __init__(self):
        self.root = pathlib.Path("/sys/kernel/tracing")
        if not (self.root / EVENT).exists():
            volume.run("mount", "-t", "tracefs", "nodev", self.root)
        self.write("buffer_size_kb", "65536")

    def write(self, name, value):
        (self.root / name).write_text(value)

    @contextlib.contextmanager
    def counting(self, root, counts):
        """Adds the requests of the mount on `root` to `counts`."""
        number = os.stat(root).st_dev
        connection = os.major(number) << 20 | os.minor(number)
        self.write("trace", "")
        self.write(EVENT + "/enable", "1")
        try:
            yield
        finally:
            self.write(EVENT + "/enable", "0")
        with open(self.root / "trace", encoding="utf-8") as trace:
            for found in map(LINE.search, trace):
                if found and int(found[1]) == connection and found[2] not in UNANSWERED:
                    counts[found[2]] += 1


def sources(directory, count):
    """A tree of text files, 40 in each directory, with times in the past."""
    tree = directory / "tree"
    for number in range(count):
        path = tree / ("d%03d" % (number // 40)) / ("f%05d.txt" % number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(("line %d\n" % number) * (1 + number * 7 % 900))
        os.utime(path, (1.6e9 + number, 1.6e9 + number))
    volume.run("tar", "-cf", directory / "tree.tar", "-C", directory, "tree")
    git = ("git", "--git-dir", directory / "bare", "--work-tree", tree,
           "-c", "core.bare=false", "-c", "user.name=n", "-c", "user.email=e")
    volume.run("git", "init", "-q", "--bare", directory / "bare")
    volume.run(*git, "add", ".")
    volume.run(*git, "commit", "-qm", "all")


def write(path, flags, data):
    """Without the questions that Python asks of each file that it opens."""
    file = os.open(path, os.O_WRONLY | flags)
    os.write(file, data)
    os.close(file)


def install(root, count):
    """What npm does: files are written under other names, made executable, and renamed."""
    for number in range(count):
        directory = root / "modules" / ("m%03d" % (number // 20))
        directory.mkdir(parents=True, exist_ok=True)
        new = directory / (".new-%d" % number)
        write(new, os.O_CREAT | os.O_EXCL, b"module.exports = 1;\n" * (number * 13 % 500))
        os.chmod(new, 0o755)
        os.rename(new, directory / ("f%d.js" % number))


def append(root, count):
    """Lines are appended to a file that is opened for each."""
    for number in range(count):
        write(root / "log", os.O_CREAT | os.O_APPEND, b"%09d\n" % number * 400)


def write_long(root, count):
    """A file is written by 1 MiB, as many as there are tenths of the files, then synced."""
    block = os.urandom(1 << 20)
    file = os.open(root / "long", os.O_CREAT | os.O_WRONLY)
    for _ in range(count // 10):
        os.write(file, block)
    os.fdatasync(file)
    os.close(file)


def works(directory, root, count):
    """What is counted, each after the one before."""
    tree = directory / "tree"

    def run(*arguments):
        return lambda: volume.run(*arguments, timeout_s=600)

    return {
        "cp -a": run("cp", "-a", tree, root / "copy"),
        "tar x": run("tar", "-xf", directory / "tree.tar", "-C", root),
        "git clone": run("git", "clone", "-q", directory / "bare", root / "clone"),
        "git status": run("git", "-C", root / "clone", "status"),
        "write, chmod, rename": lambda: install(root, count),
        "append and close": lambda: append(root, count),
        "write by 1 MiB (each)": lambda: write_long(root, count),
        "rm -r": run("rm", "-r", root / "copy"),
    }


def measure(tracer, directory, options, count, only):
    """What is asked for each file, by work and kind."""
    mounted = volume.Volume(directory, size="4G")
    mounted.mkfs().mount(options)
    found = {}
    try:
        for name, work in works(directory, mounted.root, count).items():
            counts = found[name] = collections.Counter()
            with tracer.counting(mounted.root, counts):
                work()
            files = count // 10 if "MiB" in name else count
            for kind in counts:
                counts[kind] /= files
        mounted.umount()
    finally:
        mounted.discard()
    return {name: counts for name, counts in found.items() if not only or name in only}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--files", type=int, default=2000)
    arguments.add_argument("--options", default="", help="more options of the mounts")
    arguments.add_argument("--only", action="append", help="tell of this alone")
    arguments = arguments.parse_args()
    tracer = Tracer()
    base = os.environ.get("DENDRO_TEST_DIR", "/var/tmp")
    with tempfile.TemporaryDirectory(dir=base) as directory:
        directory = pathlib.Path(directory)
        sources(directory, arguments.files)
        found = []
        for order in ORDERS:
            options = ",".join(filter(None, ["order=" + order, arguments.options]))
            found.append(
                measure(tracer, directory, options, arguments.files, arguments.only))
    print("%-24s %-16s %8s %8s" % ("", "request", *ORDERS))
    for name in found[0]:
        strict, close = (counts[name] for counts in found)
        kinds = sorted(set(strict) | set(close), key=lambda kind: -(strict[kind] + close[kind]))
        often = [kind for kind in kinds if max(strict[kind], close[kind]) >= 0.05]
        rows = [(kind, strict[kind], close[kind]) for kind in often]
        rare = [kind for kind in kinds if kind not in often]
        rows.append(("others", sum(strict[k] for k in rare), sum(close[k] for k in rare)))
        rows.append(("all", sum(strict.values()), sum(close.values())))
        for kind, *counts in rows:
            print("%-24s %-16s %8.2f %8.2f" % (name, kind, *counts))
            name = ""


if __name__ == "__main__":
    main()
