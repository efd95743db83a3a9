#!/usr/bin/env python3
"""How long a client waits while another one removes what is large.

    beside.py [--size 6G] [--pages 8000000] [--names 600000] [--cache 16M] [--seconds 40] [--options O]

A file of so many scattered pages, and a directory of so many names, are kept by a snapshot. A client
writes 4 KiB at random places of a file and makes and removes small files, first alone. Then, one after
the other, the large file is truncated by a page, walked with SEEK_HOLE and removed, and the names and
their directory are removed, while the client goes on. Then it is alone again. Told for each: how long
the call took, the client's slowest operation, its 999th of 1,000, that beside the 999th of 1,000 of all
that it did alone before and after, and the daemon's memory. For comparison: what it waits beside a
program that only computes. It fails if a call that removes or truncates takes longer than 100 ms, if
the daemon's memory exceeds the cache by more than 64 MiB, or if the 999th of 1,000 is more than three
times what it is alone. Each step is measured for so many seconds, which is some 30,000 operations; the
client is alone for as many before and after. It needs a machine that does nothing else.
"""

import argparse
import multiprocessing
import os
import random
import sys
import time

import volume

PAGE = 4096
SPACING = 128 << 10
MIB = 1 << 20


def client(root, commands, answers):
    """Writes, makes and removes, and answers with the latencies since the last question."""
    rng = random.Random(1)
    data = os.urandom(PAGE)
    file = os.open(os.path.join(root, "client"), os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(file, b"\0" * (16 * MIB), 0)
    latencies, number = [], 0
    while True:
        if commands.poll():
            command = commands.recv()
            if command == "stop":
                return
            answers.send(latencies)
            latencies = []
        number += 1
        name = os.path.join(root, "small%d" % (number % 100))
        begin = time.perf_counter()
        kind = number % 4
        if kind == 0:
            with open(name, "wb") as small:
                small.write(b"small")
        elif kind == 1 and os.path.exists(name.replace(str(number % 100), str((number - 1) % 100))):
            begin = time.perf_counter()
            os.unlink(os.path.join(root, "small%d" % ((number - 1) % 100)))
        else:
            os.pwrite(file, data, rng.randrange(16 * MIB // PAGE) * PAGE)
        latencies.append(time.perf_counter() - begin)
        # A client that never pauses would measure how two share the CPUs.
        time.sleep(0.001)


def compute():
    while True:
        pass


def percentile(latencies, share):
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def memory(pid):
    """The daemon's memory now, and at most, in bytes."""
    fields = {}
    with open("/proc/%d/status" % pid, encoding="ascii") as status:
        for line in status:
            name, _, rest = line.partition(":")
            fields[name] = rest.split()
    # Shared memory of the kernel's rings is not the volume's.
    return tuple(int(fields[name][0]) << 10 for name in ("RssAnon", "VmHWM"))


def fill(root, pages, names):
    path = os.path.join(root, "scattered")
    file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    data = b"x" * 64
    for page in range(pages):
        os.pwrite(file, data, page * SPACING)
    # The kernel drops all that it has of a file whose size changes, a microsecond a page.
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)
    directory = os.path.join(root, "names")
    os.mkdir(directory)
    for name in range(names):
        os.close(os.open(os.path.join(directory, "name%07d" % name), os.O_WRONLY | os.O_CREAT, 0o644))


def truncate(root, pages):
    os.truncate(os.path.join(root, "scattered"), (pages - 2) * SPACING)


def walk(root, pages):
    file = os.open(os.path.join(root, "scattered"), os.O_RDONLY)
    at, end, until = 0, (pages - 1) * SPACING, time.monotonic() + 20
    try:
        while at < end and time.monotonic() < until:
            at = os.lseek(file, os.lseek(file, at, os.SEEK_DATA), os.SEEK_HOLE)
    except OSError:
        pass
    finally:
        os.close(file)


def remove(root, _):
    os.unlink(os.path.join(root, "scattered"))


def unlink_all(root, _):
    directory = os.path.join(root, "names")
    longest = 0
    for entry in os.listdir(directory):
        begin = time.perf_counter()
        os.unlink(os.path.join(directory, entry))
        longest = max(longest, time.perf_counter() - begin)
    # rmdir waits until the kernel has forgotten each name that is gone, a microsecond a name.
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as control:
        control.write("2")
    return longest


def remove_directory(root, _):
    os.rmdir(os.path.join(root, "names"))


# What is done, how, and how long its own call may take.
STEPS = (
    ("truncated by a page", truncate, 0.1),
    ("walked with SEEK_HOLE", walk, None),
    ("file removed", remove, 0.1),
    ("names removed", unlink_all, None),
    ("directory removed", remove_directory, 0.1),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--size", default="6G")
    parser.add_argument("--pages", type=int, default=8_000_000)
    parser.add_argument("--names", type=int, default=600_000)
    parser.add_argument("--cache", default="16M", help="as the option cache= has it, in MiB")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--options", default="")
    given = parser.parse_args()
    cache_bytes = int(given.cache.rstrip("M")) * MIB
    with volume.scratch("beside") as directory:
        tested = volume.Volume(directory, given.size)
        tested.mkfs()
        options = ",".join(filter(None, ["cache=%s" % given.cache, given.options]))
        tested.mount(options)
        root = str(tested.root)
        begin = time.monotonic()
        fill(root, given.pages, given.names)
        tested.dendro("snapshot", "create", "%s@kept" % root)
        print("filled in %.0f s; the daemon has %d MiB" % (time.monotonic() - begin,
                                                           memory(tested.pid())[1] // MIB))
        sys.stdout.flush()
        commands, theirs = multiprocessing.Pipe()
        answers, ours = multiprocessing.Pipe()
        worker = multiprocessing.Process(target=client, args=(root, theirs, ours))
        worker.start()

        def measure(step=None):
            """What the client saw meanwhile, how long the call took, and the daemon's memory."""
            commands.send("tell")
            answers.recv()
            begin = time.perf_counter()
            own = step(root, given.pages) if step else None
            took = time.perf_counter() - begin
            # What is left to do in the background belongs to it.
            time.sleep(given.seconds)
            commands.send("tell")
            return answers.recv(), took if own is None else own, took, memory(tested.pid())

        time.sleep(10)
        before, _, _, _ = measure()
        computing = multiprocessing.Process(target=compute)
        computing.start()
        beside_computing, _, _, _ = measure()
        computing.kill()
        steps = [(name, limit_s) + measure(step) for name, step, limit_s in STEPS]
        after, _, _, _ = measure()
        commands.send("stop")
        worker.join()
        tested.umount()
        tested.discard()

    alone = percentile(before + after, 0.999)

    def told(name, latencies):
        late = percentile(latencies, 0.999)
        return ("%-22s the client's 999th of 1,000 %7.2f ms (%.1f times), slowest %7.2f ms of %d operations"
                % (name, late * 1e3, late / alone, max(latencies) * 1e3, len(latencies)))

    print(told("alone before", before))
    print(told("beside computing", beside_computing))
    failed = 0
    for name, limit_s, latencies, own, took, (now, most) in steps:
        wrong = []
        if limit_s is not None and own > limit_s:
            wrong.append("the call took too long")
        if percentile(latencies, 0.999) > 3 * alone:
            wrong.append("the client waited too long")
        if most > cache_bytes + 64 * MIB:
            wrong.append("too much memory")
        failed += len(wrong)
        print("%s; longest call %.2f ms of %.2f s; memory %d MiB, at most %d MiB%s"
              % (told(name, latencies), own * 1e3, took, now // MIB, most // MIB,
                 ": " + ", ".join(wrong) if wrong else ""))
    print(told("alone after", after))
    print("%d failed" % failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
