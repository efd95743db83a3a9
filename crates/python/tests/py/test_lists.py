"""Lists and units."""

import array
import mmap

import pytest

from dendrofs import (
    MAX_PAGE_COUNT,
    MAX_RECORD_SIZE,
    PAGE_SIZE,
    ROOT_LIST,
    ChangedError,
    DendroError,
    ExistsError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    Volume,
)


@pytest.fixture
def number(lists):
    """A list."""
    with lists.unit() as unit:
        number = unit.create_list()
    return number


def test_a_unit_takes_effect_at_the_end_of_its_block(lists, number):
    with lists.unit() as unit:
        unit.put_record(number, 3, b"three")
        unit.write_pages(number, 0, b"page")
        assert lists.lists().record(number, 3) is None
        assert (len(unit), bool(unit)) == (2, True)
    assert lists.lists().record(number, 3) == b"three"
    assert lists.lists().read_pages(number, 0) == b"page".ljust(PAGE_SIZE, b"\0")
    assert (len(unit), bool(unit)) == (0, True)
    with unit:
        unit.delete_record(number, 3)
    assert lists.lists().record(number, 3) is None


def test_parts_of_pages_are_written_and_scattered_pages_read(lists, number):
    with lists.unit() as unit:
        unit.write_pages(number, 0, b"a" * (2 * PAGE_SIZE))
        unit.write_bytes(number, PAGE_SIZE - 2, b"bcde")
    pages = b"a" * (PAGE_SIZE - 2) + b"bcde" + b"a" * (PAGE_SIZE - 2)
    assert lists.lists().read_pages(number, 0, 2) == pages
    ranges = [(number, 1, 2), (number, 0, 1), (number, 7, 0)]
    expected = pages[PAGE_SIZE:] + bytes(PAGE_SIZE) + pages[:PAGE_SIZE]
    assert lists.lists().read_scattered(ranges) == expected
    assert lists.lists().read_scattered([]) == b""
    with pytest.raises(ValueError):
        lists.lists().read_scattered([(number, 0, 1 << 60)])
    with pytest.raises(InvalidError):
        lists.lists().read_scattered([(number, MAX_PAGE_COUNT, 1)])


def test_an_exception_drops_the_unit(lists, number):
    with pytest.raises(KeyError):
        with lists.unit() as unit:
            unit.put_record(number, 0, b"x")
            raise KeyError
    assert lists.lists().record(number, 0) is None
    assert (len(unit), unit.last_commit) == (0, None)


def test_commits_have_ascending_numbers(lists, number):
    unit = lists.unit()
    unit.put_record(number, 0, b"x")
    first = unit.commit()
    assert unit.last_commit == first
    unit.put_record(number, 0, b"y")
    assert unit.commit() > first
    lists.flush(first)
    lists.flush()


def test_a_unit_that_fails_changes_nothing_and_keeps_its_changes(lists, number):
    unit = lists.unit()
    unit.put_record(number, 0, b"x")
    unit.put_record(number + 1000, 0, b"y")
    with pytest.raises(NotFoundError):
        unit.commit()
    assert lists.lists().record(number, 0) is None
    assert len(unit) == 2
    with lists.unit() as other:
        other.create_list(number + 1000)
    unit.commit()
    assert lists.lists().record(number + 1000, 0) == b"y"
    for wrong, error in (
        (lambda unit: unit.create_list(number), ExistsError),
        (lambda unit: unit.put_record(number, 0, b""), InvalidError),
        (lambda unit: unit.put_record(number, 0, b"x" * (MAX_RECORD_SIZE + 1)), InvalidError),
        (lambda unit: unit.write_pages(number, MAX_PAGE_COUNT, b"x"), InvalidError),
    ):
        with pytest.raises(error):
            with lists.unit() as unit:
                wrong(unit)
    for negative in (-1, 1 << 64):
        with pytest.raises(OverflowError):
            lists.unit().put_record(number, negative, b"x")


