"""Volumes: making, opening, closing, versions, clients."""

import asyncio
import errno
import gc
import io
import multiprocessing
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

import dendrofs
from dendrofs import (
    BusyError,
    DamagedError,
    DendroError,
    ErrorCode,
    ExistsError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    OverQuotaError,
    ReadOnlyError,
    Volume,
)


def test_what_was_written_is_there_when_the_volume_is_opened_again(image):
    with Volume.create(image, 32 << 20, label="first") as volume:
        volume.files().write_bytes("a", b"written")
        uuid = volume.uuid
        assert (volume.label, volume.read_only_reason, volume.closed) == ("first", None, False)
    assert volume.closed
    with Volume.open(str(image)) as volume:
        assert volume.files().read_bytes("a") == b"written"
        assert volume.uuid == uuid
        space = volume.space()
        assert 0 < space.live_bytes < space.capacity_bytes
        assert 0 < space.available_bytes < space.capacity_bytes


def test_a_volume_that_is_open_cannot_be_opened_again(image):
    with Volume.create(image, 32 << 20):
        with pytest.raises(BusyError) as caught:
            Volume.open(image)
        assert (caught.value.errno, caught.value.filename) == (errno.EBUSY, str(image))
        assert str(caught.value).count(str(image)) == 1
        with pytest.raises(FileExistsError):
            Volume.create(image, 32 << 20)
    none = image.with_name("none")
    with pytest.raises(FileNotFoundError) as missing:
        Volume.open(none)
    assert str(missing.value) == f"[Errno 2] No such file or directory: {str(none)!r}"


def test_closing_closes_all_that_belongs_to_the_volume(image):
    volume = Volume.create(image, 32 << 20)
    files, unit, lists = volume.files(), volume.unit(), volume.lists()
    raw = files.open("a", "wb", 0)
    numbers = iter(lists)
    volume.close()
    volume.close()
    for call in (
        volume.snapshot,
        lambda name: files.listdir(),
        lambda name: raw.write(b"late"),
        lambda name: unit.create_list(),
        lambda name: lists.record(1, 0),
        lambda name: next(numbers),
        lambda name: volume.uuid,
    ):
        with pytest.raises(ValueError, match="closed"):
            call("x")
    raw.close()
    # Nothing that is left keeps the image.
    Volume.open(image).close()


def test_a_volume_that_nobody_has_any_more_is_closed(image):
    files = Volume.create(image, 32 << 20).files()
    gc.collect()
    files.write_bytes("a", b"kept")
    del files
    gc.collect()
    with Volume.open(image) as volume:
        assert volume.files().read_bytes("a") == b"kept"


def test_wrong_options_are_said(image):
    for options in (
        {"contents": "something"},
        {"label": "x" * 65},
        {"metadata_copies": 3},
        {"commit_interval": 0.0},
        {"commit_interval": float("nan")},
        {"segment_size": 1000},
    ):
        with pytest.raises(ValueError):
            Volume.create(image, 32 << 20, **options)
    for options in ({"label": "x" * 65}, {"metadata_copies": 0}, {"metadata_copies": 3}):
        with pytest.raises(InvalidError) as caught:
            Volume.in_memory(32 << 20, **options)
        assert caught.value.errno == errno.EINVAL
    with pytest.raises(InvalidError):
        Volume.create(image, 10)
    with pytest.raises(TypeError):
        Volume.create(image, 32 << 20, "files")
    assert not image.exists()


def test_pages_are_compressed_as_it_is_said(image):
    def taken(volume, name):
        before = volume.space().live_bytes
        volume.files().write_bytes(name, b"same" * (1 << 18))
        volume.flush()
        return volume.space().live_bytes - before

    with Volume.create(image, 64 << 20, compress="zstd:7") as volume:
        assert 0 < taken(volume, "made") < 1 << 18
    with Volume.open(image) as volume:
        assert 0 < taken(volume, "opened") < 1 << 18
    with Volume.open(image, compress="none") as volume:
        assert taken(volume, "otherwise") >= 1 << 20
    with Volume.in_memory(64 << 20, compress="lz4") as volume:
        assert 0 < taken(volume, "in memory") < 1 << 18
    for wrong in ("zstd:16", "gzip", ""):
        with pytest.raises(InvalidError):
            Volume.in_memory(64 << 20, compress=wrong)
        with pytest.raises(InvalidError):
            Volume.open(image, compress=wrong)


