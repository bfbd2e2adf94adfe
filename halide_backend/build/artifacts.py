"""Kernel texts in, artifacts out: from memory, from the cache on disk, or from a worker.

Every process that wants the same kernel gets the same bytes, and one of them compiles it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from halide_backend.build.fingerprint import key_fields
from halide_backend.build.pool import WorkerPool
from halide_backend.build.target import Target
from kernels_cache import Key, Store, environment

_OBJECT, _MANIFEST, _IMAGE = "kernel.o", "manifest.json", "kernel.image"


@dataclass(frozen=True)
class Artifact:
    """A compiled kernel, ready to be loaded.

    Attributes:
        object: relocatable ELF image.
        manifest: plain JSON, see `ExecutedText.manifest`.
        entry: symbol of its function; `<entry>_argv` takes the arguments as one array.
        image: what runs on the GPU, empty for a CPU kernel.
        found: how this process came by it: COMPILED, or from DISK.
        seconds: time that a worker took to compile it, 0 from disk.
    """

    object: bytes
    manifest: Mapping[str, Any]
    entry: str
    image: bytes = b""
    found: str = field(default="", compare=False)
    seconds: float = field(default=0.0, compare=False)


#: Where the artifact of a kernel came from; MEMORY: this process had asked for it before.
COMPILED, DISK, MEMORY = "compiled", "disk", "memory"


@dataclass(frozen=True)
class Build:
    """A kernel that is asked for: the digest of its `key`, which names its file in the store, and its `artifact`, to
    come; `asked_before` says whether this process had asked for the same key."""

    key: str
    artifact: Future[Artifact]
    asked_before: bool = False

    @property
    def built(self) -> Artifact | None:
        """The artifact if it is there; it does not wait."""
        done = self.artifact.done() and not self.artifact.cancelled() and self.artifact.exception() is None
        return self.artifact.result() if done else None


@dataclass(frozen=True)
class Limits:
    """What compilation may use; the options of the same names in `halide_backend.config`.

    Attributes:
        workers: kernels compiled at the same time; 0 for as many as there are cores.
        time_limit: seconds for one kernel.
        memory_limit_mb: MiB for one kernel.
    """

    workers: int = 0
    time_limit: float = 60.0
    memory_limit_mb: int = 4096


def get_or_compile(
    text: str,
    target: Target,
    *,
    name: str,
    limits: Limits | None = None,
    c_interface: bool = False,
    ahead: bool = False,
) -> Build:
    """Ask for the artifact of a kernel; equal kernels share one future.

    Args:
        text: the kernel's text.
        target: what to compile for.
        name: the kernel's name, for messages; it does not take part in the key.
        limits: None for the defaults.
        c_interface: whether the kernel is called through its C function, which takes time to compile.
        ahead: whether it is only started here for somebody who asks later, and counts as the first to ask.

    Raises (at once):
        UnsupportedVersionError: halide or llvmlite is not installed.

    The future raises what `pool.WorkerPool.compile` raises. Trouble with the cache never breaks
    anything: it is reported once, and the kernel compiled.
    """
    limits = limits or Limits()
    kind = f"{'cuda' if target.capability else 'cpu'}-object{'-c' if c_interface else ''}"
    key = Key(kind=kind, fields=key_fields(text, target))
    with _memory.lock:
        known = _memory.artifacts.get(key.digest)
        if known is not None and _may_succeed(known):
            asked_before = key.digest not in _memory.ahead
            if not ahead:
                _memory.ahead.discard(key.digest)
            return Build(key.digest, known, asked_before)
        store = _store(environment.directory(), environment.shared())
        pool = worker_pool(limits.workers)
        # The length of a text says about how long it takes to compile.
        future = pool.threads.submit(
            lambda: _stored_or_built(store, pool, key, text, target, name, limits, c_interface), len(text)
        )
        _memory.artifacts[key.digest] = future
        if ahead:
            _memory.ahead.add(key.digest)
    return Build(key.digest, future)


def _may_succeed(future: Future[Artifact]) -> bool:
    return not future.done() or not (future.cancelled() or future.exception())


def get_or_batch(
    artifacts: Sequence[Artifact], target: Target, *, name: str, limits: Limits | None = None
) -> tuple[bytes, list[int]]:
    """What runs several kernels for a GPU in one launch, and which of its variants each artifact is: -1 for none.

    Raises:
        HalideCompileError: the assembler refuses it.
        WorkerTimeout, WorkerCrashed: it took longer, or more memory, than the limits allow.
    """
    from halide_backend.build.entry_names import with_placeholders
    from halide_backend.build.ptx.batching import batched, can_batch
    from halide_backend.build.ptx.completion import complete, extract
    from halide_backend.build.ptx.dependent_launch import waiting

    limits = limits or Limits()
    threads = {artifact.object: artifact.manifest["threads"] for artifact in artifacts}
    modules = {image: complete(extract(image), name, target.capability, sizes) for image, sizes in threads.items()}
    batch = list(dict.fromkeys(module for module in modules.values() if can_batch(module)))
    if not batch:
        return b"", [-1] * len(artifacts)
    text = str(with_placeholders(waiting(batched(batch), target.capability)))
    pool = worker_pool(limits.workers)

    def assembled() -> dict[str, bytes]:
        memory_limit = limits.memory_limit_mb << 20
        return {_IMAGE: pool.assemble(text, target.capability, name, limits.time_limit, memory_limit)}

    key = Key(kind="cuda-joint", fields=key_fields(text, target))
    requires, provides = (one.requirements() for one in (target, Target.host()))
    store = _store(environment.directory(), environment.shared())
    found, _ = store.get_or_build(key, assembled, requires=requires, provides=provides)
    variants = {image: batch.index(module) if module in batch else -1 for image, module in modules.items()}
    return found.files[_IMAGE], [variants[artifact.object] for artifact in artifacts]


@cache
def worker_pool(workers: int = 0) -> WorkerPool:
    """Return this process's pool of so many workers (0: one per core it may use)."""
    limits = Limits()
    return WorkerPool(
        workers or len(os.sched_getaffinity(0)),
        time_limit=limits.time_limit,
        memory_limit=limits.memory_limit_mb << 20,
    )


