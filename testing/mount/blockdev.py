#!/usr/bin/env python3
"""Volumes mounted as block devices (type fuseblk), and `mount -o remount`. As root.

sync(2) makes everything durable; umount(2), without any helper, returns when nothing more will be
written and the device is free; nobody else gets the device meanwhile, by whatever name, also when the
daemon serves other views on; kill -9 leaves a mount that can be replaced; remount changes what the
kernel allows.

    blockdev.py
"""

import contextlib
import errno
import os
import pathlib
import signal
import stat
import subprocess
import sys
import time

import volume


class Report:
    """What does not hold."""

    def __init__(self):
        self.failures = 0

    def check(self, what, holds, why=""):
        if not holds:
            self.failures += 1
        print("%s%s%s" % ("" if holds else "FAILED: ", what, "" if holds else ": %s" % (why,)),
              flush=True)


class Loop:
    """An image on a loop device."""

    def __init__(self, image):
        self.image = image
        output = volume.run("losetup", "--find", "--show", "--direct-io=on", image).stdout
        self.path = output.decode().strip()

    def detach(self):
        volume.run("losetup", "--detach", self.path)


def helper(directory, name):
    """The command by one of its other names, as mount(8) calls it."""
    link = directory / name
    if not link.is_symlink():
        link.symlink_to(os.path.abspath(volume.command()))
    return link


def type_of(mount_point):
    with open("/proc/self/mountinfo", encoding="utf-8") as table:
        for line in reversed(table.readlines()):
            if line.split()[4] == str(mount_point):
                return line.split(" - ")[1].split()[0]
    return None


def is_claimed(device):
    """Whether somebody has the device to himself."""
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
        return False
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return True


def dendro(*arguments, **more):
    return volume.run(volume.command(), *arguments, **more)


def failing(*arguments):
    """Why a command fails; None where it does not."""
    done = dendro(*arguments, check=False)
    return None if done.returncode == 0 else done.stderr.decode().strip()


def pid_of(mount_point):
    import json
    return json.loads(dendro("info", "--json", mount_point).stdout)["mount"]["pid"]


def is_clean(device):
    import json
    return json.loads(dendro("info", "--json", device).stdout)["checkpoint"]["clean"]


def work_device(directory, report):
    """A block device: the default for root."""
    image, root = directory / "image", directory / "root"
    root.mkdir()
    dendro("mkfs", "--size", "512M", image)
    loop = Loop(image)
    dendro("mount", loop.path, root)
    report.check("a block device is mounted as one", type_of(root) == "fuseblk.dendro", type_of(root))
    (root / "synced").write_bytes(b"x" * 100_000)
    os.sync()
    volume.kill_and_wait(pid_of(root))
    dendro("mount", loop.path, root)
    report.check("what sync(2) was called after outlasts kill -9",
                 (root / "synced").read_bytes() == b"x" * 100_000)
    for count in range(20):
        (root / ("file %d" % count)).write_bytes(os.urandom(1 << 20))
        volume.run("umount", "-i", root)
        report.check("umount(2) waits for the end", not is_claimed(loop.path) and is_clean(loop.path))
        if report.failures:
            break
        dendro("mount", loop.path, root)
    for name in (loop.path, image):
        why = failing("mkfs", "--force", name)
        report.check("mkfs refuses a mounted volume", why and "in use" in why, why)
    report.check("the mount has the device to itself", is_claimed(loop.path))
    dendro("umount", root)
    report.check("all files are there", not dendro("mount", loop.path, root).returncode
                 and len(list(root.iterdir())) == 21)
    other = directory / "other"
    other.mkdir()
    volume.kill_and_wait(pid_of(root))
    dendro("mount", loop.path, other)
    report.check("after kill -9 it can be mounted elsewhere", (other / "synced").exists())
    dendro("umount", other)
    dendro("mount", "-o", "nofuseblk", loop.path, other)
    report.check("nofuseblk mounts in the plain way", type_of(other) == "fuse.dendro", type_of(other))
    dendro("umount", other)
    loop.detach()


def work_views(directory, report):
    """A daemon that serves other views on keeps the device."""
    image, root, past = directory / "views", directory / "head", directory / "past"
    root.mkdir()
    past.mkdir()
    dendro("mkfs", "--size", "256M", image)
    loop = Loop(image)
    dendro("mount", loop.path, root)
    (root / "then").write_bytes(b"then")
    dendro("snapshot", "create", "%s@one" % root)
    (root / "then").write_bytes(b"now")
    dendro("mount", "-o", "snapshot=one", loop.path, past)
    report.check("another view is a plain mount", type_of(past) == "fuse.dendro", type_of(past))
    volume.run("umount", "-i", root)
    deadline = time.monotonic() + 5
    while not is_claimed(loop.path) and time.monotonic() < deadline:
        time.sleep(0.001)
    report.check("the device stays claimed for the other view", is_claimed(loop.path))
    report.check("the other view goes on", (past / "then").read_bytes() == b"then")
    dendro("mount", loop.path, root)
    report.check("the head comes back beside it", (root / "then").read_bytes() == b"now")
    dendro("umount", past)
    dendro("umount", root)
    report.check("the device is free at the end", not is_claimed(loop.path) and is_clean(loop.path))
    loop.detach()


