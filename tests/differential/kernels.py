"""Collects the texts of kernels that are compiled in this process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halide_backend import pipeline


@contextmanager
def keeping_texts(folder: Path) -> Iterator[None]:
    """Write the text of every kernel that is compiled inside into `folder`, each once."""
    folder.mkdir(parents=True, exist_ok=True)
    original = pipeline.kernel_text

    def keeping(*arguments: Any, **options: Any) -> str:
        text = original(*arguments, **options)
        (folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.py").write_text(text)
        return text

    pipeline.kernel_text = keeping
    try:
        yield
    finally:
        pipeline.kernel_text = original
