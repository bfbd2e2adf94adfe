"""Schedule files: entries as TOML that people edit, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from halide_backend.errors import IllegalPlan, ScheduleFileError
from halide_backend.schedule.knobs import Setting
from halide_backend.schedule.stage import Role
from halide_backend.schedule.steps import Step
from halide_backend.schedules.entry import ScheduleEntry
from halide_backend.schedules.size_class import SizeRange
from halide_backend.schedules.step_text import parse_step
from halide_backend.schedules.thread_class import ThreadRange

#: Version of the format. 2 has `threads`, and classes of processors with a vendor; what 1 has means the same in it.
SCHEMA = 2
_READ = (1, 2)

#: Bytes of a file that are read at most; entries take 1 to 20 KB.
_MOST_BYTES = 64 << 20

_HEAD = """\
# Schedules of halide_backend: see "Schedule files" in its documentation.
schema = {schema}
"""
_KEYS = frozenset({"program", "device", "name", "origin", "sizes", "threads", "funcs", "steps", "knobs"})
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*schedule[ \t]*\]\]", re.MULTILINE)


@dataclass(frozen=True)
class Comments:
    """What a file says of an entry to whoever reads it: lines `above` it, and a line above each of its `knobs`, by key;
    `steps` are what the rules make of the knobs.
    """

    above: tuple[str, ...] = ()
    knobs: tuple[tuple[str, str], ...] = ()
    steps: tuple[str, ...] = ()


def read(path: str | os.PathLike[str]) -> tuple[ScheduleEntry, ...]:
    """The entries of a file, in order.

    Raises:
        ScheduleFileError: it cannot be read, is of a newer version, cut off, or not a schedule file.
    """
    where = os.fspath(path)
    try:
        with open(where, "rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise ScheduleFileError(f"it cannot be read: {error.strerror}", where=where, cure="name another file") from None
    if len(content) > _MOST_BYTES:
        raise ScheduleFileError("it is too long for a schedule file", where=where, cure="name another file")
    return parse(content, where)


def parse(content: bytes, where: str) -> tuple[ScheduleEntry, ...]:
    """The entries of a file with this `content`; messages call it `where`.

    Raises:
        ScheduleFileError: see `read`.
    """
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        text = content.decode()
        document = tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ScheduleFileError(
            f"it is not TOML: {error}", where=where, cure="correct it, or dump the schedules again"
        ) from None
    schema = document.pop("schema", None)
    if schema not in _READ or type(schema) is not int:
        newer = type(schema) is int and schema > SCHEMA
        raise ScheduleFileError(
            f"its schema is {schema!r}, and this version reads {' and '.join(map(str, _READ))}",
            where=where,
            cure="update halide_backend" if newer else "dump the schedules again",
        )
    tables = document.pop("schedule", [])
    if document or not isinstance(tables, list):
        raise _bad(where, f"unknown key {next(iter(document), 'schedule')!r}", "the file has schema and [[schedule]]")
    lines = [text.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(text)]
    places = [
        f"{where}, line {lines[number]}" if len(lines) == len(tables) else f"{where}, schedule {number + 1}"
        for number in range(len(tables))
    ]
    entries = tuple(_entry(table, place) for table, place in zip(tables, places))
    seen: dict[str, ScheduleEntry] = {}
    for entry in entries:
        first = seen.setdefault(entry.identity, entry)
        if first is not entry:
            raise _bad(entry.place, f"the same kernel has a schedule before: {first.place}", "keep one of both")
    return entries


def write(
    path: str | os.PathLike[str],
    entries: Iterable[ScheduleEntry],
    comments: Mapping[ScheduleEntry, Comments] | None = None,
) -> None:
    """Write a file of `entries`: the old one is replaced when the new one is on disk as a whole.

    Raises:
        ScheduleFileError: it cannot be written; what was there is as it was.
    """
    where = os.fspath(path)
    temporary = f"{where}.{uuid.uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            file.write(text_of(entries, comments).encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, where)
    except OSError as error:
        raise ScheduleFileError(f"it cannot be written: {error.strerror}", where=where, cure="choose another") from None
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def text_of(entries: Iterable[ScheduleEntry], comments: Mapping[ScheduleEntry, Comments] | None = None) -> str:
    """The text of a file of `entries`."""
    parts = [_HEAD.format(schema=SCHEMA)]
    parts += ["\n".join(_lines(entry, (comments or {}).get(entry, Comments()))) + "\n" for entry in entries]
    return "\n".join(parts)


def _lines(entry: ScheduleEntry, comments: Comments) -> Iterator[str]:
    yield from (f"# {line}".rstrip() for line in comments.above)
    yield "[[schedule]]"
    yield f"program = {_quoted(entry.program)}"
    yield f"device = {_quoted(entry.device)}"
    for name in ("name", "origin"):
        if value := getattr(entry, name):
            yield f"{name} = {_quoted(value)}"
    if entry.sizes:
        yield f"sizes = {{ {', '.join(f'{_key(s.axis)} = [{s.least}, {s.most}]' for s in entry.sizes)} }}"
    if entry.threads is not None:
        yield f"threads = [{entry.threads.least}, {entry.threads.most}]"
    if entry.funcs:
        yield f"funcs = {{ {', '.join(f'{position} = {_quoted(role.value)}' for position, role in entry.funcs)} }}"
    if entry.steps is not None:
        yield from ("steps = [", *(f"    {_quoted(repr(step))}," for step in entry.steps), "]")
    elif comments.steps:
        yield "# The rules make these steps of the knobs below. To change the steps, remove the # before them."
        yield from ("# steps = [", *(f"#     {_quoted(step)}," for step in comments.steps), "# ]")
    if entry.knobs:
        said = dict(comments.knobs)
        yield "[schedule.knobs]"
        for key, setting in entry.knobs:
            if said.get(key):
                yield f"# {said[key]}"
            yield f"{_quoted(key)} = {_quoted(setting) if isinstance(setting, str) else json.dumps(setting)}"


def _entry(table: object, place: str) -> ScheduleEntry:
    if not isinstance(table, dict) or (unknown := sorted(set(table) - _KEYS)):
        what = f"unknown key {unknown[0]!r}" if isinstance(table, dict) else "it is no table"
        raise _bad(place, what, f"an entry has {', '.join(sorted(_KEYS))}")
    program = _text(table, "program", place)
    if not _DIGEST.fullmatch(program):
        raise _bad(place, f"program is {program!r}", "it has to be a digest of 64 hexadecimal digits")
    steps = table.get("steps")
    if table.get("funcs") and steps is None:
        raise _bad(place, "it has funcs and no steps", "write the steps of these Funcs as well")
    return ScheduleEntry(
        program,
        _text(table, "device", place),
        tuple(_knobs(table.get("knobs", {}), place)),
        None if steps is None else tuple(_steps(steps, place)),
        tuple(_funcs(table.get("funcs", {}), place)),
        tuple(_sizes(table.get("sizes", {}), place)),
        _threads(table["threads"], place) if "threads" in table else None,
        _text(table, "origin", place, ""),
        _text(table, "name", place, ""),
        place,
    )


def _text(table: Mapping[str, Any], key: str, place: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if value is None:
        raise _bad(place, f"it has no {key}", "dump the schedule again")
    if not isinstance(value, str):
        raise _bad(place, f"{key} is {value!r}", "it has to be text in quotes")
    return value


def _table(value: object, key: str, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _bad(place, f"{key} is {value!r}", "it has to be a table of names and values")
    return value


def _knobs(value: object, place: str) -> Iterator[tuple[str, Setting]]:
    for key, setting in _table(value, "knobs", place).items():
        if not isinstance(setting, (int, bool, str)):
            # Unquoted, TOML takes the dot of "rule.knob" for a table in a table.
            cure = 'quote the whole name of the knob: "rule.knob"; its value is a number, true, false or text'
            raise _bad(place, f"knob {key!r} is {setting!r}", cure)
        yield key, setting


def _steps(value: object, place: str) -> Iterator[Step]:
    if not isinstance(value, list) or not all(isinstance(step, str) for step in value):
        raise _bad(place, "steps are not a list of texts", "write one step in quotes a line, with a comma behind it")
    yield from (_step(number, step, place) for number, step in enumerate(value))


def _step(number: int, text: str, place: str) -> Step:
    try:
        return parse_step(text)
    except IllegalPlan as error:
        raise _bad(place, f"step {number}, {error.where}: {error.what}", error.cure) from None


def _funcs(value: object, place: str) -> Iterator[tuple[int, Role]]:
    roles = {role.value: role for role in Role}
    for position, role in _table(value, "funcs", place).items():
        if not position.isdecimal() or role not in roles:
            cure = 'write the position of a value and the role of its Func: { 3 = "shared" }'
            raise _bad(place, f"funcs has {position} = {role!r}", cure)
        yield int(position), roles[role]


def _sizes(value: object, place: str) -> Iterator[SizeRange]:
    for axis, bounds in _table(value, "sizes", place).items():
        if not _are_bounds(bounds):
            raise _bad(place, f"sizes has {axis} = {bounds!r}", "write the least and the most: { x0 = [1024, 4095] }")
        yield SizeRange(axis, *bounds)


def _threads(bounds: Any, place: str) -> ThreadRange:
    if not _are_bounds(bounds):
        raise _bad(place, f"threads is {bounds!r}", "write the least and the most: [2, 3]")
    return ThreadRange(*bounds)


def _are_bounds(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(bound) is int for bound in value)


def _bad(where: str, what: str, cure: str) -> ScheduleFileError:
    return ScheduleFileError(what, where=where, cure=cure)


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, but that DEL is written as an escape."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)
