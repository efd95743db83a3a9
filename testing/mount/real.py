#!/usr/bin/env python3
"""Real work on a mounted volume, beside the same work on the host's file system.

Unpacks a large source tree and compares it with the host's copy, byte by byte and attribute by
attribute, before and after unmounting; puts a part of it under git and checks that with git fsck;
builds zlib and runs its tests; runs SQLite in all its journal modes; removes everything and sees the
space come back, in df, in the volume's own account, and in the image file.

    real.py --linux /usr/src/linux-source-6.1.tar.xz --zlib zlib_1.2.13.dfsg.orig.tar.bz2
            [--size 8G] [--only unpack,git,build,sqlite,remove] [--options OPTIONS]

The inputs are Debian's: `apt-get install linux-source-6.1` and `apt-get source --download-only
zlib` (which needs a deb-src line). What has no input is left out.
"""

import argparse
import os
import pathlib
import shutil
import sqlite3
import stat
import sys
import time

import compare
import volume

GIT_PARTS = ["drivers/gpu", "fs", "kernel", "net", "mm", "include"]
JOURNAL_MODES = ["delete", "truncate", "persist", "wal", "memory", "off"]
# What may stay when all is removed: nodes of the map that are less than full, and the log since
# the last checkpoint.
MAX_LEFT_BYTES = 64 << 20


class Report:
    """Times here and on the host, and what went wrong."""

    def __init__(self):
        self.lines, self.failures = [], 0

    def time(self, what, here_s, host_s=None):
        line = "%-46s %8.2f s" % (what, here_s)
        if host_s is not None:
            line += "  %8.2f s on the host (%.1f times)" % (host_s, here_s / max(host_s, 0.01))
        self.say(line)

    def say(self, line):
        self.lines.append(line)
        print(line, flush=True)

    def check(self, what, holds, why=""):
        if not holds:
            self.failures += 1
            self.say("FAILED: %s: %s" % (what, why))


def timed(work, *arguments):
    started = time.monotonic()
    answer = work(*arguments)
    return time.monotonic() - started, answer


def unpack(tarball, target):
    os.makedirs(target, exist_ok=True)
    volume.run("tar", "-xf", tarball, "-C", target, timeout_s=3600)
    volume.run("sync", "-f", target, timeout_s=600)


