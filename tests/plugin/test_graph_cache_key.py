"""Inductor's graph cache gives a graph to another process only if the same code would come out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from halide_backend import cache_key, config, selection

Run = Callable[..., dict[str, Any]]

#: Compiles one graph; reports whether Inductor's graph cache had it.
SCRIPT = """
import torch
from torch._dynamo.utils import counters
x = torch.arange(100.0)
with torch._inductor.config.patch(fx_graph_cache=True):
    y = torch.compile(lambda x: x.sin() * 2, **{how})(x)
torch.testing.assert_close(y, x.sin() * 2)
hits, misses = (counters["inductor"][f"fxgraph_cache_{{kind}}"] for kind in ("hit", "miss"))
report(hits=hits, misses=misses)
"""
PLAIN = SCRIPT.format(how={"backend": "halide_backend"})

#: Another version of Halide, as far as anybody can tell without importing it.
OTHER_HALIDE = """
import importlib.metadata as metadata
true_version = metadata.version
metadata.version = lambda name: "21.9.9" if name == "halide" else true_version(name)
"""


@pytest.fixture
def graph(run: Run) -> Callable[..., str]:
    """Runs a script that compiles a graph and returns "hit" or "miss"."""

    def compile_graph(script: str, **environment: Any) -> str:
        found = run(script, TORCHINDUCTOR_AUTOGRAD_CACHE="0", **environment)
        assert found["hits"] + found["misses"] == 1, found["log"]
        return "hit" if found["hits"] else "miss"

    return compile_graph


def test_another_process_hits_until_something_differs(graph: Callable[..., str], copied: Callable[..., Path]) -> None:
    assert graph(PLAIN) == "miss"
    assert graph(PLAIN) == "hit"
    assert graph(PLAIN, HALIDE_BACKEND_COMPILE_TIME_LIMIT="59") == "miss"
    by_option = {"backend": "halide_backend", "options": {"compile_time_limit": 59.0}}
    assert graph(SCRIPT.format(how=by_option)) == "hit"
    assert graph(PLAIN, HALIDE_BACKEND_TARGET="avx2") == "miss"
    assert graph(OTHER_HALIDE + PLAIN) == "miss"
    source = Path(cache_key.__file__).read_text()
    assert graph(PLAIN, package=copied(cache_key=source + "# changed\n")) == "miss"


def test_every_option_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "is_selected", lambda kind: True)
    others = {
        "compile_workers": 3,
        "compile_time_limit": 5.0,
        "compile_memory_limit_mb": 1024,
        "target": "sse41",
        "aot_targets": "sse41,avx2",
        "kept_memory_mb": 0,
        "product_library": "aten",
        "attention": "aten",
        "bfloat16_products": "float32",
        "winograd": False,
        "delegate": False,
        "schedule_files": ("some.toml",),
        "schedule_folder": "elsewhere",
        "schedule_function": "module:function",
        "check_schedules": False,
        "tune": "never",
        "tune_seconds": 1.0,
    }
    assert set(others) == set(config.get_config_copy())
    keys = [config.save_config_portable(ignore_private_configs=False)]
    for name, value in others.items():
        with config.patch({name: value}):
            keys.append(config.save_config_portable(ignore_private_configs=False))
    assert len({str(key) for key in keys}) == len(others) + 1


def test_versions_sources_and_machine_take_part() -> None:
    entries = cache_key.entries("")
    assert {"_halide", "_llvmlite", "_llvm", "_abi", "_sources", "_target"} <= set(entries)
    assert entries["_halide"].startswith("21.") and entries["_llvmlite"].startswith("0.50.")
    assert all(isinstance(value, str) and value for value in entries.values())
    for target in ("", "avx2"):
        resolved = cache_key.entries(target)["_target"]
        assert resolved.startswith("x86-64-linux-") and "host" not in resolved
    assert cache_key.entries("avx2")["_target"] != cache_key.entries("sse41")["_target"]
    assert "-march" not in entries["_target"]


def test_entries_are_no_options() -> None:
    with pytest.raises(AttributeError):
        config._target = "x"  # type: ignore[attr-defined]


def test_whoever_uses_another_backend_keeps_his_cache(run: Run) -> None:
    """Neither our options nor our sources or versions are in the key of a C++ or Triton graph."""
    found = run("""
        import torch, torch._inductor.compile_fx, halide_backend
        from torch._inductor.codegen.common import custom_backend_codegen_configs as configs
        def key():
            return configs["halide_backend"].save_config_portable(ignore_private_configs=False)
        halide_backend.config.compile_workers = 7
        unused = key()
        with torch._inductor.config.patch(cpu_backend="halide_backend"):
            used = key()
        with torch._inductor.config.patch(cuda_backend="halide_backend"):
            used_for_cuda = key()
        report(unused=unused, used=used, same=used == used_for_cuda)
    """)
    assert found["unused"] == {}
    assert found["used"]["compile_workers"] == 7 and found["same"]
