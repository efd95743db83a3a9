#!/usr/bin/env python3
"""Random sectors of a volume with snapshots and clones are destroyed; what they did not hold survives.

A tree is copied into a volume. Snapshots are made of it while files change, are renamed, made and
removed, and clones of some snapshots change too. The volume is unmounted, and a share of all sectors
of its image is overwritten with random bytes. Then `dendro rebuild` and `dendro check -y -d` mend it.
After that, in the head, in each snapshot and in each clone, every file must have the data that it
had, or give an error, or be gone, or have zeros where it lost pages, or be made anew if its i-node was
lost, or have older data because its part of the map and of the log were lost. Each file of the last
five kinds must have lain in a destroyed sector, with its data, its i-node, or a name on the way to it; and
what the two commands said must name it, or a directory on the way to it that is lost. Where a directory
lost a name that nothing else has, they must name the directory.

With `--sample`, that part of the files is read in each version, and in the others what the head has not;
of the rest only names and i-nodes are looked at there.

    destroyed.py [--tree DIR] [--size 512M] [--snapshots 20] [--clones 5] [--permille 1] [--seed 1]
                 [--sample 100]
"""

import argparse
import bisect
import collections
import errno
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import sys
import time

import volume

SECTOR_BYTES = 512
PAGE_BYTES = 4096


def digest(path):
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=16).digest()


def own_tree(root, rng):
    """A tree for a short run: many small files in many directories, and some large ones."""
    for number in range(4000):
        directory = root / ("d%d" % (number % 61)) / ("e%d" % (number % 7))
        directory.mkdir(parents=True, exist_ok=True)
        size = rng.choice([0, 30, 700, 3000, 9000, 9000, 30_000, 200_000 if number % 10 == 0 else 100])
        (directory / ("file%d" % number)).write_bytes(rng.randbytes(size))


def manifest_of(root):
    """The digest of each regular file, by its path."""
    found = {}
    for directory, names, files in os.walk(root):
        if directory == str(root) and ".dendro" in names:
            names.remove(".dendro")
        for name in files:
            path = os.path.join(directory, name)
            if os.path.isfile(path) and not os.path.islink(path):
                found[os.path.relpath(path, root)] = digest(path)
    return found


def change(root, known, rng, number):
    """Changes some files below `root`, and `known` with them."""
    paths = rng.sample(sorted(known), 80)
    for at, path in enumerate(paths):
        full = root / path
        if at < 40:
            with open(full, "r+b") as file:
                file.seek(rng.randrange(os.fstat(file.fileno()).st_size + 1))
                file.write(rng.randbytes(rng.choice([10, 3000, 20_000])))
            known[path] = digest(full)
        elif at < 60:
            os.unlink(full)
            del known[path]
        else:
            renamed = "%s.renamed%d" % (path, number)
            os.rename(full, root / renamed)
            known[renamed] = known.pop(path)
    for made in range(20):
        path = os.path.join(os.path.dirname(paths[made]), "new%d-%d" % (number, made))
        (root / path).write_bytes(rng.randbytes(rng.choice([100, 5000, 50_000])))
        known[path] = digest(root / path)


def fill(disk, arguments, rng):
    """Fills the volume; answers what each version of it holds."""
    disk.mount()
    if arguments.tree:
        volume.run("cp", "-a", "%s/." % arguments.tree, disk.root, timeout_s=3000)
    else:
        own_tree(disk.root, rng)
    known = manifest_of(disk.root)
    versions = {}
    for number in range(arguments.snapshots):
        name = "s%d" % number
        disk.dendro("snapshot", "create", "%s@%s" % (disk.root, name))
        versions["@" + name] = dict(known)
        change(disk.root, known, rng, number)
    versions[""] = known
    clones = []
    for number in range(arguments.clones):
        name, base = "c%d" % number, "s%d" % rng.randrange(arguments.snapshots)
        disk.dendro("clone", "%s@%s" % (disk.root, base), name)
        clones.append((name, dict(versions["@" + base])))
    disk.umount()
    for number, (name, held) in enumerate(clones):
        disk.mount("clone=" + name)
        change(disk.root, held, rng, 1000 + number)
        versions[":" + name] = held
        disk.umount()
    return versions


