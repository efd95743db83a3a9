"""A volume under test: an image, the command that serves it, and the directory it is mounted on.

The command is $DENDRO, or `dendro` in $CARGO_TARGET_DIR/release, in target/release or in $PATH.
Images and mount points lie in a directory of their own below $DENDRO_TEST_DIR (default: /var/tmp),
which is removed at the end.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
# What umount ends with where the last of what was written is lost.
UMOUNT_LOST = 32


def command():
    """The path of `dendro`."""
    if os.environ.get("DENDRO"):
        return os.environ["DENDRO"]
    target = os.environ.get("CARGO_TARGET_DIR", str(CHECKOUT / "target"))
    built = os.path.join(target, "release", "dendro")
    if os.path.exists(built):
        return built
    found = shutil.which("dendro")
    if not found:
        raise SystemExit("no dendro: build it with `make`, or set DENDRO")
    return found


class Failed(Exception):
    """A command did not do what it was to do."""


def run(*arguments, timeout_s=120, check=True, **more):
    """Runs a command; its output is in the answer, and in the error where it fails."""
    done = subprocess.run(
        [str(argument) for argument in arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout_s, check=False, **more)
    if check and done.returncode != 0:
        raise Failed("%s: exit code %d: %s" % (
            " ".join(map(str, arguments)), done.returncode,
            (done.stderr or done.stdout).decode(errors="replace").strip()[-2000:]))
    return done


class Volume:
    """An image and where it is mounted."""

    def __init__(self, directory, size="1G", name="disk"):
        self.directory = pathlib.Path(directory)
        self.image = self.directory / (name + ".img")
        self.root = self.directory / (name + ".mnt")
        self.log = self.directory / (name + ".log")
        self.size = size
        self.root.mkdir(exist_ok=True)

    def dendro(self, *arguments, **more):
        return run(command(), *arguments, **more)

    def mkfs(self, *options):
        self.image.unlink(missing_ok=True)
        self.dendro("mkfs", "--force", "--size", self.size, *options, self.image)
        return self

    def mount(self, options="", timeout_s=60):
        """Mounts; answers how long it took, in seconds."""
        started = time.monotonic()
        more = ["-o", options] if options else []
        self.dendro("mount", "--log-file", self.log, *more, self.image, self.root,
                    timeout_s=timeout_s)
        return time.monotonic() - started

    def umount(self):
        """Unmounts and waits for the daemon; answers how long it took, in seconds."""
        started = time.monotonic()
        self.dendro("umount", self.root, timeout_s=300)
        return time.monotonic() - started

    def info(self):
        return json.loads(self.dendro("info", "--json", self.image).stdout)

    def pid(self):
        """The daemon that serves the mount."""
        return self.info()["mount"]["pid"]

    def kill(self):
        """kill -9 of the daemon, and waits until it is gone."""
        pid = self.pid()
        kill_and_wait(pid)

    def is_mounted(self):
        with open("/proc/self/mountinfo", encoding="utf-8") as table:
            return any(line.split()[4] == str(self.root) for line in table)

    def panics(self):
        """Lines of the daemon's log that only a bug can write."""
        try:
            text = self.log.read_text(errors="replace")
        except FileNotFoundError:
            return []
        return [line for line in text.splitlines() if "panick" in line]

    def discard(self):
        """Takes the mount away however it is, and the image."""
        with contextlib.suppress(Exception):
            if self.is_mounted():
                kill_and_wait(self.pid())
        for _ in range(20):
            if not self.is_mounted():
                break
            run("umount", "-l", self.root, check=False)
        self.image.unlink(missing_ok=True)


def kill_and_wait(pid):
    """kill -9, and waits until the process is gone."""
    os.kill(pid, signal.SIGKILL)
    while pathlib.Path("/proc/%d" % pid).exists():
        state = pathlib.Path("/proc/%d/stat" % pid)
        with contextlib.suppress(OSError):
            if state.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return
        time.sleep(0.002)


@contextlib.contextmanager
def scratch(prefix):
    """A directory for images and mounts, gone at the end."""
    parent = os.environ.get("DENDRO_TEST_DIR", "/var/tmp")
    os.makedirs(parent, exist_ok=True)
    path = tempfile.mkdtemp(prefix="dendro-%s-" % prefix, dir=parent)
    try:
        yield pathlib.Path(path)
    finally:
        with open("/proc/self/mountinfo", encoding="utf-8") as table:
            below = [line.split()[4] for line in table if line.split()[4].startswith(path + "/")]
        for mount_point in below:
            run("umount", "-l", mount_point, check=False)
        if not os.environ.get("DENDRO_TEST_KEEP"):
            shutil.rmtree(path, ignore_errors=True)
