"""What `units.rs` runs: prints nanoseconds of CPU time of a small unit, of reading a MiB of a file
as bytes, and of reading it into a buffer."""

import time

from dendrofs import ROOT_LIST, Volume

UNITS, RECORDS, READS = 200_000, 50_000, 2_000
MIB = 1 << 20


def units() -> float:
    value = bytes([7]) * 100
    with Volume.in_memory(512 << 20, contents="lists", threads=False) as volume:
        start = time.process_time_ns()
        for number in range(UNITS):
            with volume.unit() as unit:
                unit.put_record(ROOT_LIST, number * 7919 % RECORDS, value)
        return (time.process_time_ns() - start) / UNITS


def reads() -> tuple[float, float]:
    with Volume.in_memory(128 << 20, threads=False) as volume:
        files = volume.files()
        files.write_bytes("file", bytes(range(256)) * (4 * MIB // 256))
        with files.open("file", "rb", 0) as raw:
            buffer = bytearray(MIB)
            start = time.process_time_ns()
            for number in range(READS):
                raw.read_at(number % 4 * MIB, MIB)
            middle = time.process_time_ns()
            for number in range(READS):
                raw.seek(number % 4 * MIB)
                raw.readinto(buffer)
            return (middle - start) / READS, (time.process_time_ns() - middle) / READS


print(units(), *reads())
