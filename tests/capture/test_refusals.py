"""Every refusal has a code of the tables, and programs that are refused have the code that fits them."""

from __future__ import annotations

import ast
import inspect
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend import config, errors
from halide_backend.capture.kernel_notes import KernelNotes
from halide_backend.errors import HalideBackendError, Unsupported, WorkerTimeout
from halide_backend.refusals import CODES, ERROR_CODES, FUSION_CODES, KERNEL_CODES, TEMPLATE_CODES, Refusal

PACKAGE = Path(halide_backend.__file__).parent


def raised(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of the class `name` in the package, and where it stands."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == name:
                yield f"{path.relative_to(PACKAGE)}:{node.lineno}", node


def codes_of(name: str, forwarding: str) -> dict[str, str]:
    """The literal code of every such call outside of the file `forwarding`, which passes codes on; by place."""
    found = {}
    for place, node in raised(name):
        if not place.startswith(forwarding):
            assert isinstance(node.args[0], ast.Constant), f"{place}: the code has to be literal"
            assert len(node.args) >= 2, f"{place}: a refusal needs a detail"
            found[place] = str(node.args[0].value)
    return found


def test_every_refusal_has_a_code_of_its_table() -> None:
    kernels, others = codes_of("Unsupported", "errors.py"), codes_of("Refusal", "errors.py")
    assert len(kernels) > 40
    assert {place: code for place, code in kernels.items() if code not in KERNEL_CODES} == {}
    assert {place: code for place, code in others.items() if code not in {*FUSION_CODES, *TEMPLATE_CODES}} == {}


def test_every_code_is_used() -> None:
    used = {*codes_of("Unsupported", "errors.py").values(), *codes_of("Refusal", "errors.py").values()}
    assert CODES.keys() - used == ERROR_CODES.keys()


def test_an_error_that_delegates_has_the_code_of_its_name() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HalideBackendError)]
    # What is raised before a kernel is captured or after it is built, for a schedule of the user's or for a package, or
    # by the tuner.
    elsewhere = {"halide-backend-error", "unknown-option-error", "wrong-backend-error", "load-error", "old-value-lost"}
    elsewhere |= {"schedule-error", "schedule-file-error", "unused-knob", "package-error", "target-error"}
    elsewhere |= {"device-error", "trial-log-error", "nothing-to-tune", "script-failed", "missing-extra"}
    codes = {kind("what").code for kind in kinds if kind is not Unsupported}
    assert {code for code in codes - elsewhere if not code.startswith("kernel-") or "text" in code} == set(ERROR_CODES)
    slow = WorkerTimeout("slow", where="kernel k")
    assert slow.reason == Refusal("worker-timeout", "kernel k: slow", ERROR_CODES["worker-timeout"].hint)


@pytest.mark.parametrize("code", CODES)
def test_a_code_is_a_short_name_with_a_sentence(code: str) -> None:
    assert code == code.lower() and " " not in code and len(code) <= 40
    assert CODES[code].meaning.endswith(".") and CODES[code].hint


def test_a_refusal_keeps_its_parts() -> None:
    error = Unsupported("grid-too-large", "a grid of 4 blocks", where="kernel k")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.refusal, copy.where) == ("grid-too-large", error.refusal, "kernel k")
    assert error.refusal.hint == KERNEL_CODES["grid-too-large"].hint
    assert str(error).startswith("kernel k: a grid of 4 blocks (grid-too-large)\n  What to do: Nothing")
    assert Unsupported("grid-too-large", "a grid", "Use fewer.").cure == "Use fewer."
    with pytest.raises(KeyError):
        Refusal("no-such-code", "")


