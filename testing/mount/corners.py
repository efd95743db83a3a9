#!/usr/bin/env python3
"""What few programs do, and some rely on. Most of it as root.

File handles (as NFS servers use them) survive dropped caches and a new mount; paths of 4,095 bytes; files
with holes of terabytes; times before 1970 and after 2106; memory that several processes share; several
that append to one file; users in namespaces of their own.

    corners.py [--options OPTIONS] [--only handles,paths,holes,times,shared,append,namespaces]
"""

import argparse
import ctypes
import errno
import mmap
import multiprocessing
import os
import struct
import subprocess
import sys

import volume

libc = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
TIB = 1 << 40


class Handle(ctypes.Structure):
    """struct file_handle"""

    _fields_ = [("len", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]


def failed():
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def handle_of(path):
    handle, mount_id = Handle(len=128), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, os.fsencode(path), ctypes.byref(handle),
                              ctypes.byref(mount_id), 0) < 0:
        raise failed()
    return handle


def open_handle(root, handle, flags=os.O_RDONLY):
    mount = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        opened = libc.open_by_handle_at(mount, ctypes.byref(handle), flags)
        if opened < 0:
            raise failed()
        return opened
    finally:
        os.close(mount)


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as control:
        control.write("3")


def handles(disk, arguments):
    root = disk.root / "handles"
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "b" / "file").write_text("of the file")
    os.link(root / "a" / "b" / "file", root / "link")
    os.symlink("nowhere", root / "a" / "symlink")
    gone = root / "gone"
    gone.write_text("x")
    stale = handle_of(gone)
    names = ["a/b/file", "a/b", "a", "a/symlink"]
    found = {name: (handle_of(root / name), os.lstat(root / name).st_ino) for name in names}
    for when in ("at once", "after dropping caches", "after mounting again"):
        if when == "after dropping caches":
            gone.unlink()
        if when == "after mounting again":
            disk.umount()
            disk.mount(arguments.options)
        for name, (handle, number) in found.items():
            drop_caches()
            try:
                flags = os.O_PATH | os.O_NOFOLLOW if name == "a/symlink" else os.O_RDONLY
                opened = open_handle(disk.root, handle, flags)
            except OSError as error:
                yield "%s, %s: %s" % (name, when, error)
                continue
            if os.fstat(opened).st_ino != number:
                yield "%s, %s: another file" % (name, when)
            if name == "a/b/file" and os.read(opened, 100) != b"of the file":
                yield "%s, %s: other contents" % (name, when)
            os.close(opened)
    drop_caches()
    try:
        os.close(open_handle(disk.root, stale))
        yield "a file that is gone is found by its handle"
    except OSError as error:
        if error.errno != errno.ESTALE:
            yield "the handle of a file that is gone: %s" % error


def paths(disk, arguments):
    os.chdir(disk.root)
    path, room = "", 4095 - len(str(disk.root)) - 1
    while room - len(path) > 300:
        path += "d" * 199 + "/"
    os.makedirs(path)
    longest = "%s/%s" % (disk.root, path)
    longest += "f" * (4095 - len(longest))
    with open(longest, "w", encoding="ascii") as file:
        file.write("deep")
    os.chdir("/")
    if len(longest) != 4095 or open(longest, encoding="ascii").read() != "deep":
        yield "a path of %d bytes" % len(longest)
    try:
        os.stat(longest + "f")
        yield "a path of 4096 bytes is taken"
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            yield "a path of 4096 bytes: %s" % error
    target = "t" * 4095
    os.symlink(target, disk.root / "longest")
    if os.readlink(disk.root / "longest") != target:
        yield "a link's target of 4095 bytes"