def destroy(image, permille, rng):
    """Overwrites random sectors; answers their offsets in order."""
    count = os.path.getsize(image) // SECTOR_BYTES
    sectors = sorted(rng.sample(range(count), count * permille // 1000))
    with open(image, "r+b") as file:
        for sector in sectors:
            file.seek(sector * SECTOR_BYTES)
            file.write(rng.randbytes(SECTOR_BYTES))
    return [sector * SECTOR_BYTES for sector in sectors]


def mend(disk):
    """Rebuilds and repairs the volume; answers all that was said, and how long each took."""
    said, took = [], {}
    for command in (["rebuild"], ["check", "-y", "-d"]):
        started = time.monotonic()
        done = disk.dendro(*command, disk.image, check=False, timeout_s=3000)
        took[command[0]] = time.monotonic() - started
        text = (done.stdout + done.stderr).decode(errors="replace")
        if done.returncode not in (0, 1, 4, 5) or "panick" in text:
            raise volume.Failed("%s: exit code %d: %s" % (
                " ".join(command), done.returncode, text[-2000:]))
        said.append(text)
    return "\n".join(said), took


def has_zero_page(path):
    data = path.read_bytes()
    return any(not data[at:at + PAGE_BYTES].strip(b"\0") for at in range(0, len(data), PAGE_BYTES))


def look(root, known, is_read):
    """How many of `known` are below `root` as they were; what has wrong data; what is lost and how;
    of what is not found the first part of its path that is missing. Only those that `is_read` says are read."""
    wrong, lost, nameless, whole = [], {}, {}, 0
    for path, expected in known.items():
        try:
            if not is_read(path):
                os.lstat(root / path)
                whole += 1
                continue
            found = digest(root / path)
        except OSError as error:
            lost[path] = error.strerror
            if error.errno == errno.ENOENT:
                nameless[path] = without_name(root, path)
            continue
        if found == expected:
            whole += 1
        elif has_zero_page(root / path):
            lost[path] = "pages of zeros"
        else:
            wrong.append(path)
    return whole, wrong, lost, nameless


class Said:
    """What the two commands said, by the paths that they named, without versions."""

    def __init__(self, said):
        def places(pattern, separator):
            found = re.findall(pattern, said, re.MULTILINE)
            return {re.sub(r"^[:@][^/]*", "", place).strip("/")
                    for line in found for place in re.sub(r" \(.*", "", line).split(separator)}

        self.text = said
        # Files and directories that may have older data, or may have lost names.
        self.older = places(r"or have older data: (.*) \(list \d+\)$", ", ")
        self.older_before = {path.split(".renamed")[0] for path in self.older}
        self.nameless = places(
            r"files in this directory have lost their names, .*; that is in (.*)", " and ")
        # Those that are lost, or their i-nodes. That of a directory stands for all below it.
        self.lost = places(r"(?:a file's i-node is missing or malformed"
                           r"|an entry names a file that is not there|a directory is lost): .*; that is in (.*)",
                           " and ") - {""}
        self.remade = "\n".join(line for line in said.splitlines() if "error 202" in line)

    def is_called_older(self, path):
        """Whether the rebuild says of this very path, or of the one it had before, that it may be older."""
        return path.split(".renamed")[0] in self.older_before

    def is_missing_called(self, path):
        """Whether the reports name this path, which is missing, or say that the directory that had it may
        have lost names."""
        either = {path, os.path.dirname(path)}
        return not either.isdisjoint(self.older) or not either.isdisjoint(self.nameless)


def is_below(path, lost):
    """Whether the path, or that of a directory on the way to it, is one of `lost`."""
    parts = path.split("/")
    return any("/".join(parts[:count]) in lost for count in range(1, len(parts) + 1))


def without_name(root, path):
    """The first directory on the path, or the file, that has no name any more."""
    parts = path.split("/")
    for count in range(1, len(parts) + 1):
        if not os.path.lexists(root / "/".join(parts[:count])):
            return "/".join(parts[:count])
    return None


class Places:
    """Where the intact volume kept files, and whether a destroyed sector lies there."""

    def __init__(self, disk, sectors):
        self.disk, self.sectors, self.seen = disk, sectors, {}

    def is_hit(self, offset, len_bytes):
        at = bisect.bisect_right(self.sectors, offset - SECTOR_BYTES)
        return at < len(self.sectors) and self.sectors[at] < offset + len_bytes

    def is_path_hit(self, version, path, checksum):
        """Whether the file, or a directory on the way to it, lay in a destroyed sector."""
        # Versions share what did not change between them.
        if self.is_one_hit((path, checksum), version, path):
            return True
        while path:
            path = os.path.dirname(path)
            if self.is_one_hit((version, path), version, path):
                return True
        return False

    def is_one_hit(self, key, version, path):
        if key not in self.seen:
            self.seen[key] = self.find(version, path)
        return self.seen[key]

    def find(self, version, path):
        done = self.disk.dendro(
            "dump", "--json", "--path", "/" + path, "%s%s" % (self.disk.image, version), check=False)
        if done.returncode != 0:
            raise volume.Failed("dump of %s%s: %s" % (version, path, done.stderr[-300:]))
        for line in done.stdout.decode(errors="replace").splitlines():
            fact = json.loads(line)
            place = fact.get("node", {}).get("place") or fact.get("extent")
            if place and self.is_hit(place["offset"], place["len_bytes"]):
                return True
        return False


def run(arguments):
    rng = random.Random(arguments.seed)
    failures = []
    with volume.scratch("destroyed") as directory:
        disk = volume.Volume(directory, arguments.size).mkfs()
        versions = fill(disk, arguments, rng)
        intact = volume.Volume(directory, arguments.size, "intact")
        shutil.copyfile(disk.image, intact.image)
        sectors = destroy(disk.image, arguments.permille, rng)
        said, took = mend(disk)
        if arguments.report:
            pathlib.Path(arguments.report).write_text(said)
        said = Said(said)
        places = Places(intact, sectors)
        totals = collections.Counter()

        def reads(version, known):
            head = versions[""]
            sampled = random.Random("%d%s" % (arguments.seed, version))
            return lambda path: (not version or head.get(path) != known[path]
                                 or sampled.randrange(100) < arguments.sample)

        for version, known in sorted(versions.items()):
            options = "ro"
            if version:
                options += ",%s=%s" % ("snapshot" if version[0] == "@" else "clone", version[1:])
            try:
                disk.mount(options)
            except volume.Failed as failed:
                failures.append("%s cannot be mounted: %s" % (version or "the head", failed))
                continue
            whole, wrong, lost, nameless = look(disk.root, known, reads(version, known))
            disk.umount()
            totals["whole"] += whole
            # A file of which the i-node was lost has been made anew, with a size of whole pages.
            lost.update((path, "made anew") for path in wrong if os.path.basename(path) in said.remade)
            # A part of the map may be restored from an older one: the rebuild names all files in it.
            lost.update((path, "older data") for path in wrong if said.is_called_older(path))
            failures += ["%s%s has other data" % (version, path) for path in wrong if path not in lost]
            totals["lost"] += len(lost)
            called = {missing: said.is_missing_called(missing)
                      for missing in set(nameless.values()) - {None}}
            for path, why in lost.items():
                if not places.is_path_hit(version, path, known[path]):
                    failures.append("%s%s is lost (%s) without a destroyed sector" % (version, path, why))
                # A report calls a file of several versions by its name in one of them.
                is_named = os.path.basename(path).split(".renamed")[0] in said.text
                if not is_named and not called.get(nameless.get(path)) and not is_below(path, said.lost):
                    totals["not named"] += 1
                    failures.append("%s%s is lost (%s), and no report names it" % (version, path, why))
    print("%d sectors destroyed; of files in %d versions %d are whole, %d lost; rebuild %.1f s, check %.1f s" % (
        len(sectors), len(versions), totals["whole"], totals["lost"], took["rebuild"], took["check"]))
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", help="what to copy into the volume; a tree of its own otherwise")
    parser.add_argument("--size", default="512M")
    parser.add_argument("--snapshots", type=int, default=20)
    parser.add_argument("--clones", type=int, default=5)
    parser.add_argument("--permille", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sample", type=int, default=100, help="percent of files read in each version")
    parser.add_argument("--report", help="a file for what the two commands say")
    arguments = parser.parse_args()
    failures = run(arguments)
    for failure in failures[:40]:
        print(failure)
    print("%d failed" % len(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
