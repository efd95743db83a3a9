#!/usr/bin/env python3
"""How fast block devices are served, beside nbdkit's file plugin and qemu-nbd on a plain file.

    speed.py [--dendro target/release/dendro] [--directory DIRECTORY] [--seconds 3] [--size 512] [--turns 5]

fio asks each server over a Unix socket, one server after the other, on new files in each turn. For
each work there are two figures, medians of all turns: what is done in a second (MiB, or requests of
4 KiB), and the CPU time of the server for each MiB or request. The second one is of use on a machine
that does other things, too. Behind them is what dendro does of what the others do, the median of the
turns again. Before each work, what the kernel has of the server's file is written. What is read cold
is read cold six times, and the fastest counts: a virtual machine may have to ask its host for
memory that it has not used lately, which takes several times as long as the read. The files lie in
DIRECTORY. What is asked in blocks of 1 MiB is also done with direct I/O on a file there without a
server, which is what the device can do; in the last column, what dendro does of that.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

# Direct I/O, without a server.
DEVICE = "device"
ROOT = pathlib.Path(__file__).resolve().parents[2]
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Name and fio's options. Where blocks are of 1 MiB, MiB are counted, else requests. What is "cold" in
# its name is done with nothing of the file in the kernel's cache.
WORKS = [
    ("write 1 MiB in order, for the first time", "--rw=write --bs=1M --iodepth=4 --time_based=0 --size=50%"),
    # Until it is on the device. The other half of the device has not been written yet.
    ("likewise, and flush",
     "--rw=write --bs=1M --iodepth=4 --time_based=0 --size=50% --offset=50% --end_fsync=1"),
    ("read that cold, 1 MiB in order", "--rw=read --bs=1M --iodepth=4 --time_based=0"),
    ("write 1 MiB in order, over that", "--rw=write --bs=1M --iodepth=4"),
    # The image of a log has become as long by now as it becomes.
    ("write 1 MiB in order, over that again", "--rw=write --bs=1M --iodepth=4"),
    ("over that once more, and flush", "--rw=write --bs=1M --iodepth=4 --end_fsync=1"),
    ("read 1 MiB in order, cold", "--rw=read --bs=1M --iodepth=4 --time_based=0"),
    ("read 1 MiB in order, again", "--rw=read --bs=1M --iodepth=4"),
    ("read 4 KiB anywhere", "--rw=randread --bs=4k --iodepth=1"),
    ("read 4 KiB anywhere, 32 at a time", "--rw=randread --bs=4k --iodepth=32"),
    ("write 4 KiB anywhere", "--rw=randwrite --bs=4k --iodepth=1"),
    ("write 4 KiB anywhere, 32 at a time", "--rw=randwrite --bs=4k --iodepth=32"),
    ("write 4 KiB and flush", "--rw=randwrite --bs=4k --iodepth=1 --fsync=1"),
    ("write 4 KiB, 32 at a time, flush each 32nd", "--rw=randwrite --bs=4k --iodepth=32 --fsync=32"),
]


def servers(dendro, directory, size_mib):
    """The servers' names, their files, and their commands; each listens at its socket."""
    volume, plain = directory / "volume", directory / "plain"
    subprocess.run([dendro, "mkfs", "-q", "--size", f"{3 * size_mib}M", volume], check=True)
    subprocess.run([dendro, "-q", "block", "create", f"{volume}/disk", f"{size_mib}M"], check=True)
    yield "dendro", volume, [dendro, "nbd", "-q", "--socket", "{socket}", volume]
    if shutil.which("nbdkit"):
        make_empty(plain, size_mib)
        yield "nbdkit file", plain, ["nbdkit", "-f", "-U", "{socket}", "-e", "disk", "file", plain]
    if shutil.which("qemu-nbd"):
        make_empty(plain, size_mib)
        yield "qemu-nbd", plain, ["qemu-nbd", "-t", "-e", "8", "-x", "disk", "-f", "raw", "-k", "{socket}", plain]


def make_empty(path, size_mib):
    path.write_bytes(b"")
    os.truncate(path, size_mib << 20)


