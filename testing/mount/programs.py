#!/usr/bin/env python3
"""Programs by others that check themselves, on a mounted volume. As root.

fio writes and verifies (buffered, direct, mapped); stress-ng's file-system stressors run with --verify;
dbench; rsync -aHAX copies a tree, and finds nothing to do by checksums afterwards; an overlay has its
upper layer on the volume; PostgreSQL makes a cluster, runs pgbench, is stopped as by a crash, recovers,
and finds its tables whole. What is not installed is left out (Debian: fio stress-ng dbench rsync postgresql).

    programs.py [--options OPTIONS] [--tree DIRECTORY] [--seconds 2]
                [--only fio,stress,dbench,rsync,overlay,postgres]
"""

import argparse
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import time

import volume

STRESSORS = """access chdir chmod chown copy-file dentry dir dirdeep fallocate fiemap filename flock
fpunch getdent hdd iomix lease link locka lockf lockofd mknod open readahead rename seek sendfile
symlink sync-file touch utime xattr""".split()
# "Not implemented" and "no resources", as for a lease on a file system that has none.
STRESS_LEFT_OUT = (3, 4)


class Report:
    """What went wrong."""

    def __init__(self):
        self.failures = 0

    def run(self, what, *command, accept=(0,), timeout_s=600, **more):
        started = time.monotonic()
        done = volume.run(*command, check=False, timeout_s=timeout_s, **more)
        self.check("%s (%.1f s)" % (what, time.monotonic() - started), done.returncode in accept,
                   (done.stdout + done.stderr).decode(errors="replace")[-1500:])
        return done

    def check(self, what, holds, why=""):
        if not holds:
            self.failures += 1
        print(what if holds else "FAILED: %s: %s" % (what, why), flush=True)


def work_fio(root, report, arguments):
    for name, more in (
            ("buffered", ["--rw=randwrite", "--bs=4k-128k", "--ioengine=psync", "--size=64M",
                          "--numjobs=2", "--verify=crc32c", "--fallocate=none"]),
            ("direct", ["--rw=randrw", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--iodepth=16",
                        "--size=32M", "--verify=sha256"]),
            ("mapped", ["--rw=randwrite", "--bs=4k", "--ioengine=mmap", "--size=32M",
                        "--verify=md5"])):
        report.run("fio, " + name, "fio", "--name=" + name, "--directory=%s" % root,
                   "--do_verify=1", "--verify_fatal=1", *more, cwd=root)


def work_stress(root, report, arguments):
    for stressor in STRESSORS:
        report.run("stress-ng, " + stressor, "stress-ng", "--temp-path", root, "--" + stressor, "2",
                   "--timeout", str(arguments.seconds), "--verify",
                   accept=(0,) + STRESS_LEFT_OUT, cwd=root)


def work_dbench(root, report, arguments):
    report.run("dbench, 4 clients", "dbench", "-D", root, "-t", str(5 * arguments.seconds), "4")


def work_rsync(root, report, arguments):
    source = pathlib.Path(arguments.tree)
    report.run("rsync -aHAX", "rsync", "-aHAX", "%s/" % source, root / "copy")
    done = report.run("rsync by checksums", "rsync", "-aHAXc", "--dry-run", "--itemize-changes",
                      "%s/" % source, "%s/" % (root / "copy"))
    report.check("rsync finds nothing to do", done.stdout == b"", done.stdout[:500].decode())


