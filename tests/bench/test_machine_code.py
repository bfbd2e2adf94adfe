"""benchmarks/machine_code.py: names do not change a digest, whatever else is in the code does."""

from __future__ import annotations

import importlib.util
import json
import re
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from halide_backend.build.compiler import compile_kernel
from halide_backend.build.target import Target

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "machine_code.py"

KERNEL = """\
import halide as hl
from halide_backend.kernel_library import memory
from halide_backend.kernel_library.arguments import Input, Output

ARGUMENTS = (
    Input(name='{source}', dtype='float32', extent=1024),
    Output(name='{result}', dtype='float32', dims=((1024, 1),), offset=0, extent=0),
)


def pipeline():
    x = hl.Var("{axis}")
    source = memory.source(ARGUMENTS[0])
    result = hl.Func("{result}")
    # Vectors of different numbers, and one that is alike in all lanes.
    result[x] = source[x] * hl.cast(hl.Float(32), x % 16) + hl.f32({number})
    memory.target(result, [x], [(1024, 1)])
    result.vectorize(x, 16, hl.TailStrategy.GuardWithIf).{how}
    return [source], [result]
"""
PLAIN = {"source": "in_ptr0", "result": "out_ptr0", "axis": "x0", "number": 1.5, "how": "parallel(x)"}
RENAMED = {**PLAIN, "source": "a_much_longer_name_of_an_operand", "result": "what_it_makes", "axis": "column"}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    specification = importlib.util.spec_from_file_location("machine_code", SCRIPT)
    assert specification and specification.loader
    module = importlib.util.module_from_spec(specification)
    sys.modules["machine_code"] = module
    specification.loader.exec_module(module)
    return module


def digest(script: ModuleType, names: dict[str, Any], entry: str = "kernel") -> str:
    kernel = compile_kernel(KERNEL.format(**names), Target.named("avx512"), entry)
    return str(script.object_digest(kernel.object, with_tables=True))


def test_names_in_an_object_do_not_matter(script: ModuleType) -> None:
    assert digest(script, PLAIN) == digest(script, RENAMED) == digest(script, PLAIN, "another_entry_point")


@pytest.mark.parametrize("change", [{"number": 1.25}, {"how": "unroll(x, 2)"}], ids=str)
def test_what_an_object_computes_matters(script: ModuleType, change: dict[str, Any]) -> None:
    assert digest(script, PLAIN) != digest(script, {**PLAIN, **change})


def test_the_elements_of_a_vector_constant_matter(script: ModuleType) -> None:
    image = compile_kernel(KERNEL.format(**PLAIN), Target.named("avx512"), "kernel").object
    place = image.index(struct.pack("<16f", *range(16)))
    changed = image[: place + 4] + struct.pack("<f", 7) + image[place + 8 :]
    assert script.object_digest(image, with_tables=True) != script.object_digest(changed, with_tables=True)


PTX = """\
.visible .entry kernel_out_ptr0(\t\t// @kernel
\t.param .u64 .ptr .align 1 kernel_param_0,
\t.param .u32 kernel_param_1
)
.maxntid 128, 1, 1
{
\t.reg .b32 warp, lane; .reg .pred kept;
\t.reg .b64 %rd<3>;
\tld.param.u64 %rd1, [kernel_param_0];
\tadd.s32 lane, warp, 4; setp.ge.u32 kept, lane, 4;
\t@kept bra $L__BB0_2;
$L__BB0_2:
\t{ @kept bra SKIPPED_7; st.global.b32 [%rd1], lane;
\tSKIPPED_7: }
\tret;
}
"""


def test_names_in_ptx_do_not_matter(script: ModuleType) -> None:
    names = {"kernel_out_ptr0": "k2", "kernel_param": "p", "warp": "w", "lane": "position", "kept": "stored"}
    renamed = PTX.replace("$L__BB0_2", "$L_later").replace("SKIPPED_7", "BEYOND_12").replace("// @kernel", "")
    for name, other in names.items():
        renamed = renamed.replace(name, other)
    assert script.plain_ptx(renamed) == script.plain_ptx(PTX)
    assert not set(re.findall(r"\w+", script.plain_ptx(PTX))) & {"warp", "kept", "kernel_out_ptr0", "kernel_param_0"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("warp, 4;", "lane, 4;"), ("warp, 4;", "warp, 8;"), ("128", "256"), ("[kernel_param_0]", "[kernel_param_1]")],
)
def test_what_ptx_computes_matters(script: ModuleType, old: str, new: str) -> None:
    assert old in PTX
    assert script.plain_ptx(PTX) != script.plain_ptx(PTX.replace(old, new))


def test_two_recordings_are_compared(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(script.SIZES, "cpu", {"small": (8, 6)})
    monkeypatch.setitem(script.SIZES, "cuda", {"odd": (16, 8)})
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    for file in (first, second):
        monkeypatch.setattr(sys, "argv", ["machine_code.py", "record", str(file), "--only", "/silu_8x6", "/silu_16x8"])
        assert script.main() == 0
    recorded = json.loads(first.read_text())
    assert recorded["versions"]["torch"] == torch.__version__
    assert sorted(recorded["kernels"]) == [
        f"{case}_{dtype}/0" for case in ("cpu/silu_8x6", "cuda/silu_16x8") for dtype in ("bfloat16", "float32")
    ]
    monkeypatch.setattr(sys, "argv", ["machine_code.py", "compare", str(first), str(second)])
    assert script.main() == 0
    recorded["kernels"]["cuda/silu_16x8_float32/0"]["ptx"] = "another"
    second.write_text(json.dumps(recorded))
    capsys.readouterr()
    assert script.main() == 1
    told = capsys.readouterr().out
    assert "cuda/silu_16x8_float32/0" in told
    assert "3 kernels are the same, 1 differ" in told
