"""K7: no key and no file name makes the store touch anything outside of its root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from crew import scenario

from kernels_cache import InvalidEntry, Key, Store


@pytest.mark.parametrize("examples", [500, pytest.param(10_000, marks=pytest.mark.long)])
def test_hostile_names(root: Path, figure: Callable[[str, str, str], None], examples: int) -> None:
    counts = scenario("keys", "hostile_names", root=str(root), examples=examples)
    assert counts["tried"] >= 0.9 * examples
    assert counts["stored"] > 10
    assert counts["refused"] > 10
    assert counts["tried"] == counts["stored"] + counts["refused"]
    assert counts["wrong"] == 0
    assert counts["outside"] == 0
    figure(
        "K7.1",
        f"{counts['tried']} hostile keys and file names, watched by an audit hook",
        f"{counts['outside']} writes outside of the root",
    )


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".a",
        "a/b",
        "a\\b",
        "a\x00",
        "a.",
        "-a",
        "con",
        "Nul.o",
        "lpt1",
        "x" * 129,
        "\xe9",
        "a b",
        "a\n",
        "kern\u0435l.o",
        7,
        None,
    ],
)
def test_unsafe_file_names(store: Store, name: object) -> None:
    with pytest.raises(InvalidEntry, match="not a safe file name"):
        store.put(Key("k", {}), {name: b""})
    assert store.get(Key("k", {})) is None


@pytest.mark.parametrize("name", ["kernel.o", "_", "0", "a-b_c+d.cubin", "console.o", "x" * 128])
def test_safe_file_names(store: Store, name: str) -> None:
    store.put(Key("k", {}), {name: b"1"})
    assert store.get(Key("k", {})).files == {name: b"1"}


def test_what_is_no_entry(store: Store) -> None:
    key = Key("k", {})
    with pytest.raises(InvalidEntry, match="without files"):
        store.put(key, {})
    with pytest.raises(InvalidEntry, match="differ only in case"):
        store.put(key, {"a": b"", "A": b""})
    with pytest.raises(InvalidEntry, match="is a str, not bytes"):
        store.put(key, {"a": "text"})
    with pytest.raises(InvalidEntry, match=r"requirements.*set"):
        store.put(key, {"a": b""}, requires={"cpu_features": {"avx"}})
    with pytest.raises(InvalidEntry):
        store.get_or_build(key, dict)
    assert store.get(key) is None
    assert store.statistics.troubles == 0


def test_contents_are_copied(store: Store) -> None:
    changing = bytearray(b"before")
    made = store.put(Key("k", {}), {"a": changing, "b": memoryview(b"view")})
    changing[:] = b"after!"
    assert made.files == {"a": b"before", "b": b"view"}
    assert store.get(Key("k", {})).files == {"a": b"before", "b": b"view"}