def settle(path, is_cold):
    """Writes what the kernel has of a file, and forgets it if the file is to be cold."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    if is_cold:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def measure_server(work, uri, pid, seconds, size_mib):
    """What a server does in a second, and its CPU time in µs for each of that."""
    before = cpu_s(pid)
    rate, count = measure(work, ["--ioengine=nbd", f"--uri={uri}"], seconds, size_mib)
    return rate, (cpu_s(pid) - before) / count * 1e6


def measure(work, where, seconds, size_mib):
    """What is done in a second, and how much was done."""
    _, options = work
    command = ["fio", "--name=speed", *where, f"--size={size_mib}M"]
    command += ["--output-format=json", "--time_based", f"--runtime={seconds}", *options.split()]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    # Remarks come before.
    told = json.loads(said[said.index("{") :])
    job = told["jobs"][0]
    side = job["read"] if job["read"]["total_ios"] else job["write"]
    count = side["io_bytes"] / (1 << 20) if "--bs=1M" in options else side["total_ios"]
    return count / (side["runtime"] / 1000), count


def ask_device(args, directory, found):
    """Does what is asked in blocks of 1 MiB with direct I/O, on a new file."""
    path = directory / "direct"
    make_empty(path, args.size)
    for work in WORKS:
        if "--bs=1M" in work[1]:
            where = ["--ioengine=io_uring", "--direct=1", f"--filename={path}"]
            rate, _ = measure(work, where, args.seconds, args.size)
            found.setdefault((DEVICE, work[0]), []).append((rate, 0))


def ask_all(args, directory, found):
    """Has each server do all works, on new files. Returns the servers' names."""
    os.environ["DENDRO_RUNTIME_DIR"] = str(directory / "run")
    names = []
    for name, path, command in servers(args.dendro, directory, args.size):
        socket = directory / "socket"
        socket.unlink(missing_ok=True)
        command = [str(part).format(socket=socket) for part in command]
        server = subprocess.Popen(command)
        while not socket.exists():
            assert server.poll() is None, f"{name} does not begin"
            time.sleep(0.05)
        time.sleep(0.5)
        uri = f"nbd+unix:///disk?socket={socket}"
        for work in WORKS:
            is_cold, tries = "cold" in work[0], []
            for _ in range(6 if is_cold else 1):
                settle(path, is_cold)
                tries.append(measure_server(work, uri, server.pid, args.seconds, args.size))
            found.setdefault((name, work[0]), []).append(max(tries))
        server.terminate()
        server.wait()
        names.append(name)
    return names


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dendro", default=ROOT / "target/release/dendro")
    parser.add_argument("--directory", default=None)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--size", type=int, default=512, help="MiB")
    parser.add_argument("--turns", type=int, default=5)
    args = parser.parse_args()
    found = {}
    for turn in range(args.turns):
        with tempfile.TemporaryDirectory(dir=args.directory, prefix="dendro-nbd-") as directory:
            names = ask_all(args, pathlib.Path(directory), found)
            ask_device(args, pathlib.Path(directory), found)
        print(f"turn {turn + 1} of {args.turns} is done", file=sys.stderr, flush=True)
    print(f"{'':44}" + "".join(f"{name + ': /s, CPU µs':>28}" for name in names)
          + "".join(f"{'of ' + name:>15}" for name in [*names[1:], DEVICE]))
    for work, _ in WORKS:
        rates = [[rate for rate, _ in found.get((name, work), [])] for name in [*names, DEVICE]]
        cells = [(statistics.median(rate), statistics.median(cpu for _, cpu in found[name, work]))
                 for name, rate in zip(names, rates)]
        # What one turn has beside what it has for the others.
        shares = [f"{statistics.median(own / other for own, other in zip(rates[0], others)):.2f}"
                  if others else "" for others in rates[1:]]
        print(f"{work:44}" + "".join(f"{rate:18.0f}{cpu:10.1f}" for rate, cpu in cells)
              + "".join(f"{share:>15}" for share in shares))


if __name__ == "__main__":
    main()
