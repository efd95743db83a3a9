#!/usr/bin/env python3
"""A mount whose users' ids are mapped, as containers have them: what the user 101000 makes there is
1000's in the volume, and the other way round. Needs root, and Linux 6.12 for idmapped FUSE.

    idmap.py
"""

import contextlib
import ctypes
import os
import subprocess
import sys
import time

import volume

# linux/mount.h and syscall numbers, which are the same on all machines since Linux 5.1.
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH, AT_EMPTY_PATH, AT_FDCWD = 4, 0x1000, -100
MOUNT_ATTR_IDMAP = 0x100000
SHIFT, RANGE = 100000, 65536

libc = ctypes.CDLL(None, use_errno=True)


def call(number, *arguments):
    answer = libc.syscall(number, *arguments)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


@contextlib.contextmanager
def user_namespace():
    """A user namespace that maps SHIFT … to 0 …"""
    holder = subprocess.Popen(["unshare", "--user", "sleep", "60"])
    try:
        own = os.readlink("/proc/self/ns/user")
        while os.readlink("/proc/%d/ns/user" % holder.pid) == own:
            time.sleep(0.01)
        for kind in ("uid_map", "gid_map"):
            with open("/proc/%d/%s" % (holder.pid, kind), "w", encoding="ascii") as table:
                table.write("0 %d %d" % (SHIFT, RANGE))
        yield os.open("/proc/%d/ns/user" % holder.pid, os.O_RDONLY | os.O_CLOEXEC)
    finally:
        holder.kill()
        holder.wait()


def mount_mapped(root, mapped, namespace):
    """Mounts what is at `root` once more at `mapped`, with ids as `namespace` has them."""
    tree = call(OPEN_TREE, AT_FDCWD, os.fsencode(root), OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    attributes = (ctypes.c_uint64 * 4)(MOUNT_ATTR_IDMAP, 0, 0, namespace)
    call(MOUNT_SETATTR, tree, b"", AT_EMPTY_PATH, attributes, ctypes.sizeof(attributes))
    call(MOVE_MOUNT, tree, b"", AT_FDCWD, os.fsencode(mapped), MOVE_MOUNT_F_EMPTY_PATH)
    os.close(tree)


def as_user(uid, directory, work):
    """Does `work` in another process, as `uid`; false if it failed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.chdir(directory)
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
            code = 0
        except OSError as error:
            print("    as %d: %s" % (uid, error))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def make_everything():
    with open("file", "w", encoding="ascii") as file:
        file.write("x")
    os.mkdir("directory")
    os.symlink("file", "symlink")
    os.mkfifo("fifo")
    os.link("file", "link")
    os.rename("link", "moved")
    os.chmod("file", 0o600)
    os.truncate("file", 0)
    os.chdir("directory")
    os.close(os.open(".", os.O_TMPFILE | os.O_RDWR))


def check(root, mapped):
    """Answers what is wrong."""
    os.chmod(root, 0o777)
    complaints = []
    if not as_user(SHIFT + 1000, mapped, make_everything):
        complaints.append("a mapped user cannot work there")
    for name in ("file", "directory", "symlink", "fifo", "moved"):
        for where, uid in ((root, 1000), (mapped, SHIFT + 1000)):
            owner = os.lstat(where / name)
            if (owner.st_uid, owner.st_gid) != (uid, uid):
                complaints.append("%s is %d's at %s" % (name, owner.st_uid, where))
    os.chown(mapped / "file", SHIFT + 5, SHIFT + 6)
    owner = os.lstat(root / "file")
    if (owner.st_uid, owner.st_gid) != (5, 6):
        complaints.append("chown gives the file to %d" % owner.st_uid)
    if as_user(1000, mapped, lambda: os.mkdir("unmapped")):
        complaints.append("a user who is not mapped can make files")
    return complaints


def main():
    with volume.scratch("idmap") as directory, user_namespace() as namespace:
        disk = volume.Volume(directory)
        disk.mkfs().mount()
        mapped = directory / "mapped"
        mapped.mkdir()
        mount_mapped(disk.root, mapped, namespace)
        complaints = check(disk.root, mapped) + disk.panics()
        volume.run("umount", mapped)
        disk.umount()
        for complaint in complaints:
            print("    FAILED: " + complaint)
        print("%d failed" % len(complaints))
        return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
