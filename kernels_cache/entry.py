"""An artifact in memory, and the one immutable file that it is on disk.

Header line, manifest (JSON), payload. The header checks itself and the manifest, the manifest
checks every file, and the lengths leave no byte over. docs/reference/kernels-cache-format.md
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kernels_cache.canonical import Json, NotPlain, dumps, plain
from kernels_cache.errors import EntryDamaged, InvalidEntry, InvalidKey
from kernels_cache.key import Key

SCHEMA = 1
MAKER = "kernels_cache 0.1"
HEADER_BYTES = 114

_HEADER = re.compile(rb"(kernels-cache (\d{4}) (\d{12}) ([0-9a-f]{64}) )([0-9a-f]{16})\n")
_FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}")
# Names that Windows gives to devices, with any extension: a bundle may be unpacked there.
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


class UnknownSchema(Exception):
    """An intact entry of another schema: a miss, and none of our business."""


@dataclass(frozen=True)
class Entry:
    """Files that belong together, digest-verified: these very bytes are what may be loaded.

    Attributes:
        digest: the key's digest, 64 hex characters.
        kind: the key's kind.
        key_fields: the key's fields.
        files: file name to content.
        requires: what a machine must provide to run it, see `compatibility`.
        created: seconds since the epoch, whole.
        maker: name and version of the package that wrote it.
    """

    digest: str
    kind: str
    key_fields: Mapping[str, Json]
    files: Mapping[str, bytes]
    requires: Mapping[str, Json]
    created: int
    maker: str


@dataclass(frozen=True)
class Manifest:
    """All that an entry says about itself, without its payload; `sizes` and `digests` by file."""

    digest: str
    kind: str
    key_fields: Mapping[str, Json]
    requires: Mapping[str, Json]
    created: int
    maker: str
    sizes: Mapping[str, int]
    digests: Mapping[str, str]


def make(key: Key, files: Mapping[str, bytes], requires: Mapping[str, Json] | None = None) -> Entry:
    """Return a new entry, stamped with the present time.

    Raises:
        InvalidEntry: no files, an unsafe name, content that is not bytes, requirements that
            are not plain JSON.
    """
    content = {name: _content(name, files[name]) for name in files}
    if not content:
        raise InvalidEntry("an entry without files", key.digest, "Raise when a build fails.")
    folded = {name.lower() for name in content}
    if len(folded) != len(content):
        raise InvalidEntry("two file names differ only in case", key.digest, "Rename one.")
    try:
        needs = plain(dict(requires or {}))
    except NotPlain as error:
        raise InvalidEntry(
            f"requirements are plain JSON, and this is {error.reason}",
            f"requires[{error.place!r}]",
            "Give strings, numbers or lists of them.",
        ) from None
    assert isinstance(needs, dict)
    return Entry(key.digest, key.kind, key.fields, content, needs, int(time.time()), MAKER)


def _content(name: object, content: object) -> bytes:
    if not safe_name(name):
        raise InvalidEntry(
            f"{name!r} is not a safe file name",
            "files",
            "Use letters, digits, '_', '.', '+', '-'; no directories, no leading dot.",
        )
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise InvalidEntry(
            f"the content is a {type(content).__name__}, not bytes",
            f"files[{name!r}]",
            "Encode it.",
        )
    return bytes(content)


def safe_name(name: object) -> bool:
    """Tell whether `name` is one plain file name on every operating system."""
    return (
        isinstance(name, str)
        and _FILE_NAME.fullmatch(name) is not None
        and not name.endswith(".")
        and _RESERVED.fullmatch(name) is None
    )


def authentic(entry: Entry | Manifest) -> bool:
    """Tell whether the fields stored beside an entry are those that its digest was made of."""
    try:
        return Key(entry.kind, entry.key_fields).digest == entry.digest
    except InvalidKey:
        return False


def pack(entry: Entry) -> bytes:
    """Return the file of an entry."""
    files: list[Json] = [
        {"name": name, "sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
        for name, content in entry.files.items()
    ]
    manifest = dumps(
        {
            "created": entry.created,
            "digest": entry.digest,
            "fields": dict(entry.key_fields),
            "files": files,
            "kind": entry.kind,
            "maker": entry.maker,
            "requires": dict(entry.requires),
        }
    ).encode("ascii")
    return b"".join([header(SCHEMA, manifest), manifest, *entry.files.values()])


def header(schema: int, manifest: bytes) -> bytes:
    """Return the header line for `manifest`: the only part that every schema shares."""
    line = f"kernels-cache {schema:04d} {len(manifest):012d} {hashlib.sha256(manifest).hexdigest()} "
    start = line.encode("ascii")
    return start + hashlib.sha256(start).hexdigest()[:16].encode("ascii") + b"\n"


def unpack(blob: bytes, digest: str, where: str) -> Entry:
    """Verify the file of an entry and return what it holds.

    Args:
        blob: the whole file; the returned contents are cut from it and hashed after the cut.
        digest: digest of the key that was asked for.
        where: the file's name, for messages.

    Raises:
        EntryDamaged: anything at all differs from what was stored.
        UnknownSchema: an intact header of another schema.
    """
    found = manifest(blob, where)
    if found.digest != digest:
        raise _damaged(f"it belongs to the key {found.digest[:16]}", where)
    start = HEADER_BYTES + manifest_bytes(blob, where)
    if start + sum(found.sizes.values()) != len(blob):
        raise _damaged("its length is not the sum of its parts", where)
    files: dict[str, bytes] = {}
    for name, size in found.sizes.items():
        content = blob[start : start + size]
        if hashlib.sha256(content).hexdigest() != found.digests[name]:
            raise _damaged(f"the digest of {name!r} differs", where)
        files[name] = content
        start += size
    return Entry(
        found.digest,
        found.kind,
        found.key_fields,
        files,
        found.requires,
        found.created,
        found.maker,
    )


def manifest_bytes(start: bytes, where: str) -> int:
    """Read the header at the start of a file and return the manifest's length in bytes.

    Raises:
        EntryDamaged: the header is not intact.
        UnknownSchema: it is intact, and of another schema.
    """
    return _header(start, where)[0]


def manifest(start: bytes, where: str) -> Manifest:
    """Read header and manifest from the start of a file.

    Raises:
        EntryDamaged, UnknownSchema: as `manifest_bytes`.
    """
    size, digest = _header(start, where)
    text = start[HEADER_BYTES : HEADER_BYTES + size]
    if hashlib.sha256(text).hexdigest().encode("ascii") != digest:
        raise _damaged("the digest of its manifest differs", where)
    try:
        return _manifest(json.loads(text))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _damaged(f"its manifest is not one: {error}", where) from None


def _header(start: bytes, where: str) -> tuple[int, bytes]:
    match = _HEADER.fullmatch(start[:HEADER_BYTES])
    if match is None:
        raise _damaged("its header is not one", where)
    line, schema, size, digest, checksum = match.groups()
    if hashlib.sha256(line).hexdigest()[:16].encode("ascii") != checksum:
        raise _damaged("the checksum of its header differs", where)
    if int(schema) != SCHEMA:
        raise UnknownSchema(int(schema))
    return int(size), digest


def _manifest(data: dict[str, Json]) -> Manifest:
    """Check types by hand: a bundle from a stranger can hold any JSON at all."""
    files = data["files"]
    if not isinstance(files, list):
        raise TypeError("files")
    sizes: dict[str, int] = {}
    digests: dict[str, str] = {}
    for item in files:
        if not isinstance(item, dict):
            raise TypeError("files")
        name, size, digest = item["name"], item["size"], item["sha256"]
        if not isinstance(name, str) or not safe_name(name) or name in sizes:
            raise ValueError("file name")
        if type(size) is not int or size < 0 or type(digest) is not str:
            raise TypeError("files")
        sizes[name], digests[name] = size, digest
    digest, kind, maker, created = data["digest"], data["kind"], data["maker"], data["created"]
    fields, requires = data["fields"], data["requires"]
    if not (type(digest) is type(kind) is type(maker) is str and type(created) is int):
        raise TypeError("digest, kind, maker, created")
    if not (isinstance(fields, dict) and isinstance(requires, dict) and sizes):
        raise TypeError("fields, requires, files")
    return Manifest(digest, kind, fields, requires, created, maker, sizes, digests)


def _damaged(reason: str, where: str) -> EntryDamaged:
    return EntryDamaged(f"a cache entry is damaged: {reason}", where, "It was set aside and will be built again.")