def test_a_volume_for_reading_takes_no_changes(image):
    with Volume.create(image, 32 << 20) as volume:
        volume.files().write_bytes("a", b"1")
    with Volume.open(image, read_only=True) as volume:
        assert volume.read_only_reason
        assert volume.files().read_bytes("a") == b"1"
        with pytest.raises(ReadOnlyError):
            volume.files().write_bytes("a", b"2")
        with pytest.raises(ReadOnlyError):
            volume.snapshot("s")


def test_the_devices_of_a_mirror_are_named_and_may_be_absent(mirror):
    one, two = mirror
    with pytest.raises(OSError) as raised:
        Volume.open(one)
    assert raised.value.errno == errno.ENODEV
    with Volume.open(one, devices=[two]) as volume:
        volume.flush(outlasts="medium")
    two.unlink()
    with Volume.open(str(one), degraded=True) as volume:
        with pytest.raises(DendroError) as lacking:
            volume.flush(outlasts="medium")
        assert lacking.value.code == ErrorCode.ONE_COPY


def test_versions_are_made_named_and_deleted(volume):
    files = volume.files()
    files.write_bytes("a", b"1")
    one = volume.snapshot("one")
    files.write_bytes("a", b"2")
    draft = volume.branch("draft", "@one")
    volume.files(draft).write_bytes("a", b"3")
    assert [volume.files(of).read_bytes("a") for of in ("@one", None, "draft")] == [
        b"1",
        b"2",
        b"3",
    ]
    assert volume.view("@one") == one != draft
    assert hash(volume.view("draft")) == hash(draft)
    assert (draft.is_head, one.is_head, one.epoch is None) == (True, False, False)
    known = {version.name: version for version in volume.versions()}
    assert set(known) == {"main", "draft", "one"}
    assert known["one"].is_snapshot and not known["draft"].is_snapshot
    assert abs(known["one"].created_ns / 1e9 - time.time()) < 3600
    volume.hold(one)
    with pytest.raises(BusyError):
        volume.delete(one)
    volume.hold(one, False)
    volume.rename(one, "eins")
    with pytest.raises(ExistsError):
        volume.snapshot("eins")
    with pytest.raises(NotFoundError, match="nowhere"):
        volume.view("nowhere")
    head = volume.roll_back("@eins")
    assert head == volume.main
    assert volume.files().read_bytes("a") == b"1"
    volume.delete("draft")
    with pytest.raises(DendroError):
        volume.files(draft)
    with pytest.raises(DendroError):
        volume.lists(draft)


def test_a_branch_becomes_the_main_one(volume):
    files = volume.files()
    files.write_bytes("a", b"before")
    main = volume.main
    draft = volume.branch("draft", volume.snapshot("before"))
    volume.files(draft).write_bytes("a", b"draft")
    volume.promote("draft")
    assert (volume.main, volume.view("main"), volume.view("draft")) == (draft, draft, main)
    assert volume.files().read_bytes("a") == b"draft"
    with pytest.raises(DendroError) as caught:
        volume.promote("@before")
    assert caught.value.errno == errno.ESTALE
    with pytest.raises(DendroError) as caught:
        volume.promote(volume.create_client("other"))
    assert (caught.value.errno, caught.value.code) == (errno.EXDEV, ErrorCode.OTHER_CLIENT)


def test_it_is_said_what_versions_take(lists):
    with lists.unit() as unit:
        unit.write_pages(dendrofs.ROOT_LIST, 0, b"a" * (256 << 10))
    before = lists.snapshot("before")
    with lists.unit() as unit:
        unit.write_pages(dendrofs.ROOT_LIST, 0, b"b" * (64 << 10))
    usage = {of.view: of for of in lists.usage()}
    assert set(usage) == {before, lists.main}
    for of in usage.values():
        assert 64 << 10 <= of.exclusive_bytes < 256 << 10 <= of.seen_bytes
    assert lists.freed_by([]) == 0
    assert lists.freed_by(["@before"]) == usage[before].exclusive_bytes
    both = lists.freed_by([before, "main"])
    assert both > sum(of.exclusive_bytes for of in usage.values())
    with pytest.raises(NotFoundError):
        lists.freed_by(["@none"])


