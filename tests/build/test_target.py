from __future__ import annotations

import platform
import re
from pathlib import Path

import halide as hl
import pytest
from llvmlite import binding as llvm

from halide_backend.build import target as module
from halide_backend.build.llvm import code_generation
from halide_backend.build.named_targets import NAMED_TARGETS
from halide_backend.build.target import BASE_FEATURES, Target, halide_features, processor_target
from halide_backend.errors import TargetError, UnsupportedVersionError

#: What LLVM calls the features of five processors as far as kernels can use them: bare metal, every unit enabled.
HASWELL = frozenset(
    (
        *("64bit", "avx", "avx2", "bmi", "bmi2", "cmov", "crc32", "cx16", "cx8", "f16c", "fma", "fxsr", "lzcnt"),
        *("mmx", "movbe", "popcnt", "sahf", "sse", "sse2", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave"),
    )
)
SKYLAKE = HASWELL | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
ICE_LAKE = SKYLAKE | {
    *("avx512bitalg", "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512vnni", "avx512vpopcntdq"),
    *("gfni", "vaes", "vpclmulqdq"),
}
SAPPHIRE_RAPIDS = ICE_LAKE | {"amx-bf16", "amx-int8", "amx-tile", "avx512bf16", "avx512fp16", "avxvnni"}
GRANITE_RAPIDS = SAPPHIRE_RAPIDS | {"amx-fp16"}
ZEN4 = ICE_LAKE | {"avx512bf16", "clzero", "sse4a"}
ZEN5 = ZEN4 | {"avxvnni", "avx512vp2intersect"}

#: Halide feature -> what /proc/cpuinfo shows of a processor that can run what Halide uses with it.
FLAGS = {
    "sse41": "sse4_1",
    "avx": "avx",
    "f16c": "f16c",
    "fma": "fma",
    "avx2": "avx2",
    "avx512": "avx512f avx512cd",
    "avx512_skylake": "avx512vl avx512bw avx512dq",
    "avx512_cannonlake": "avx512ifma avx512vbmi",
    "avx512_zen4": "avx512_bf16 avx512_vnni avx512_bitalg avx512_vbmi2",
    "avxvnni": "avx_vnni",
}

#: What Halide takes a feature of its own to include (complete_x86_target in its CodeGen_X86.cpp).
INCLUDES = {
    "avx512_sapphirerapids": ("avx512_zen4", "avxvnni"),
    "avx512_zen5": ("avx512_zen4", "avxvnni"),
    "avx512_zen4": ("avx512_cannonlake",),
    "avx512_cannonlake": ("avx512_skylake",),
    "avx512_skylake": ("avx512",),
    "avx512": ("avx2",),
    "avx2": ("avx", "f16c", "fma"),
    "avx": ("sse41",),
}

UP_TO_CANNONLAKE = "avx avx2 avx512 avx512_cannonlake avx512_skylake"


def words(halide_target: str) -> set[str]:
    return set(halide_target.split("-"))


def completed(features: set[str]) -> set[str]:
    """`features` and everything that Halide's code generator adds to them."""
    while added := {more for feature in features for more in INCLUDES.get(feature, ())} - features:
        features = features | added
    return features


def processor(name: str, features: frozenset[str]) -> Target:
    """The target of a processor that LLVM calls `name` and that has `features`, of all those LLVM knows."""
    known = {*llvm.get_host_cpu_features(), *features}
    return processor_target(name, {feature: feature in features for feature in known})


def test_host_is_what_linux_shows() -> None:
    shown = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    assert shown
    flags = set(shown[1].split())
    usable = {
        feature for feature in FLAGS if all(flags.issuperset(FLAGS[part].split()) for part in completed({feature}))
    }
    assert words(Target.host().halide) & set(FLAGS) == usable


def test_host_is_what_halide_finds() -> None:
    mine = words(Target.host().halide) & set(FLAGS)
    theirs = completed(words(hl.get_host_target().to_string())) & set(FLAGS)
    # Halide goes by the model number on AMD, where a virtual machine may hide a feature (the test above); on Intel it
    # finds avx512_zen4 only in a Sapphire Rapids, and only one that shows AVX-VNNI.
    hidden = theirs - mine
    assert not hidden or "znver" in Target.host().cpu
    assert mine - theirs <= {"avx512_zen4"}


@pytest.mark.parametrize("target", [Target.host(), *map(Target.named, ("sse41", "avx2", "avx512"))])
def test_string_is_complete_and_canonical(target: Target) -> None:
    assert target.halide == hl.Target(target.halide).to_string()
    assert "host" not in target.halide
    assert words(target.halide) >= set(BASE_FEATURES)


def test_host_names_the_processor_and_every_feature() -> None:
    host, found = Target.host(), llvm.get_host_cpu_features()
    assert host == processor_target(llvm.get_host_cpu_name(), found)
    # Two operations on halves would be rounded once (tests/capture/test_precision_casts.py).
    used = {name: has and name != "avx512fp16" for name, has in found.items()}
    assert set(host.features.split(",")) == {("+" if has else "-") + name for name, has in used.items()}


@pytest.mark.parametrize(
    ("cpu", "vendor"), [("znver5", "amd"), ("btver2", "amd"), ("sapphirerapids", "intel"), ("x86-64-v4", "")]
)
def test_the_vendor_of_a_processor(cpu: str, vendor: str) -> None:
    assert Target("x86-64-linux", cpu, "").vendor == vendor


def test_json_round_trip() -> None:
    for target in (Target.host(), Target.named("avx2")):
        assert Target.from_json(target.to_json()) == target


@pytest.mark.parametrize(
    ("llvm_features", "cpu", "expected"),
    [
        ({"sse4.1"}, "penryn", "sse41"),
        ({"sse4.1", "avx"}, "sandybridge", "avx sse41"),
        (HASWELL, "haswell", "avx avx2 f16c fma sse41"),
        (SKYLAKE, "skylake-avx512", "avx avx2 avx512 avx512_skylake f16c fma sse41"),
        # VNNI without BF16: Halide has no name for it.
        (ICE_LAKE, "icelake-server", f"{UP_TO_CANNONLAKE} f16c fma sse41"),
        (SAPPHIRE_RAPIDS, "sapphirerapids", f"{UP_TO_CANNONLAKE} avx512_zen4 avxvnni f16c fma sse41"),
        (GRANITE_RAPIDS, "graniterapids", f"{UP_TO_CANNONLAKE} avx512_zen4 avxvnni f16c fma sse41"),
        (ZEN4, "znver4", f"{UP_TO_CANNONLAKE} avx512_zen4 f16c fma sse41"),
        (ZEN5, "znver5", f"{UP_TO_CANNONLAKE} avx512_zen4 avx512_zen5 avxvnni f16c fma sse41"),
        # A virtual machine that hides AVX-512 F hides all that builds on it.
        (ZEN4 - {"avx512f"}, "znver4", "avx avx2 f16c fma sse41"),
        (SAPPHIRE_RAPIDS - {"avx512bf16"}, "sapphirerapids", f"{UP_TO_CANNONLAKE} avxvnni f16c fma sse41"),
    ],
)
def test_features_by_processor(llvm_features: set[str], cpu: str, expected: str) -> None:
    assert halide_features(llvm_features, cpu) == tuple(expected.split())


@pytest.mark.parametrize(
    ("name", "features", "cpu"),
    [
        ("icelake-server", ICE_LAKE, "icelake-server"),
        ("rocketlake", ICE_LAKE, "rocketlake"),
        # Seen: a Sapphire Rapids behind a hypervisor that shows a Rocket Lake's model number.
        ("rocketlake", SAPPHIRE_RAPIDS, "sapphirerapids"),
        # LLVM's guess from the features of an Intel processor whose model number it does not know.
        ("icelake-client", GRANITE_RAPIDS, "sapphirerapids"),
        ("graniterapids", GRANITE_RAPIDS, "graniterapids"),
        ("znver4", ZEN4, "znver4"),
        ("znver5", ZEN5, "znver5"),
    ],
)
def test_name_fits_the_features(name: str, features: frozenset[str], cpu: str) -> None:
    target = processor(name, features)
    assert target.cpu == cpu
    assert target.halide == hl.Target(target.halide).to_string()
    assert (f"tune_{cpu}" in target.halide) == cpu.startswith("znver")


INSTRUCTIONS = """
target triple = "x86_64-unknown-linux-gnu"
declare <16 x i32> @llvm.x86.avx512.pmaddw.d.512(<32 x i16>, <32 x i16>)
define <32 x half> @fp16(<32 x half> %a, <32 x half> %b) {
  %sum = fadd <32 x half> %a, %b
  ret <32 x half> %sum
}
define <16 x bfloat> @bf16(<16 x float> %a) {
  %rounded = fptrunc <16 x float> %a to <16 x bfloat>
  ret <16 x bfloat> %rounded
}
define <16 x i32> @vnni(<16 x i32> %sum, <32 x i16> %a, <32 x i16> %b) {
  %pairs = call <16 x i32> @llvm.x86.avx512.pmaddw.d.512(<32 x i16> %a, <32 x i16> %b)
  %total = add <16 x i32> %sum, %pairs
  ret <16 x i32> %total
}
"""


@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [
        ("skylake-avx512", SKYLAKE, set()),
        ("icelake-server", ICE_LAKE, {"vpdpwssd"}),
        ("sapphirerapids", SAPPHIRE_RAPIDS, {"vpdpwssd", "vcvtneps2bf16"}),
        ("rocketlake", SAPPHIRE_RAPIDS, {"vpdpwssd", "vcvtneps2bf16"}),
        ("graniterapids", GRANITE_RAPIDS, {"vpdpwssd", "vcvtneps2bf16"}),
        ("znver4", ZEN4, {"vpdpwssd", "vcvtneps2bf16"}),
        ("znver5", ZEN5, {"vpdpwssd", "vcvtneps2bf16"}),
        # The name alone brings nothing in: virtual machines hide features.
        ("graniterapids", ICE_LAKE, {"vpdpwssd"}),
        ("graniterapids", SKYLAKE, set()),
        ("znver5", SKYLAKE, set()),
    ],
)
def test_features_alone_decide_the_instructions(name: str, features: frozenset[str], expected: set[str]) -> None:
    machine = code_generation._machine(processor(name, features), "x86_64-unknown-linux-gnu")
    code = machine.emit_assembly(llvm.parse_assembly(INSTRUCTIONS))
    assert set(re.findall(r"\b(vaddph|vcvtneps2bf16|vpdpwssd)\b", code)) == expected


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(TargetError, match="there is no target 'avx1024'") as caught:
        Target.named("avx1024")
    assert "sse41, avx2, avx512" in caught.value.cure


def test_named_targets_require_all_that_llvm_may_use() -> None:
    """The features by which LLVM tells the levels of x86-64 apart."""
    assert Target.named("avx2").requires() - Target.named("sse41").requires() == HASWELL & {
        *("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
    }
    assert Target.named("avx512").requires() - Target.named("avx2").requires() == SKYLAKE - HASWELL
    assert Target.named("avx512").requires() <= SKYLAKE
    for name, named in NAMED_TARGETS.items():
        assert Target.named(name).requires() == set(named.llvm)


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
    Target.named("sse41").check_runs_here()


def test_code_for_a_larger_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Target("x86-64-linux-avx-sse41", "sandybridge", "+sse4.1,+avx,-avx2")
    monkeypatch.setattr(module, "_host", lambda: small)
    with pytest.raises(UnsupportedVersionError, match=r"lacks .*avx2.*fma") as caught:
        Target.named("avx2").check_runs_here()
    assert "option target" in caught.value.cure
