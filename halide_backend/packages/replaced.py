"""Writing a package: what was there stays until the new one is complete, and errors of torch's get a type."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halide_backend.errors import HalideBackendError, PackageError


@contextmanager
def replaced(output: str) -> Iterator[str]:
    """The name of a file to be written, which takes the place of the package `output` at the end.

    Raises:
        HalideBackendError: whatever goes wrong while it is written; `output` is as it was.
    """
    # torch writes where it is told to while it compiles.
    unfinished = f"{output.removesuffix('.pt2')}.unfinished.pt2"
    try:
        yield unfinished
        os.replace(unfinished, output)
    except Exception as error:
        inner = getattr(error, "inner_exception", error)
        if isinstance(inner, HalideBackendError):
            raise inner from error
        said = "\n".join(str(error).strip().splitlines()[:20])
        raise PackageError(
            f"torch cannot compile it: {type(error).__name__}: {said}",
            where=output,
            cure="Try torch._inductor.aoti_compile_and_package with cpu_backend='cpp': where that fails, too, the "
            "error is the model's or torch's.",
        ) from error
    finally:
        Path(unfinished).unlink(missing_ok=True)