def test_versions_are_sent_and_received(volume):
    files = volume.files()
    files.write_bytes("a", b"one")
    volume.snapshot("one")
    files.write_bytes("a", b"two")
    two = volume.snapshot("two")
    whole, rest = io.BytesIO(), io.BytesIO()
    volume.send("@one", whole)
    volume.send(two, rest, base="@one")
    end = whole.tell()
    whole.write(b"and what follows")
    whole.seek(0)
    rest.seek(0)
    with Volume.in_memory(32 << 20) as other:
        with pytest.raises(NotFoundError):
            other.receive(rest)
        one = other.receive(whole, "first")
        assert whole.tell() == end
        assert one == other.view("@first")
        rest.seek(0)
        assert other.receive(rest) == other.view("@two")
        assert other.files(one).read_bytes("a") == b"one"
        assert other.files("@two").read_bytes("a") == b"two"
        rest.seek(0)
        with pytest.raises(ExistsError):
            other.receive(rest)
        with pytest.raises(DendroError) as caught:
            other.receive(io.BytesIO(b"no stream" * 100))
        assert caught.value.errno == errno.EBADMSG
    with pytest.raises(DendroError):
        volume.send("main", io.BytesIO())


class Failing(io.RawIOBase):
    """Raises what it is told, or answers so."""

    def __init__(self, answer):
        self.answer, self.calls = answer, 0

    def write(self, data):
        return self.answer_with(len(data))

    def read(self, size):
        return self.answer_with(b"x" * size)

    def answer_with(self, more):
        self.calls += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return more * 2 if self.answer == "more" else self.answer


def test_what_a_stream_raises_is_raised(volume):
    volume.files().write_bytes("a", os.urandom(1 << 20))
    volume.snapshot("one")
    for call in (lambda file: volume.send("@one", file), volume.receive):
        failing = Failing(ZeroDivisionError("on purpose"))
        with pytest.raises(ZeroDivisionError, match="on purpose"):
            call(failing)
        assert failing.calls == 1
        for answer in (None, "more"):
            with pytest.raises(DendroError):
                call(Failing(answer))
        with pytest.raises(TypeError):
            call(Failing({}))
        with pytest.raises(AttributeError):
            call(object())
    volume.files().write_bytes("b", b"it goes on")


def test_codes_tell_apart_what_has_one_errno(volume):
    head = volume.create_client("records", "lists")
    with pytest.raises(NotFoundError) as no_list, volume.unit(head) as unit:
        unit.put_record(99, 0, b"x")
    with pytest.raises(NotFoundError) as no_version:
        volume.view("@none")
    assert (no_list.value.code, no_version.value.code) == (ErrorCode.NO_SUCH_LIST, None)
    volume.snapshot("taken")
    with pytest.raises(ExistsError) as taken:
        volume.snapshot("taken")
    assert taken.value.code == ErrorCode.NAME_TAKEN == 9
    with pytest.raises(NoSpaceError) as full:
        volume.files().write_bytes("large", os.urandom(40 << 20))
    assert (full.value.code, full.value.filename) == (ErrorCode.NO_SPACE, "large")


def test_a_code_that_is_not_known_is_none():
    error = DendroError._of(errno.EIO, "of a later version", None, 9999)
    assert isinstance(error, DamagedError) and error.code is None


def test_codes_have_the_numbers_of_the_header_for_c():
    header = (Path(__file__).parents[3] / "capi/include/dendro.h").read_text()
    found = re.findall(r"^#define DENDRO_ERROR_(\w+) (\d+)$", header, re.MULTILINE)
    assert {name: int(code) for name, code in found} == dict(ErrorCode.__members__)


def test_clients_keep_what_is_theirs(volume):
    head = volume.create_client("records", "lists")
    with volume.unit(head) as unit:
        unit.put_record(dendrofs.ROOT_LIST, 0, b"theirs")
    assert volume.lists("records").record(dendrofs.ROOT_LIST, 0) == b"theirs"
    assert [(of.name, of.kind) for of in volume.clients()] == [
        ("main", "files"),
        ("records", "lists"),
    ]
    with pytest.raises(DendroError):
        volume.files(head)
    with pytest.raises(ValueError):
        volume.create_client("x", "y")
    with pytest.raises(ValueError, match="create_block_device"):
        volume.create_client("x", "block")


def test_a_block_device_has_the_size_that_it_is_made_with(volume):
    device = volume.create_block_device("device", 1 << 20)
    assert volume.block_device_size("device") == 1 << 20
    assert volume.clients()[1].kind == "block"
    assert volume.lists(device).read_pages(dendrofs.ROOT_LIST, 0, 1) == bytes(4096)
    with pytest.raises(DendroError) as wrong:
        volume.create_block_device("odd", 4095)
    with pytest.raises(DendroError) as none:
        volume.block_device_size("main")
    assert (wrong.value.errno, none.value.errno) == (errno.EINVAL, errno.EOPNOTSUPP)


