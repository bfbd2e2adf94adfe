"""Named fields in, a digest out: what a kernel is made of, and nothing about where or by whom.

The fields are stored beside the entry, so that a miss can be explained field by field.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernels_cache.canonical import Json, NotPlain, dumps, plain
from kernels_cache.errors import InvalidKey

KEY_SCHEMA = 1
DIGEST = re.compile(r"[0-9a-f]{64}")

_KIND = re.compile(r"[a-z][a-z0-9_-]{0,63}")
# They differ between two equal runs, so a key that holds one never hits again.
_NEVER = frozenset(
    {
        "cwd",
        "date",
        "device_index",
        "device_ordinal",
        "host",
        "hostname",
        "mtime",
        "path",
        "pid",
        "ppid",
        "thread_id",
        "time",
        "timestamp",
        "tmpdir",
        "uid",
        "user",
        "username",
    }
)


@dataclass(frozen=True)
class Key:
    """Identity of an artifact: two equal keys mean interchangeable machine code.

    Attributes:
        kind: what the artifact is, e.g. "cpu-object"; lower case, digits, "-" and "_".
        fields: named plain data (None, bool, int, float, str, lists, dicts). Copied.
        digest: 64 hex characters, SHA-256 of the canonical JSON of kind and fields.

    Raises:
        InvalidKey: for a value that is not plain JSON, a field that must never be in a key
            (path, pid, device index, mtime, user, ...), or a target that says "host".
    """

    kind: str
    fields: Mapping[str, Json] = field(compare=False)
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        if type(self.kind) is not str or not _KIND.fullmatch(self.kind):
            raise InvalidKey(
                f"the kind {self.kind!r} is not a lower-case name",
                "Key.kind",
                "Use letters, digits, '-' and '_', at most 64 characters.",
            )
        fields = _checked(self.fields)
        text = dumps({"fields": fields, "kind": self.kind, "schema": KEY_SCHEMA})
        object.__setattr__(self, "fields", fields)
        object.__setattr__(self, "digest", hashlib.sha256(text.encode("ascii")).hexdigest())


def _checked(fields: Mapping[str, Json]) -> dict[str, Json]:
    try:
        copy = plain(fields)
    except NotPlain as error:
        raise InvalidKey(
            f"a key holds only plain JSON, and this is {error.reason}",
            f"Key.fields[{error.place!r}]",
            "Give a string, a number, a list or a dict that means the same in every process.",
        ) from None
    if not isinstance(copy, dict):
        raise InvalidKey("the fields of a key are a mapping of names to values", "Key.fields")
    for name in copy:
        if name.lower() in _NEVER:
            raise InvalidKey(
                "this field differs between two runs that want the same kernel",
                f"Key.fields[{name!r}]",
                "Leave it out, or name the property of the machine that matters.",
            )
    target = copy.get("target")
    if isinstance(target, str) and (target == "host" or target.startswith("host-")):
        raise InvalidKey(
            "'host' means another processor on every machine",
            "Key.fields['target']",
            "Resolve the target to its architecture and features first.",
        )
    return copy
