#!/usr/bin/env python3
"""Programs by others that check themselves, on a mounted volume. As root.

fio writes and verifies (buffered, direct, mapped); stress-ng's file-system stressors run with --verify;
dbench; rsync -aHAX copies a tree, and finds nothing to do by checksums afterwards; an overlay has its
upper layer on the volume; PostgreSQL makes a cluster, runs pgbench, is stopped as by a crash, recovers,
and finds its tables whole; RocksDB fills, overwrites and verifies a database; cargo builds a crate, and
finds nothing to do afterwards; npm installs packages, twice the same; Samba exports the volume, and a
client gets back what it puts there; so does NFS-Ganesha, for reading (libnfs's own client for NFS 4 cannot
write, whatever the file system). What is not installed is left out (Debian: fio stress-ng dbench rsync
postgresql rocksdb-tools cargo npm nfs-ganesha-vfs libnfs-utils samba samba-vfs-modules smbclient); npm
needs its registry.

    programs.py [--options OPTIONS] [--tree DIRECTORY] [--seconds 2]
                [--only fio,stress,dbench,rsync,overlay,postgres,rocksdb,cargo,npm,nfs,samba]
"""

import argparse
import contextlib
import filecmp
import glob
import os
import pathlib
import shutil
import socket
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


def work_rocksdb(root, report, arguments):
    count = 20_000 * arguments.seconds
    bench = ["db_bench", "--db=%s" % (root / "db"), "--num=%d" % count, "--value_size=400",
             "--write_buffer_size=4194304", "--statistics=0"]
    report.run("RocksDB: fill, overwrite, read", *bench,
               "--benchmarks=fillrandom,overwrite,readrandom,compact,verifychecksum")
    for what, *more in (("each write durable", "--sync=1", "--writes=%d" % (count // 50)),
                        ("mapped", "--mmap_read=1", "--mmap_write=1"),
                        ("direct", "--use_direct_reads=1", "--use_direct_io_for_flush_and_compaction=1")):
        report.run("RocksDB: " + what, *bench, "--use_existing_db=1", *more,
                   "--benchmarks=overwrite,compact,readseq,verifychecksum")
    report.run("RocksDB: consistency", "ldb", "--db=%s" % (root / "db"), "checkconsistency")


def work_cargo(root, report, arguments):
    for name in ("Cargo.toml", "Cargo.lock", "rust-toolchain.toml", "clippy.toml"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(volume.CHECKOUT / name, root / name)
    for name in ("crates", "testing"):
        shutil.copytree(volume.CHECKOUT / name, root / name, symlinks=True)
    build = ["cargo", "test", "--offline", "-p", "dendro-base"]
    environment = dict(os.environ, CARGO_TARGET_DIR=str(root / "target"))
    report.run("cargo: build and run tests", *build, cwd=root, env=environment)
    done = report.run("cargo: once more", *build, "--no-run", cwd=root, env=environment)
    report.check("cargo finds nothing to do", b"Compiling" not in done.stderr, done.stderr[-500:])


def work_npm(root, report, arguments):
    (root / "package.json").write_text('{"name": "probe", "version": "1.0.0", "private": true}')
    npm = ["npm", "--cache", root / "cache", "--no-audit", "--no-fund"]
    done = volume.run(*npm, "view", "express", "version", check=False, timeout_s=60, cwd=root)
    if done.returncode != 0:
        print("npm is left out: its registry cannot be reached")
        return
    report.run("npm install", *npm, "install", "express", "rimraf", cwd=root)
    program = "const e = require('express'); e(); console.log(Object.keys(e).length > 5)"
    done = report.run("npm: what was installed runs", "node", "-e", program, cwd=root)
    report.check("npm: it says so", done.stdout.strip() == b"true", done.stdout)
    (root / "node_modules").rename(root / "before")
    report.run("npm ci", *npm, "ci", "--prefer-offline", cwd=root)
    report.run("npm: the same files", "diff", "-r", "--no-dereference", root / "before",
               root / "node_modules")
    report.run("npm: removed by itself", "node", "node_modules/.bin/rimraf", "before", cwd=root)
    report.check("npm: it is gone", not (root / "before").exists())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(port, *command):
    """A server that answers at `port` while the body runs."""
    # In a session of its own: smbd ends with all that is in its process group.
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if process.poll() is not None:
                raise volume.Failed("%s ended with %d" % (command[0], process.returncode))
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def sample(directory, len_bytes=3_000_001):
    """A file to be sent, and where it is to come back."""
    source = directory / "source"
    source.write_bytes(os.urandom(len_bytes))
    return source, directory / "back"


def work_nfs(root, report, arguments):
    port, private = free_port(), root.parent.parent / "nfs"
    private.mkdir()
    source, back = sample(private)
    exported = root / "exported"
    (exported / "below").mkdir(parents=True)
    shutil.copy(source, exported / "below" / "large")
    for number in range(200):
        (exported / "below" / ("file-%d" % number)).write_text("content %d" % number)
    (private / "ganesha.conf").write_text("""
NFS_CORE_PARAM { NFS_Port = %d; Protocols = 4; Enable_NLM = false; Enable_RQUOTA = false;
                 fsid_device = true; }
NFSV4 { Grace_Period = 1; Graceless = true; RecoveryRoot = "%s"; }
EXPORT { Export_Id = 7; Path = "%s"; Pseudo = "/x"; Access_Type = RW; Squash = No_Root_Squash;
         SecType = sys; FSAL { Name = VFS; } }
""" % (port, private, exported))
    with server(port, "ganesha.nfsd", "-F", "-f", private / "ganesha.conf", "-L", private / "log",
                "-p", private / "pid"):
        url = lambda name: "nfs://127.0.0.1/x/%s?version=4&nfsport=%d" % (name, port)
        done = report.run("NFS: list", "nfs-ls", "-R", url(""))
        report.check("NFS: all is listed", done.stdout.count(b"/file-") == 200, done.stdout[-500:])
        report.run("NFS: read", "nfs-cp", url("below/large"), back)
        report.check("NFS: it is the same", filecmp.cmp(source, back, shallow=False))
        # The server finds it again by its handle, which the kernel may have forgotten.
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("2")
        done = report.run("NFS: read after forgetting", "nfs-cat", url("below/file-7"))
        report.check("NFS: it is the right one", done.stdout == b"content 7", done.stdout)
    shutil.rmtree(private)


def work_samba(root, report, arguments):
    port, private = free_port(), root.parent.parent / "samba"
    private.mkdir()
    source, back = sample(private)
    shared = root / "shared"
    shared.mkdir()
    (private / "smb.conf").write_text("""
[global]
map to guest = Bad User
guest account = root
smb ports = %d
bind interfaces only = yes
interfaces = lo
disable spoolss = yes
log file = %s/log
private dir = %s
lock directory = %s
state directory = %s
cache directory = %s
pid directory = %s
ncalrpc dir = %s/rpc
[share]
path = %s
guest ok = yes
guest only = yes
read only = no
vfs objects = acl_xattr streams_xattr
store dos attributes = yes
strict locking = yes
""" % ((port,) + (private,) * 7 + (shared,)))
    client = ["smbclient", "//127.0.0.1/share", "-p", str(port), "-U%", "-s", private / "smb.conf", "-c"]
    with server(port, "smbd", "--foreground", "--no-process-group", "-s", private / "smb.conf"):
        done = report.run("Samba: send, list, rename, get back", *client,
                          'put %s sent; mkdir d; rename sent d/moved; allinfo d/moved; '
                          'setmode d/moved +h; ls d/*; get d/moved %s' % (source, back), cwd=private)
        report.check("Samba: it is listed", b"moved" in done.stdout, done.stdout[-500:])
        report.check("Samba: it came back", back.exists() and filecmp.cmp(source, back, shallow=False))
        report.check("Samba: it is here",
                     filecmp.cmp(source, shared / "d" / "moved", shallow=False))
        report.check("Samba: attributes are kept",
                     "user.DOSATTRIB" in os.listxattr(shared / "d" / "moved"))
        report.run("Samba: remove", *client, "del d/moved; rmdir d", cwd=private)
    report.check("Samba: nothing is left", os.listdir(shared) == [], os.listdir(shared))
    shutil.rmtree(private)


WORK = {"fio": work_fio, "stress": work_stress, "dbench": work_dbench, "rsync": work_rsync,
        "overlay": work_overlay, "postgres": work_postgres, "rocksdb": work_rocksdb,
        "cargo": work_cargo, "npm": work_npm, "nfs": work_nfs, "samba": work_samba}
NEEDS = {"fio": ["fio"], "stress": ["stress-ng"], "dbench": ["dbench"], "rsync": ["rsync"],
         "rocksdb": ["db_bench", "ldb"], "cargo": ["cargo"], "npm": ["npm", "node"],
         "nfs": ["ganesha.nfsd", "nfs-cp", "nfs-ls", "nfs-cat"], "samba": ["smbd", "smbclient"]}


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
                all(shutil.which(need) for need in NEEDS.get(name, ())))
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
