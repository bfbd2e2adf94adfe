"""Numbers by which programs and settings can be compared: what a cost model and a warm start know of them."""

from __future__ import annotations

import math

from halide_backend.program.dtypes import ELEMENT
from halide_backend.program.loop_program import Axis, Load, LoopProgram, Reduction, Scan
from halide_backend.program.operation_names import MATHEMATICS
from halide_backend.schedule.knobs import Setting
from halide_backend.tune.space import Settings
from halide_backend.tune.typical_sizes import operand_bytes

Features = dict[str, float]


def program_features(program: LoopProgram) -> Features:
    """Of a program: logarithms of extents and bytes, and how many values of each kind it has."""
    reduced = [axis for value in program.values for axis in _reduced(value.attribute)]
    axes = program.axes
    kinds = [type(value.attribute) for value in program.values]
    return {
        "points": math.log2(1 + math.prod(axis.hint for axis in axes)),
        "innermost": math.log2(1 + axes[-1].hint) if axes else 0.0,
        "outermost": math.log2(1 + axes[0].hint) if axes else 0.0,
        "axes": float(len(axes)),
        "reduced": math.log2(1 + math.prod(axis.hint for axis in reduced)) if reduced else 0.0,
        "bytes": math.log2(1 + operand_bytes(program)),
        "narrowest": float(min((ELEMENT[b.dtype][1] for b in (*program.inputs, *program.outputs)), default=0)),
        "loads": float(kinds.count(Load)),
        "reductions": float(kinds.count(Reduction)),
        "scans": float(kinds.count(Scan)),
        "stores": float(len(program.stores)),
        "values": float(len(program.values)),
        "functions": float(sum(value.operation in MATHEMATICS for value in program.values)),
    }


def setting_features(chosen: Settings, rules: Settings = ()) -> Features:
    """Of what all knobs are set to: numbers by their logarithms, words as a feature each; and of how far each is from
    what the rules choose, where they know it, because the gain is 1 there in every program.

    Funcs have other names in other programs, so that their knobs are averages over a kernel's Funcs.
    """
    found: dict[str, list[float]] = {}
    known = dict(rules)
    for key, setting in chosen:
        knob = key.partition("@")[0]
        if isinstance(setting, str):
            found.setdefault(f"{knob} = {setting}", []).append(1.0)
        else:
            found.setdefault(knob, []).append(_number(setting))
        if (rule := known.get(key)) is not None:
            found.setdefault(f"{knob} from the rule's", []).append(_departure(setting, rule))
    departing = sum(known.get(key, setting) != setting for key, setting in chosen)
    return {"departing": float(departing)} | {name: sum(values) / len(values) for name, values in found.items()}


def coordinates(chosen: Settings) -> Features:
    """Of what all knobs are set to: a number for each knob, the same for all settings of one program; a word has a
    coordinate of its own."""
    return {
        f"{key} = {setting}" if isinstance(setting, str) else key: 0.0 if isinstance(setting, str) else _number(setting)
        for key, setting in chosen
    }


def distance(one: Features, other: Features) -> float:
    """How different two programs are; 0 if they have the same features."""
    return sum(abs(one.get(name, 0.0) - other.get(name, 0.0)) for name in one.keys() | other.keys())


def _number(setting: int | bool) -> float:
    return float(setting) if isinstance(setting, bool) else math.log2(1 + setting)


def _departure(setting: Setting, rule: Setting) -> float:
    if isinstance(setting, str) or isinstance(rule, str):
        return float(setting != rule)
    return _number(setting) - _number(rule)


def _reduced(attribute: object) -> tuple[Axis, ...]:
    return attribute.axes if isinstance(attribute, Reduction | Scan) else ()
