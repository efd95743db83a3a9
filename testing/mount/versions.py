#!/usr/bin/env python3
"""Versions on a mounted volume, while it is at work.

    snapshots   many snapshots while a tree is copied and a log is appended to: each has all that was
                written before it was asked for, and nothing that was written after it was there
    builds      many snapshots while the tree is built with --build; a build goes on in clones of some
    clones      many clones mounted and written to at the same time: each holds what it should
    archive     tar of a snapshot, out of .dendro, while all files of the head are rewritten
    removal     rm -rf of a tree, undone by rollback and by undelete
    attempts    `dendro try` with a command that fails, and with one that changes every file

    versions.py [--tree /usr/include] [--snapshots 1000] [--clones 100] [--seed 1] [--only PART ...]
                [--prepare 'make tinyconfig' --build 'make -j2' --clean 'make clean']
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import threading
import time

import compare
import volume

RECORD_BYTES = 8
LOG = "log"


def milliseconds(times):
    """Figures of many times in seconds."""
    ordered = sorted(times)
    return "median %.1f ms, 99 of 100 within %.1f ms, most %.1f ms" % (
        statistics.median(ordered) * 1e3, ordered[len(ordered) * 99 // 100 - 1] * 1e3,
        ordered[-1] * 1e3)


def timed(function, *arguments, **more):
    started = time.monotonic()
    function(*arguments, **more)
    return time.monotonic() - started


def expect_same(first, second, what, **how):
    differences, _, _ = compare.compare(str(first), str(second), **how)
    if differences:
        raise volume.Failed("%s: %d differences: %s" % (what, len(differences), differences[:5]))


def copy_tree(tree, to):
    volume.run("cp", "-a", "--reflink=never", tree, to, timeout_s=3000)


class Appender(threading.Thread):
    """Appends numbers to a file, and says how many at least and at most are in it."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.path, self.begun, self.done, self.stopped = path, 0, 0, False

    def run(self):
        with open(self.path, "ab", buffering=0) as log:
            while not self.stopped:
                self.begun += 1
                log.write(self.begun.to_bytes(RECORD_BYTES, "little"))
                self.done = self.begun
                time.sleep(0.0005)

    def stop(self):
        self.stopped = True
        self.join()


class Repeated(threading.Thread):
    """Work that is done over and over until it is stopped."""

    def __init__(self):
        super().__init__(daemon=True)
        self.stopped, self.failure, self.rounds = False, None, 0

    def run(self):
        try:
            while not self.stopped:
                self.work()
                self.rounds += 1
        except (volume.Failed, subprocess.TimeoutExpired) as failure:
            self.failure = failure

    def stop(self):
        self.stopped = True
        self.join()
        if self.failure:
            raise self.failure


class Copies(Repeated):
    """Copies a tree, and removes the copies."""

    def __init__(self, tree, root):
        super().__init__()
        self.tree, self.root = tree, root

    def work(self):
        to = self.root / ("copy%d" % (self.rounds % 2))
        volume.run("rm", "-rf", to, timeout_s=3000)
        copy_tree(self.tree, to)


class Builds(Repeated):
    """Builds a tree, from the beginning each time."""

    def __init__(self, tree, arguments):
        super().__init__()
        self.tree, self.arguments = tree, arguments

    def work(self):
        if self.rounds:
            shell(self.tree, self.arguments.clean)
        shell(self.tree, self.arguments.build)


def shell(directory, command):
    volume.run("sh", "-c", "cd '%s' && %s" % (directory, command), timeout_s=3000)


