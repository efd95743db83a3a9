#!/usr/bin/env python3
"""Snapshots and branches of a large tree are sent to other volumes, and nothing differs there.

A tree is copied to a volume, and changed again and again: files are written over, appended to, cut
off, punched, made, removed, renamed and linked; modes, owners, times and attributes change. Each
change is followed by a snapshot, some of them in clones.

1. Each snapshot is sent from the one before, and received. A stream is at most 5 % longer than what
   changed: the pages that differ, and for each file or directory that differs its records.
2. The last snapshot of the main branch is sent whole to a third volume.
3. All is sent with --all to that volume, which passes over the snapshot that it has.

What is received is mounted beside what was sent: names, contents, all times, owners, modes,
attributes, numbers, links and blocks are the same, and `dendro diff` lists the same changes.

4. Ten files are changed. Sending that, and receiving it, is compared with rsync(1) from mount to
   mount and, as root and where there is mkfs.btrfs, with `btrfs send`: CPU time of all processes
   of each, and bytes. A wall-clock time counts on a machine that does nothing else.

    sending.py --tree /usr/src/linux-source-6.1 [--snapshots 20] [--seed 1] [--only-compare 4]
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import time

import compare
import volume

PAGE = 4096
# An i-node, an entry of a directory, and the items of a stream that have them.
RECORDS_OF_A_CHANGE = 600


class Tree:
    """The tree in one branch, and how it is changed."""

    def __init__(self, root, rng):
        self.root, self.rng, self.number = root, rng, 0

    def some(self, count):
        """At most so many regular files of random directories."""
        found = []
        for _ in range(count):
            at = self.root
            while at.is_dir() and not at.is_symlink():
                names = sorted(os.listdir(at))
                if not names:
                    break
                at = at / self.rng.choice(names)
            if at.is_file() and not at.is_symlink() and at not in found:
                found.append(at)
        return found

    def change(self, count):
        for path in self.some(count):
            self.number += 1
            size = path.stat().st_size
            kind = self.rng.choice(
                ["write", "append", "truncate", "replace", "rename", "link", "unlink", "mkdir",
                 "mode", "owner", "times", "xattr", "symlink", "punch", "sparse"])
            data = self.rng.randbytes(self.rng.randrange(1, 40_000))
            new = path.parent / ("new%d-%d" % (os.getpid(), self.rng.randrange(1 << 40)))
            if kind == "write":
                with open(path, "r+b") as file:
                    file.seek(self.rng.randrange(size + 1))
                    file.write(data)
            elif kind == "append":
                with open(path, "ab") as file:
                    file.write(data)
            elif kind == "truncate":
                os.truncate(path, self.rng.randrange(size + 10_000))
            elif kind == "replace":
                new.write_bytes(data)
                os.rename(new, path)
            elif kind == "rename":
                os.rename(path, new)
            elif kind == "link":
                os.link(path, new)
            elif kind == "unlink":
                path.unlink()
            elif kind == "mkdir":
                new.mkdir()
                (new / "file").write_bytes(data)
            elif kind == "mode":
                os.chmod(path, self.rng.choice([0o600, 0o644, 0o755, 0o4711]))
            elif kind == "owner" and os.geteuid() == 0:
                os.chown(path, self.rng.randrange(1000), self.rng.randrange(1000))
            elif kind == "times":
                os.utime(path, ns=(self.rng.randrange(1 << 60), self.rng.randrange(1 << 60)))
            elif kind == "xattr":
                os.setxattr(path, "user.x%d" % self.rng.randrange(3), data[:1000])
            elif kind == "symlink":
                os.symlink("../to " + new.name, new)
            elif kind == "punch":
                subprocess.run(["fallocate", "-p", "-o", "0", "-l", "8192", path], check=True)
            elif kind == "sparse":
                with open(path, "r+b") as file:
                    file.seek(size + (1 << 22))
                    file.write(data)


def snapshot(disk, name, branch=""):
    disk.dendro("snapshot", "create", "%s%s@%s" % (disk.image, branch, name))


def make_source(disk, arguments, rng):
    """Copies the tree, changes it and makes snapshots: the name of each, and of the one before."""
    volume.run("cp", "-a", arguments.tree, disk.root / "tree", timeout_s=1800)
    tree = Tree(disk.root / "tree", rng)
    chain = [("s0", None)]
    snapshot(disk, "s0")
    last = "s0"
    for number in range(1, arguments.snapshots):
        name = "s%d" % number
        if number % 5 == 0:
            # A branch from a random snapshot, changed while it is mounted.
            past = rng.choice(chain)[0]
            branch = "b%d" % number
            disk.dendro("clone", "%s@%s" % (disk.image, past), branch)
            with mounted(disk, "clone=" + branch, "branch") as root:
                Tree(root / "tree", rng).change(rng.choice([3, 30]))
                snapshot(disk, name, ":" + branch)
            chain.append((name, past))
        else:
            tree.change(rng.choice([1, 10, 100, 1000]))
            snapshot(disk, name)
            chain.append((name, last))
            last = name
    return chain, last, tree


@contextlib.contextmanager
def mounted(disk, options, name):
    root = disk.directory / name
    root.mkdir(exist_ok=True)
    disk.dendro("mount", "--log-file", disk.log, "-o", options, disk.image, root)
    try:
        yield root
    finally:
        disk.dendro("umount", root)


def send(source, target, of, *options):
    """Sends and receives through a file; answers what the stream has."""
    stream = source.directory / "stream"
    told = source.dendro("send", "--json", "-o", stream, *options, of, timeout_s=1800)
    source.dendro("stream", "verify", stream, timeout_s=600)
    target.dendro("receive", "-q", target.image, stream, timeout_s=1800)
    stream.unlink()
    return json.loads(told.stdout)


def diff(disk, base, name):
    told = disk.dendro("diff", "--json", "%s@%s..@%s" % (disk.image, base, name), timeout_s=600)
    return sorted(told.stdout.decode().splitlines())


def changed_bytes(source, base, name):
    """The pages that differ between two snapshots, without zeros at the end, and the records of
    what differs."""
    roots = [source.root / ".dendro" / "snapshots" / of for of in (base, name)]
    total, paths = 0, set()
    for line in diff(source, base, name):
        change = json.loads(line)
        total += RECORDS_OF_A_CHANGE
        paths.add((change.get("old_path", change["path"]), change["path"]))
    for pair in paths:
        old, new = (root / path.lstrip("/") for root, path in zip(roots, pair))
        if new.is_symlink() or not new.is_file():
            continue
        size = os.stat(new).st_size
        before = open(old, "rb") if old.is_file() and not old.is_symlink() else None
        with open(new, "rb") as after:
            at = 0
            while at < size:
                with contextlib.suppress(OSError):
                    at = os.lseek(after.fileno(), at, os.SEEK_DATA) // PAGE * PAGE
                    page = os.pread(after.fileno(), PAGE, at)
                    was = os.pread(before.fileno(), PAGE, at) if before else b""
                    total += len(page.rstrip(b"\0")) if page != was else 0
                    at += PAGE
                    continue
                break
        if before:
            before.close()
    return total


def differences(source, target, name):
    """What differs between the two volumes' snapshots."""
    with mounted(source, "snapshot=" + name, "one") as one:
        with mounted(target, "snapshot=" + name, "two") as two:
            lines, count, len_bytes = compare.compare(str(one), str(two), all_fields=True)
    return ["%s: %s" % (name, line) for line in lines], count, len_bytes


