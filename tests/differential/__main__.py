"""The long run: many seeds in several processes, with a record of everything that was found."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from .record import Record
from .workers import results


def main() -> int:
    arguments = _arguments()
    if arguments.show:
        from .generator import program_of_seed

        print(program_of_seed(arguments.seed))
    path = Path(arguments.record) if arguments.record else None
    command = " ".join(["python -m tests.differential", *sys.argv[1:]])
    again = arguments.resume and path is not None and path.exists()
    record = Record.read(path, command) if again and path else Record(command, arguments.seed)
    began = time.time()
    for done, result in enumerate(results(arguments, record.remaining(arguments.programs)), 1):
        if record.add(result):
            said = str(result["message"] or result["delegated"])[:300]
            print(f"seed {result['seed']}: {result['kind']}: {said}", flush=True)
        if done % 20 == 0 and path:
            record.write(path)
        if done % 50 == 0:
            rate, total = (time.time() - began) / done, record.totals["programs"]
            print(f"{total}/{arguments.programs} {rate:.2f} s each, {len(record.finds)} finds", flush=True)
    if path:
        record.write(path)
    print(
        json.dumps({k: v for k, v in record.to_json().items() if k not in ("finds", "earlier", "inductor")}, indent=1)
    )
    return 1 if record.finds else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record", help="JSON file for totals and finds")
    parser.add_argument("--resume", action="store_true", help="go on where the record ends")
    parser.add_argument("--shrink", action="store_true", help="make each find small")
    parser.add_argument("--show", action="store_true", help="print the first program")
    parser.add_argument("--backend", default="halide_backend", help="another cpu_backend, to compare")
    parser.add_argument("--kernels", help="folder that gets the text of every kernel")
    arguments = parser.parse_args()
    if arguments.resume and not arguments.record:
        parser.error("--resume needs the --record to go on from")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
