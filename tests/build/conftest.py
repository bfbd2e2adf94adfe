from __future__ import annotations

from collections.abc import Iterator

import pytest

from halide_backend.build.pool import WorkerPool


@pytest.fixture(scope="session")
def pool() -> Iterator[WorkerPool]:
    """A pool whose worker is started once for all tests that do it no lasting harm."""
    shared = WorkerPool(2, time_limit=60, memory_limit=2 << 30)
    yield shared
    shared.close()
