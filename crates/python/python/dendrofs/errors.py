"""What can go wrong. All are a DendroError, which is an OSError with an errno and, where there is
one, a filename and an ErrorCode. Where Python has an exception for the errno, theirs is one of
those too: `except FileNotFoundError` works. Wrong arguments and things that are closed are a
ValueError."""

from __future__ import annotations

import enum as _enum
import errno as _errno


class ErrorCode(_enum.IntEnum):
    """The kinds of errors of lists, units and versions. They have the numbers of `DENDRO_ERROR_` in
    the C header, which says more of each, and which never change."""

    NO_SUCH_LIST = 1
    LIST_EXISTS = 2
    RECORD_TOO_LONG = 3
    OUT_OF_RANGE = 4
    UNIT_TOO_LONG = 5
    NO_SPACE = 6
    NO_SUCH_VERSION = 7
    BAD_NAME = 8
    NAME_TAKEN = 9
    IN_USE = 10
    OTHER_CLIENT = 11
    READ_ONLY = 12
    STOPPED = 13
    DAMAGED = 14
    LOST = 15
    IO = 16
    CONDITION = 17
    ONE_COPY = 18
    OVER_QUOTA = 19


class DendroError(OSError):
    """A call on a volume has failed."""

    _code: ErrorCode | None = None

    @property
    def code(self) -> ErrorCode | None:
        """The kind of an error of lists, units and versions. None if the errno says all, or if this
        version of the package does not know the kind."""
        return self._code

    @staticmethod
    def _of(errno: int, message: str, path: str | None, code: int | None) -> DendroError:
        """The error of these numbers."""
        kind = _KINDS.get(errno, DendroError)
        error = kind(errno, message) if path is None else kind(errno, message, path)
        error._code = None if code is None else _CODES.get(code)
        return error


class NotFoundError(DendroError, FileNotFoundError):
    """ENOENT: there is no such file, list or version."""


class ExistsError(DendroError, FileExistsError):
    """EEXIST: there is a file, list or version of that name already."""


class FileExpectedError(DendroError, IsADirectoryError):
    """EISDIR: it is a directory."""


class DirectoryExpectedError(DendroError, NotADirectoryError):
    """ENOTDIR: it is no directory."""


class NotPermittedError(DendroError, PermissionError):
    """EPERM, EACCES: that is not permitted."""


class InvalidError(DendroError, ValueError):
    """EINVAL, EMSGSIZE, EFBIG: an argument cannot be."""


class BusyError(DendroError):
    """EBUSY: another process has the volume, or what is to be deleted is in use."""


class ChangedError(DendroError, BlockingIOError):
    """EAGAIN: a condition of a unit does not hold. Read again, and make the unit anew."""


class NoSpaceError(DendroError):
    """ENOSPC: it would not fit. Nothing was changed."""


class OverQuotaError(DendroError):
    """EDQUOT: it would not fit in the quota of the client. Nothing was changed."""


class ReadOnlyError(DendroError):
    """EROFS: the volume or the version takes no changes."""


class DamagedError(DendroError):
    """EIO: what was read is damaged, or what was written is not durable."""


_CODES: dict[int, ErrorCode] = {code.value: code for code in ErrorCode}

_KINDS: dict[int, type[DendroError]] = {
    _errno.ENOENT: NotFoundError,
    _errno.EEXIST: ExistsError,
    _errno.EISDIR: FileExpectedError,
    _errno.ENOTDIR: DirectoryExpectedError,
    _errno.EPERM: NotPermittedError,
    _errno.EACCES: NotPermittedError,
    _errno.EINVAL: InvalidError,
    _errno.EMSGSIZE: InvalidError,
    _errno.EFBIG: InvalidError,
    _errno.EBUSY: BusyError,
    _errno.EAGAIN: ChangedError,
    _errno.ENOSPC: NoSpaceError,
    _errno.EDQUOT: OverQuotaError,
    _errno.EROFS: ReadOnlyError,
    _errno.EIO: DamagedError,
}