def _stored_or_built(
    store: Store,
    pool: WorkerPool,
    key: Key,
    text: str,
    target: Target,
    name: str,
    limits: Limits,
    c_interface: bool,
) -> Artifact:
    entry = entry_symbol(key.digest)
    seconds = 0.0

    def build() -> dict[str, bytes]:
        nonlocal seconds
        memory_limit = limits.memory_limit_mb << 20
        kernel = pool.compile(text, target, entry, name, limits.time_limit, memory_limit, c_interface=c_interface)
        seconds = kernel.seconds
        gpu = {_IMAGE: kernel.image} if kernel.image else {}
        return {_OBJECT: kernel.object, _MANIFEST: json.dumps(kernel.manifest).encode(), **gpu}

    needs = target.requirements()
    found, hit = store.get_or_build(key, build, requires=needs, provides=needs)
    files, manifest = found.files, json.loads(found.files[_MANIFEST])
    how = DISK if hit else COMPILED
    return Artifact(files[_OBJECT], manifest, entry, files.get(_IMAGE, b""), how, seconds)


def entry_symbol(key: str) -> str:
    """The symbol of the function of the kernel whose key has this digest."""
    return f"kernel_{key[:16]}"


@cache
def _store(root: str | None, shared: tuple[str, ...]) -> Store:
    return Store.open(root, readonly_roots=shared)


class _Memory:
    """The artifacts that this process asked for, by the digest of their keys; `ahead`: those that were only started."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.artifacts: dict[str, Future[Artifact]] = {}
        self.ahead: set[str] = set()

    def forget_pending(self) -> None:
        """In a forked child: what the parent's threads still work on never arrives here."""
        self.lock = threading.Lock()
        self.artifacts = {key: known for key, known in self.artifacts.items() if known.done()}


_memory = _Memory()
os.register_at_fork(after_in_child=_memory.forget_pending)
