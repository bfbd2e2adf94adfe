"""A callable belongs to one backend, whatever is compiled before and after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config

from halide_backend.cache_key import NAME
from halide_backend.errors import WrongBackendError
from halide_backend.inspection.compiled import BACKENDS, Compiled, compile_for, kernels_run
from halide_backend.inspection.machine import cxx_compiler

needs_cpp = pytest.mark.skipif(not cxx_compiler(), reason="Inductor's C++ backend needs a C++ compiler")


def scaled_sum(x: torch.Tensor) -> torch.Tensor:
    return (x * 2 + 1).relu().sum(-1)


class Scale(torch.nn.Module):
    """A module with a method besides `forward`."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((8,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).relu().sum(-1)


X = torch.linspace(-1, 1, 64).reshape(8, 8)


@needs_cpp
@pytest.mark.parametrize("order", [(NAME, "cpp"), ("cpp", NAME), ("cpp", NAME, "cpp", NAME)], ids=str)
@pytest.mark.parametrize("function", [scaled_sum, Scale(), Scale().forward], ids=["function", "module", "method"])
def test_each_callable_runs_what_was_compiled_for_it(function: Callable[..., Any], order: tuple[str, ...]) -> None:
    compiled = [compile_for(backend, function) for backend in order]
    for one in compiled:
        torch.testing.assert_close(one(X), function(X))
    for one in compiled:
        assert set(one.kernels()) == {one.backend}
        assert len(one.codes) == 1
        ran = one.check_run(lambda one=one: one.call(X))
        assert bool(ran[NAME]) == (one.backend == NAME)
    # None of the calls after the first compiled anything.
    assert all(len(one.codes) == 1 for one in compiled)


@needs_cpp
def test_two_callables_for_one_backend_are_compiled_apart() -> None:
    first, second = (compile_for("cpp", scaled_sum) for _ in range(2))
    first(X)
    second(X)
    assert len(first.codes) == len(second.codes) == 1


@needs_cpp
@pytest.mark.parametrize("backend", ["cpp", NAME])
def test_the_backward_graph_is_compiled_for_the_same_backend(backend: str) -> None:
    compiled = compile_for(backend, scaled_sum)
    with inductor_config.patch(cpu_backend="cpp" if backend == NAME else NAME):
        x = X.clone().requires_grad_()
        compiled(x).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, ((X * 2 + 1) > 0) * 2.0)
    assert len(compiled.codes) == 2
    assert set(compiled.kernels()) == {backend}


@needs_cpp
@pytest.mark.parametrize("backend", ["cpp", NAME])
def test_a_size_that_comes_later_is_compiled_for_the_same_backend(backend: str) -> None:
    compiled = compile_for(backend, scaled_sum, dynamic=None)
    with inductor_config.patch(cpu_backend="cpp" if backend == NAME else NAME):
        for rows in (8, 5, 3):
            torch.testing.assert_close(compiled(X[:rows]), scaled_sum(X[:rows]))
    assert len(compiled.codes) == 2
    assert set(compiled.kernels()) == {backend}


@needs_cpp
def test_global_options_and_a_reset_do_not_mix_backends_up() -> None:
    """What the benchmark did wrong: its two callables ran the code of the second (issue 20)."""

    def by_global_option(backend: str) -> Compiled:
        torch._dynamo.reset()
        inductor_config.cpu_backend = backend
        call = torch.compile(scaled_sum, dynamic=False)
        call(X)
        return Compiled(call, backend)

    before = inductor_config.cpu_backend
    try:
        wrong = [by_global_option(backend) for backend in ("cpp", NAME)]
        assert [kernels_run(lambda one=one: one.call(X))[NAME] for one in wrong] == [1, 1]
    finally:
        inductor_config.cpu_backend = before
        torch._dynamo.reset()
    right = [compile_for(backend, scaled_sum) for backend in ("cpp", NAME)]
    for one in right:
        one(X)
        torch._dynamo.reset()
    assert [kernels_run(lambda one=one: one.call(X))[NAME] for one in right] == [0, 1]


def test_functions_of_torch_do_not_share_a_code_object() -> None:
    """torch.compile wraps each in the same function; the ninth was not compiled any more."""
    for size in range(1, 11):
        compiled = compile_for(NAME, torch.nn.functional.softplus)
        compiled(torch.ones(size))
        compiled.check_code()


def test_options_of_this_backend_hold_for_one_callable() -> None:
    limited, usual = compile_for(NAME, scaled_sum, options={f"{NAME}.target": "sse41"}), compile_for(NAME, scaled_sum)
    for one in (limited, usual):
        torch.testing.assert_close(one(X), scaled_sum(X))
    assert limited.codes != usual.codes


def test_eager_is_the_function_itself() -> None:
    compiled = compile_for("eager", scaled_sum)
    assert compiled.call is scaled_sum
    compiled.check_code()
    assert kernels_run(lambda: compiled(X)) == {}


def test_a_callable_that_runs_another_backend_is_found_out() -> None:
    ours = compile_for(NAME, scaled_sum)
    ours(X)
    with pytest.raises(WrongBackendError, match="1 kernels of halide_backend in its code"):
        Compiled(ours.call, "cpp", ours.codes).check_code()
    # The code that was recorded is right, what runs is not.
    with pytest.raises(WrongBackendError, match="has 0 kernels of halide_backend, and 1 ran"):
        Compiled(ours.call, "cpp", ["def call(args): pass"]).check_run(lambda: ours.call(X))
    with pytest.raises(WrongBackendError, match="has 1 kernels of halide_backend, and 0 ran"):
        Compiled(scaled_sum, NAME, ours.codes).check_run(lambda: scaled_sum(X))
    with pytest.raises(WrongBackendError, match="nothing was compiled"):
        compile_for(NAME, scaled_sum).check_code()


def test_kernels_left_to_another_backend_are_no_mistake_if_they_were_delegated() -> None:
    code = "cpp_fused_0 = async_compile.cpp_pybinding([''], r''' ''')"
    Compiled(scaled_sum, NAME, [code], delegated=1).check_code()
    with pytest.raises(WrongBackendError, match="none of them delegated"):
        Compiled(scaled_sum, NAME, [code]).check_code()


def test_an_unknown_backend_is_a_key_error() -> None:
    assert BACKENDS == (NAME, "cpp", "triton", "triton-max-autotune", "eager")
    with pytest.raises(KeyError, match="fortran"):
        compile_for("fortran", scaled_sum)
