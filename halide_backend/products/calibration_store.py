"""The calibrations of this machine, beside the kernels that the cache on disk holds.

A key names everything that a calibration depends on, so what was measured with another torch, on another processor or
with another number of threads is not found.
"""

from __future__ import annotations

import json
import logging

from halide_backend.products.calibration import Calibration
from halide_backend.products.processor import Processor
from halide_backend.versions import installed_version
from kernels_cache import Key, Store
from kernels_cache.canonical import Json

log = logging.getLogger("halide_backend")

_FILE = "gains.json"

#: Raised when what is measured changes.
_SCHEMA = 1


def load(threads: int) -> Calibration | None:
    """The calibration for `threads` threads; None if there is none, or it cannot be read."""
    found = _store().get(_key(threads))
    if found is None:
        return None
    try:
        return Calibration.from_json(json.loads(found.files.get(_FILE, b"")))
    except ValueError as error:
        log.warning("a calibration of matrix products is left alone: %s", error)
        return None


def save(calibration: Calibration, threads: int) -> None:
    """Keep `calibration`; trouble with the disk is one warning a process."""
    _store().put(_key(threads), {_FILE: json.dumps(calibration.to_json()).encode()})


def discard(threads: int) -> bool:
    """Forget the calibration for `threads` threads; tell whether there was one."""
    return _store().discard(_key(threads))


def _store() -> Store:
    return Store.open(folder="products", readonly_roots=())


def _key(threads: int) -> Key:
    processor = Processor.host()
    fields: dict[str, Json] = {
        "schema": _SCHEMA,
        "torch": installed_version("torch") or "",
        "processor": [processor.vendor, processor.family, processor.name],
        "threads": threads,
    }
    return Key("product-calibration", fields)
