"""Makes an AOTInductor package of a program that somebody exported."""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from typing import Any

from halide_backend.errors import PackageError, ScriptFailed
from halide_backend.packages.replaced import replaced
from halide_backend.terminal import Progress

#: What a Python file has to define, unless another name is asked for.
NAME = "exported_program"


def make(source: str, targets: str, output: str, without_compiler: bool = False) -> None:
    """Write the package of `source` to the file `output`, or leave that as it was.

    Args:
        source: a Python file, FILE.py:name or module:name, where the name, `exported_program` unless another is given,
            is an ExportedProgram or a function that returns one; or a file of torch.export.save.
        targets: as for the option `aot_targets`; "" is this machine.
        without_compiler: make what `halide_backend.package_without_compiler` does.

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
        if without_compiler:
            progress.doing("compiling kernels")
            halide_backend.package_without_compiler(exported, output)
        else:
            progress.doing("compiling kernels, then C++")
            _compile(exported, output)
        progress.done()


def _compile(exported: Any, output: str) -> None:
    import torch

    import halide_backend

    with replaced(output) as unfinished, torch.no_grad():
        torch._inductor.aoti_compile_and_package(
            exported, package_path=unfinished, inductor_configs=halide_backend.aot_configs()
        )


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