def decorate(root):
    """What a source tree has none of."""
    root = pathlib.Path(root) / "decorated"
    root.mkdir()
    for index in range(200):
        file = root / ("file %d \u00e9\n" % index)
        file.write_bytes(os.urandom(index * 97))
        os.link(file, root / ("linked %d" % index))
        os.setxattr(file, "user.some", os.urandom(index))
        os.setxattr(file, "user.more", b"")
    for index, mode in enumerate((0o4755, 0o2755, 0o1777, 0, 0o600)):
        (root / ("mode %d" % index)).write_bytes(b"x")
        os.chmod(root / ("mode %d" % index), mode)
    os.symlink("x" * 4000, root / "long link")
    os.symlink("nowhere", root / "broken link")
    os.mkfifo(root / "fifo")
    (root / ("n" * 255)).write_bytes(b"a long name")
    with open(root / "sparse", "wb") as file:
        file.seek(5 << 30)
        file.write(b"end")
    if os.geteuid() == 0:
        os.mknod(root / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
        os.chown(root / "fifo", 1234, 56789)
        os.setxattr(root / "fifo", "trusted.of", b"root")
    os.utime(root / "broken link", ns=(1, 999_999_999), follow_symlinks=False)
    os.utime(root / "fifo", ns=(-(10 ** 9), -5_000_000_001))


def copy_tree(source, target):
    """By tar, which keeps everything."""
    options = ["--xattrs", "--xattrs-include=*", "--sparse"]
    line = "tar %s -C '%s' -cf - . | tar %s -C '%s' -xpf -" % (
        " ".join(options), source, " ".join(options), target)
    os.makedirs(target, exist_ok=True)
    volume.run("bash", "-c", "set -o pipefail; " + line, timeout_s=3600)


def work_unpack(disk, host, tarball, report):
    host_tree, tree = host / "linux", disk.root / "linux"
    host_s, _ = timed(unpack, tarball, host_tree)
    here_s, _ = timed(unpack, tarball, tree)
    report.time("unpack", here_s, host_s)
    decorate(host_tree)
    copied_s, _ = timed(copy_tree, host_tree, disk.root / "copy")
    report.time("copy through tar", copied_s)
    for moment in ("", " after unmounting"):
        took_s, answer = timed(compare.compare, str(host_tree), str(disk.root / "copy"))
        differences, count, len_bytes = answer
        report.check("comparison" + moment, not differences, "; ".join(differences[:5]))
        report.time("compare %d names, %d MB%s" % (count, len_bytes >> 20, moment), took_s)
        if not moment:
            report.time("unmount", disk.umount())
            report.time("mount", disk.mount())
    shutil.rmtree(disk.root / "copy")


def git_work(tree):
    git = ["git", "-C", tree, "-c", "user.name=test", "-c", "user.email=test@localhost",
           "-c", "gc.auto=0", "-c", "core.fsync=all"]
    volume.run("git", "init", "-q", tree)
    parts = [part for part in GIT_PARTS if os.path.isdir(os.path.join(tree, part))]
    volume.run(*git, "add", "-f", "-A", *parts, timeout_s=3600)
    volume.run(*git, "commit", "-q", "-m", "all", timeout_s=600)
    volume.run(*git, "fsck", "--full", timeout_s=1200)
    volume.run(*git, "gc", "-q", timeout_s=1200)
    volume.run(*git, "fsck", "--full", timeout_s=1200)
    dirty = volume.run(*git, "status", "--short", "-uno", timeout_s=600).stdout
    shutil.rmtree(os.path.join(tree, ".git"))
    return dirty.decode()


def work_git(disk, host, report):
    host_s, _ = timed(git_work, str(host / "linux"))
    here_s, dirty = timed(git_work, str(disk.root / "linux"))
    report.time("git add, commit, fsck, gc, fsck", here_s, host_s)
    report.check("git status", dirty == "", dirty[:200])


def build(tarball, target):
    os.makedirs(target)
    volume.run("tar", "-xf", tarball, "-C", target)
    (tree,) = (entry.path for entry in os.scandir(target) if entry.is_dir())
    for command in (["./configure"], ["make", "-j2"], ["make", "check"]):
        done = volume.run(*command, cwd=tree, timeout_s=1200)
    return done.stdout.decode()


def work_build(disk, host, tarball, report):
    host_s, _ = timed(build, tarball, host / "zlib")
    here_s, output = timed(build, tarball, disk.root / "zlib")
    report.time("build zlib and run its tests", here_s, host_s)
    report.check("zlib's tests", "zlib test OK" in output, output[-300:])


def sqlite_work(directory, mode):
    """Many small transactions, some rolled back, then a look at all of it."""
    path = os.path.join(directory, "sqlite-%s.db" % mode)
    base = sqlite3.connect(path, isolation_level=None)
    base.execute("pragma journal_mode=" + mode)
    base.execute("pragma synchronous=full")
    base.execute("create table t (id integer primary key, name text, data blob)")
    base.execute("create index by_name on t (name)")
    expected = 0
    for batch in range(60):
        base.execute("begin")
        for index in range(50):
            base.execute("insert into t (name, data) values (?, ?)",
                         ("name %d" % (index * 7919 % 50), bytes([batch]) * (index * 20)))
        if mode != "off" and batch % 10 == 9:
            base.execute("rollback")
        else:
            base.execute("commit")
            expected += 50
    base.execute("update t set data = zeroblob(3000) where id % 3 = 0")
    base.execute("vacuum")
    integrity = base.execute("pragma integrity_check").fetchone()[0]
    (count,) = base.execute("select count(*) from t").fetchone()
    base.close()
    again = sqlite3.connect(path)
    integrity_again = again.execute("pragma integrity_check").fetchone()[0]
    again.close()
    return integrity == "ok" and integrity_again == "ok" and count == expected


def work_sqlite(disk, host, report):
    for mode in JOURNAL_MODES:
        host_s, _ = timed(sqlite_work, host, mode)
        here_s, is_sound = timed(sqlite_work, disk.root, mode)
        report.time("SQLite, journal mode %s" % mode, here_s, host_s)
        report.check("SQLite in mode " + mode, is_sound, "not what was put in")


def remove_all(root):
    for entry in os.scandir(root):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def work_remove(disk, host, report):
    used = lambda: (lambda s: (s.f_blocks - s.f_bfree) * s.f_frsize)(os.statvfs(disk.root))
    before = used()
    here_s, _ = timed(remove_all, disk.root)
    host_s, _ = timed(remove_all, host)
    report.time("remove everything", here_s, host_s)
    disk.umount()
    disk.mount()
    after, image = used(), os.stat(disk.image).st_blocks * 512
    report.say("used: %d MB before, %d MB after; the image takes %d MB" % (
        before >> 20, after >> 20, image >> 20))
    report.check("space in df", after < MAX_LEFT_BYTES, "%d bytes" % after)
    report.check("space of the image", image < MAX_LEFT_BYTES, "%d bytes" % image)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--linux", help="a large source tree, as a tarball")
    parser.add_argument("--zlib", help="zlib's source, as a tarball")
    parser.add_argument("--size", default="8G")
    parser.add_argument("--options", default="", help="mount options")
    parser.add_argument("--only", default="unpack,git,build,sqlite,remove")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    report = Report()
    with volume.scratch("real") as directory:
        host = directory / "host"
        host.mkdir()
        disk = volume.Volume(directory, arguments.size).mkfs()
        disk.mount(arguments.options)
        if arguments.linux and "unpack" in only:
            work_unpack(disk, host, arguments.linux, report)
        if arguments.linux and "git" in only:
            work_git(disk, host, report)
        if arguments.zlib and "build" in only:
            work_build(disk, host, arguments.zlib, report)
        if "sqlite" in only:
            work_sqlite(disk, host, report)
        if "remove" in only:
            work_remove(disk, host, report)
        disk.umount()
        report.check("the daemon", not disk.panics(), "; ".join(disk.panics()))
        disk.discard()
    print("%d failed" % report.failures)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
