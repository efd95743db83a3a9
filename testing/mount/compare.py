#!/usr/bin/env python3
"""Compares two trees: names, types, contents, sizes, modes, owners, times, links, attributes.

    compare.py A B [--ignore-times | --all] [--limit 20]

Hard links must join the same names on both sides. Times are compared to the nanosecond, those of
symbolic links too; access times, change times and i-node numbers are with --all alone.
"""

import argparse
import os
import stat
import sys

PIECE_BYTES = 1 << 20


def names_of(root):
    """All paths below `root`, relative to it, and what lstat(2) says of them."""
    found = {".": os.lstat(root)}
    stack = [""]
    while stack:
        below = stack.pop()
        with os.scandir(os.path.join(root, below) if below else root) as entries:
            for entry in entries:
                path = os.path.join(below, entry.name)
                found[path] = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    stack.append(path)
    return found


def has_same_content(first, second):
    with open(first, "rb") as one, open(second, "rb") as other:
        while True:
            piece = one.read(PIECE_BYTES)
            if piece != other.read(PIECE_BYTES):
                return False
            if not piece:
                return True


def attributes_of(path):
    """Extended attributes; the kernel refuses those of symbolic links in the user's namespace."""
    names = os.listxattr(path, follow_symlinks=False)
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names}


def link_groups(root_names):
    """For each name of a file with several, the first of its names."""
    first_name, groups = {}, {}
    for path, info in sorted(root_names.items()):
        if not stat.S_ISDIR(info.st_mode) and info.st_nlink > 1:
            groups[path] = first_name.setdefault((info.st_dev, info.st_ino), path)
    return groups


def differences_of(path, roots, infos, ignore_times, all_fields):
    """What differs between one name on both sides."""
    one, other = infos
    first, second = (os.path.join(root, path) for root in roots)
    if stat.S_IFMT(one.st_mode) != stat.S_IFMT(other.st_mode):
        yield "type", stat.filemode(one.st_mode), stat.filemode(other.st_mode)
        return
    fields = ["st_mode", "st_uid", "st_gid", "st_rdev"]
    if not ignore_times:
        fields.append("st_mtime_ns")
    if all_fields:
        fields += ["st_atime_ns", "st_ctime_ns", "st_ino", "st_blocks"]
    if not stat.S_ISDIR(one.st_mode):
        fields += ["st_size", "st_nlink"]
    for field in fields:
        if getattr(one, field) != getattr(other, field):
            yield field, getattr(one, field), getattr(other, field)
    if attributes_of(first) != attributes_of(second):
        yield "attributes", attributes_of(first), attributes_of(second)
    if stat.S_ISLNK(one.st_mode):
        if os.readlink(first) != os.readlink(second):
            yield "target", os.readlink(first), os.readlink(second)
    elif stat.S_ISREG(one.st_mode) and one.st_size == other.st_size:
        if not has_same_content(first, second):
            yield "content", "", ""


def compare(first, second, ignore_times=False, all_fields=False):
    """Answers all differences, as lines, and how many names and bytes were compared."""
    names = [names_of(first), names_of(second)]
    lines, len_bytes = [], 0
    for path in sorted(names[0].keys() ^ names[1].keys()):
        lines.append("%s: only in %s" % (path, first if path in names[0] else second))
    common = sorted(names[0].keys() & names[1].keys())
    for path in common:
        infos = [side[path] for side in names]
        if stat.S_ISREG(infos[0].st_mode):
            len_bytes += infos[0].st_size
        for what, one, other in differences_of(path, (first, second), infos, ignore_times, all_fields):
            lines.append("%s: %s: %s, %s" % (path, what, one, other))
    groups = [link_groups(side) for side in names]
    for path in sorted(groups[0].keys() & groups[1].keys()):
        if groups[0][path] != groups[1][path]:
            lines.append("%s: linked to %s, %s" % (path, groups[0][path], groups[1][path]))
    return lines, len(common), len_bytes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first")
    parser.add_argument("second")
    parser.add_argument("--ignore-times", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--limit", type=int, default=20, help="how many differences to show")
    arguments = parser.parse_args()
    lines, count, len_bytes = compare(
        arguments.first, arguments.second, arguments.ignore_times, arguments.all)
    for line in lines[:arguments.limit]:
        print(line)
    print("%d names, %d bytes compared; %d differences" % (count, len_bytes, len(lines)))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
