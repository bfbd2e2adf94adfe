"""Break kernels_cache in many places, one at a time, and count how often a test notices.

    python tests/kernels_cache/mutants.py --count 40 --seed 1 --figures docs/design/kernels-cache.md

Each mutant is a copy of the package with one comparison, constant, operator, condition or
statement changed; the quick tests run against the copy. Prints a line per mutant and, last, JSON.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import figures

HERE = Path(__file__).parent
PACKAGE = HERE.parents[1] / "kernels_cache"
# In the order in which they notice most, soonest; races and long runs find nothing more here.
QUICK = ["entry", "corruption", "bounds", "key", "names", "explanation", "rights", "bundle", "hostile_bundles"]
QUICK += ["safety", "model", "crash", "trouble", "races"]
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}


def _places(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (number of the node, what to do to it)."""
    types: set[int] = set()  # never run, so no test could notice
    for node in ast.walk(tree):
        for name in ("annotation", "returns"):
            if isinstance(note := getattr(node, name, None), ast.AST):
                types |= {id(inside) for inside in ast.walk(note)}
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in types:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
            yield number, "compare"
        elif isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            yield number, "operate"
        elif isinstance(node, ast.BoolOp):
            yield number, "and-or"
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield number, "not"
        elif isinstance(node, (ast.If, ast.IfExp)):
            yield number, "condition"
        elif isinstance(node, ast.Constant) and type(node.value) in (int, bool):
            yield number, "constant"
        elif isinstance(node, ast.Return) and ast.unparse(node) not in ("return", "return None", "return False"):
            yield number, "return"  # None for False means the same to who asks
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield number, "drop"


def _mutate(tree: ast.Module, number: int, how: str) -> str:
    """Change the node in place and return a line that says where and what."""
    node = next(node for at, node in enumerate(ast.walk(tree)) if at == number)
    before = ast.unparse(node).splitlines()[0]
    if how == "compare":
        assert isinstance(node, ast.Compare)
        node.ops[0] = COMPARISONS[type(node.ops[0])]()
    elif how == "operate":
        assert isinstance(node, ast.BinOp)
        node.op = OPERATORS[type(node.op)]()
    elif how == "and-or":
        assert isinstance(node, ast.BoolOp)
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif how == "not":
        assert isinstance(node, ast.UnaryOp)
        node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), node.operand)
    elif how == "condition":
        assert isinstance(node, (ast.If, ast.IfExp))
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif how == "constant":
        assert isinstance(node, ast.Constant)
        assert isinstance(node.value, int)
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif how == "return":
        assert isinstance(node, ast.Return)
        node.value = ast.Constant(None)
    else:
        assert isinstance(node, ast.Expr)
        node.value = ast.Constant(None)
    after = ast.unparse(ast.fix_missing_locations(node)).splitlines()[0]
    return f"line {getattr(node, 'lineno', 0)} {how}: {before[:60]}  ->  {after[:60]}"


def _noticed(path: Path, number: int, how: str, limit_s: float) -> tuple[str, str]:
    tree = copy.deepcopy(ast.parse(path.read_text(encoding="utf-8")))
    text = f"{path.name} {_mutate(tree, number, how)}"
    place = Path(tempfile.mkdtemp(prefix="mutant-"))
    try:
        shutil.copytree(PACKAGE, place / "kernels_cache")
        shutil.copytree(HERE, place / "tests" / "kernels_cache")
        (place / "kernels_cache" / path.name).write_text(ast.unparse(tree), encoding="utf-8")
        tests = [f"tests/kernels_cache/test_{name}.py" for name in QUICK]
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not long", *tests]
        environment = {**os.environ, "PYTHONPATH": str(place), "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(
            command,
            cwd=place,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.communicate()
            return text, "hung"
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if process.returncode == 0:
        return text, ""
    failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return text, failed[0].split(" - ")[0].split("/")[-1] if failed else "error"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--figures", type=Path, metavar="FILE", help="write the figure into FILE")
    parser.add_argument("--limit-s", type=float, default=1500.0, help="a mutant that hangs is noticed")
    options = parser.parse_args()
    possible = [
        (path, number, how)
        for path in sorted(PACKAGE.glob("*.py"))
        for number, how in _places(ast.parse(path.read_text(encoding="utf-8")))
    ]
    chosen = random.Random(options.seed).sample(possible, options.count)
    with ThreadPoolExecutor(options.processes) as pool:
        killed = 0
        for text, notice in pool.map(lambda one: _noticed(*one, options.limit_s), chosen):
            killed += bool(notice)
            print(f"{'noticed by ' + notice if notice else 'SURVIVED':50} {text}", flush=True)
    print(json.dumps({"tried": len(chosen), "killed": killed, "possible": len(possible)}))
    if options.figures:
        claim = f"{len(chosen)} of {len(possible)} possible mutants, drawn with seed {options.seed}"
        figures.write(options.figures, {"K19.2": (claim, f"{killed} noticed ({100 * killed / len(chosen):.0f} %)")})


if __name__ == "__main__":
    main()
