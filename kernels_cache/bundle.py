"""Entries in, one file for another machine out; and back, as from a stranger.

A bundle is a zip of entry files. Nothing is ever unpacked to a path that it names: each member
is read within limits, verified like any entry, and published under its own digest.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import struct
import uuid
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from kernels_cache import entry as entries
from kernels_cache.canonical import Json
from kernels_cache.compatibility import Refusal, refusal
from kernels_cache.entry import Entry
from kernels_cache.errors import BundleRefused, EntryDamaged, StorageTrouble
from kernels_cache.store import Store

# Room for every kernel of some thousand models; the directory of a zip is held in memory.
MAX_MEMBERS = 100_000
_MEMBER = re.compile(r"([0-9a-f]{64})\.v\d{1,4}")
# What `export_bundle` writes, and zip's oldest. Others take memory as their data says (LZMA).
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Equal entries give an equal bundle, so its SHA-256 can be written down and asked for.
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Exported:
    """A written bundle.

    Attributes:
        digests: of its entries.
        left_out: digests of entries that were not whole, or of another schema.
        bytes, sha256: of the file.
    """

    digests: tuple[str, ...]
    left_out: tuple[str, ...]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Imported:
    """What became of the entries of a bundle.

    Attributes:
        stored: digests now in the store.
        refused: digest to the requirement that this machine does not meet.
        unknown: digests written in a schema of another version of this package.
    """

    stored: tuple[str, ...]
    refused: Mapping[str, Refusal]
    unknown: tuple[str, ...]


def export_bundle(store: Store, path: str, digests: Collection[str] | None = None) -> Exported:
    """Write entries to `path`: all of the private root, or those of a run from any root.

    Args:
        store: where they are.
        path: the bundle, replaced atomically.
        digests: which ones, e.g. `store.used`; None for all that are whole.

    Raises:
        StorageTrouble: an entry asked for is not there or damaged, or the file cannot be written.
    """
    wanted = sorted({file.digest for file in store.listing()} if digests is None else set(digests))
    temporary = f"{path}.{uuid.uuid4().hex}.tmp"
    written: list[str] = []
    left_out: list[str] = []
    try:
        with zipfile.ZipFile(temporary, "x", zipfile.ZIP_DEFLATED) as bundle:
            for digest in wanted:
                found = store.entry_of(digest)
                if found is not None:
                    _write(bundle, found)
                    written.append(digest)
                elif digests is None:
                    left_out.append(digest)
                else:
                    raise StorageTrouble("not in the cache, or damaged", digest, "Build it again.")
        size, sha256 = os.path.getsize(temporary), _sha256(temporary)
        os.replace(temporary, path)
    except OSError as error:
        raise StorageTrouble(f"cannot write the bundle: {error.strerror}", path, "Choose another.") from None
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    return Exported(tuple(written), tuple(left_out), size, sha256)


def _write(bundle: zipfile.ZipFile, entry: Entry) -> None:
    member = zipfile.ZipInfo(f"{entry.digest}.v{entries.SCHEMA}", _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = (stat.S_IFREG | 0o600) << 16
    bundle.writestr(member, entries.pack(entry))


def import_bundle(
    store: Store,
    path: str,
    *,
    provides: Mapping[str, Json] | None = None,
    sha256: str | None = None,
    max_bytes: int | None = None,
) -> Imported:
    """Verify a whole bundle, then publish its entries.

    Args:
        store: where they go.
        path: the bundle.
        provides: what this machine has; entries that require more stay out. None takes all: they
            lie side by side, and each look-up compares again.
        sha256: refuse any other file. The only protection against a bundle from a stranger.
        max_bytes: bound for the unpacked entries together; None for the bound of the store.

    Raises:
        BundleRefused: damaged, hostile, larger than the bound, or not the one expected. Nothing
            was stored.
        CacheTrouble: in strict mode, when an entry cannot be stored.
    """
    if sha256 is not None and (found := _sha256_or_refuse(path)) != sha256.lower():
        raise BundleRefused(f"its SHA-256 is {found}, not the one expected", path, "Do not use it.")
    limit = store.max_bytes if max_bytes is None else max_bytes
    with _opened(path) as bundle:
        members = _members(bundle, path, limit)
        # Twice through the file: first to the end without storing, so a refusal stores nothing.
        for digest, member in members.items():
            _read(bundle, digest, member, path)
        return _publish(store, bundle, members, path, provides)


def _publish(
    store: Store,
    bundle: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    path: str,
    provides: Mapping[str, Json] | None,
) -> Imported:
    stored: list[str] = []
    unknown: list[str] = []
    refused: dict[str, Refusal] = {}
    for digest, member in members.items():
        entry = _read(bundle, digest, member, path)
        if entry is None:
            unknown.append(digest)
            continue
        reason = None if provides is None else refusal(entry.requires, provides)
        if reason is not None:
            refused[digest] = reason
        elif store.publish(entry):
            stored.append(digest)
    return Imported(tuple(stored), refused, tuple(unknown))


@contextmanager
def _opened(path: str) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as bundle:
            yield bundle
    except OSError as error:
        raise BundleRefused(f"cannot be read: {error.strerror or error}", path, "Check the path.") from None
    # All that zipfile was seen to raise for what is no zip, or a damaged one.
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error) as error:
        raise BundleRefused(f"not a readable bundle: {error}", path, "Export it again.") from None


def _members(bundle: zipfile.ZipFile, path: str, limit: int) -> dict[str, zipfile.ZipInfo]:
    infos = bundle.infolist()
    if len(infos) > MAX_MEMBERS:
        raise BundleRefused(f"{len(infos)} members, more than {MAX_MEMBERS}", path, "Split it.")
    members: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for info in infos:
        match = _MEMBER.fullmatch(info.filename)
        # orig_filename: zipfile cuts a name at its first NUL before we see it.
        if match is None or info.orig_filename != info.filename:
            raise BundleRefused(f"the member {info.orig_filename!r} is not an entry", path, "Do not use it.")
        if stat.S_IFMT(info.external_attr >> 16) not in (0, stat.S_IFREG):
            raise BundleRefused(f"the member {info.filename} is not a regular file", path, "Do not use it.")
        if info.compress_type not in _METHODS or info.flag_bits & 1:
            raise BundleRefused(f"the member {info.filename} is packed in a foreign way", path, "Do not use it.")
        if match[1] in members:
            raise BundleRefused(f"the member {info.filename} is there twice", path, "Do not use it.")
        members[match[1]] = info
        total += info.file_size
        if total > limit:
            raise BundleRefused(
                f"it unpacks to more than {limit} bytes",
                path,
                "Export fewer entries at a time, or import it with a larger max_bytes.",
            )
    return members


def _read(bundle: zipfile.ZipFile, digest: str, member: zipfile.ZipInfo, path: str) -> Entry | None:
    """Return the verified entry of a member, None when its schema is not ours."""
    # zipfile never yields more than the size in its directory, which _members has bounded.
    with bundle.open(member) as file:
        blob = file.read(member.file_size)
    try:
        entry = entries.unpack(blob, digest, member.filename)
    except entries.UnknownSchema:
        return None
    except EntryDamaged as damage:
        raise BundleRefused(damage.what, f"{path}: {member.filename}", "Export it again.") from None
    if not entries.authentic(entry):
        raise BundleRefused(
            "the fields of an entry are not those of its key",
            f"{path}: {member.filename}",
            "Do not use it.",
        )
    return entry


def _sha256_or_refuse(path: str) -> str:
    try:
        return _sha256(path)
    except OSError as error:
        raise BundleRefused(f"cannot be read: {error.strerror}", path, "Check the path.") from None


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
