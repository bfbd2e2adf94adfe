"""The control can tell backends apart, and tells when callables run each other's code."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import pytest
import torch
import torch._inductor.config as inductor_config

from halide_backend.bench import control as module
from halide_backend.bench import suite
from halide_backend.bench.case import Selection
from halide_backend.bench.contestants import Contestants
from halide_backend.bench.control import LEAST, control
from halide_backend.errors import WrongBackendError
from halide_backend.inspection.compiled import Compiled
from halide_backend.inspection.machine import cxx_compiler

OF_EACH = [
    "halide_backend",
    pytest.param("cpp", marks=pytest.mark.skipif(not cxx_compiler(), reason="needs a C++ compiler")),
]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("backend", OF_EACH)
def test_a_backend_is_as_fast_as_itself_and_faster_than_itself_slowed(backend: str) -> None:
    # Time of this thread alone: other programs take none of it, but leave it colder caches, hence the margin.
    found = control(backend, "cpu", clock=time.thread_time)
    assert 0.67 < found.alike < 1.5
    assert found.slowed > LEAST
    counts = {name: len(samples) for name, samples in found.samples.items()}
    assert counts.keys() == {"first", "second", "slowed"}
    assert min(counts.values()) == max(counts.values()) >= 9
    assert found.to_json()["samples_us"] == found.samples


def compiled_by_global_options(
    backend: str, function: Callable[..., Any], *, options: Mapping[str, Any] | None = None
) -> Compiled:
    """What this benchmark did once (issue 20), and what makes the earlier callables run the code of the last."""
    torch._dynamo.reset()
    inductor_config.cpu_backend = backend
    inductor_config.force_disable_caches = True
    inductor_config.post_grad_custom_post_pass = (options or {}).get("post_grad_custom_post_pass")
    found = Compiled(torch.compile(function, dynamic=False), backend, ["= load_kernel("])
    found(torch.linspace(-1, 1, 1 << 15))
    return found


def test_callables_that_run_each_others_code_are_found_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "compile_for", compiled_by_global_options)
    monkeypatch.setattr(suite, "control", partial(control, clock=time.thread_time))
    request = suite.Request("cpu", Contestants(("eager",)), Selection(("add_relu_61x509_float32",)))
    with (
        inductor_config.patch(cpu_backend="cpp", force_disable_caches=False, post_grad_custom_post_pass=None),
        pytest.raises(WrongBackendError, match=r"takes [01]\.\d\d of the time"),
    ):
        suite.run(request)
    assert "add_relu" not in capsys.readouterr().out
