"""Cache trouble in, one warning a process out, or an error in strict mode.

The promise kept here: whatever happens to the cache, the user's program goes on.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from kernels_cache.errors import CacheTrouble, CacheWarning, StorageTrouble
from kernels_cache.statistics import Counter

_LOG = logging.getLogger("kernels_cache")
_warned = False


class Troubles:
    """Where a store brings its troubles.

    Attributes:
        strict: raise them instead of warning.
    """

    def __init__(self, counter: Counter, strict: bool) -> None:
        self.strict = strict
        self._counter = counter

    def report(self, trouble: CacheTrouble) -> None:
        """Warn once a process, or raise `trouble` itself in strict mode."""
        global _warned
        self._counter.add("troubles")
        if self.strict:
            raise trouble
        _LOG.debug("%s", trouble)
        # Two threads may both pass here once in a life; a lock would have to survive forks.
        if _warned:
            return
        _warned = True
        self._counter.add("warnings")
        try:
            warnings.warn(
                f"{trouble} The program is not affected. Later cache troubles are only logged "
                "(logger 'kernels_cache', level DEBUG).",
                CacheWarning,
                stacklevel=4,
            )
        except CacheWarning:
            # `python -W error` asks for errors in general, the strict switch for this one.
            _LOG.warning("%s", trouble)

    @contextmanager
    def tolerated(self, what: str, where: str) -> Iterator[None]:
        """Turn whatever the operating system or the store refuses inside into trouble."""
        try:
            yield
        except CacheTrouble as trouble:
            self.report(trouble)
        except OSError as error:
            self.report(storage_trouble(what, where, error))


def storage_trouble(what: str, where: str, error: OSError) -> StorageTrouble:
    """Describe an error of the operating system."""
    return StorageTrouble(
        f"{what}: {error.strerror or error}",
        error.filename if isinstance(error.filename, str) else where,
        "Check free space and rights, or point HALIDE_BACKEND_CACHE_DIR at another directory.",
    )


def forget() -> None:
    """Let the next trouble warn again (tests; a long-lived service after a repair)."""
    global _warned
    _warned = False
