"""The long run: many seeds in several processes, with a record of everything that was found."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path

from .workers import results


def main() -> int:
    arguments = _arguments()
    if arguments.show:
        from .generator import program_of_seed

        print(program_of_seed(arguments.seed))
    started = time.time()
    record: dict[str, object] = {"command": " ".join(sys.argv[1:]), "seed": arguments.seed}
    totals: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    finds: list[dict[str, object]] = []
    for result in results(arguments):
        totals["programs"] += 1
        totals[str(result["kind"])] += 1
        for name in ("native", "elements", "unproved"):
            totals[name] += int(result.get(name, 0))  # type: ignore[call-overload]
        reasons.update(result.get("delegated", {}))  # type: ignore[arg-type]
        if result["kind"] == "equal" and result["delegated"]:
            result["kind"] = "delegated"
            totals["delegated"] += 1
        if result["kind"] not in ("equal", "eager"):
            finds.append(result)
            print(
                f"seed {result['seed']}: {result['kind']}: {str(result['message'] or result['delegated'])[:300]}",
                flush=True,
            )
        if totals["programs"] % 50 == 0:
            rate = (time.time() - started) / totals["programs"]
            print(f"{totals['programs']}/{arguments.programs} {rate:.2f} s each, {len(finds)} finds", flush=True)
        record |= {
            "seconds": round(time.time() - started, 1),
            "totals": dict(totals),
            "delegated": dict(reasons),
            "finds": finds,
        }
        if arguments.record and totals["programs"] % 20 == 0:
            Path(arguments.record).write_text(json.dumps(record, indent=1))
    if arguments.record:
        Path(arguments.record).write_text(json.dumps(record, indent=1))
    print(json.dumps({k: v for k, v in record.items() if k != "finds"}, indent=1))
    return 1 if finds else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="seed of the first program")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--record", help="JSON file for totals and finds")
    parser.add_argument("--shrink", action="store_true", help="make each find small")
    parser.add_argument("--show", action="store_true", help="print the first program")
    parser.add_argument("--backend", default="halide_backend", help="another cpu_backend, to compare")
    parser.add_argument("--kernels", help="folder that gets the text of every kernel")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