@pytest.mark.parametrize("size", [1, PAGE_SIZE, 3 * PAGE_SIZE + 5])
def test_pages_take_any_buffer(lists, number, size):
    data = bytes(range(251)) * (size // 251 + 1)
    data = data[:size]
    mapped = mmap.mmap(-1, size)
    mapped[:] = data
    whole = -(-size // PAGE_SIZE)
    for kind in (
        bytes,
        bytearray,
        memoryview,
        lambda data: array.array("B", data),
        lambda _: mapped,
    ):
        with lists.unit() as unit:
            unit.punch_pages(number, 0, 10)
            unit.write_pages(number, 0, kind(data))
        assert lists.lists().read_pages(number, 0, whole) == data.ljust(whole * PAGE_SIZE, b"\0")
    with pytest.raises(TypeError):
        lists.unit().write_pages(number, 0, "text")
    with pytest.raises(TypeError):
        lists.unit().put_record(number, 0, 7)


def test_every_second_element_of_a_buffer_is_what_it_shows(lists, number):
    with lists.unit() as unit:
        unit.put_record(number, 0, memoryview(b"abcdef")[::2])
        unit.put_record(number, 1, array.array("H", [1, 2]))
    assert lists.lists().record(number, 0) == b"ace"
    assert lists.lists().record(number, 1) == array.array("H", [1, 2]).tobytes()


def test_a_unit_has_what_a_buffer_had_when_it_was_given(lists, number):
    data = bytearray(b"before")
    with lists.unit() as unit:
        unit.write_pages(number, 0, data)
        unit.put_record(number, 0, data)
        data[:] = b"after!"
    assert lists.lists().read_pages(number, 0)[:6] == b"before"
    assert lists.lists().record(number, 0) == b"before"


def test_pages_are_read_into_buffers(lists, number):
    with lists.unit() as unit:
        unit.write_pages(number, 1, b"\1" * PAGE_SIZE + b"\2" * PAGE_SIZE)
    now = lists.lists()
    for buffer in (
        bytearray(3 * PAGE_SIZE),
        mmap.mmap(-1, 3 * PAGE_SIZE),
        array.array("Q", [7]) * 1536,
    ):
        now.read_pages_into(number, 0, buffer)
        raw = bytes(memoryview(buffer).cast("B"))
        assert raw == b"\0" * PAGE_SIZE + b"\1" * PAGE_SIZE + b"\2" * PAGE_SIZE
    now.read_pages_into(number, 0, bytearray())
    with pytest.raises(ValueError, match="whole pages"):
        now.read_pages_into(number, 0, bytearray(100))
    for wrong in (bytes(PAGE_SIZE), memoryview(bytearray(2 * PAGE_SIZE))[::2], "text"):
        with pytest.raises(TypeError):
            now.read_pages_into(number, 0, wrong)
    with pytest.raises(ValueError):
        now.read_pages(number, 0, 1 << 60)
    with pytest.raises(InvalidError):
        now.read_pages(number, MAX_PAGE_COUNT, 1)
    assert now.read_pages(number, 0, 0) == b""


def test_records_and_lists_are_iterated_past_a_batch(lists, number):
    count = 1000
    with lists.unit() as unit:
        for index in range(count):
            unit.put_record(number, index * 3, b"%d" % index)
        made = [unit.create_list() for _ in range(600)]
    now = lists.lists()
    assert list(now.records(number)) == [(index * 3, b"%d" % index) for index in range(count)]
    assert next(now.records(number, 4)) == (6, b"2")
    assert list(now)[-601:] == [number, *made]
    assert next(iter(now)) == ROOT_LIST
    assert list(now.numbers(made[-1])) == made[-1:]
    assert number in now and made[-1] + 1 not in now
    with lists.unit() as unit:
        unit.put_record(number, (1 << 64) - 1, b"last")
    assert list(now.records(number, 3000)) == [((1 << 64) - 1, b"last")]


def test_a_list_is_made_beside_another_and_moves(lists, number):
    now = lists.lists()
    with lists.unit() as unit:
        other = unit.create_list(near=number)
    assert (now.near(other), now.near(number), now.near(999)) == (number, None, None)
    with lists.unit() as unit:
        unit.set_hints(other, clustered=True, near=77)
    assert (now.near(other), now.is_clustered(other)) == (77, True)
    with pytest.raises(NotFoundError), lists.unit() as unit:
        unit.set_hints(other, near=(1 << 64) - 1)
    with lists.unit() as unit:
        unit.set_hints(other, near=0)
    assert (now.near(other), now.is_clustered(other)) == (None, True)


@pytest.mark.parametrize("compress", ["zstd", "lz4", "none", "default"])
def test_hints_that_a_change_does_not_name_stay(lists, number, compress):
    now = lists.lists()
    with lists.unit() as unit:
        other = unit.create_list(near=number, compress=compress)
        unit.set_hints(other, clustered=True)

    def hints():
        return now.compression(other), now.near(other), now.is_clustered(other)

    assert hints() == (compress, number, True)
    with lists.unit() as unit:
        unit.set_hints(other, clustered=False)
    assert hints() == (compress, number, False)
    with lists.unit() as unit:
        unit.set_hints(other, near=77)
        unit.set_hints(other, clustered=True)
    assert hints() == (compress, 77, True)
    with lists.unit() as unit:
        unit.set_hints(other, compress="zstd")
    assert hints() == ("zstd", 77, True)


def test_a_list_is_compressed_as_it_is_said(lists):
    def taken(compress):
        before = lists.space().live_bytes
        with lists.unit() as unit:
            unit.write_pages(unit.create_list(compress=compress), 0, b"same" * (1 << 18))
        lists.flush()
        return lists.space().live_bytes - before

    assert taken("none") > 1 << 20
    assert 0 < taken("zstd") < 1 << 18
    assert 0 < taken("lz4") < 1 << 18


def test_a_compression_that_no_list_has_is_refused(lists, number):
    with lists.unit() as unit:
        for wrong in ("zstd:3", "gzip", ""):
            with pytest.raises(ValueError, match="'lz4'"):
                unit.set_hints(number, compress=wrong)
            with pytest.raises(ValueError, match="'lz4'"):
                unit.create_list(compress=wrong)
        assert len(unit) == 0
    assert lists.lists().compression(number) == "default"
    assert lists.lists().compression(999) is None


def test_pages_are_zeroed_punched_moved_and_swapped(lists, number):
    now = lists.lists()
    with lists.unit() as unit:
        other = unit.create_list(clustered=True)
        unit.write_pages(number, 0, b"a" * PAGE_SIZE + b"b" * PAGE_SIZE)
        unit.zero_pages(number, 4, 2)
    assert (now.is_clustered(number), now.is_clustered(other), now.is_clustered(999)) == (
        False,
        True,
        None,
    )
    assert (now.next_data(number, 2), now.next_hole(number), now.count_pages(number)) == (4, 2, 4)
    with lists.unit() as unit:
        unit.move_pages(number, 1, other, 9, 1)
        unit.punch_pages(number, 4, 1)
        unit.set_hints(other, clustered=False)
    assert now.read_pages(other, 9)[:1] == b"b"
    assert (now.count_pages(number), now.count_pages(number, 5, 3), now.is_clustered(other)) == (
        2,
        0,
        False,
    )
    with lists.unit() as unit:
        unit.swap_pages(number, other)
    assert now.read_pages(number, 9)[:1] == b"b"
    with lists.unit() as unit:
        unit.set_reclaims()
        unit.delete_list(other)
    assert other not in now


def test_what_changed_between_two_versions_is_told(lists, number):
    with lists.unit() as unit:
        unit.write_pages(number, 0, b"a" * 100 * PAGE_SIZE)
        unit.put_record(number, 5, b"x")
    before = lists.snapshot("before")
    with lists.unit() as unit:
        unit.write_pages(number, 40, b"b" * PAGE_SIZE)
        unit.put_record(number, 6, b"y")
    now = lists.lists()
    assert number in list(now.changed_lists(before))
    assert list(now.changed_records(before, number)) == [6]
    found = list(now.changed_pages(before, number))
    assert any(start <= 40 < stop for start, stop in found)
    assert sum(stop - start for start, stop in found) <= 32
    assert list(lists.lists("@before").changed_records(before, number)) == []


def test_a_full_volume_refuses_and_a_reservation_is_kept_for_its_unit(lists, number):
    page = b"x" * PAGE_SIZE * 16
    reservation = lists.reserve(len(page))
    with pytest.raises(NoSpaceError):
        for first in range(0, 1 << 20, 16):
            with lists.unit() as unit:
                unit.write_pages(number, first, bytes([first // 16 % 251 + 1]) + page[1:])
    assert lists.space().reserved_bytes >= len(page)
    with lists.unit() as unit:
        unit.use_reservation(reservation)
        unit.write_pages(number, 1 << 30, page)
    assert lists.lists().read_pages(number, 1 << 30)[:1] == b"x"
    assert lists.space().reserved_bytes == 0
    with pytest.raises(ValueError):
        lists.unit().use_reservation(reservation)
    with Volume.in_memory(32 << 20) as other, other.reserve(10) as foreign:
        with pytest.raises(ValueError, match="another volume"):
            lists.unit().use_reservation(foreign)
    with lists.unit() as unit:
        unit.set_reclaims()
        unit.delete_list(number)


def test_a_unit_is_committed_on_its_conditions(lists, number):
    with lists.unit() as unit:
        unit.require_record(number, 0, None)
        unit.put_record(number, 0, b"one")
    unit.require_record(number, 0, b"two")
    unit.put_record(number, 0, b"three")
    reservation = lists.reserve(1000)
    unit.use_reservation(reservation)
    with pytest.raises(ChangedError) as caught:
        unit.commit()
    assert isinstance(caught.value, BlockingIOError)
    # It is as it was, with its reservation.
    assert (len(unit), lists.lists().record(number, 0)) == (1, b"one")
    assert lists.space().reserved_bytes >= 1000
    with lists.unit() as other:
        other.put_record(number, 0, b"two")
    unit.commit()
    assert lists.lists().record(number, 0) == b"three"
    assert lists.space().reserved_bytes == 0

    since = lists.last_commit()
    lists.flush_list(number)
    unit.require_unchanged(number, since)
    unit.write_pages(number, 0, b"based on three")
    unit.commit()
    unit.require_unchanged(number, since)
    with pytest.raises(ChangedError):
        unit.commit()
    unit.clear()
    unit.commit()


def test_snapshots_cannot_be_changed(lists, number):
    snapshot = lists.snapshot("s")
    with pytest.raises(DendroError):
        with lists.unit(snapshot) as unit:
            unit.put_record(number, 0, b"x")


def test_an_iterator_ends_once(lists):
    items = lists.lists().numbers()
    assert iter(items) is items
    assert list(items)[0] == ROOT_LIST
    assert list(items) == []