def work_image(directory, report):
    """An image, as mount(8) has it mounted."""
    image, root = directory / "plain image", directory / "by-mount"
    root.mkdir()
    dendro("mkfs", "--size", "256M", image)
    names = directory / "names"
    names.mkdir()
    volume.run(helper(names, "mount.dendro"), image, root, "-o", "rw,noatime")
    report.check("mount(8) mounts an image as a block device", type_of(root) == "fuseblk.dendro",
                 type_of(root))
    (root / "file").write_bytes(b"data")
    volume.run("sync", "-f", root)
    report.check("the image is found by its own name", str(root) in dendro("info", image).stdout.decode())
    dendro("umount", image)
    report.check("it is unmounted by the image's name", type_of(root) is None)
    attached = volume.run("losetup", "-j", image).stdout.decode()
    for _ in range(100):
        if not attached:
            break
        time.sleep(0.02)
        attached = volume.run("losetup", "-j", image).stdout.decode()
    report.check("the loop device goes by itself", attached == "", attached)
    dendro("mount", image, root)
    report.check("`dendro mount` leaves an image one", type_of(root) == "fuse.dendro", type_of(root))
    report.check("what was written is there", (root / "file").read_bytes() == b"data")
    dendro("umount", root)


def errno_of(work, *arguments):
    try:
        work(*arguments)
        return None
    except OSError as error:
        return error.errno


def work_remount(directory, report):
    """mount(8) calls the helper with the type of the mount as its name."""
    image, root = directory / "remount", directory / "remounted"
    root.mkdir()
    dendro("mkfs", "--size", "256M", image)
    names = directory / "more names"
    names.mkdir()
    for how, name in (("nofuseblk", "mount.fuse.dendro"), ("loop", "mount.fuseblk.dendro")):
        dendro("mount", "-o", how, image, root)
        remount = lambda options: volume.run(
            helper(names, name), image, root, "-o", options, check=False)
        file = root / ("file of " + how)
        file.write_bytes(b"1")
        with open(file, "ab"):
            report.check("remount,ro is refused while a file is open for writing",
                         remount("rw,remount,ro").returncode != 0)
        done = remount("remount,ro,relatime,user_id=0,group_id=0,default_permissions,allow_other")
        report.check("%s: remount,ro works" % how, done.returncode == 0, done.stderr.decode())
        report.check("changes give EROFS then", errno_of(file.write_bytes, b"2") == errno.EROFS)
        report.check("and so does mkdir", errno_of((root / "d").mkdir) == errno.EROFS)
        done = remount("remount,rw,noexec")
        report.check("%s: remount,rw works" % how, done.returncode == 0, done.stderr.decode())
        file.write_bytes(b"#!/bin/sh\n")
        file.chmod(0o755)
        report.check("noexec holds", errno_of(subprocess.run, [file]) == errno.EACCES)
        remount("remount,rw,exec,sync")
        report.check("exec is back", subprocess.run([file], check=False).returncode == 0)
        file.write_bytes(b"written through")
        volume.kill_and_wait(pid_of(root))
        dendro("mount", "-o", how, image, root)
        report.check("remount,sync made writes durable", file.read_bytes() == b"written through")
        dendro("umount", root)
    dendro("mount", "-o", "ro", image, root)
    done = volume.run(helper(names, "mount.fuse.dendro"), image, root, "-o", "remount,rw", check=False)
    report.check("a volume opened for reading alone does not become writable", done.returncode != 0)
    dendro("umount", root)


def work_forced(directory, report):
    """umount -f cuts users off, and what was accepted is kept."""
    image, root = directory / "forced", directory / "cut"
    root.mkdir()
    dendro("mkfs", "--size", "256M", image)
    loop = Loop(image)
    dendro("mount", loop.path, root)
    held = os.open(root / "held", os.O_CREAT | os.O_WRONLY)
    os.write(held, b"x" * 10_000)
    pid = pid_of(root)
    dendro("umount", "--force", root)
    report.check("umount -f cuts users off", errno_of(os.write, held, b"lost") == errno.ENOTCONN)
    with contextlib.suppress(OSError):
        os.close(held)
    while pathlib.Path("/proc/%d" % pid).exists():
        time.sleep(0.01)
    dendro("mount", loop.path, root)
    report.check("what was written before umount -f is there",
                 (root / "held").stat().st_size == 10_000)
    pid = pid_of(root)
    os.kill(pid, signal.SIGTERM)
    while pathlib.Path("/proc/%d" % pid).exists():
        time.sleep(0.01)
    report.check("SIGTERM unmounts and leaves it clean", type_of(root) is None and is_clean(loop.path))
    loop.detach()


def main():
    if os.geteuid() != 0 or not stat.S_ISCHR(os.stat("/dev/loop-control").st_mode):
        print("left out: this takes root and loop devices")
        return 0
    report = Report()
    for work in (work_device, work_views, work_image, work_remount, work_forced):
        with volume.scratch("blockdev") as directory:
            work(directory, report)
    print("%d failed" % report.failures)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
