"""Every error of the cache: what happened, where, and what to do about it.

Two families. `CacheMisuse` is a mistake of the caller and is always raised. `CacheTrouble` is
the disk, the rights or another process; outside strict mode it becomes one warning a process.
All of them survive pickling, because builds run in worker processes.
"""

from __future__ import annotations


class CacheWarning(UserWarning):
    """The one warning a process gives when its cache is in trouble."""


class CacheError(Exception):
    """Base of all errors of this package.

    Attributes:
        what: what happened, one sentence without a full stop.
        where: the file, field or key it happened to.
        cure: what the user can do, one sentence.
    """

    def __init__(self, what: str, where: str = "", cure: str = "") -> None:
        super().__init__(what, where, cure)
        self.what = what
        self.where = where
        self.cure = cure

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.what}{place}." + (f" {self.cure}" if self.cure else "")


class CacheMisuse(CacheError):
    """The caller handed over something the cache can never accept."""


class InvalidKey(CacheMisuse):
    """A key field that is not plain JSON, or that must never be part of a key."""


class InvalidEntry(CacheMisuse):
    """Files or requirements that cannot be stored: no files, a bad name, not bytes."""


class CacheTrouble(CacheError):
    """The cache could not do its work; the program's own result is not affected."""


class RootUntrusted(CacheTrouble):
    """Somebody else could write the directory, so its machine code is not ours to run."""


class StorageTrouble(CacheTrouble):
    """The operating system refused: disk full, read-only, no rights, a stale handle."""


class EntryDamaged(CacheTrouble):
    """The bytes of an entry are not the bytes that were stored."""


class EntryTooLarge(CacheTrouble):
    """One entry is larger than the bound of the whole store."""


class LockTimeout(CacheTrouble):
    """Another process held the build lock of a key for too long.

    Attributes:
        pid: process id of the holder on `host`, 0 when unknown.
        host: host name of the holder, "" when unknown.
        age_s: seconds for which it has held the lock, -1.0 when unknown.
    """

    def __init__(
        self,
        what: str,
        where: str = "",
        cure: str = "",
        pid: int = 0,
        host: str = "",
        age_s: float = -1.0,
    ) -> None:
        super().__init__(what, where, cure)
        self.args = (what, where, cure, pid, host, age_s)
        self.pid = pid
        self.host = host
        self.age_s = age_s


class BundleRefused(CacheError):
    """A bundle that is damaged, hostile, too large, or not the one that was expected."""
