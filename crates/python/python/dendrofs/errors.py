"""What can go wrong. All are a DendroError, which is an OSError with an errno and, where there is
one, a filename. Where Python has an exception for the errno, theirs is one of those too:
`except FileNotFoundError` works. Wrong arguments and things that are closed are a ValueError."""

from __future__ import annotations

import errno as _errno


class DendroError(OSError):
    """A call on a volume has failed."""

    @staticmethod
    def _of(errno: int, message: str, path: str | None) -> DendroError:
        """The error of this number."""
        kind = _KINDS.get(errno, DendroError)
        return kind(errno, message) if path is None else kind(errno, message, path)


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