def test_a_quota_bounds_what_a_client_takes(volume):
    head = volume.create_client("records", "lists")
    assert volume.quota(head) is None
    volume.set_quota(64 << 10, head)
    quota = volume.quota("records")
    assert quota.limit_bytes == 64 << 10
    assert quota.used_bytes < 4096
    with pytest.raises(OverQuotaError) as raised:
        with volume.unit(head) as unit:
            unit.write_pages(dendrofs.ROOT_LIST, 0, b"x" * (80 << 10))
    assert raised.value.errno == errno.EDQUOT
    with volume.reserve(32 << 10, head):
        assert volume.quota(head).reserved_bytes == 32 << 10
        with pytest.raises(OverQuotaError):
            volume.reserve(48 << 10, "records")
    assert volume.quota(head).reserved_bytes == 0
    assert volume.quota() is None
    volume.files().write_bytes("large", b"x" * (1 << 20))
    volume.set_quota(None, head)
    assert volume.quota(head) is None
    unit.commit()
    with pytest.raises(OverflowError):
        volume.set_quota(-1)


def test_without_threads_a_program_does_the_steps(image):
    with Volume.create(image, 32 << 20, contents="lists", threads=False) as volume:
        volume.check_threads()
        with volume.unit() as unit:
            unit.put_record(dendrofs.ROOT_LIST, 1, b"x")
        while volume.step():
            pass
        volume.flush(unit.last_commit)


def put(volume, index, record=b"x"):
    with volume.unit() as unit:
        unit.put_record(dendrofs.ROOT_LIST, index, record)
    return unit.last_commit


def test_what_is_flushed_outlasts_what_is_said(lists):
    commit = put(lists, 1)
    for outlasts in ("process", "machine"):
        lists.flush(commit, outlasts=outlasts)
        lists.flush(outlasts=outlasts)
    with pytest.raises(DendroError) as raised:
        lists.flush(outlasts="medium")
    assert raised.value.errno == errno.ENODEV
    with pytest.raises(ValueError):
        lists.flush(outlasts="anything")


def test_an_event_loop_waits_until_commits_are_durable(image):
    async def write(volume, number):
        for index in range(20):
            await volume.when_durable(put(volume, number * 100 + index))

    async def work(volume):
        await asyncio.gather(*(write(volume, number) for number in range(10)))
        await volume.when_durable()
        known = volume.when_durable()
        await asyncio.wait_for(known, 20)
        # What is known is known for everybody who asks.
        await known
        known.result()
        assert known.done()

    with Volume.create(image, 32 << 20, contents="lists", commit_interval=60) as volume:
        asyncio.run(work(volume))
        assert sum(1 for _ in volume.lists().records(dendrofs.ROOT_LIST)) == 200


def test_without_threads_it_is_known_when_the_steps_are_done(image):
    with Volume.create(image, 32 << 20, contents="lists", threads=False) as volume:
        known = volume.when_durable(put(volume, 1))
        assert not known.done()
        assert select.select([known], [], [], 0) == ([], [], [])
        with pytest.raises(DendroError) as raised:
            known.result()
        assert raised.value.errno == errno.EAGAIN
        while volume.step():
            pass
        assert select.select([known], [], [], 0) == ([known], [], [])
        assert known.result() is None and "durable" in repr(known)
        at_the_end = volume.when_durable(put(volume, 2))
        forgotten = volume.when_durable(put(volume, 3))
        del forgotten
    assert at_the_end.done()
    at_the_end.result()
    with pytest.raises(ValueError):
        volume.when_durable()


def test_who_waits_in_an_event_loop_can_give_up(image):
    async def work(volume):
        known = volume.when_durable(put(volume, 1))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(known, 0.05)
        assert not known.done()
        volume.flush()
        await known

    with Volume.create(image, 32 << 20, contents="lists", threads=False) as volume:
        asyncio.run(work(volume))


def test_several_tasks_wait_for_the_same_commits(image):
    async def wait(known):
        await known

    async def work(volume):
        known = volume.when_durable(put(volume, 1))
        tasks = [asyncio.ensure_future(wait(known)) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in tasks)
        # Who gives up leaves the others waiting.
        tasks[1].cancel()
        await asyncio.sleep(0.05)
        assert [task.done() for task in tasks] == [False, True, False]
        volume.flush()
        await asyncio.wait_for(asyncio.gather(tasks[0], tasks[2]), 20)
        assert tasks[1].cancelled()

    with Volume.create(image, 32 << 20, contents="lists", threads=False) as volume:
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        asyncio.run(work(volume))
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before


