"""K18: any sequence of operations and accidents does what a dict with accidents would do."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kernels_cache import CacheWarning, Key, Store, sweep
from kernels_cache import store as stores

KEYS = [Key("k", {"number": number}) for number in range(6)]
NUMBERS = strategies.integers(0, len(KEYS) - 1)
CONTENTS = strategies.binary(max_size=3000)
BOUND = 8_000
STEPS = {"count": 0}


class Crash(BaseException):
    """The process ends here, as far as the store is concerned."""


@contextmanager
def crashing(name: str, before: bool) -> Any:
    """The process dies at the first os.<name>: nothing after it happens, not even clean-up."""
    real = {each: getattr(os, each) for each in ("open", "write", "unlink", "replace", "fsync")}

    def dead(*_: Any, **__: Any) -> Any:
        raise Crash

    def dying(*arguments: Any, **named: Any) -> Any:
        if not before:
            real[name](*arguments, **named)
        # Locks of a dead process are freed by the kernel; here by leaving the contexts. The
        # files it would have removed then stay.
        with suppress(AttributeError):
            patch.setattr(os, "unlink", lambda *_, **__: None)
        for each in ("write", "replace", "fsync"):
            patch.setattr(os, each, dead)
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, name, dying)
        with suppress(Crash):
            yield


class StoreMachine(RuleBasedStateMachine):
    """`model` holds what a get may return; a key outside of it must miss."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="kernels-cache-"))
        self.model: dict[int, bytes] = {}
        self.clock = 0.0
        self.store = self.opened()

    def opened(self) -> Store:
        return Store.open(self.root / "cache", strict=False, max_bytes=BOUND)

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def path(self, number: int) -> Path:
        return Path(self.store.root.entry(KEYS[number].digest))

    def touched(self, number: int) -> None:
        """Order uses by a clock of our own: a step takes less than the file system's."""
        self.clock += 1.0
        with suppress(FileNotFoundError):
            os.utime(self.path(number), (1e9 + self.clock,) * 2)

    @rule(number=NUMBERS, content=CONTENTS)
    def put(self, number: int, content: bytes) -> None:
        before = self.sizes()
        made = self.store.put(KEYS[number], {"a": content})
        assert made.files == {"a": content}
        self.after_put(number, content, before)

    @rule(number=NUMBERS, content=CONTENTS)
    def get_or_build(self, number: int, content: bytes) -> None:
        before = self.sizes()
        entry, hit = self.store.get_or_build(KEYS[number], lambda: {"a": content})
        assert hit == (number in self.model)
        if hit:
            assert entry.files == {"a": self.model[number]}
        else:
            assert entry.files == {"a": content}
            self.after_put(number, content, before)

    def sizes(self) -> dict[int, tuple[float, int]]:
        return {number: (self.path(number).stat().st_mtime, self.path(number).stat().st_size) for number in self.model}

    def after_put(self, number: int, content: bytes, before: dict[int, tuple[float, int]]) -> None:
        assert self.path(number).exists()
        gone = [each for each in self.model if each != number and not self.path(each).exists()]
        left = [each for each in self.model if each != number and self.path(each).exists()]
        if gone and left:
            assert max(before[each] for each in gone) < min(before[each] for each in left)
        for each in gone:
            del self.model[each]
        self.model[number] = content
        self.touched(number)

    @rule(number=NUMBERS)
    def get(self, number: int) -> None:
        found = self.store.get(KEYS[number])
        assert (None if found is None else found.files.get("a")) == self.model.get(number)
        if found is not None:
            # Last used in 2001, as far as the file says: a use must show.
            assert abs(self.path(number).stat().st_mtime - time.time()) < 60
            self.touched(number)

    @rule(number=NUMBERS)
    def discard(self, number: int) -> None:
        assert self.store.discard(KEYS[number]) == (number in self.model)
        self.model.pop(number, None)

    @rule(keep=strategies.sampled_from([0, 2000, 5000, BOUND]))
    def prune(self, keep: int) -> None:
        before = self.sizes()
        done = self.store.prune(keep, sweep.Limits(temporary_s=0.0, quarantine_s=0.0))
        gone = {each for each in self.model if not self.path(each).exists()}
        left = set(self.model) - gone
        assert {KEYS[each].digest for each in gone} == set(done.removed)
        assert sum(before[each][1] for each in left) <= keep
        if gone and left:
            assert max(before[each] for each in gone) < min(before[each] for each in left)
            # No more than needed: one more would have fitted in only with the youngest gone.
            youngest = max(before[each] for each in gone)
            assert sum(before[each][1] for each in left) + youngest[1] > keep
        for each in gone:
            del self.model[each]
        assert list((self.root / "cache").glob("temporary/*")) == []

    @rule(number=NUMBERS, content=CONTENTS, before=strategies.booleans())
    def crash(self, number: int, content: bytes, before: bool) -> None:
        """Die in a put, before or after the rename: the old content, or the new one."""
        self.store.prune(BOUND // 3)  # so that nothing is evicted in the crash
        for each in [each for each in self.model if not self.path(each).exists()]:
            del self.model[each]
        with crashing("replace", before):
            self.store.put(KEYS[number], {"a": content})
        if not before:
            self.model[number] = content
            self.touched(number)
        self.store = self.opened()

    @rule(number=NUMBERS, content=CONTENTS, name=strategies.sampled_from(["write", "fsync"]))
    def crash_early(self, number: int, content: bytes, name: str) -> None:
        with crashing(name, True):
            self.store.put(KEYS[number], {"a": content})
        self.store = self.opened()

    @precondition(lambda self: self.model)
    @rule(data=strategies.data(), flip=strategies.booleans())
    def corrupt(self, data: Any, flip: bool) -> None:
        number = data.draw(strategies.sampled_from(sorted(self.model)))
        blob = bytearray(self.path(number).read_bytes())
        position = data.draw(strategies.integers(0, len(blob) - 1))
        if flip:
            blob[position] ^= 1 << data.draw(strategies.integers(0, 7))
        else:
            del blob[position:]
        self.path(number).write_bytes(blob)
        self.touched(number)
        quarantined = self.store.statistics.quarantined
        assert self.store.get(KEYS[number]) is None
        assert self.store.statistics.quarantined == quarantined + 1
        del self.model[number]

    @rule(text=strategies.sampled_from(["", "x"]))
    def spoil_the_ledger(self, text: str) -> None:
        path = self.root / "cache" / "ledger"
        if path.exists():
            path.write_text(text)

    @rule()
    def reopen(self) -> None:
        self.store = self.opened()

    @rule()
    def remove_everything(self) -> None:
        shutil.rmtree(self.root / "cache", ignore_errors=True)
        self.model.clear()

    @invariant()
    def bounded(self) -> None:
        STEPS["count"] += 1
        files = list((self.root / "cache" / "entries").rglob("*.v1"))
        assert sum(path.stat().st_size for path in files) <= BOUND
        assert {path.name[:64] for path in files} == {KEYS[each].digest for each in self.model}


@pytest.mark.parametrize(("examples", "steps"), [(40, 25), pytest.param(200, 50, marks=pytest.mark.long)])
def test_the_store_behaves_like_a_dict(
    figure: Callable[[str, str, str], None],
    monkeypatch: pytest.MonkeyPatch,
    examples: int,
    steps: int,
) -> None:
    monkeypatch.setattr(stores, "TOUCH_AFTER_S", 0.0)
    STEPS["count"] = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CacheWarning)
        run_state_machine_as_test(
            StoreMachine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                deadline=None,
                database=None,
                derandomize=True,
            ),
        )
    figure(
        "K18.1",
        f"state machine, {examples} examples of up to {steps} steps",
        f"{STEPS['count']} steps, 0 divergences from the dict",
    )
