#!/usr/bin/env python3
"""What grows how with what a volume holds: rates, memory, mount times and the longest waits.

    scale.py [--most 6] [--cache 64M] [--limit 256M] [--only names,tree,holes,snapshots,volumes,clients]
             [--svg FILE] [--json FILE]

Each part multiplies one thing by ten again and again, up to 10 to the power of `--most`: names in one
directory, names in directories of 100, pages of a file of 16 TiB with holes, snapshots (at most 100,000),
the volume's length (1 GiB to 16 TiB, in a sparse image), and 1 to 16 clients on one CPU and on two. At each
step it tells what the last operations did a second and the longest wait of one of them, the daemon's memory
(now, and the most), how long mounting takes when all is on the device, and what it all takes on the device.
With `--limit` the daemon runs in a control group that may have no more memory (as root). The last column is
the longest wait on the device itself, a write of 4 KiB and a flush beside the same work: what waits longer
than that, and than 100 ms, waits for the daemon.
"""

import argparse
import json
import math
import multiprocessing
import os
import pathlib
import random
import sys
import time

import volume

MIB = 1 << 20
TIB = 1 << 40
# What the last operations of a step are: so many, or all if there are fewer.
WINDOW = 20_000
MAX_SNAPSHOTS_POWER = 5
PAGE = 4096


class Timer:
    """Latencies of single operations, and their rate."""

    def __init__(self):
        self.longest_s, self.count, self.took_s = 0.0, 0, 0.0

    def of(self, operation, *arguments):
        begin = time.perf_counter()
        operation(*arguments)
        took = time.perf_counter() - begin
        self.longest_s = max(self.longest_s, took)
        self.took_s += took
        self.count += 1

    def rate(self):
        return self.count / self.took_s if self.took_s else 0.0


def device_waits(directory, stop, answer):
    """The longest write and flush of a file beside the image, until told to stop."""
    file = os.open(os.path.join(directory, "beside"), os.O_RDWR | os.O_CREAT, 0o600)
    os.pwrite(file, b"\0" * MIB, 0)
    longest = 0.0
    while not stop.is_set():
        begin = time.perf_counter()
        os.pwrite(file, b"x" * PAGE, random.randrange(256) * PAGE)
        os.fdatasync(file)
        longest = max(longest, time.perf_counter() - begin)
        time.sleep(0.05)
    answer.value = longest
    os.close(file)


class Beside:
    """Measures what the device itself makes wait meanwhile."""

    def __init__(self, directory):
        self.stop, self.answer = multiprocessing.Event(), multiprocessing.Value("d", 0.0)
        arguments = (str(directory), self.stop, self.answer)
        self.process = multiprocessing.Process(target=device_waits, args=arguments)
        self.process.start()

    def end(self):
        self.stop.set()
        self.process.join()
        return self.answer.value


