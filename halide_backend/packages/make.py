"""Makes an AOTInductor package of a program that somebody exported."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from pathlib import Path
from typing import Any

from halide_backend.errors import HalideBackendError, PackageError, ScriptFailed
from halide_backend.terminal import Progress

#: What a Python file has to define, unless another name is asked for.
NAME = "exported_program"


def make(source: str, targets: str, output: str) -> None:
    """Write the package of `source` to the file `output`, or leave that as it was.

    Args:
        source: a Python file, FILE.py:name or module:name, where the name, `exported_program` unless another is given,
            is an ExportedProgram or a function that returns one; or a file of torch.export.save.
        targets: as for the option `aot_targets`; "" is this machine.

    Raises:
        HalideBackendError: a target is unknown, `source` is none or fails, `output` cannot be written, or the package
            cannot be compiled.
    """
    import halide_backend

    halide_backend.config.aot_targets = targets
    if not output.endswith(".pt2"):
        raise PackageError("the name of a package ends with .pt2", where=output, cure="Choose another --out.")
    if not os.access(os.path.dirname(os.path.abspath(output)), os.W_OK):
        raise PackageError("its folder cannot be written to", where=output, cure="Choose another --out.")
    with Progress(2, sys.stderr, heartbeat=15) as progress:
        progress.doing(f"reading {source}")
        exported = _exported(source)
        progress.done()
        progress.doing("compiling kernels, then C++")
        _compile(exported, output)
        progress.done()


def _compile(exported: Any, output: str) -> None:
    import torch

    import halide_backend

    # torch writes where it is told to while it compiles; what was there stays if it fails.
    unfinished = f"{output.removesuffix('.pt2')}.unfinished.pt2"
    try:
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(
                exported, package_path=unfinished, inductor_configs=halide_backend.aot_configs()
            )
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


def _exported(source: str) -> Any:
    import torch

    if source.endswith(".pt2"):
        try:
            return torch.export.load(source)
        except Exception as error:
            raise PackageError(
                f"torch.export.load cannot read it: {error}", where=source, cure="Write it with torch.export.save."
            ) from error
    place, _, name = source.rpartition(":") if ":" in source else (source, "", NAME)
    names = _names_of(place)
    if name not in names:
        raise PackageError(
            f"it defines no {name!r}",
            where=place,
            cure=f"Define {NAME!r}, the result of torch.export.export or a function that returns it, or give another "
            f"name: {place}:NAME.",
        )
    found = names[name]
    if callable(found) and not isinstance(found, torch.export.ExportedProgram):
        found = _run(place, found)
    if not isinstance(found, torch.export.ExportedProgram):
        raise PackageError(
            f"{name!r} is of type {type(found).__name__}",
            where=place,
            cure="Let it be what torch.export.export returns.",
        )
    return found


def _names_of(place: str) -> dict[str, Any]:
    """What a Python file, or a module, defines."""
    if place.endswith(".py") and not os.path.isfile(place):
        raise ScriptFailed(
            "there is no such file", where=place, cure="Name a Python file, module:name, or a file *.pt2."
        )
    if place.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(place)))
        return dict(_run(place, lambda: runpy.run_path(place)))
    sys.path.insert(0, os.getcwd())
    return dict(vars(_run(place, lambda: importlib.import_module(place))))


def _run(place: str, call: Any) -> Any:
    """The result of a call of the user's code."""
    try:
        return call()
    except (Exception, SystemExit) as error:
        raise ScriptFailed(
            f"it ended with {type(error).__name__}: {error}", where=place, cure="Make it run by itself first."
        ) from error
