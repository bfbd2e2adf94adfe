"""The command lines of `halide-backend package` and `halide-backend inspect`."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halide_backend.packages.contents import Contents, Model

PACKAGE = """\
Make an AOTInductor package with kernels of this backend (docs/how-to/ship-a-model.md). SOURCE is a Python
file that defines `exported_program`, the result of torch.export.export or a function that returns it;
FILE.py:name or module:name; or a file of torch.export.save. Needs g++, or --without-compiler.
"""

INSPECT = """\
Show what is in an AOTInductor package: sizes, targets, kernels of this backend and of Inductor's, versions.
Nothing of it is loaded or run, so it may be for another machine.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add both commands to those of `halide-backend`."""
    package = commands.add_parser(
        "package",
        help="make an AOTInductor package of a model",
        description=PACKAGE,
    )
    package.add_argument("source", metavar="SOURCE", help="SCRIPT.py, module:name or a file of torch.export.save")
    package.add_argument("--out", required=True, metavar="FILE.pt2", help="the package; replaced if it is there")
    package.add_argument(
        "--targets",
        default="",
        metavar="NAMES",
        help="the option aot_targets: sse41,avx2,avx512 for example, what kernels are for (default: this machine)",
    )
    package.add_argument(
        "--without-compiler",
        action="store_true",
        help="start no compiler: a prototype, for a CPU and one target (docs/design/bytecode.md)",
    )
    package.set_defaults(run=_package)
    inspect = commands.add_parser(
        "inspect",
        help="show what is in an AOTInductor package",
        description=INSPECT,
    )
    inspect.add_argument("file", metavar="FILE.pt2")
    inspect.add_argument("--json", action="store_true", help="print it as JSON")
    inspect.set_defaults(run=_inspect)


def _package(asked: argparse.Namespace) -> int:
    # Imported here: showing the help of the command line must not load torch.
    import halide_backend
    from halide_backend.packages.contents import contents
    from halide_backend.packages.make import make

    halide_backend.reset_stats()
    make(asked.source, asked.targets, asked.out, asked.without_compiler)
    print(description(asked.out, contents(asked.out)))
    reasons = halide_backend.stats()["delegation_reasons"]
    if reasons:
        print(f"reasons of delegation: {reasons}")
    return 0


def _inspect(asked: argparse.Namespace) -> int:
    from halide_backend.packages.contents import contents

    found = contents(asked.file)
    print(json.dumps(asdict(found), indent=1) if asked.json else description(asked.file, found))
    return 0


def description(path: str, found: Contents) -> str:
    """A package as lines of text."""
    weights = f", weights in files of their own {_size(found.weights)}" if found.weights else ""
    return "\n".join([f"{path}: {_size(found.size)}{weights}", *(_model_text(model) for model in found.models)])


def _model_text(model: Model) -> str:
    lines = [f"model {model.name!r}: {model.kind} of {_size(model.code)}"]
    lines += [f"  {key}: {value}" for key, value in sorted(model.metadata.items())]
    for title, values in (
        ("targets", {",".join(note.targets) for note in model.native}),
        ("torch", {note.torch for note in model.native}),
        ("C interface", {str(note.c_interface) for note in model.native}),
    ):
        if values:
            lines.append(f"  {title}: {' and '.join(sorted(values))}")
    lines.append(f"  native kernels: {len(model.native)}")
    lines += [f"    {note.kernel}" for note in model.native]
    lines.append(f"  delegated kernels: {len(model.delegated)}")
    lines += [f"    {name}" for name in model.delegated]
    return "\n".join(lines)


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
