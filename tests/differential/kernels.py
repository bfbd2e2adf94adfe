"""Collects the texts of kernels that are compiled in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halide_backend import pipeline
from halide_backend.codegen.planned_kernel import PlannedKernel


@contextmanager
def keeping_texts(folder: Path) -> Iterator[None]:
    """Write the text of every kernel that is compiled inside into `folder`, each once."""
    folder.mkdir(parents=True, exist_ok=True)
    original = pipeline.plan_kernel

    def keeping(*arguments: Any, **options: Any) -> PlannedKernel:
        kernel = original(*arguments, **options)
        (folder / f"{hashlib.sha256(kernel.text.encode()).hexdigest()[:20]}.py").write_text(kernel.text)
        return kernel

    pipeline.plan_kernel = keeping
    try:
        yield
    finally:
        pipeline.plan_kernel = original
