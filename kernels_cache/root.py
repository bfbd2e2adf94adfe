"""A directory in, the places of a store below it out, once its rights have been checked.

Whoever can write a cache entry runs code as its reader. So a root is used only when its owner
is us (or root), and when nobody else can write it or swap one of the directories above it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from kernels_cache import environment
from kernels_cache.errors import RootUntrusted, StorageTrouble

# What the kernel shows for owners without a name in our user namespace (rootless containers).
OVERFLOW_UID = 65534
_PARTS = ("entries", "locks", "temporary", "quarantine")

T = TypeVar("T")


class Root:
    """The places of one store on disk. Creating the object touches nothing.

    Attributes:
        path: the directory, absolute, not resolved.
        shared: True for a read-only second root; any owner is accepted, because naming such a
            root is trusting its owner.
    """

    def __init__(self, path: str | os.PathLike[str], shared: bool = False) -> None:
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self.shared = shared
        self._trusted = False
        self._prepared = False
        self.owners: frozenset[int] = frozenset()

    def entry(self, digest: str) -> str:
        """Return the path of an entry. 256 directories, so none gets slow to list."""
        return f"{self.path}/entries/{digest[:2]}/{digest}.v1"

    def part(self, name: str) -> str:
        """Return the path of "entries", "locks", "temporary", "quarantine" or "ledger"."""
        return f"{self.path}/{name}"

    def usable(self) -> bool:
        """Tell whether there is anything to read, after checking rights (once).

        Raises:
            RootUntrusted: somebody else could have written it.
            OSError: it cannot be examined.
        """
        if self._trusted:
            return True
        if not os.path.lexists(self.path):
            return False
        self.owners = check(self.path, self.shared)
        self._trusted = True
        return True

    def prepare(self) -> None:
        """Create the directory and its parts, 0700, and check rights.

        Raises:
            RootUntrusted, OSError: as `usable`.
        """
        if self._prepared:
            return
        _make_directories(self.path)
        self.usable()
        for part in _PARTS:
            _make_directories(self.part(part))
        self._prepared = True

    def repaired(self, action: Callable[[], T]) -> T:
        """Do `action` on a prepared root, twice if the directory was removed meanwhile.

        Raises:
            RootUntrusted, OSError: as `usable`, and whatever `action` raises.
        """
        self.prepare()
        try:
            return action()
        except FileNotFoundError:
            self._trusted = self._prepared = False
            self.prepare()
            return action()


def default_path() -> str:
    """Return HALIDE_BACKEND_CACHE_DIR, or the place for caches of this user.

    Raises:
        StorageTrouble: the user has no home directory.
    """
    asked = environment.directory()
    if asked is not None:
        return asked
    import platformdirs  # 2 ms that callers who name their root do not pay

    try:
        path = platformdirs.user_cache_dir("halide_backend", appauthor=False)
    except RuntimeError:  # its newer releases; the older ones return "~/.cache/..."
        path = "~"
    if not os.path.isabs(path):
        raise StorageTrouble(
            "this user has no home directory, so there is no place for a cache",
            path,
            f"Set HOME, or {environment.DIRECTORY} to a private directory.",
        )
    return path


def check(path: str, shared: bool = False) -> frozenset[int]:
    """Return the user ids that may own entries below `path`.

    Raises:
        RootUntrusted: not a directory, a foreign owner, or writable by others, here or above.
        OSError: it cannot be examined.
    """
    if sys.platform == "win32":  # its user profile is private by its access lists
        return frozenset()
    me = os.geteuid()
    link = os.lstat(path)
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (me, 0):
        raise _untrusted("the cache directory is somebody else's symbolic link", path)
    real = os.path.realpath(path)
    found = os.stat(real)
    if not stat.S_ISDIR(found.st_mode):
        raise RootUntrusted(
            "the cache directory is not a directory",
            path,
            f"Point {environment.DIRECTORY} at one that only you can write.",
        )
    if not shared and found.st_uid not in (me, 0):
        raise _untrusted(f"the cache directory belongs to user {found.st_uid}", real)
    if found.st_mode & 0o022:
        raise _untrusted(f"others can write the cache directory ({_mode(found)})", real)
    for above in Path(real).parents:
        state = os.stat(above)
        if state.st_mode & 0o022 and not state.st_mode & stat.S_ISVTX:
            raise _untrusted(f"others can replace the cache directory ({_mode(state)})", str(above))
        if state.st_uid not in (me, 0, found.st_uid) and not _unmapped(state.st_uid):
            raise _untrusted(f"user {state.st_uid} can replace the cache directory", str(above))
    return frozenset({me, 0, found.st_uid})


def _unmapped(uid: int) -> bool:
    """Tell whether `uid` stands for owners outside of our user namespace, root among them."""
    if uid != OVERFLOW_UID:
        return False
    try:
        lines = Path("/proc/self/uid_map").read_text(encoding="utf-8").split("\n")
    except OSError:
        return False
    return lines[0].split()[:2] != ["0", "0"]


def _mode(state: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(state.st_mode):04o}"


def _untrusted(what: str, where: str) -> RootUntrusted:
    return RootUntrusted(
        what,
        where,
        f"Run 'chmod go-w' on it if it is yours, or point {environment.DIRECTORY} at a "
        "directory that only you can write.",
    )


def _make_directories(path: str) -> None:
    """Create `path` and what is missing above it, each 0700: the umask may allow too much."""
    missing = [path]
    while not os.path.isdir(above := os.path.dirname(missing[-1])) and above != missing[-1]:
        missing.append(above)
    for each in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(each, 0o700)
