from __future__ import annotations

import platform

import halide as hl
import pytest
from llvmlite import binding as llvm

from halide_backend.build import target as module
from halide_backend.build.target import BASE_FEATURES, Target, halide_features
from halide_backend.errors import UnsupportedVersionError

SKYLAKE = [
    "sse4.1",
    "avx",
    "f16c",
    "fma",
    "avx2",
    "avx512f",
    "avx512cd",
    "avx512vl",
    "avx512bw",
    "avx512dq",
]
ZEN4 = [
    *SKYLAKE,
    *["avx512ifma", "avx512vbmi", "avx512bf16", "avx512vnni", "avx512bitalg", "avx512vbmi2"],
]


def words(halide_target: str) -> set[str]:
    return set(halide_target.split("-"))


def test_host_is_what_halide_finds() -> None:
    mine = words(Target.host().halide) - set(BASE_FEATURES)
    # Halide names a Sapphire Rapids by two features and means a tile unit that may be hidden.
    assert mine == words(hl.get_host_target().to_string()) - {"avx512_sapphirerapids"}


@pytest.mark.parametrize("target", [Target.host(), *map(Target.level, ("sse41", "avx2", "avx512"))])
def test_string_is_complete_and_canonical(target: Target) -> None:
    assert target.halide == hl.Target(target.halide).to_string()
    assert "host" not in target.halide
    assert words(target.halide) >= set(BASE_FEATURES)


def test_host_names_the_processor_and_every_feature() -> None:
    host = Target.host()
    assert host.cpu == llvm.get_host_cpu_name()
    assert {word[1:] for word in host.features.split(",")} == set(llvm.get_host_cpu_features())


def test_json_round_trip() -> None:
    for target in (Target.host(), Target.level("avx2")):
        assert Target.from_json(target.to_json()) == target


@pytest.mark.parametrize(
    ("llvm_features", "cpu", "expected"),
    [
        (["sse4.1"], "penryn", "sse41"),
        (["sse4.1", "avx"], "sandybridge", "avx sse41"),
        (SKYLAKE[:5], "haswell", "avx avx2 f16c fma sse41"),
        (SKYLAKE, "skylake-avx512", "avx avx2 avx512 avx512_skylake f16c fma sse41"),
        # A virtual machine that hides AVX-512 F hides all that builds on it.
        ([f for f in ZEN4 if f != "avx512f"], "znver4", "avx avx2 f16c fma sse41"),
        (
            ZEN4,
            "znver4",
            "avx avx2 avx512 avx512_cannonlake avx512_skylake avx512_zen4 f16c fma sse41",
        ),
        (
            [*ZEN4, "avxvnni"],
            "znver5",
            "avx avx2 avx512 avx512_cannonlake avx512_skylake avx512_zen4 avx512_zen5 avxvnni f16c fma sse41",
        ),
    ],
)
def test_features_by_processor(llvm_features: list[str], cpu: str, expected: str) -> None:
    assert halide_features(set(llvm_features), cpu) == tuple(expected.split())


def test_unknown_level_names_the_levels() -> None:
    with pytest.raises(ValueError, match="sse41, avx2, avx512"):
        Target.level("avx1024")


def test_other_architecture_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    module._host.cache_clear()
    try:
        with pytest.raises(UnsupportedVersionError, match="'aarch64'"):
            Target.host()
    finally:
        module._host.cache_clear()


def test_runs_here() -> None:
    Target.host().check_runs_here()
    Target.level("sse41").check_runs_here()


def test_code_for_a_larger_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Target("x86-64-linux-avx-sse41", "sandybridge", "+sse4.1,+avx,-avx2")
    monkeypatch.setattr(module, "_host", lambda: small)
    with pytest.raises(UnsupportedVersionError, match=r"lacks .*avx2.*fma") as caught:
        Target.level("avx2").check_runs_here()
    assert "option target" in caught.value.cure
