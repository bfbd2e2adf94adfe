"""The command `kernels-cache`: arguments in, text and an exit status out.

Status 0: done; 1: a question answered with no (damage found, nothing matches); 2: refused.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence

from kernels_cache import bundle, explanation
from kernels_cache.canonical import Json, printable
from kernels_cache.environment import DIRECTORY, SHARED
from kernels_cache.errors import CacheError, InvalidKey
from kernels_cache.key import Key
from kernels_cache.store import Store
from kernels_cache.sweep import Limits

_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    options = _parser().parse_args(arguments)
    command: Callable[[Store, argparse.Namespace], int] = options.command
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Trouble with the directory is an answer here, whatever a program would make of it.
            store = Store.open(options.root, strict=True)
            if options.past_damage:
                store.listing()
                store = Store.open(options.root, strict=False)
            status = command(store, options)
            sys.stdout.flush()
            return status
    except CacheError as error:
        print(f"kernels-cache: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # kernels-cache ls | head; keep the interpreter's last flush quiet
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernels-cache",
        description="Look into, check and move the cache of compiled kernels.",
        epilog=f"The cache is --root, or {DIRECTORY}, or halide_backend in your cache directory; "
        f"{SHARED} names read-only ones that are looked up after it.",
    )
    parser.add_argument("--root", help="directory of the cache")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[Store, argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(command=command, past_damage=False)
        return added

    one = add("ls", _ls, "list the entries, most recently used first")
    one.add_argument("-n", type=_count, metavar="N", help="at most N entries")
    one.add_argument("-l", "--long", action="store_true", help="also show kind and files")
    add("du", _du, "show entries and bytes per kind")
    one = add("verify", _verify, "check every byte of every entry; damaged ones are set aside (status 1)")
    one.set_defaults(past_damage=True)
    one = add("prune", _prune, "remove what crashes left behind, and entries beyond a bound")
    one.add_argument("--max-bytes", type=_bytes, metavar="SIZE", help="keep at most SIZE, e.g. 500M or 0")
    one.add_argument("--older-than", type=_amount, metavar="DAYS", help="remove entries unused for DAYS")
    one = add("why", _why, "name the nearest entries and the fields that differ (status 1: none)")
    one.add_argument(
        "what",
        metavar="KEY-OR-TEXT",
        help='a digest or its start, a key as JSON {"kind": ..., "fields": {...}}, @FILE with one, '
        "or any text in the fields, e.g. target=x86-64",
    )
    one = add("export", _export, "write entries to a bundle for another machine")
    one.set_defaults(past_damage=True)
    one.add_argument("bundle", help="file to write")
    one.add_argument("--match", metavar="TEXT", help="only entries whose fields contain TEXT")
    one.add_argument("--used-within", type=_amount, metavar="HOURS", help="only entries used in the last HOURS")
    one = add("import", _import, "verify a bundle and store its entries")
    one.add_argument("bundle", help="file to read")
    one.add_argument("--sha256", metavar="DIGEST", help="refuse any other file")
    one.add_argument(
        "--provides",
        type=_json,
        metavar="JSON",
        help='what this machine has, e.g. {"cpu_features": ["avx2", "fma"]}; entries that require more are refused',
    )
    return parser


def _ls(store: Store, options: argparse.Namespace) -> int:
    now = time.time()
    for file in store.listing()[: options.n]:
        row = f"{file.digest[:16]}  {_size(file.bytes):>9}  {_age(now - file.used):>6}"
        if options.long:
            manifest = store.manifest(file)
            kind = manifest.kind if manifest else "unreadable"
            row += f"  {kind:<16}  {' '.join(manifest.sizes if manifest else ())}"
        print(row)
    return 0


def _du(store: Store, options: argparse.Namespace) -> int:
    kinds: dict[str, list[int]] = {}
    for file in store.listing():
        manifest = store.manifest(file)
        kinds.setdefault(manifest.kind if manifest else "unreadable", []).append(file.bytes)
    for kind, sizes in sorted(kinds.items()):
        print(f"{_size(sum(sizes)):>9}  {len(sizes):>7} entries  {kind}")
    total = sum(sum(sizes) for sizes in kinds.values())
    where = store.root.path if store.root else ""
    print(f"{_size(total):>9}  of {_size(store.max_bytes)} in {where}")
    everything = store.listing(shared=True)
    for root in store.shared:
        sizes = [file.bytes for file in everything if file.path.startswith(f"{root.path}/")]
        print(f"{_size(sum(sizes)):>9}  {len(sizes):>7} entries  in {root.path}, shared")
    return 0


def _verify(store: Store, options: argparse.Namespace) -> int:
    checked = damaged = 0
    for file, problem in store.verify():
        checked += 1
        if problem is not None and problem.reason in ("damaged", "unreadable"):
            damaged += 1
            print(f"{file.digest[:16]}  {problem.detail}")
    print(f"{checked} entries checked, {damaged} damaged")
    return 1 if damaged else 0


def _prune(store: Store, options: argparse.Namespace) -> int:
    age_s = None if options.older_than is None else options.older_than * 86_400.0
    done = store.prune(options.max_bytes, Limits(entry_s=age_s))
    print(
        f"removed {len(done.removed)} entries, {done.temporary} temporary files, "
        f"{done.quarantined} damaged entries, {done.locks} stale locks; "
        f"{done.entries} entries, {_size(done.bytes)} left"
    )
    return 0


def _why(store: Store, options: argparse.Namespace) -> int:
    key = _key(options.what)
    if key is None:
        found = explanation.matching(store, options.what)
        if not found:
            print(f"no entry matches {options.what!r}")
            return 1
        manifest = found[0][1]
        if len(found) > 1:
            print(f"{len(found)} entries match; the most recently used is explained")
        key = Key(manifest.kind, manifest.key_fields)
    neighbours = explanation.nearest(store, key, 4)
    stored = [one for one in neighbours if not one.differences]
    print(f"{key.digest}  {key.kind}: {'stored' if stored else 'not stored'}")
    for one in stored:
        print(f"  created {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(one.manifest.created))}")
        for name, size in one.manifest.sizes.items():
            print(f"  file {name}: {_size(size)}")
        for name, value in one.manifest.requires.items():
            print(f"  requires {printable(name)}: {json.dumps(value)}")
    for one in neighbours:
        if one.differences:
            print(f"near {one.file.digest[:16]}, {len(one.differences)} fields differ:")
            for difference in one.differences:
                print(f"  {difference}")
    return 0 if neighbours else 1


def _key(what: str) -> Key | None:
    if what.startswith("@"):
        try:
            with open(what[1:], encoding="utf-8") as file:
                what = file.read()
        except (OSError, ValueError) as error:
            raise InvalidKey(f"cannot read the key: {error}", what, "Check the path.") from None
    if not what.lstrip().startswith("{"):
        return None
    try:
        data = json.loads(what)
        return Key(data["kind"], data["fields"])
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidKey(f"not a key: {error}", what[:60], 'Give {"kind": ..., "fields": {...}}.') from None


def _export(store: Store, options: argparse.Namespace) -> int:
    digests: list[str] | None = None
    if options.match is not None or options.used_within is not None:
        own = {file.path for file in store.listing()}
        files = [file for file, _ in explanation.matching(store, options.match or "") if file.path in own]
        hours = float("inf") if options.used_within is None else options.used_within
        since = time.time() - hours * 3600.0
        digests = [file.digest for file in files if file.used >= since]
    done = bundle.export_bundle(store, options.bundle, digests)
    for digest in done.left_out:
        print(f"{digest[:16]}  left out: damaged, or written by another version of this package")
    print(f"{len(done.digests)} entries, {_size(done.bytes)}, sha256 {done.sha256}")
    return 0


def _import(store: Store, options: argparse.Namespace) -> int:
    done = bundle.import_bundle(store, options.bundle, provides=options.provides, sha256=options.sha256)
    for digest, refusal in done.refused.items():
        print(f"{digest[:16]}  refused: {refusal}")
    for digest in done.unknown:
        print(f"{digest[:16]}  skipped: written by another version of this package")
    counts = len(done.stored), len(done.refused), len(done.unknown)
    print("{} entries stored, {} refused, {} skipped".format(*counts))
    return 0


def _bytes(text: str) -> int:
    number, unit = (text[:-1], text[-1].upper()) if text[-1:].isalpha() else (text, "")
    try:
        return int(_amount(number) * _UNITS[unit])
    except (KeyError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500M") from None


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of entries")
    return int(text)


def _amount(text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0.0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0")
    return amount


def _json(text: str) -> dict[str, Json]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def _size(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"