def check_log(path, least, most):
    data = path.read_bytes()
    count = len(data) // RECORD_BYTES
    if len(data) % RECORD_BYTES or not least <= count <= most:
        raise volume.Failed("%s: %d bytes, not from %d to %d records" % (
            path, len(data), least, most))
    for number in range(1, count + 1, max(1, count // 50)):
        record = data[(number - 1) * RECORD_BYTES:number * RECORD_BYTES]
        if int.from_bytes(record, "little") != number:
            raise volume.Failed("%s: record %d is another" % (path, number))


def snapshots_during(disk, work, what, count, pause_s=0):
    """Snapshots while `work` is done over and over; of each, how long the log was at least and at
    most."""
    appender = Appender(disk.root / LOG)
    appender.start()
    work.start()
    bounds, times = [], []
    for number in range(count):
        least = appender.done
        times.append(timed(disk.dendro, "snapshot", "create", "%s@s%d" % (disk.root, number)))
        bounds.append((least, appender.begun))
        time.sleep(pause_s)
    rounds = work.rounds
    work.stop()
    appender.stop()
    print("  %d snapshots during %d %s: %s, with the start of a process each" % (
        len(bounds), rounds, what, milliseconds(times)))
    return bounds


def check_logs(disk, bounds):
    for number, (least, most) in enumerate(bounds):
        check_log(disk.root / ".dendro" / "snapshots" / ("s%d" % number) / LOG, least, most)


def snapshots(disk, arguments, rng):
    copies = Copies(arguments.tree, disk.root)
    bounds = snapshots_during(disk, copies, "copies", arguments.snapshots)
    listed = os.listdir(disk.root / ".dendro" / "snapshots")
    if len(listed) != len(bounds):
        raise volume.Failed("%d snapshots are listed" % len(listed))
    check_logs(disk, bounds)
    # The copies in some of them: what is there is as in the tree, as far as it got.
    for number in rng.sample(range(len(bounds)), min(10, len(bounds))):
        compare_begun(disk.root / ".dendro" / "snapshots" / ("s%d" % number), arguments.tree)
    names = ["@s%d" % number for number in range(1, len(bounds))]
    took = timed(disk.dendro, "snapshot", "delete", "%s@s0" % disk.root, *names, timeout_s=600)
    print("  all deleted in %.2f s" % took)


def builds(disk, arguments, rng):
    if not arguments.build:
        print("  left out: no --build")
        return
    tree = disk.root / "tree"
    copy_tree(arguments.tree, tree)
    shell(tree, arguments.prepare)
    builder = Builds(tree, arguments)
    bounds = snapshots_during(disk, builder, "builds", arguments.snapshots, arguments.pause)
    check_logs(disk, bounds)
    past = disk.root / ".dendro" / "snapshots"
    for number in rng.sample(range(len(bounds)), min(3, len(bounds))):
        expect_source(arguments.tree, past / ("s%d" % number) / "tree")
        disk.dendro("clone", "%s@s%d" % (disk.root, number), "b%d" % number)
        root = disk.directory / ("b%d" % number)
        root.mkdir()
        disk.dendro("mount", "--log-file", disk.log, "-o", "clone=b%d" % number, disk.image, root)
        took = timed(shell, root / "tree", arguments.build)
        print("  the build of s%d was finished in a clone: %.1f s" % (number, took))
        disk.dendro("umount", root)


def expect_source(tree, copy):
    """Every file of a tree is in the copy, which may have more, as it was."""
    for directory, _, names in os.walk(tree):
        for name in names:
            path = pathlib.Path(directory, name)
            here = copy / path.relative_to(tree)
            if path.is_symlink() or not path.is_file():
                continue
            if not here.is_file() or not compare.has_same_content(path, here):
                raise volume.Failed("%s is not as in the tree" % here)


def compare_begun(root, tree):
    """Files of copies in a snapshot hold the beginning of what they are copied from."""
    checked = 0
    for copy in root.glob("copy*"):
        for directory, _, names in os.walk(copy):
            for name in names[:3]:
                path = pathlib.Path(directory, name)
                source = pathlib.Path(tree, path.relative_to(copy))
                if path.is_symlink() or not path.is_file():
                    continue
                data = path.read_bytes()
                if not source.read_bytes().startswith(data):
                    raise volume.Failed("%s is not what it is a copy of" % path)
                checked += 1
            if checked > 300:
                return


class Clone:
    """A clone, and what it should hold besides the tree."""

    def __init__(self, disk, number, seed):
        self.disk, self.name, self.rng = disk, "c%d" % number, random.Random(seed)
        self.root = disk.directory / self.name
        self.root.mkdir()
        self.files, self.removed = {}, set()

    def mount(self):
        return timed(self.disk.dendro, "mount", "--log-file", self.disk.log, "-o",
                     "threads=2,clone=" + self.name, self.disk.image, self.root)

    def work(self, count, tree_files):
        """Random changes."""
        for _ in range(count):
            action = self.rng.randrange(6)
            if action < 3 or not self.files:
                name = "own%d" % self.rng.randrange(50)
                self.files[name] = self.rng.randbytes(self.rng.choice([10, 3000, 40000]))
                (self.root / name).write_bytes(self.files[name])
            elif action == 3:
                name, to = self.rng.choice(sorted(self.files)), "own%d" % self.rng.randrange(50)
                os.rename(self.root / name, self.root / to)
                self.files[to] = self.files.pop(name)
            elif action == 4:
                name = self.rng.choice(sorted(self.files))
                os.unlink(self.root / name)
                del self.files[name]
            else:
                name = self.rng.choice(tree_files)
                if name not in self.removed:
                    os.unlink(self.root / name)
                    self.removed.add(name)

    def check(self, tree_files, others):
        own = {entry.name for entry in os.scandir(self.root) if entry.name.startswith("own")}
        if own != set(self.files):
            raise volume.Failed("%s has %s" % (self.root, own ^ set(self.files)))
        for name, data in self.files.items():
            if (self.root / name).read_bytes() != data:
                raise volume.Failed("%s holds something else" % (self.root / name))
        for name in tree_files:
            if os.path.lexists(self.root / name) == (name in self.removed):
                raise volume.Failed("%s is there or is not" % (self.root / name))
        for name in others:
            if name not in self.removed:
                same = compare.has_same_content(self.root / name, self.disk.root / name)
                if not same:
                    raise volume.Failed("%s has changed" % (self.root / name))


def clones(disk, arguments, rng):
    copy_tree(arguments.tree, disk.root / "tree")
    tree_files = []
    for directory, _, names in os.walk(disk.root / "tree"):
        paths = [pathlib.Path(directory, name) for name in names]
        tree_files += [str(path.relative_to(disk.root)) for path in paths
                       if path.is_file() and not path.is_symlink()]
    tree_files = rng.sample(tree_files, min(400, len(tree_files)))
    all_clones = [Clone(disk, number, rng.random()) for number in range(arguments.clones)]
    making = [timed(disk.dendro, "clone", disk.root, clone.name) for clone in all_clones]
    mounting = [clone.mount() for clone in all_clones]
    print("  a clone made: %s" % milliseconds(making))
    print("  a clone mounted: %s" % milliseconds(mounting))
    started = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(len(all_clones)) as pool:
        for done in [pool.submit(clone.work, 100, tree_files) for clone in all_clones]:
            done.result()
    print("  100 changes in each of %d at once: %.1f s" % (
        len(all_clones), time.monotonic() - started))
    for clone in all_clones:
        clone.check(tree_files, rng.sample(tree_files, 20))
    expect_same(arguments.tree, disk.root / "tree", "the head")
    volume.run("sh", "-c", "echo 2 > /proc/sys/vm/drop_caches", check=False)
    for clone in all_clones:
        clone.check(tree_files, [])
    # Half of them once more, from the disk.
    for clone in all_clones[::2]:
        disk.dendro("umount", clone.root)
        clone.mount()
        clone.check(tree_files, [])
    leaving = [timed(disk.dendro, "umount", clone.root) for clone in all_clones]
    print("  a clone unmounted: %s" % milliseconds(leaving))
    disk.dendro("snapshot", "delete", "%s:c0" % disk.root,
                *[":" + clone.name for clone in all_clones[1:]], timeout_s=600)


def rewrite(root, rng, until):
    """Writes all files anew, and gives them other names, until told to stop."""
    rounds = 0
    while not until.is_set():
        for directory, _, names in os.walk(root):
            for name in names:
                path = os.path.join(directory, name)
                if until.is_set():
                    return rounds
                if os.path.islink(path):
                    continue
                with open(path, "wb") as file:
                    file.write(rng.randbytes(2000))
                os.rename(path, path + ("~" if len(name) < 200 else ""))
        rounds += 1
    return rounds


def archive(disk, arguments, rng):
    copy_tree(arguments.tree, disk.root / "tree")
    disk.dendro("snapshot", "create", "%s@kept" % disk.root)
    until = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        rewriting = pool.submit(rewrite, disk.root / "tree", rng, until)
        out = disk.directory / "unpacked"
        out.mkdir()
        took = timed(volume.run, "sh", "-c", "tar --format=posix -C %s -cf - . | tar -C %s -xpf -" % (
            disk.root / ".dendro" / "snapshots" / "kept", out), timeout_s=3000)
        until.set()
        rewriting.result()
    print("  archived and unpacked in %.1f s while the head was rewritten" % took)
    expect_same(arguments.tree, out / "tree", "the archive")
    volume.run("rm", "-rf", out, timeout_s=600)


def removal(disk, arguments, _):
    copy_tree(arguments.tree, disk.root / "tree")
    disk.dendro("snapshot", "create", "%s@before" % disk.root)
    volume.run("rm", "-rf", disk.root / "tree", timeout_s=3000)
    took = timed(disk.dendro, "undelete", disk.root / "tree", timeout_s=3000)
    expect_same(arguments.tree, disk.root / "tree", "undelete")
    print("  brought back by undelete in %.2f s" % took)
    volume.run("rm", "-rf", disk.root / "tree", timeout_s=3000)
    took = timed(disk.dendro, "rollback", "%s@before" % disk.root, timeout_s=600)
    expect_same(arguments.tree, disk.root / "tree", "rollback")
    print("  brought back by rollback, mounted, in %.3f s" % took)


def attempts(disk, arguments, _):
    copy_tree(arguments.tree, disk.root / "tree")
    tree = disk.root / "tree"
    done = disk.dendro("try", disk.root, "--", "sh", "-c", "rm -rf %s; exit 9" % tree,
                       check=False, timeout_s=600)
    if done.returncode != 9:
        raise volume.Failed("dendro try ended with %d: %s" % (done.returncode, done.stderr))
    expect_same(arguments.tree, tree, "an attempt that failed")
    count = sum(len(names) for _, _, names in os.walk(tree))
    script = "find %s -type f -exec sh -c 'for f; do echo >> \"$f\"; done' sh {} +" % tree
    command = timed(volume.run, "sh", "-c", script, timeout_s=3000)
    whole = timed(disk.dendro, "try", disk.root, "--", "sh", "-c", script, timeout_s=3000)
    for directory, _, names in os.walk(tree):
        for name in names:
            path = pathlib.Path(directory, name)
            source = pathlib.Path(arguments.tree, path.relative_to(tree))
            if not path.is_symlink() and path.read_bytes() != source.read_bytes() + b"\n\n":
                raise volume.Failed("%s was not changed twice" % path)
    print("  %d files changed in an attempt: %.2f s, without one %.2f s" % (count, whole, command))
    empty = [timed(disk.dendro, "try", disk.root, "--", "true") for _ in range(20)]
    print("  an attempt of nothing: %s" % milliseconds(empty))


PARTS = {part.__name__: part for part in (snapshots, builds, clones, archive, removal, attempts)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", default="/usr/include")
    parser.add_argument("--snapshots", type=int, default=1000)
    parser.add_argument("--clones", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prepare", default="true", help="what goes before the first build")
    parser.add_argument("--build", help="what builds the tree, run by a shell in it")
    parser.add_argument("--clean", default="make clean", help="what undoes a build")
    parser.add_argument("--pause", type=float, default=0.1, help="seconds between snapshots")
    parser.add_argument("--size", default="8G")
    parser.add_argument("--only", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    is_good = True
    with volume.scratch("versions") as directory:
        for name in arguments.only:
            print(name, flush=True)
            disk = volume.Volume(directory, arguments.size, name).mkfs()
            disk.mount()
            try:
                PARTS[name](disk, arguments, rng)
                disk.umount()
                check_clean(disk)
            except (volume.Failed, subprocess.TimeoutExpired, OSError) as failure:
                is_good = False
                print("FAILED: %s: %s" % (name, failure), flush=True)
            for line in disk.panics():
                is_good = False
                print("FAILED: %s: %s" % (name, line), flush=True)
            disk.discard()
    sys.exit(0 if is_good else 1)


def check_clean(disk):
    info = json.loads(disk.dendro("info", "--json", disk.image).stdout)
    if not info["checkpoint"]["clean"]:
        raise volume.Failed("it was not shut down cleanly")


if __name__ == "__main__":
    main()
