"""What is in an AOTInductor package: read from the file; nothing of it is loaded or run."""

from __future__ import annotations

import json
import os
import re
import zipfile
from dataclasses import dataclass

from halide_backend.build import package_note
from halide_backend.build.package_note import KernelNote
from halide_backend.errors import PackageError

#: How the name of a file ends that has the model of a package made without a compiler.
BYTECODE = ".bytecode"
#: A kernel of Inductor's C++ backend: a symbol of a library, or a function in source.
_DELEGATED = re.compile(rb"(?:\0|void )(cpp_fused_\w+|cpp_\d+)(?:\0|\()")


@dataclass(frozen=True)
class Model:
    """One model of a package; sizes are in bytes.

    Attributes:
        name: "model", unless the package has several.
        kind: "library"; "source" for one that has to be built (`package_cpp_only`); or "bytecode" for one that was made
            without a compiler.
        code: size of the library, without weights that stand in files of their own, or of the source.
        native, delegated: kernels of this backend, and names of those of Inductor's C++ backend.
        metadata: what torch and the maker of the package wrote down, such as AOTI_DEVICE_KEY.
    """

    name: str
    kind: str
    code: int
    native: tuple[KernelNote, ...]
    delegated: tuple[str, ...]
    metadata: dict[str, str]


@dataclass(frozen=True)
class Contents:
    """A package: its size, that of weights in files of their own, both in bytes, and its models."""

    size: int
    weights: int
    models: tuple[Model, ...]


def contents(path: str) -> Contents:
    """Read a package.

    Raises:
        PackageError: the file cannot be read, or is no package of AOTInductor.
    """
    try:
        with zipfile.ZipFile(path) as files:
            return _contents(files, os.path.getsize(path))
    except (OSError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or error
        raise PackageError(f"it cannot be read: {reason}", where=path, cure="Name a file *.pt2.") from None


def _contents(files: zipfile.ZipFile, size: int) -> Contents:
    models: dict[str, list[zipfile.ZipInfo]] = {}
    weights = 0
    for info in files.infolist():
        # ARCHIVE/data/aotinductor/MODEL/FILE
        inside = info.filename.partition("/data/aotinductor/")[2]
        if "/" in inside:
            models.setdefault(inside.partition("/")[0], []).append(info)
        if "/data/weights/" in info.filename or info.filename.endswith(".blob"):
            weights += info.file_size
    if not models:
        raise PackageError(
            "it has no model of AOTInductor",
            where=str(files.filename),
            cure="Make one with halide-backend package; a file of torch.export.save is what that reads.",
        )
    return Contents(size, weights, tuple(_model(files, name, infos) for name, infos in models.items()))


def _model(files: zipfile.ZipFile, name: str, infos: list[zipfile.ZipInfo]) -> Model:
    libraries = [info for info in infos if info.filename.endswith(".so")]
    code = libraries or [info for info in infos if info.filename.endswith(".cpp")]
    texts = [files.read(info) for info in code]
    notes = {note.kernel: note for text in texts for note in package_note.notes(text)}
    delegated = {match.decode() for text in texts for match in _DELEGATED.findall(text)}
    metadata: dict[str, str] = {}
    for info in infos:
        if info.filename.endswith("_metadata.json"):
            metadata.update(json.loads(files.read(info)))
    bytecode = [files.read(info) for info in infos if info.filename.endswith(BYTECODE)]
    notes.update((note.kernel, note) for text in bytecode for note in package_note.notes(text))
    kind = "bytecode" if bytecode else "library" if libraries else "source"
    size = sum(info.file_size for info in code)
    return Model(name, kind, size, tuple(notes.values()), tuple(sorted(delegated)), metadata)
