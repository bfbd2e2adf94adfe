"""Collects the texts of kernels that are compiled in this process."""

from __future__ import annotations

import hashlib
from pathlib import Path

from halide_backend import pipeline


def keep_texts(folder: Path) -> None:
    """Write the text of every kernel from now on into `folder`, each once."""
    folder.mkdir(parents=True, exist_ok=True)
    original = pipeline.kernel_text

    def keeping(program, vector_bytes):  # type: ignore[no-untyped-def]
        text = original(program, vector_bytes)
        (folder / f"{hashlib.sha256(text.encode()).hexdigest()[:20]}.py").write_text(text)
        return text

    pipeline.kernel_text = keeping