def test_threads_write_at_the_same_time_while_others_read(lists):
    def write(number):
        for index in range(300):
            with lists.unit() as unit:
                unit.put_record(dendrofs.ROOT_LIST, number * 1000 + index, b"%d" % index)

    def read():
        while not done.is_set():
            for index, record in lists.lists().records(dendrofs.ROOT_LIST):
                assert record == b"%d" % (index % 1000)

    done = threading.Event()
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    reader = threading.Thread(target=read)
    for thread in (*writers, reader):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert sum(1 for _ in lists.lists().records(dendrofs.ROOT_LIST)) == 1200


def test_other_threads_run_while_a_call_waits(image):
    """A thread that wakes up gets the global lock only from a call that gives it back."""
    counted, done = [0], threading.Event()

    def count():
        while not done.is_set():
            time.sleep(0.0005)
            counted[0] += 1

    data = os.urandom(4 << 20)
    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    with Volume.create(image, 64 << 20, contents="lists") as volume:
        sys.setswitchinterval(100)
        try:
            thread.start()
            before = counted[0]
            for _ in range(100):
                with volume.unit() as unit:
                    unit.write_pages(dendrofs.ROOT_LIST, 0, data)
                volume.flush()
                if counted[0] > before:
                    break
            during = counted[0] - before
        finally:
            done.set()
            sys.setswitchinterval(interval)
            thread.join()
    assert during > 0


def test_closing_while_threads_work_ends_them_with_an_error():
    volume = Volume.in_memory(32 << 20, contents="lists")
    ends = []

    def write():
        try:
            while True:
                with volume.unit() as unit:
                    unit.put_record(dendrofs.ROOT_LIST, 0, b"x")
        except ValueError as error:
            ends.append(str(error))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    volume.close()
    for thread in threads:
        thread.join()
    assert len(ends) == 3 and all("closed" in end for end in ends)


def _use_in_child(volume, files, raw, pipe):
    found = []
    for call in (
        volume.flush,
        lambda: files.read_bytes("a"),
        raw.tell,
        lambda: raw.write(b"2"),
        volume.close,
    ):
        try:
            call()
            found.append(None)
        except OSError as error:
            found.append(error.errno)
    pipe.send(found)


def test_a_forked_process_cannot_use_the_volume_and_leaves_it_alone(image):
    volume = Volume.create(image, 32 << 20, threads=False)
    files = volume.files()
    files.write_bytes("a", b"1")
    raw = files.open("b", "wb", 0)
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = context.Process(target=_use_in_child, args=(volume, files, raw, there))
        child.start()
    found = here.recv()
    child.join()
    assert found == [errno.EBUSY, errno.EBUSY, None, errno.EBUSY, errno.EBUSY]
    # The child has ended, with all its objects, and has written nothing.
    files.write_bytes("a", b"3")
    raw.close()
    volume.close()
    with Volume.open(image) as volume:
        assert volume.files().read_bytes("a") == b"3"
        assert volume.files().read_bytes("b") == b""


CRASHING = """
import os, signal, sys
from dendrofs import ROOT_LIST, Volume
volume = Volume.create(sys.argv[1], 32 << 20, contents="lists", commit_interval=1000.0)
for number in range(1000):
    with volume.unit() as unit:
        unit.put_record(ROOT_LIST, number, b"x")
    if number == 499:
        volume.flush(unit.last_commit)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_crash_what_was_flushed_is_there_and_no_unit_is_missing_between(image):
    ended = subprocess.run([sys.executable, "-c", CRASHING, image])
    assert ended.returncode == -signal.SIGKILL
    with Volume.open(image) as volume:
        found = [index for index, _ in volume.lists().records(dendrofs.ROOT_LIST)]
    assert found == list(range(len(found)))
    assert len(found) >= 500


def test_a_volume_that_is_left_open_does_not_keep_the_program_from_ending(image):
    program = (
        "import sys; from dendrofs import Volume; v = Volume.create(sys.argv[1], 32 << 20); "
        "f = v.files(); f.write_bytes('a', b'1'); v.flush()"
    )
    subprocess.run([sys.executable, "-c", program, image], check=True, timeout=30)
    with Volume.open(image) as volume:
        assert volume.files().read_bytes("a") == b"1"
