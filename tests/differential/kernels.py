"""Collects the texts of kernels that are compiled in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halide_backend import pipeline
from halide_backend.schedules.choice import ScheduledKernel


@contextmanager
def keeping_texts(folder: Path) -> Iterator[None]:
    """Write the text of every kernel that is compiled inside into `folder`, each once."""
    folder.mkdir(parents=True, exist_ok=True)
    original = pipeline.schedule_kernel

    def keeping(*arguments: Any, **options: Any) -> ScheduledKernel:
        scheduled = original(*arguments, **options)
        text = scheduled.kernel.text
        (folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.py").write_text(text)
        return scheduled

    pipeline.schedule_kernel = keeping
    try:
        yield
    finally:
        pipeline.schedule_kernel = original
