"""Each setting of the knobs of CUDA rules on a GPU, where all are run of which numpy runs some (test_cuda_knobs.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from kernel_values import Call
from test_cuda_knobs import CASES, Case, settings_of

from halide_backend import loading, pipeline
from halide_backend.codegen.planned_kernel import plan_kernel
from halide_backend.errors import IllegalPlan
from halide_backend.program.loop_program import Buffer
from halide_backend.schedule.device import device_of

pytestmark = pytest.mark.gpu


def check_on_gpu(call: Call, text: str, what: str) -> None:
    """Make `call` of the kernel `text` on the GPU; memory has to be the same after it."""
    arguments = [*call.program.inputs, *call.program.sizes, *call.program.outputs]
    tensors: dict[int, torch.Tensor] = {}
    given: list[Any] = []
    for argument, value in zip(arguments, call.values, strict=True):
        if isinstance(argument, Buffer):
            dtype = getattr(torch, argument.dtype)
            tensors.setdefault(value, torch.from_numpy(call.before[value].copy()).view(dtype).cuda())
            given.append(tensors[value])
        else:
            given.append(value)
    # The stream is one more argument.
    kernel = loading.load_kernel("setting", [(text, range(len(given)))], len(given) + 1, device="cuda")
    kernel(*given, torch.cuda.current_stream().cuda_stream)
    for number, tensor in tensors.items():
        assert np.array_equal(tensor.cpu().view(torch.uint8).numpy(), call.after[number]), what


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_setting_is_right_or_refused(case: Case, scan_programs: Any) -> None:
    call = case.call(scan_programs)
    device = device_of(pipeline.current_target("cuda"))
    settings = settings_of(case, call.program)
    right = 0
    for key, value in settings:
        try:
            text = plan_kernel(call.program, device, {**case.knobs, key: value}).text
        except IllegalPlan:
            continue
        check_on_gpu(call, text, f"{key} = {value!r} is wrong")
        right += 1
    assert right > len(settings) // 3
