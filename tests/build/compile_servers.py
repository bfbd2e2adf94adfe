"""What the tests of this folder ask of compile workers, and how they find their processes."""

from __future__ import annotations

import re
from concurrent.futures import Future
from pathlib import Path

from halide_backend.build.kernel import CompiledKernel
from halide_backend.build.pool import WorkerPool
from halide_backend.build.target import Target
from halide_backend.errors import KernelTextError


def submit(pool: WorkerPool, text: str, time_limit: float | None = None, name: str = "asked") -> Future[CompiledKernel]:
    """Compile in one of the pool's threads."""
    return pool.threads.submit(lambda: pool.compile(text, Target.host(), "k", name, time_limit))


def server_of(pool: WorkerPool) -> int:
    """The process id of the pool's server, which a worker tells; starts it if there is none."""
    try:
        pool.compile("import os\nraise ValueError(f'its parent is {os.getppid()}')", Target.host(), "k", "asked")
    except KernelTextError as error:
        found = re.search(r"its parent is (\d+)", error.what)
        assert found
        return int(found[1])
    raise AssertionError("a text that raises was compiled")


def children(pid: int) -> list[int]:
    """The processes that this one has started and not waited for; none if it is gone."""
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
