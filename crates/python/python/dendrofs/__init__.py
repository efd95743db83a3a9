"""Log-structured volumes of files and lists with snapshots, without a mount and a daemon.

>>> from dendrofs import Volume
>>> with Volume.in_memory(32 << 20) as volume:
...     files = volume.files()
...     files.write_bytes("today", b"written")
...     before = volume.snapshot("before")
...     files.write_bytes("today", b"written again")
...     volume.files(before).read_bytes("today")
b'written'

The tour is docs/PYTHON.md in the sources of dendrofs.

- Volume: an image file, a block device or memory that is open.
- Files, File: the files of one version.
- Lists, Unit: the lists of one version, and atomic recovery units that change them.
- DendroError and its subclasses: what can go wrong, each with its errno.

What may wait for a device gives the global interpreter lock back. All objects can be used from
several threads. None can be used in a process that was forked off: multiprocessing has to "spawn".
"""

import os as _os

from ._files import File
from ._native import (
    MAX_PAGE_COUNT,
    MAX_RECORD_SIZE,
    PAGE_SIZE,
    ROOT_LIST,
    VERSION as __version__,
    Client,
    DirEntry,
    Durability,
    Files,
    Lists,
    Quota,
    Reservation,
    Space,
    Stat,
    Unit,
    Usage,
    Version,
    View,
    Volume,
    _after_fork,
)
from .errors import (
    BusyError,
    ChangedError,
    DamagedError,
    DendroError,
    DirectoryExpectedError,
    ErrorCode,
    ExistsError,
    FileExpectedError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    NotPermittedError,
    OverQuotaError,
    ReadOnlyError,
)

__all__ = [
    "MAX_PAGE_COUNT",
    "MAX_RECORD_SIZE",
    "PAGE_SIZE",
    "ROOT_LIST",
    "BusyError",
    "ChangedError",
    "Client",
    "DamagedError",
    "DendroError",
    "DirEntry",
    "DirectoryExpectedError",
    "Durability",
    "ErrorCode",
    "ExistsError",
    "File",
    "FileExpectedError",
    "Files",
    "InvalidError",
    "Lists",
    "NoSpaceError",
    "NotFoundError",
    "NotPermittedError",
    "OverQuotaError",
    "Quota",
    "ReadOnlyError",
    "Reservation",
    "Space",
    "Stat",
    "Unit",
    "Usage",
    "Version",
    "View",
    "Volume",
    "__version__",
]

_os.register_at_fork(after_in_child=_after_fork)
