#!/usr/bin/env python3
"""kill -9 of `dendro rebuild` and `dendro check -y`, over and over: the last run mends as if it were the first.

A volume with snapshots and clones is filled, and random sectors of its image are destroyed, as
`destroyed.py` does. One copy is mended without a disturbance. On another one each of the two
commands is killed after a random time, again and again, and then left alone. In the end

1. a kill leaves nothing behind that makes the next run fail;
2. a check finds what it finds on the copy that was not disturbed;
3. each version that can be mounted holds the same files with the same data, or the same errors.

    kill_repair.py [--kills 30] [--size 512M] [--snapshots 6] [--clones 2] [--permille 1] [--seed 1]
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time

import destroyed
import volume

ENDS = {"rebuild": (0, 1, 4), "check": (0, 1, 4, 5)}


def command_for(name, image):
    options = {"rebuild": ["rebuild"], "check": ["check", "-y", "-d"]}[name]
    return [volume.command(), *options, str(image)]


def run_to_end(name, image):
    """Runs a command to its end; answers how long it took."""
    started = time.monotonic()
    done = volume.run(*command_for(name, image), check=False, timeout_s=3000)
    text = (done.stdout + done.stderr).decode(errors="replace")
    if done.returncode not in ENDS[name] or "panick" in text:
        raise volume.Failed("%s: exit code %d: %s" % (name, done.returncode, text[-2000:]))
    return time.monotonic() - started


def kill_in_the_middle(name, image, within_s, rng):
    """Starts a command and kills it; answers whether it still ran."""
    child = subprocess.Popen(
        command_for(name, image), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    time.sleep(rng.uniform(0, within_s))
    was_running = child.poll() is None
    child.kill()
    said = child.communicate()[1].decode(errors="replace")
    if not was_running and child.returncode not in ENDS[name] or "panick" in said:
        raise volume.Failed("%s after a kill: exit code %d: %s" % (name, child.returncode, said[-2000:]))
    return was_running


def copy(image, to):
    volume.run("cp", "--sparse=always", "--reflink=auto", image, to)


def kill_often(name, images, how, rng):
    """Kills a command until so many kills have met it while it ran. What was killed goes on where
    the kill has left it; if a run came to its end first, all begins again."""
    (before, image), (kills, took_s) = images, how
    hits = 0
    for _ in range(4 * kills):
        if hits == kills:
            break
        if kill_in_the_middle(name, image, took_s, rng):
            hits += 1
        else:
            copy(before, image)
    return hits


def findings(disk):
    """What a check finds, but for what is about the log and the snapshots that repairs made."""
    done = disk.dendro("check", "--data", "--json", disk.image, check=False, timeout_s=3000)
    if done.returncode not in (0, 4):
        raise volume.Failed("check: exit code %d: %s" % (done.returncode, done.stderr[-2000:]))
    found = json.loads(done.stdout)["findings"]
    return sorted((of["number"], of["list"] or 0) for of in found if of["severity"] != "note")


def contents(disk, versions):
    """Of each version the digests of its files; an error's number where there is no data."""
    held = {}
    for version in sorted(versions):
        options = "ro"
        if version:
            options += ",%s=%s" % ("snapshot" if version[0] == "@" else "clone", version[1:])
        try:
            disk.mount(options)
        except volume.Failed:
            held[version] = "cannot be mounted"
            continue
        held[version] = {}
        for directory, names, files in os.walk(disk.root):
            if directory == str(disk.root) and ".dendro" in names:
                names.remove(".dendro")
            for name in files:
                path = os.path.join(directory, name)
                try:
                    value = destroyed.digest(path) if os.path.isfile(path) else b"other"
                except OSError as error:
                    value = error.errno
                held[version][os.path.relpath(path, disk.root)] = value
        disk.umount()
    return held


def differences(undisturbed, killed):
    for version, expected in undisturbed.items():
        found = killed[version]
        if isinstance(expected, str) or isinstance(found, str):
            if expected != found:
                yield "%s: %r, and without kills %r" % (version, found, expected)
            continue
        for path in sorted(expected.keys() | found.keys()):
            if expected.get(path) != found.get(path):
                yield "%s/%s is %r, and without kills %r" % (
                    version, path, found.get(path), expected.get(path))


def run(arguments):
    rng = random.Random(arguments.seed)
    with volume.scratch("kill-repair") as directory:
        killed = volume.Volume(directory, arguments.size, "killed").mkfs()
        versions = destroyed.fill(killed, arguments, rng)
        sectors = destroyed.destroy(killed.image, arguments.permille, rng)
        undisturbed = volume.Volume(directory, arguments.size, "undisturbed")
        copy(killed.image, undisturbed.image)
        hits = {}
        for name, kills in (("rebuild", arguments.kills - arguments.kills // 2),
                            ("check", arguments.kills // 2)):
            before = directory / "before.img"
            copy(killed.image, before)
            took_s = run_to_end(name, undisturbed.image)
            hits[name] = kill_often(name, (before, killed.image), (kills, took_s), rng)
            run_to_end(name, killed.image)
        failures = list(differences(contents(undisturbed, versions), contents(killed, versions)))
        expected, found = findings(undisturbed), findings(killed)
        if found != expected:
            failures.append("a check finds %r, and without kills %r" % (found[:20], expected[:20]))
        if sum(hits.values()) < arguments.kills:
            failures.append("too few kills met a command that ran: %r" % hits)
    print("%d sectors destroyed; killed while it ran: rebuild %d times, check -y %d times" % (
        len(sectors), hits["rebuild"], hits["check"]))
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--tree", help="what to copy into the volume; a tree of its own otherwise")
    parser.add_argument("--size", default="512M")
    parser.add_argument("--snapshots", type=int, default=6)
    parser.add_argument("--clones", type=int, default=2)
    parser.add_argument("--permille", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failures = run(arguments)
    for failure in failures[:40]:
        print("FAILED:", failure)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
