"""Streams over files, as the module `io` has them, and what else is simplest in Python."""

from __future__ import annotations

import io
import os
import threading
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from ._native import FileHandle, Files, Stat


class File(io.RawIOBase):
    """An open file as a raw stream, which io.BufferedReader and others take.

    It has a position for read() and write(). The calls with an offset do not use it, and any number
    of threads may make them at a time. A file that is removed while it is open goes when it is
    closed.
    """

    def __init__(self, handle: FileHandle, name: str, mode: str) -> None:
        super().__init__()
        self._handle = handle
        self._lock = threading.Lock()
        self._position = 0
        self._appends = "a" in mode
        self._reads = "r" in mode or "+" in mode
        self._writes = "r" not in mode or "+" in mode
        self.name = name
        self.mode = mode

    def _check(self, allowed: bool, what: str) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not allowed:
            raise io.UnsupportedOperation(what)

    def readable(self) -> bool:
        self._check(True, "")
        return self._reads

    def writable(self) -> bool:
        self._check(True, "")
        return self._writes

    def seekable(self) -> bool:
        self._check(True, "")
        return True

    def read(self, size: int = -1, /) -> bytes:
        """Reads up to `size` bytes, or all that are left."""
        if size is None or size < 0:
            return self.readall()
        self._check(self._reads, "read")
        with self._lock:
            data = self._handle.read_at(self._position, size)
            self._position += len(data)
            return data

    def readinto(self, buffer: Any, /) -> int:
        """Reads into a buffer. Returns how many bytes: fewer than it has at the end."""
        self._check(self._reads, "readinto")
        with self._lock:
            count = self._handle.read_into_at(self._position, buffer)
            self._position += count
            return count

    def write(self, data: Any, /) -> int:
        """Writes all of `data`, each MiB as an operation. Returns how many bytes that are."""
        self._check(self._writes, "write")
        with self._lock:
            if not self._appends:
                count = self._handle.write_at(self._position, data)
                self._position += count
                return count
            self._position = self._handle.append(data)
            return memoryview(data).nbytes

    def read_at(self, offset: int, size: int) -> bytes:
        """Reads up to `size` bytes from `offset` on: fewer at the end."""
        self._check(self._reads, "read_at")
        return self._handle.read_at(offset, size)

    def write_at(self, offset: int, data: Any) -> int:
        """Writes all of `data` at `offset`, each MiB as an operation."""
        self._check(self._writes, "write_at")
        return self._handle.write_at(offset, data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check(True, "")
        with self._lock:
            if whence == os.SEEK_CUR:
                offset += self._position
            elif whence == os.SEEK_END:
                offset += self._handle.size()
            elif whence != os.SEEK_SET:
                raise ValueError(f"there is no whence {whence}")
            if offset < 0:
                raise ValueError(f"negative seek position {offset}")
            self._position = offset
            return offset

    def tell(self) -> int:
        self._check(True, "")
        return self._position

    def truncate(self, size: int | None = None, /) -> int:
        """Cuts it off, or adds a hole, at `size` or at the position."""
        self._check(self._writes, "truncate")
        size = self._position if size is None else size
        if size < 0:
            raise ValueError(f"negative size {size}")
        self._handle.truncate(size)
        return size

    def stat(self) -> Stat:
        """What is known of it."""
        self._check(True, "")
        return self._handle.stat()

    def sync(self) -> None:
        """Makes it durable, and everything that was done before, in all files. Of a buffered stream
        flush() comes first."""
        self._check(True, "")
        self._handle.sync()

    def close(self) -> None:
        """Closes it, without making it durable."""
        if not self.closed:
            try:
                self._handle.close()
            finally:
                super().close()

    def __repr__(self) -> str:
        return f"<dendrofs.File {self.name!r} mode={self.mode!r}>"


def open_file(
    files: Files,
    path: os.PathLike[str] | str,
    mode: str,
    buffering: int,
    encoding: str | None,
    errors: str | None,
    newline: str | None,
) -> Any:
    """What Files.open() does."""
    kinds = mode.replace("b", "").replace("t", "")
    plain = kinds.replace("+", "")
    is_known = plain in ("r", "w", "x", "a") and len(set(mode)) == len(mode)
    if not is_known or ("b" in mode and "t" in mode):
        raise ValueError(f"invalid mode: {mode!r}")
    is_binary = "b" in mode
    if is_binary and (encoding is not None or errors is not None or newline is not None):
        raise ValueError("binary mode takes no encoding, errors and newline")
    if buffering == 0 and not is_binary:
        raise ValueError("can't have unbuffered text I/O")
    updates = "+" in kinds
    handle = files._open_handle(path, "r+" if plain == "r" and updates else plain)
    raw = File(handle, os.fspath(path), plain + ("+" if updates else ""))
    if buffering == 0:
        return raw
    size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
    try:
        if plain == "a":
            raw.seek(0, os.SEEK_END)
        buffered: Any
        if updates:
            buffered = io.BufferedRandom(raw, size)
        elif plain == "r":
            buffered = io.BufferedReader(raw, size)
        else:
            buffered = io.BufferedWriter(raw, size)
        if is_binary:
            return buffered
        return io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1)
    except BaseException:
        raw.close()
        raise


def walk(
    files: Files, top: os.PathLike[str] | str, topdown: bool, followlinks: bool
) -> Iterator[tuple[str, list[str], list[str]]]:
    """What Files.walk() does. Of a tree of any depth: it does not recurse."""
    waiting: list[Any] = [os.fspath(top)]
    while waiting:
        place = waiting.pop()
        if isinstance(place, tuple):
            yield place
            continue
        entries = files.scandir(place)
        dirs = [entry.name for entry in entries if entry.is_dir()]
        others = [entry.name for entry in entries if not entry.is_dir()]
        links = {entry.name for entry in entries if entry.is_symlink()}
        if topdown:
            yield place, dirs, others
        else:
            waiting.append((place, dirs, others))
        # The caller may have taken some out, or put them into another order.
        inside = [name for name in dirs if followlinks or name not in links]
        waiting.extend(os.path.join(place, name) for name in reversed(inside))