def cpu_s(*commands):
    """Runs commands joined by a pipe: CPU time of these and of what they wait for, bytes, time."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    joined = " | ".join(commands)
    subprocess.run(["bash", "-o", "pipefail", "-c", joined], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return spent, time.monotonic() - started


def daemon_cpu_s(disk):
    fields = pathlib.Path("/proc/%d/stat" % disk.pid()).read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def beside_others(source, target, last, tree, rng):
    """Part 4: source and target are mounted, and equal as far as `last` goes."""
    copy = target.root / "tree"
    volume.run("cp", "-a", source.root / "tree", copy, timeout_s=1800)
    for path in tree.some(10):
        with open(path, "r+b") as file:
            file.write(rng.randbytes(3000))
    snapshot(source, "ten")
    for disk in (source, target):
        disk.dendro("sync", disk.root)
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
    results = {}

    def measured(what, *commands):
        before = daemon_cpu_s(source) + daemon_cpu_s(target)
        spent, took = cpu_s(*commands)
        results[what] = spent + daemon_cpu_s(source) + daemon_cpu_s(target) - before
        print("%s: %.2f s of CPU, %.2f s" % (what, results[what], took), flush=True)

    dendro = volume.command()
    measured("dendro send and receive",
             "%s send -i @%s %s@ten" % (dendro, last, source.image),
             "%s receive -q %s" % (dendro, target.image))
    if shutil.which("rsync"):
        measured("rsync -aHAX", "rsync -aHAX --delete %s/tree/ %s/" % (source.root, copy))
        print("rsync takes %.0f times the CPU time" % (
            results["rsync -aHAX"] / results["dendro send and receive"]))


def beside_btrfs(directory, arguments, rng):
    """The same ten changes on btrfs: how long its stream is."""
    image, root = directory / "btrfs.img", directory / "btrfs"
    root.mkdir()
    with open(image, "wb") as file:
        file.truncate(4 << 30)
    volume.run("mkfs.btrfs", "-q", image)
    volume.run("mount", "-o", "loop", image, root)
    try:
        volume.run("btrfs", "subvolume", "create", root / "v")
        volume.run("cp", "-a", arguments.tree, root / "v" / "tree", timeout_s=1800)
        volume.run("btrfs", "subvolume", "snapshot", "-r", root / "v", root / "a")
        for path in Tree(root / "v" / "tree", rng).some(10):
            with open(path, "r+b") as file:
                file.write(rng.randbytes(3000))
        volume.run("btrfs", "subvolume", "snapshot", "-r", root / "v", root / "b")
        volume.run("sync")
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        out = directory / "btrfs.stream"
        spent, took = cpu_s("btrfs send -q -p %s/a %s/b -f %s" % (root, root, out))
        print("btrfs send of such changes: %.2f s of CPU, %.2f s, %d bytes" % (
            spent, took, out.stat().st_size))
    finally:
        volume.run("umount", root, check=False)
        image.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", default="/usr/include")
    parser.add_argument("--size", default="6G")
    parser.add_argument("--snapshots", type=int, default=20)
    parser.add_argument("--only-compare", type=int, default=1000, help="so many snapshots")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    failures = 0

    def report(complaints):
        nonlocal failures
        for complaint in complaints[:5]:
            print("    FAILED: " + complaint, flush=True)
        failures += bool(complaints)

    with volume.scratch("sending") as directory:
        source, target = (volume.Volume(directory, arguments.size, name).mkfs()
                          for name in ("source", "target"))
        # Reading would change access times, which are sent too.
        source.mount("noatime")
        chain, last, tree = make_source(source, arguments, rng)
        target.mount()
        for name, base in chain:
            of = "%s@%s" % (source.image, name)
            told = send(source, target, of, *(["-i", "@" + base] if base else []))
            line = "%s from %s: %d bytes, %d lists" % (
                name, base, told["stream_bytes"],
                told["made_lists"] + told["changed_lists"] + told["deleted_lists"])
            if base:
                changed = changed_bytes(source, base, name)
                line += "; %d changed" % changed
                if told["stream_bytes"] > 1.05 * changed + PAGE:
                    report(["the stream of %s has %d bytes, and %d have changed" % (
                        name, told["stream_bytes"], changed)])
                ours, theirs = (diff(disk, base, name) for disk in (source, target))
                report(["%s: the lists of differences differ" % name] if ours != theirs else [])
            else:
                changed = sum(os.lstat(os.path.join(at, name)).st_size
                              for at, _, names in os.walk(arguments.tree) for name in names)
                line += "; %d bytes in the tree" % changed
            print(line, flush=True)
        names = [name for name, _ in chain]
        chosen = names if len(names) <= arguments.only_compare else [
            names[0], last] + rng.sample(names[1:], arguments.only_compare - 2)
        for name in chosen:
            complaints, count, len_bytes = differences(source, target, name)
            report(complaints)
            print("%s: %d names, %d bytes compared" % (name, count, len_bytes), flush=True)
        if os.geteuid() == 0:
            beside_others(source, target, last, tree, rng)
        target.umount()
        report(target.panics())
        target.discard()
        whole = volume.Volume(directory, arguments.size, "whole").mkfs()
        whole.mount()
        send(source, whole, "%s@%s" % (source.image, last))
        all_of = subprocess.run(
            ["bash", "-o", "pipefail", "-c", "%s send --all %s | %s receive --branches %s" % (
                volume.command(), source.image, volume.command(), whole.image)], check=False)
        report([] if all_of.returncode == 0 else ["send --all failed"])
        for name in {last, rng.choice(names)}:
            complaints, count, len_bytes = differences(source, whole, name)
            report(complaints)
            print("whole, %s: %d names, %d bytes compared" % (name, count, len_bytes), flush=True)
        for name, base in chain[1:]:
            if diff(source, base, name) != diff(whole, base, name):
                report(["whole, %s: the lists of differences differ" % name])
        for disk in (source, whole):
            disk.umount()
            done = disk.dendro("check", "-n", "--data", disk.image, check=False, timeout_s=1800)
            report([] if done.returncode == 0 else ["check: " + done.stdout.decode()[-500:]])
            report(disk.panics())
            disk.discard()
        if os.geteuid() == 0 and shutil.which("mkfs.btrfs"):
            beside_btrfs(directory, arguments, rng)
    print("%d snapshots, %d failed" % (len(chain), failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
