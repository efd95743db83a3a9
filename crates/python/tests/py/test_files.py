"""Files, by paths and as streams."""

import errno
import io
import os
import stat
import threading

import pytest

from dendrofs import (
    DendroError,
    DirectoryExpectedError,
    ExistsError,
    File,
    FileExpectedError,
    NotFoundError,
    Volume,
)


@pytest.fixture
def files(volume):
    return volume.files()


def test_names_are_made_renamed_linked_and_removed(files):
    files.mkdir("a")
    files.makedirs("a/b/c")
    with pytest.raises(FileExistsError):
        files.makedirs("a/b/c")
    files.makedirs("a/b/c", exist_ok=True)
    files.write_bytes("/a/b/file", b"1234")
    files.symlink("b/file", "a/link")
    files.link("a/b/file", "a/other")
    assert files.listdir("a") == ["b", "link", "other"]
    assert files.readlink("a/link") == "b/file"
    assert files.read_bytes("a/link") == b"1234"
    assert files.stat("a/other").st_nlink == 2
    files.rename("a/other", "a/b/renamed")
    files.unlink("a/b/renamed")
    assert files.stat("a/b/file").st_nlink == 1
    assert files.isfile("a/link") and files.isdir("a/b") and not files.isdir("a/link")
    files.unlink("a/b/file")
    assert not files.exists("a/link")
    assert not files.isfile("a/link")
    files.rmdir("a/b/c")
    with pytest.raises(OSError) as caught:
        files.rmdir("a")
    assert caught.value.errno == errno.ENOTEMPTY


def test_errors_have_a_number_a_path_and_the_classes_of_python(files):
    files.write_bytes("file", b"")
    for call, kind, number in (
        (lambda: files.read_bytes("none"), NotFoundError, errno.ENOENT),
        (lambda: files.mkdir("file"), ExistsError, errno.EEXIST),
        (lambda: files.listdir("file"), DirectoryExpectedError, errno.ENOTDIR),
        (lambda: files.open("/"), FileExpectedError, errno.EISDIR),
        (lambda: files.write_bytes("/", b""), FileExpectedError, errno.EISDIR),
        (lambda: files.getxattr("file", "user.none"), DendroError, errno.ENODATA),
    ):
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.errno == number
        assert caught.value.filename in ("none", "file", "/")
        assert isinstance(caught.value, OSError)
    with pytest.raises(FileNotFoundError, match="none"):
        files.stat("none")
    with pytest.raises(NotADirectoryError):
        files.stat("file/below")


def test_stat_has_what_os_stat_has(files):
    files.write_bytes("file", b"x" * 5000)
    files.chmod("file", 0o640)
    files.symlink("file", "link")
    found = files.stat("link")
    assert stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o640
    assert (found.st_size, found.st_uid, found.st_gid) == (5000, os.geteuid(), os.getegid())
    assert found.st_blocks > 0
    assert found.st_mtime == pytest.approx(found.st_mtime_ns / 1e9)
    assert found.st_birthtime_ns <= found.st_mtime_ns <= found.st_ctime_ns
    assert stat.S_ISLNK(files.stat("link", follow_symlinks=False).st_mode)
    assert stat.S_ISDIR(files.stat("/").st_mode)
    assert found == files.stat("file")


def test_directories_are_scanned_and_walked(files):
    files.makedirs("top/one/two")
    files.write_bytes("top/file", b"12")
    files.write_bytes("top/one/file", b"")
    files.symlink("one", "top/link")
    files.symlink("nowhere", "top/broken")
    entries = {entry.name: entry for entry in files.scandir("top")}
    assert list(entries) == ["broken", "file", "link", "one"]
    assert entries["link"].is_dir() and not entries["link"].is_dir(follow_symlinks=False)
    assert entries["link"].is_symlink() and entries["link"].path == "top/link"
    assert entries["file"].is_file() and entries["file"].stat().st_size == 2
    assert not entries["broken"].is_dir() and not entries["broken"].is_file()
    assert entries["one"].inode() == files.stat("top/one").st_ino
    assert os.fspath(entries["one"]) == "top/one"
    with pytest.raises(NotFoundError):
        entries["broken"].stat()
    down = list(files.walk("top"))
    assert down == [
        ("top", ["link", "one"], ["broken", "file"]),
        ("top/one", ["two"], ["file"]),
        ("top/one/two", [], []),
    ]
    assert list(files.walk("top", topdown=False)) == down[::-1]
    assert len(list(files.walk("top", followlinks=True))) == 5
    pruned = []
    for folder, dirs, _ in files.walk("top"):
        pruned.append(folder)
        dirs[:] = []
    assert pruned == ["top"]


def test_names_that_are_no_utf8_go_through(files):
    name = os.fsdecode(b"\xff\xfe")
    files.write_bytes(name, b"1")
    assert files.listdir() == [name]
    assert files.read_bytes(name) == b"1"
    assert files.scandir()[0].name == name


def test_extended_attributes_are_set_listed_and_removed(files):
    files.write_bytes("file", b"")
    files.setxattr("file", "user.a", b"1")
    files.setxattr("file", "user.a", bytearray(b"2"))
    files.setxattr("file", "user.b", b"")
    assert files.getxattr("file", "user.a") == b"2"
    assert files.listxattr("file") == ["user.a", "user.b"]
    files.removexattr("file", "user.a")
    assert files.listxattr("file") == ["user.b"]
    with pytest.raises(OSError) as caught:
        files.setxattr("file", "nonsense.a", b"1")
    assert caught.value.errno == errno.EOPNOTSUPP