@pytest.fixture
def delegating() -> Callable[..., dict[str, Any]]:
    def compiled(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        """The statistics of a function that is compiled with delegation."""
        halide_backend.reset_stats()
        patches = {"cpu_backend": "halide_backend", "force_disable_caches": True}
        with inductor_config.patch(patches), config.patch(delegate=True):
            torch.testing.assert_close(torch.compile(function, dynamic=False)(*arguments), function(*arguments))
        return halide_backend.stats()

    return compiled


def test_a_delegated_kernel_is_counted_by_its_code(
    delegating: Callable[..., dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    # Virtual memory: 2,048 of its bytes are touched.
    memory = torch.empty(2**31 + 10, dtype=torch.int8)
    with caplog.at_level(logging.WARNING, "halide_backend"):
        stats = delegating(lambda x: x[:: 1 << 20] + 1, memory)
    assert (stats["delegated_kernels"], stats["delegation_reasons"]) == (1, {"buffer-too-large": 1})
    assert "a buffer of 2147483658 elements, more than 2147483647 (buffer-too-large)" in caplog.text


def test_a_loop_beyond_int32_is_refused_before_halide_does() -> None:
    patches = {"cpu_backend": "halide_backend", "force_disable_caches": True}
    with inductor_config.patch(patches), config.patch(delegate=False), pytest.raises(Exception, match="loop-too-long"):
        torch.compile(lambda x: x.expand(1 << 32).sum(), dynamic=False)(torch.rand(1))


def test_a_place_beyond_int32_is_refused() -> None:
    patches = {"cpu_backend": "halide_backend", "force_disable_caches": True}
    with inductor_config.patch(patches), config.patch(delegate=False), pytest.raises(Exception, match="loop-too-long"):
        torch.compile(lambda x: x.expand(1 << 17, 1 << 15).argmax(), dynamic=False)(torch.rand(1 << 15))


def test_a_remainder_of_what_int32_does_not_hold_is_delegated(delegating: Callable[..., dict[str, Any]]) -> None:
    stats = delegating(lambda x: x[torch.arange(100_000) * torch.arange(100_000) % 10] * 2, torch.randn(10))
    assert stats["delegation_reasons"] == {"index-beyond-int32": 1}


def test_a_refused_fusion_says_why(caplog: pytest.LogCaptureFixture) -> None:
    patches = {"cpu_backend": "halide_backend", "force_disable_caches": True}
    with inductor_config.patch(patches), caplog.at_level(logging.DEBUG, "halide_backend"):
        torch.compile(lambda x: (x.sum(1) + 1).sum() + x, dynamic=False)(torch.rand(300, 40))
    assert "op0 and op1 are not fused: no outermost axis is common to all loops" in caplog.text
    assert "(fusion-without-common-outer-axis)" in caplog.text


class FakeNode:
    def __init__(self, *names: str) -> None:
        self.names = names

    def get_name(self) -> str:
        return "_".join(self.names)

    def get_nodes(self) -> list[FakeNode]:
        return [FakeNode(name) for name in self.names]


def test_a_kernel_knows_what_it_was_not_fused_with_at_last() -> None:
    first, last = (Refusal("fusion-without-common-outer-axis", detail) for detail in ("first", "last"))
    refused = KernelNotes()
    assert refused.may_fuse(FakeNode("a"), FakeNode("b"), None)
    assert not refused.may_fuse(FakeNode("a"), FakeNode("c"), first)
    assert not refused.may_fuse(FakeNode("c"), FakeNode("a", "b"), last)
    # These two became one kernel after all, by way of a third.
    assert not refused.may_fuse(FakeNode("a"), FakeNode("d"), first)
    assert [(each.nodes, each.reason) for each in refused.not_fused(["b", "a", "d"])] == [(("c",), last)]
    assert [(each.nodes, each.reason) for each in refused.not_fused(["c"])] == [(("a",), first), (("a", "b"), last)]
    assert refused.not_fused(["e"]) == ()


def test_what_is_remembered_of_refused_fusions_is_bounded() -> None:
    refused = KernelNotes()
    for number in range(1000):
        refused.may_fuse(FakeNode("a"), FakeNode(f"b{number}"), Refusal("fusion-not-loops", ""))
    assert [each.nodes for each in refused.not_fused(["a"])] == [(f"b{number}",) for number in range(984, 1000)]
