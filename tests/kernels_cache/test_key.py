"""K9: equal meaning gives an equal digest anywhere; any difference gives another one."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

import pytest
from crew import ROOT
from hypothesis import given, settings, strategies

from kernels_cache import InvalidKey, Key

Figure = Callable[[str, str, str], None]
FIELDS = {
    "text": "def algorithm():\n    ...\n",
    "schedule": [{"step": "vectorize", "var": "x", "factor": 8}, {"step": "parallel", "var": "y"}],
    "target": "x86-64-linux-avx-avx2-f16c-fma-sse41-strict_float",
    "libhalide": "7a1672aa",
    "llvmlite": "0.50.0",
    "llvm": "22.1.0",
    "torch": "2.13.0",
    "abi": 1,
    "options": {"fast": False, "tolerance": 0.5, "threads": None, "deep": {"er": ["", 0]}},
}
SCRIPT = """
import json, sys
from kernels_cache import Key
fields = json.load(sys.stdin)
set_order = {name: fields[name] for name in {*fields}}  # another order with every hash seed
print(Key("cpu-object", set_order).digest)
"""


def test_the_digest_is_sha256_of_the_documented_text() -> None:
    """Worked out here from the format page, not from the code."""
    document = {"fields": {"a": [1, "\xe9"], "b": None}, "kind": "k", "schema": 1}
    text = '{"fields":{"a":[1,"\\u00e9"],"b":null},"kind":"k","schema":1}'
    assert json.loads(text) == document
    key = Key("k", {"b": None, "a": (1, "\xe9")})
    assert key.digest == hashlib.sha256(text.encode()).hexdigest()
    assert key.fields == document["fields"]


@pytest.mark.parametrize("seeds", [10, pytest.param(50, marks=pytest.mark.long)])
def test_hash_seeds_directories_and_users(tmp_path: Path, figure: Figure, seeds: int) -> None:
    """Another hash seed, working directory, HOME, user name and user id in every process."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    digests = set()
    for seed in range(seeds):
        place = tmp_path / str(seed)
        place.mkdir()
        environment = {"PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
        environment |= {"HOME": str(place), "USER": f"user{seed}"}
        done = subprocess.run(
            [sys.executable, str(script)],
            input=json.dumps(FIELDS),
            capture_output=True,
            text=True,
            cwd=place,
            env=environment,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert digests == {Key("cpu-object", FIELDS).digest}
    figure("K9.1", f"{seeds} PYTHONHASHSEEDs, users, directories", f"{len(digests)} digest")


def _paths(value: object, place: tuple = ()) -> list[tuple]:
    if isinstance(value, dict) and value:
        return [path for name in value for path in _paths(value[name], (*place, name))]
    if isinstance(value, list) and value:
        return [path for at in range(len(value)) for path in _paths(value[at], (*place, at))]
    return [place]


def test_flipping_any_field_changes_the_digest(figure: Figure) -> None:
    digests = {Key("cpu-object", FIELDS).digest, Key("cubin", FIELDS).digest}
    tried = 2
    for path in _paths(FIELDS):
        for other in ("another", 17, 1.0, True, None, [], {}, [None]):
            copy = json.loads(json.dumps(FIELDS))
            at = copy
            for name in path[:-1]:
                at = at[name]
            if json.dumps(at[path[-1]]) == json.dumps(other):
                continue
            at[path[-1]] = other
            digests.add(Key("cpu-object", copy).digest)
            tried += 1
    for name in FIELDS:
        digests.add(Key("cpu-object", {n: v for n, v in FIELDS.items() if n != name}).digest)
        digests.add(Key("cpu-object", {**FIELDS, f"{name}_": FIELDS[name]}).digest)
        tried += 2
    assert len(digests) == tried
    figure("K9.2", "each field flipped, removed, renamed", f"{tried} of {tried} digests differ")


@pytest.mark.parametrize("programs", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_random_programs_do_not_collide(figure: Figure, programs: int) -> None:
    choose, texts = random.Random(3), {}
    for number in range(programs):
        # Near misses on purpose: few values, so that many programs differ in one place only.
        fields = {
            "number": number // 8,
            "text": [choose.choice("+-*/") for _ in range(choose.randrange(4))],
            "abi": choose.choice([0, 0.0, False, None, "", "0"]),
        }
        text = json.dumps(fields)
        assert texts.setdefault(Key("k", fields).digest, text) == text
    assert len(texts) == len(set(texts.values()))
    assert len(texts) > programs // 2
    figure("K9.3", f"{programs} random programs", f"{len(texts)} different ones, 0 collisions")


class Level(IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (float("nan"), "the float nan"),
        (float("-inf"), "the float -inf"),
        (b"bytes", "builtins.bytes"),
        ({1, 2}, "builtins.set"),
        (object(), "builtins.object"),
        (Level.ONE, "Level"),
        (Text("a"), "Text"),
        (1j, "builtins.complex"),
        (2**64, "beyond 64 bits"),
        ({1: "a"}, "the name 1"),
        ({None: "a"}, "the name None"),
        (Path("/tmp"), "Path"),
    ],
)
def test_what_is_not_plain_json_is_refused(value: object, reason: str) -> None:
    for place, wrapped in (("[0]", [value]), (".a", {"a": value}), ("", value)):
        with pytest.raises(InvalidKey) as raised:
            Key("k", {"options": wrapped})
        assert reason in raised.value.what
        assert f"options{place}" in raised.value.where


def test_deep_and_circular_fields_are_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(InvalidKey, match="nested deeper than 64"):
        Key("k", {"options": circle})
    deep: object = 1
    for _ in range(62):
        deep = [deep]
    assert len(Key("k", {"options": deep}).digest) == 64


@pytest.mark.parametrize("name", ["path", "pid", "device_index", "mtime", "user", "Host", "cwd"])
def test_fields_that_must_never_be_in_a_key(name: str) -> None:
    with pytest.raises(InvalidKey, match="differs between two runs") as raised:
        Key("k", {name: "a"})
    assert name in raised.value.where


@pytest.mark.parametrize("target", ["host", "host-cuda"])
def test_the_target_is_resolved(target: str) -> None:
    with pytest.raises(InvalidKey, match="another processor on every machine"):
        Key("k", {"target": target})
    assert Key("k", {"target": "hostile-linux"}).fields == {"target": "hostile-linux"}


@pytest.mark.parametrize("kind", ["", "CPU", "a/b", "..", "a" * 65, "a\n", None, 1])
def test_a_kind_is_a_plain_name(kind: object) -> None:
    with pytest.raises(InvalidKey, match="not a lower-case name"):
        Key(kind, {})


def test_fields_that_are_no_mapping() -> None:
    with pytest.raises(InvalidKey, match="mapping of names to values"):
        Key("k", [1])


def test_a_key_is_a_value_of_its_own() -> None:
    steps = ["a"]
    fields = {"schedule": steps}
    key = Key("k", fields)
    steps.append("b")
    fields["more"] = 1
    assert key.fields == {"schedule": ["a"]}
    assert key == Key("k", {"schedule": ["a"]}) != Key("k", {"schedule": ["a", "b"]})
    assert len({key, Key("k", {"schedule": ("a",)})}) == 1
    assert pickle.loads(pickle.dumps(key)) == key  # handed to worker processes
    with pytest.raises(AttributeError):
        key.kind = "other"


PLAIN = strategies.recursive(
    strategies.none()
    | strategies.booleans()
    | strategies.integers(-(2**63), 2**63)
    | strategies.floats(allow_nan=False, allow_infinity=False)
    | strategies.text(),
    lambda inner: strategies.lists(inner, max_size=4) | strategies.dictionaries(strategies.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(PLAIN, strategies.randoms(use_true_random=False))
def test_order_of_names_never_matters(value: object, choose: random.Random) -> None:
    def shuffled(value: object) -> object:
        if isinstance(value, list):
            return tuple(shuffled(item) for item in value)
        if isinstance(value, dict):
            items = [(name, shuffled(item)) for name, item in value.items()]
            choose.shuffle(items)
            return dict(items)
        return value

    key = Key("k", {"value": value})
    assert Key("k", {"value": shuffled(value)}).digest == key.digest
    # The fields stored beside an entry give the key again after a journey through JSON.
    assert Key("k", json.loads(json.dumps(key.fields))).digest == key.digest


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_id(tmp_path: Path) -> None:
    from crew import scenario

    assert scenario("keys", "digest_as", uid=12345, fields=FIELDS) == [
        12345,
        Key("cpu-object", FIELDS).digest,
    ]