def test_replacing_keeps_the_permissions(files):
    files.write_bytes("file", b"old")
    files.chmod("file", 0o600)
    files.replace_bytes("file", b"new")
    assert files.read_bytes("file") == b"new"
    assert stat.S_IMODE(files.stat("file").st_mode) == 0o600
    assert files.listdir() == ["file"]


def test_streams_are_those_of_io(files):
    with files.open("text", "w", encoding="utf-8") as file:
        assert isinstance(file, io.TextIOWrapper)
        file.write("one\ntwö\n")
    with files.open("text", encoding="utf-8") as file:
        assert list(file) == ["one\n", "twö\n"]
    with files.open("text", "rb") as file:
        assert isinstance(file, io.BufferedReader)
        assert isinstance(file.raw, File)
        assert file.readline() == b"one\n"
        assert file.read() == "twö\n".encode()
    with files.open("text", "r+b") as file:
        assert isinstance(file, io.BufferedRandom)
        file.seek(4)
        file.write(b"TWO")
        file.seek(0)
        assert file.read(7) == b"one\nTWO"
    with files.open("text", "rb", 0) as raw:
        assert isinstance(raw, io.RawIOBase)
        assert io.BufferedReader(raw).readlines()[0] == b"one\n"


def test_the_modes_are_those_of_open(files):
    with pytest.raises(FileNotFoundError):
        files.open("file", "r+")
    files.open("file", "x").close()
    with pytest.raises(FileExistsError):
        files.open("file", "x")
    for number in range(2):
        with files.open("file", "a") as file:
            file.write(f"{number}")
            assert file.tell() == number + 1
    assert files.read_bytes("file") == b"01"
    with files.open("file", "a+b") as file:
        file.write(b"2")
        file.seek(0)
        assert file.read() == b"012"
    files.open("file", "w").close()
    assert files.read_bytes("file") == b""
    for mode in ("", "rw", "rbt", "rr", "q", "b", "+"):
        with pytest.raises(ValueError):
            files.open("file", mode)
    with pytest.raises(ValueError):
        files.open("file", "rb", encoding="utf-8")
    with pytest.raises(ValueError):
        files.open("file", "r", 0)
    with files.open("file", "rb", 0) as raw:
        with pytest.raises(io.UnsupportedOperation):
            raw.write(b"")
    with files.open("file", "wb", 0) as raw:
        with pytest.raises(io.UnsupportedOperation):
            raw.read()


def test_a_raw_stream_seeks_truncates_and_reads_into_buffers(files):
    with files.open("file", "w+b", 0) as raw:
        assert raw.write(b"0123456789") == 10
        assert raw.seek(-4, os.SEEK_END) == 6
        assert raw.read(2) == b"67"
        assert raw.seek(-1, os.SEEK_CUR) == 7
        buffer = bytearray(b"......")
        assert raw.readinto(buffer) == 3
        assert bytes(buffer) == b"789..."
        assert raw.read(5) == b""
        assert raw.readinto(buffer) == 0
        assert raw.truncate(4) == 4
        assert raw.read_at(2, 100) == b"23"
        raw.write_at(6, memoryview(b"67"))
        raw.seek(0)
        assert raw.readall() == b"0123\0\x0067"
        raw.seek(100)
        assert raw.read() == b""
        assert raw.stat().st_size == 8
        raw.sync()
        for wrong in (lambda: raw.seek(-1), lambda: raw.truncate(-1), lambda: raw.seek(0, 9)):
            with pytest.raises(ValueError):
                wrong()
        with pytest.raises(OverflowError):
            raw.read_at(-1, 1)
    with pytest.raises(ValueError):
        raw.read()
    raw.close()


def test_large_contents_go_through_every_way(files):
    data = os.urandom(3 << 20) + b"end"
    for kind in (bytes, bytearray, memoryview):
        files.write_bytes("file", kind(data))
        assert files.read_bytes("file") == data
    with files.open("file", "rb") as file:
        assert file.read() == data
    with files.open("file", "rb", 0) as raw:
        buffer = bytearray(len(data) + 10)
        assert raw.readinto(buffer) == len(data)
        assert buffer[: len(data)] == data


def test_a_file_that_is_removed_while_it_is_open_can_be_read_until_it_is_closed(volume, files):
    files.write_bytes("file", b"x" * 100_000)
    with files.open("file", "rb", 0) as raw:
        files.unlink("file")
        assert raw.read_at(99_999, 10) == b"x"
    assert files.listdir() == []


def test_appends_of_several_threads_do_not_overwrite_each_other(files):
    def append(number):
        with files.open("log", "ab", 0) as raw:
            for _ in range(200):
                raw.write(b"%d\n" % number)

    threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = files.read_bytes("log").split()
    assert sorted(lines) == sorted(b"%d" % number for number in range(4) for _ in range(200))


def test_the_past_is_walked_without_a_mount_and_cannot_be_changed(image):
    with Volume.create(image, 64 << 20) as volume:
        files = volume.files()
        files.makedirs("a/b")
        files.write_bytes("a/b/file", b"old")
        volume.snapshot("before")
        files.unlink("a/b/file")
    with Volume.open(image, read_only=True) as volume, volume.files("@before") as past:
        assert [found[0] for found in past.walk("/")] == ["/", "/a", "/a/b"]
        assert past.read_bytes("a/b/file") == b"old"
        assert volume.files().listdir("a/b") == []
        assert past.view == volume.view("@before")
        with pytest.raises(DendroError):
            past.write_bytes("a/b/file", b"new")
    with pytest.raises(ValueError, match="closed"):
        past.listdir()