def work_overlay(root, report, arguments):
    parts = {name: root / name for name in ("lower", "upper", "work", "merged")}
    for part in parts.values():
        part.mkdir()
    (parts["lower"] / "a").write_text("a")
    (parts["lower"] / "d").mkdir()
    (parts["lower"] / "d" / "b").write_text("b")
    options = "lowerdir=%(lower)s,upperdir=%(upper)s,workdir=%(work)s" % parts
    volume.run("mount", "-t", "overlay", "overlay", "-o", options, parts["merged"])
    try:
        merged = parts["merged"]
        (merged / "a").write_text("changed")
        (merged / "d" / "b").unlink()
        (merged / "d" / "made").mkdir()
        (merged / "d" / "made" / "c").write_text("c")
        (merged / "a").rename(merged / "d" / "moved")
        shutil.rmtree(merged / "d" / "made")
        os.chmod(merged / "d" / "moved", 0o600)
        names = sorted(str(path.relative_to(merged)) for path in merged.rglob("*"))
        report.check("an overlay shows what was done", names == ["d", "d/moved"], names)
        report.check("and the file changed", (merged / "d" / "moved").read_text() == "changed")
    finally:
        volume.run("umount", parts["merged"])
    report.check("the lower layer is as it was", (parts["lower"] / "a").read_text() == "a"
                 and (parts["lower"] / "d" / "b").exists())


def postgres_programs():
    return sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1:]


def work_postgres(root, report, arguments):
    programs = pathlib.Path(postgres_programs()[0])
    cluster = root / "cluster"
    shutil.chown(root, "postgres", "postgres")
    as_postgres = ["runuser", "-u", "postgres", "--"]
    client = ["-h", str(root), "-p", "54329"]
    run = lambda what, name, *more: report.run(
        "PostgreSQL: " + what, *as_postgres, programs / name, *more, cwd=root)
    run("initdb with checksums", "initdb", "--data-checksums", "-D", cluster)
    start = ["pg_ctl", "-D", cluster, "-w", "-l", root / "log",
             "-o", "-p 54329 -c listen_addresses='' -c unix_socket_directories='%s'" % root, "start"]
    run("start", *start)
    run("fill", "pgbench", *client, "-q", "-i", "-s", "5", "postgres")
    run("pgbench, 4 clients", "pgbench", *client, "-c", "4", "-T", str(5 * arguments.seconds), "postgres")
    run("stop as by a crash", "pg_ctl", "-D", cluster, "-m", "immediate", "stop")
    run("recovery", *start)
    query = ("select (select sum(abalance) from pgbench_accounts) = (select sum(bbalance) from "
             "pgbench_branches) and (select sum(tbalance) from pgbench_tellers) = (select "
             "coalesce(sum(delta), 0) from pgbench_history)")
    done = run("query", "psql", *client, "-At", "-c", query, "postgres")
    report.check("PostgreSQL: the sums agree", done.stdout.strip() == b"t", done.stdout)
    run("stop", "pg_ctl", "-D", cluster, "-m", "fast", "stop")
    run("all checksums", "pg_checksums", "--check", "-D", cluster)


WORK = {"fio": work_fio, "stress": work_stress, "dbench": work_dbench, "rsync": work_rsync,
        "overlay": work_overlay, "postgres": work_postgres}
NEEDS = {"fio": "fio", "stress": "stress-ng", "dbench": "dbench", "rsync": "rsync"}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--options", default="", help="mount options")
    parser.add_argument("--tree", default=str(volume.CHECKOUT / "crates"), help="for rsync")
    parser.add_argument("--seconds", type=int, default=2, help="for each stressor")
    parser.add_argument("--only", default=",".join(WORK))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("left out: this takes root")
        return 0
    report = Report()
    with volume.scratch("programs") as directory:
        disk = volume.Volume(directory, "4G").mkfs()
        disk.mount(arguments.options)
        os.chmod(directory, 0o755)
        for name in arguments.only.split(","):
            is_there = postgres_programs() if name == "postgres" else (
                name not in NEEDS or shutil.which(NEEDS[name]))
            if not is_there:
                print("%s is left out: it is not installed" % name)
                continue
            root = disk.root / name
            root.mkdir(mode=0o755)
            try:
                WORK[name](root, report, arguments)
            except (volume.Failed, OSError, subprocess.TimeoutExpired) as error:
                report.check(name, False, error)
            shutil.rmtree(root, ignore_errors=True)
        disk.umount()
        report.check("the daemon", not disk.panics(), "; ".join(disk.panics()))
        done = volume.run(volume.command(), "info", disk.image)
        report.check("it was shut down cleanly", b"shut down cleanly" in done.stdout)
        disk.discard()
    print("%d failed" % report.failures)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