def holes(disk, arguments):
    path = disk.root / "sparse"
    places = [0, 5 * TIB + 1, 900 * TIB, (1 << 62) + 4095]
    with open(path, "wb", buffering=0) as file:
        for place in places:
            os.pwrite(file.fileno(), b"data", place)
    disk.umount()
    disk.mount(arguments.options)
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size != places[-1] + 4 or os.fstat(file.fileno()).st_blocks > 64:
            yield "size %d, %d blocks" % (size, os.fstat(file.fileno()).st_blocks)
        found, at = [], 0
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError:
                break
            found.append(at // 4096)
            at = os.lseek(file.fileno(), at, os.SEEK_HOLE)
        if found != [place // 4096 for place in places]:
            yield "data at pages %s" % found
        for place in places:
            if os.pread(file.fileno(), 6, place - 1 if place else 0).strip(b"\0")[:4] != b"data":
                yield "not what was written at %d" % place
    # Punched to the very end, in no time.
    volume.run("fallocate", "--punch-hole", "--offset", "4096", "--length", str((1 << 63) - 5000), path,
               timeout_s=10)
    if os.stat(path).st_blocks > 8:
        yield "%d blocks are left" % os.stat(path).st_blocks


def times(disk, arguments):
    path = disk.root / "times"
    path.write_text("x")
    moments = [(-6_857_222_400, 1), (-1, 999_999_999), (0, 0), (1 << 31, 5), ((1 << 32) + 7, 123_456_789),
               (253_402_300_799, 999_999_999)]
    for seconds, nanoseconds in moments:
        moment = seconds * 10**9 + nanoseconds
        os.utime(path, ns=(moment, moment + 1))
        drop_caches()
        if (os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns) != (moment, moment + 1):
            yield "%d s are %d ns" % (seconds, os.stat(path).st_mtime_ns)
    disk.umount()
    disk.mount(arguments.options)
    if os.stat(path).st_mtime_ns != moment + 1:
        yield "after mounting again it is %d ns" % os.stat(path).st_mtime_ns


def count_up(path, number, rounds):
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for value in range(1, rounds + 1):
            # In pages that all share, and in one of its own.
            for page in (0, 7, 8 + number):
                struct.pack_into("<Q", memory, page * 4096 + 8 * number, value)
            if value % 50 == 0:
                memory.flush()


def shared(disk, arguments):
    path, rounds = disk.root / "shared", 500
    path.write_bytes(bytes(16 * 4096))
    workers = [multiprocessing.Process(target=count_up, args=(path, number, rounds))
               for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    for when in ("at once", "after mounting again"):
        data = path.read_bytes()
        for number in range(6):
            for page in (0, 7, 8 + number):
                value = struct.unpack_from("<Q", data, page * 4096 + 8 * number)[0]
                if value != rounds:
                    yield "%s: process %d left %d in page %d" % (when, number, value, page)
        disk.umount()
        disk.mount(arguments.options)


def append_records(path, number, count):
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    for record in range(count):
        os.write(file, (b"%d %d " % (number, record)).ljust(119, b"x") + b"\n")
    os.close(file)


def append(disk, arguments):
    path, count = disk.root / "log", 400
    path.touch()
    writers = [multiprocessing.Process(target=append_records, args=(path, number, count))
               for number in range(5)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    seen = {number: [] for number in range(5)}
    for line in path.read_bytes().splitlines():
        if len(line) != 119:
            yield "a torn record: %r" % line[:50]
            continue
        number, record = map(int, line.split()[:2])
        seen[number].append(record)
    for number, records in seen.items():
        if records != list(range(count)):
            yield "process %d has %d records, or in another order" % (number, len(records))


def namespaces(disk, arguments):
    home = disk.root / "home"
    home.mkdir()
    os.chown(home, 1000, 1000)
    (disk.root / "roots").write_text("x")
    script = """
        set -e; cd '%s'
        [ "$(id -u)" = 0 ]; echo made > file; mkdir dir; chmod 4755 file; ln -s file link
        [ "$(stat -c %%u file)" = 0 ]; [ "$(stat -c %%u ../roots)" = 65534 ]
        if chown 5:5 file 2> /dev/null; then echo "chown to an id without a name"; fi
        if (echo x > ../roots) 2> /dev/null; then echo "root's file was written"; fi
        if mknod device c 1 3 2> /dev/null; then echo "a device was made"; fi
        """ % home
    done = subprocess.run(
        ["setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups",
         "unshare", "--user", "--map-root-user", "sh", "-c", script],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=30)
    if done.returncode or done.stdout:
        yield done.stdout.decode() or "exit code %d" % done.returncode
    for name in ("file", "dir", "link"):
        if os.lstat(home / name).st_uid != 1000:
            yield "%s is %d's" % (name, os.lstat(home / name).st_uid)


WORK = (handles, paths, holes, times, shared, append, namespaces)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--options", default="", help="mount options")
    parser.add_argument("--only", default=",".join(work.__name__ for work in WORK))
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("left out: this takes root")
        return 0
    failures = 0
    with volume.scratch("corners") as directory:
        os.chmod(directory, 0o755)
        disk = volume.Volume(directory, "256M").mkfs()
        disk.mount(arguments.options)
        os.chmod(disk.root, 0o755)
        for work in WORK:
            if work.__name__ not in arguments.only.split(","):
                continue
            complaints = list(work(disk, arguments))
            print("%s: %d complaints" % (work.__name__, len(complaints)), flush=True)
            for complaint in complaints[:10]:
                print("    FAILED: " + complaint, flush=True)
            failures += bool(complaints)
        disk.umount()
        failures += bool(disk.panics())
        disk.discard()
    print("%d failed" % failures)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
