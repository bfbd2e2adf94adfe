"""The command line of `halide-backend schedules`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halide_backend.schedules.entry import ScheduleEntry

DESCRIPTION = """\
Schedule files say how kernels run, and people edit them (docs/how-to/tune-a-kernel.md). SOURCE is a Python
file, which runs with this backend; a function, "module:function", which is called without arguments; or a
file of records as JSON.
"""

_SOURCE = "MODEL.py, module:function or RECORDS.json"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `halide-backend`."""
    parser = commands.add_parser(
        "schedules",
        help="write, check and list schedule files",
        description=DESCRIPTION,
    )
    actions = parser.add_subparsers(title="actions", metavar="action", required=True)
    dump = actions.add_parser(
        "dump", help="write the schedules of a program's kernels to a file", description=DESCRIPTION
    )
    dump.add_argument("source", metavar="SOURCE", help=_SOURCE)
    dump.add_argument("--output", required=True, metavar="FILE", help="the schedule file")
    dump.add_argument("--kernels", default="*", metavar="PATTERN", help="names or digests of kernels (default: all)")
    dump.add_argument("--steps", action="store_true", help="write all steps, too, instead of leaving them to the rules")
    dump.add_argument("--replace", action="store_true", help="replace FILE if it is there")
    dump.set_defaults(run=_dump)
    check = actions.add_parser(
        "check",
        help="check that a file can be read and, with SOURCE, that its schedules fit the program and are legal",
        description=DESCRIPTION,
    )
    check.add_argument("file", metavar="FILE", help="the schedule file")
    check.add_argument("source", metavar="SOURCE", nargs="?", default="", help=_SOURCE)
    check.set_defaults(run=_check)
    for each in (dump, check):
        each.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    listing = actions.add_parser(
        "list",
        help="list the schedules that apply here: of files named by options, of this machine, of the package",
    )
    listing.set_defaults(run=_list)
    export = actions.add_parser(
        "export", help="write the tuned schedules of this machine to a file, for version control"
    )
    export.add_argument("--output", required=True, metavar="FILE", help="the schedule file; replaced if it is there")
    export.set_defaults(run=_export)


def _dump(asked: argparse.Namespace) -> int:
    from halide_backend.schedules.dumped import dump_documents
    from halide_backend.tune.capture import records_of

    documents = records_of(asked.source, asked.device)
    written = dump_documents(
        asked.output, documents, kernels=asked.kernels, with_steps=asked.steps, replace=asked.replace
    )
    print(f"{asked.output}: {len(written)} schedule{'s' * (len(written) != 1)}")
    for entry in written:
        print(f"  {entry.name}")
    return 0


def _check(asked: argparse.Namespace) -> int:
    from halide_backend.schedules.checked import check_entry
    from halide_backend.schedules.dumped import planned_kernels
    from halide_backend.schedules.schedule_file import read
    from halide_backend.tune.capture import records_of

    entries = read(asked.file)
    if not asked.source:
        for entry in entries:
            print(f"{entry.title}: {_contents(entry)}")
        return 0
    kernels = list(planned_kernels(records_of(asked.source, asked.device)))
    findings = [check_entry(entry, kernels) for entry in entries]
    for finding in findings:
        print(f"{finding.entry.title}: {finding.what}")
    return 0 if all(finding.fine for finding in findings) else 1


def _list(asked: argparse.Namespace) -> int:
    from halide_backend.terminal import table

    rows = [
        (where, entry.name or "-", entry.program[:12], entry.device, _contents(entry), entry.origin or "-")
        for where, entry in _applying()
    ]
    if not rows:
        print("There are no schedules; the rules choose for every kernel.")
        return 0
    print(table(("from", "kernel", "program", "device", "says", "origin"), rows, "llllll"))
    return 0


def _applying() -> Iterator[tuple[str, ScheduleEntry]]:
    """All schedules in the order in which they are looked through, with where they come from."""
    from halide_backend import config
    from halide_backend.schedules.packaged import packaged_schedules
    from halide_backend.schedules.tuned_store import tuned_store
    from halide_backend.schedules.user_files import entries_of, files_in

    for path in (*config.schedule_files, *files_in(config.schedule_folder)):
        for entry in entries_of(path):
            yield path, entry
    if config.tune == "never":
        return
    for entry in tuned_store().entries():
        yield "this machine", entry
    for entries in packaged_schedules().values():
        for entry in entries:
            yield f"package, {Path(entry.place.partition(', line')[0]).name}", entry


def _contents(entry: ScheduleEntry) -> str:
    if entry.steps is not None:
        return f"{len(entry.steps)} steps"
    return f"{len(entry.knobs)} knobs"


def _export(asked: argparse.Namespace) -> int:
    from halide_backend.schedules.schedule_file import write
    from halide_backend.schedules.tuned_store import tuned_store

    entries = sorted(tuned_store().entries(), key=lambda entry: (entry.device, entry.name, entry.identity))
    write(asked.output, entries)
    print(f"{asked.output}: {len(entries)} schedules")
    return 0
