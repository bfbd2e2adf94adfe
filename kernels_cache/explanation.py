"""A key or a text in, the nearest stored entries and the fields that differ out.

Works on manifests alone: no payload is read and nothing is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernels_cache.canonical import Json, dumps, printable
from kernels_cache.entry import Manifest
from kernels_cache.key import Key
from kernels_cache.store import Store
from kernels_cache.sweep import File

# Of a long text only the place where it differs is shown.
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True)
class Difference:
    """One field that differs: dotted `field`, `wanted` and `stored` value, None when absent."""

    field: str
    wanted: Json
    stored: Json

    def __str__(self) -> str:
        wanted, stored = _around(dumps(self.wanted), dumps(self.stored))
        return f"{printable(self.field)}: wanted {wanted}, stored {stored}"


@dataclass(frozen=True)
class Neighbour:
    """A stored entry and how it differs from what was asked; no differences means it is it."""

    file: File
    manifest: Manifest
    differences: tuple[Difference, ...]


def nearest(store: Store, key: Key, count: int = 3) -> list[Neighbour]:
    """Return the stored entries of the key's kind that differ in the fewest fields."""
    wanted = flat(key.fields)
    found = [
        Neighbour(file, manifest, tuple(differences(wanted, flat(manifest.key_fields))))
        for file, manifest in manifests(store)
        if manifest.kind == key.kind
    ]
    return sorted(found, key=lambda one: len(one.differences))[:count]


def matching(store: Store, text: str) -> list[tuple[File, Manifest]]:
    """Return the entries whose digest starts with `text`, or whose kind or fields contain it."""
    start = text.lower()
    return [
        (file, manifest)
        for file, manifest in manifests(store)
        if file.digest.startswith(start)
        or text in manifest.kind
        or any(text in f"{name}={_text(value)}" for name, value in flat(manifest.key_fields).items())
    ]


def manifests(store: Store) -> Iterator[tuple[File, Manifest]]:
    """Yield all readable entries of all roots, most recently used first."""
    for file in store.listing(shared=True):
        manifest = store.manifest(file)
        if manifest is not None:
            yield file, manifest


def differences(wanted: Mapping[str, Json], stored: Mapping[str, Json]) -> Iterator[Difference]:
    """Compare two flattened keys, in the order of the names."""
    for name in sorted(wanted.keys() | stored.keys()):
        ours, theirs = wanted.get(name), stored.get(name)
        # Not ==: 1, 1.0 and True are one number in Python and three texts in a key.
        if (name in wanted) != (name in stored) or dumps(ours) != dumps(theirs):
            yield Difference(name, ours, theirs)


def flat(fields: Mapping[str, Json], place: str = "") -> dict[str, Json]:
    """Return nested mappings as one, with dotted names; lists stay whole."""
    rows: dict[str, Json] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            rows |= flat(value, f"{place}{name}.")
        else:
            rows[f"{place}{name}"] = value
    return rows


def _text(value: Json) -> str:
    return value if isinstance(value, str) else dumps(value)


def _around(left: str, right: str) -> tuple[str, str]:
    """Cut two long texts to the place where they part."""
    if max(len(left), len(right)) <= _SHOWN_CHARACTERS:
        return left, right
    parts = (at for at, (one, other) in enumerate(zip(left, right, strict=False)) if one != other)
    start = max(0, next(parts, min(len(left), len(right))) - _SHOWN_CHARACTERS // 3)
    return _cut(left, start), _cut(right, start)


def _cut(text: str, start: int) -> str:
    end = start + _SHOWN_CHARACTERS
    return ("..." if start else "") + text[start:end] + ("..." if end < len(text) else "")