class Group:
    """A control group of version 1 or 2 that limits the memory of what begins in it."""

    def __init__(self, limit):
        base = pathlib.Path("/sys/fs/cgroup")
        is_second = (base / "cgroup.controllers").exists()
        if not is_second:
            base = pathlib.Path("/var/tmp/dendro-scale-groups")
            base.mkdir(exist_ok=True)
            if not (base / "tasks").exists():
                volume.run("mount", "-t", "cgroup", "-o", "memory", "none", base)
        self.path = base / ("dendro-scale-%d" % os.getpid())
        self.path.mkdir()
        name = "memory.max" if is_second else "memory.limit_in_bytes"
        (self.path / name).write_text(limit)

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self):
        (self.path.parent / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(50):
            try:
                self.path.rmdir()
                return
            except OSError:
                time.sleep(0.1)


class Scale:
    """A volume that grows, and what is told of it."""

    def __init__(self, directory, given, size, group):
        self.directory, self.given, self.group = directory, given, group
        self.tested = volume.Volume(directory, size)
        self.tested.mkfs()
        self.mount()
        self.rows = []

    def mount(self):
        if self.group:
            self.group.enter()
        try:
            took = self.tested.mount("cache=%s" % self.given.cache, timeout_s=600)
        finally:
            if self.group:
                self.group.leave()
        self.pid = self.tested.pid()
        self.root = str(self.tested.root)
        return took

    def memory(self):
        """What the daemon has in anonymous memory, and the most that it had in all, in bytes."""
        fields = {}
        with open("/proc/%d/status" % self.pid, encoding="ascii") as status:
            for line in status:
                name, _, rest = line.partition(":")
                fields[name] = rest.split()
        return tuple(int(fields[name][0]) << 10 for name in ("RssAnon", "VmHWM"))

    def again(self):
        """Unmounts and mounts; answers how long mounting took."""
        self.tested.umount()
        drop_caches()
        return self.mount()

    def tell(self, part, count, timers, device_s):
        now, most = self.memory()
        umount_begin = time.monotonic()
        self.tested.umount()
        umount_s = time.monotonic() - umount_begin
        drop_caches()
        mount_s = self.mount()
        row = {
            "part": part,
            "count": count,
            "operations": {name: {"per_second": timer.rate(), "longest_ms": timer.longest_s * 1e3}
                           for name, timer in timers.items()},
            "memory_mib": now / MIB,
            "most_memory_mib": most / MIB,
            "mount_s": mount_s,
            "umount_s": umount_s,
            "image_mib": os.stat(self.tested.image).st_blocks * 512 / MIB,
            "device_longest_ms": device_s * 1e3,
        }
        self.rows.append(row)
        show(row)

    def end(self):
        self.tested.umount()
        self.tested.discard()
        return self.rows


def drop_caches():
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as control:
        control.write("3")


def show(row):
    operations = "; ".join("%s %s/s, %.1f ms" % (name, grouped(of["per_second"]), of["longest_ms"])
                           for name, of in row["operations"].items())
    print("%-10s %14s  %s | %.0f, at most %.0f MiB | mount %.2f s, umount %.2f s | image %.0f MiB | "
          "device %.1f ms" % (row["part"], grouped(row["count"]), operations, row["memory_mib"],
                              row["most_memory_mib"], row["mount_s"], row["umount_s"],
                              row["image_mib"], row["device_longest_ms"]), flush=True)


def grouped(number):
    return "{:,.0f}".format(number).replace(",", " ")


def names(scale, part, path_of):
    """Makes names, and at each power of ten looks at some and removes some."""
    rng, made = random.Random(1), 0
    for power in range(3, scale.given.most + 1):
        beside, create = Beside(scale.directory), Timer()
        count = 10 ** power
        while made < count:
            path, is_first = path_of(made)
            if is_first:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            if made >= count - WINDOW:
                create.of(os.mknod, path)
            else:
                begin = time.perf_counter()
                os.mknod(path)
                create.longest_s = max(create.longest_s, time.perf_counter() - begin)
            made += 1
        sync, look, remove = Timer(), Timer(), Timer()
        sync.of(os.sync)
        drop_caches()
        some = [path_of(rng.randrange(count))[0] for _ in range(min(WINDOW // 4, count // 2))]
        for path in some:
            look.of(os.lstat, path)
        for path in dict.fromkeys(some):
            remove.of(os.unlink, path)
        for path in dict.fromkeys(some):
            os.mknod(path)
        timers = {"create": create, "stat, uncached": look, "unlink": remove}
        scale.tell(part, count, timers, beside.end())


def in_one(scale):
    names(scale, "names", lambda number: ("%s/one/%08d" % (scale.root, number), number == 0))


def in_a_tree(scale):
    def path_of(number):
        directory = number // 100
        return ("%s/%03d/%03d/%02d" % (scale.root, directory // 1000, directory % 1000, number % 100),
                number % 100 == 0)
    names(scale, "tree", path_of)


def holes(scale):
    """A file of 16 TiB whose pages lie evenly apart."""
    path, rng, done = scale.root + "/holes", random.Random(2), 0
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    os.ftruncate(file, 16 * TIB - PAGE)
    for power in range(2, scale.given.most + 1):
        beside, count = Beside(scale.directory), 10 ** power
        write, read, seek = Timer(), Timer(), Timer()
        spacing = (16 * TIB // count) // PAGE * PAGE
        for number in range(done, count):
            write.of(os.pwrite, file, b"page", rng.randrange(count) * spacing)
        done = count
        os.fsync(file)
        os.close(file)
        drop_caches()
        file = os.open(path, os.O_RDWR)
        for _ in range(min(count, WINDOW // 4)):
            read.of(os.pread, file, PAGE, rng.randrange(count) * spacing)
        at = 0
        for _ in range(min(count // 2, WINDOW)):
            at = os.lseek(file, at, os.SEEK_DATA)
            seek.of(os.lseek, file, at, os.SEEK_HOLE)
            at += PAGE
            if at >= 15 * TIB:
                break
        os.close(file)
        scale.tell("holes", count, {"write": write, "read, cold": read, "SEEK_HOLE": seek}, beside.end())
        path = scale.root + "/holes"
        file = os.open(path, os.O_RDWR)
    beside, cut, remove = Beside(scale.directory), Timer(), Timer()
    cut.of(os.ftruncate, file, 8 * TIB)
    os.close(file)
    remove.of(os.unlink, path)
    scale.tell("no holes", 0, {"truncate": cut, "unlink": remove}, beside.end())


def snapshots(scale):
    """Snapshots of a volume in which something is written before each. Each is made by a command, whose
    start takes most of the time."""
    made, path = 0, scale.root + "/written"
    for power in range(0, min(scale.given.most, MAX_SNAPSHOTS_POWER) + 1):
        beside, count = Beside(scale.directory), 10 ** power
        make, write, listing = Timer(), Timer(), Timer()
        while made < count:
            for at in range(5):
                with open(path, "wb", buffering=0) as file:
                    write.of(file.write, b"%d %d" % (made, at))
            make.of(scale.tested.dendro, "snapshot", "create", "%s@s%06d" % (scale.root, made))
            made += 1
        listing.of(lambda: scale.tested.dendro("snapshot", "list", "--json", scale.root))
        scale.tell("snapshots", count, {"snapshot": make, "write": write, "list": listing}, beside.end())
    beside, remove = Beside(scale.directory), Timer()
    for number in range(min(made, WINDOW // 100)):
        remove.of(scale.tested.dendro, "snapshot", "delete", "%s@s%06d" % (scale.root, number))
    scale.tell("deleted", made, {"delete": remove}, beside.end())


def volumes(directory, given, group):
    """Volumes in sparse images. The longest is a little shorter than 16 TiB, because a file of ext4 is."""
    rows = []
    for size_gib in (1, 4, 16, 64, 256, 1024, 4096, 16383):
        scale = Scale(directory, given, "%dG" % size_gib, group)
        beside, create = Beside(directory), Timer()
        for number in range(WINDOW):
            create.of(os.mknod, "%s/%05d" % (scale.root, number))
        scale.tell("GiB", size_gib, {"create": create}, beside.end())
        rows += scale.end()
    return rows


def client(root, number, cpus, seconds, answers):
    os.sched_setaffinity(0, cpus)
    directory = "%s/client%d" % (root, number)
    os.mkdir(directory)
    timers = {"create": Timer(), "write 4 KiB": Timer(), "unlink": Timer()}
    data, until, made = b"x" * PAGE, time.monotonic() + seconds, 0
    file = os.open(directory + "/file", os.O_RDWR | os.O_CREAT, 0o600)
    while time.monotonic() < until:
        timers["create"].of(os.mknod, "%s/%d" % (directory, made))
        timers["write 4 KiB"].of(os.pwrite, file, data, made % 4096 * PAGE)
        if made >= 100:
            timers["unlink"].of(os.unlink, "%s/%d" % (directory, made - 100))
        made += 1
    answers.put({name: (timer.count, timer.took_s, timer.longest_s) for name, timer in timers.items()})


def clients(directory, given, group):
    """Clients that make, write and remove, on one CPU and on two."""
    rows, all_cpus = [], sorted(os.sched_getaffinity(0))
    for cpus in (all_cpus[:1], all_cpus[:2]):
        os.sched_setaffinity(0, cpus)
        for count in (1, 2, 4, 16):
            scale = Scale(directory, given, "2G", group)
            beside, answers = Beside(directory), multiprocessing.Queue()
            processes = [multiprocessing.Process(target=client, args=(scale.root, number, cpus, 5, answers))
                         for number in range(count)]
            for process in processes:
                process.start()
            timers = {}
            for _ in processes:
                for name, (done, took, longest) in answers.get().items():
                    timer = timers.setdefault(name, Timer())
                    timer.count += done
                    # Clients wait at the same time.
                    timer.took_s += took / count
                    timer.longest_s = max(timer.longest_s, longest)
            for process in processes:
                process.join()
            scale.tell("on %d CPU" % len(cpus), count, timers, beside.end())
            rows += scale.end()
    os.sched_setaffinity(0, all_cpus)
    return rows


COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]


def svg(rows):
    """The rates over the counts, both on logarithmic scales."""
    lines = {}
    for row in rows:
        for name, of in row["operations"].items():
            if row["count"] and of["per_second"]:
                lines.setdefault((row["part"], name), []).append((row["count"], of["per_second"]))
    width, height, left, top = 900, 520, 70, 20

    def x(count):
        return left + 560 * math.log10(count) / 8

    def y(rate):
        return top + 460 * (1 - math.log10(max(rate, 1)) / 6)

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
           'font-size="11"><rect width="100%%" height="100%%" fill="white"/>' % (width, height)]
    for at in range(0, 9):
        out.append('<line x1="%.0f" x2="%.0f" y1="%d" y2="%d" stroke="#eee"/><text x="%.0f" y="%d" '
                   'text-anchor="middle">10^%d</text>' % (x(10 ** at), x(10 ** at), top, top + 460,
                                                          x(10 ** at), top + 476, at))
    for at in range(0, 7):
        out.append('<line x1="%d" x2="%d" y1="%.0f" y2="%.0f" stroke="#eee"/><text x="%d" y="%.0f" '
                   'text-anchor="end">10^%d/s</text>' % (left, left + 560, y(10 ** at), y(10 ** at),
                                                         left - 6, y(10 ** at) + 4, at))
    for at, ((part, name), points) in enumerate(sorted(lines.items())):
        colour = COLOURS[at % len(COLOURS)]
        dash = ' stroke-dasharray="%d 3"' % (2 + 3 * (at // len(COLOURS))) if at >= len(COLOURS) else ""
        where = " ".join("%.1f,%.1f" % (x(count), y(rate)) for count, rate in points)
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"%s/>'
                   '<line x1="%d" x2="%d" y1="%d" y2="%d" stroke="%s"%s/>'
                   '<text x="%d" y="%d" fill="%s">%s: %s</text>'
                   % (where, colour, dash, left + 580, left + 610, top + 8 + 15 * at, top + 8 + 15 * at,
                      colour, dash, left + 616, top + 12 + 15 * at, colour, part, name))
    return "\n".join(out + ["</svg>"])


GROWING = {"names": in_one, "tree": in_a_tree, "holes": holes, "snapshots": snapshots}
FRESH = {"volumes": volumes, "clients": clients}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--most", type=int, default=6, help="up to 10 to this power")
    parser.add_argument("--cache", default="64M")
    parser.add_argument("--limit", help="how much memory the daemon may have in all")
    parser.add_argument("--size", default="16G", help="of the volume that grows")
    parser.add_argument("--only", default=",".join([*GROWING, *FRESH]))
    parser.add_argument("--svg", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    wanted = given.only.split(",")
    unknown = [part for part in wanted if part not in GROWING and part not in FRESH]
    if unknown:
        parser.error("no part is called %s" % unknown[0])
    rows = []
    group = Group(given.limit) if given.limit else None
    try:
        for part in wanted:
            with volume.scratch("scale") as directory:
                if part in FRESH:
                    rows += FRESH[part](directory, given, group)
                    continue
                scale = Scale(directory, given, given.size, group)
                GROWING[part](scale)
                rows += scale.end()
    finally:
        if group:
            group.remove()
    if given.svg:
        given.svg.write_text(svg(rows))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    late = [row for row in rows for of in row["operations"].values()
            if of["longest_ms"] > 100 + row["device_longest_ms"]]
    print("%d of %d steps had an operation that waited 100 ms longer than the device" % (len(late), len(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
