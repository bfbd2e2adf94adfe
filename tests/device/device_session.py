"""What test_new_device.py asks of the example's device, in a process of its own: torch has one such device a process.

Prints a JSON object: for each function of CASES what differs from eager on the CPU, the kernels, and the operators that
ran in eager mode; and what else main() looks at.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import new_device
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor import config as inductor_config

import halide_backend
from halide_backend.capture import scheduling
from halide_backend.errors import Unsupported
from halide_backend.inspection import checks


def there(value: Any) -> Any:
    return value.to(new_device.NAME) if isinstance(value, Tensor) else value


def softmax_of_gelu(x: Tensor) -> Tensor:
    return torch.softmax(F.gelu(x) * 2, -1)


class Block(nn.Module):
    """A transformer's block of one head."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attend, self.expand, self.contract = nn.Linear(32, 96), nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.attend(self.before(x)).chunk(3, -1)
        x = x + torch.softmax(query @ key.transpose(1, 2) * 32**-0.5, -1) @ value
        return x + self.contract(F.gelu(self.expand(self.after(x))))


def simple(function: Callable[..., Any], *arguments: Any) -> Callable[[bool], list[Any]]:
    def case(compiled: bool) -> list[Any]:
        given = map(there, arguments) if compiled else arguments
        return [(torch.compile(function, dynamic=False) if compiled else function)(*given)]

    return case


def layer_norm_and_gradients(compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    leaves = [torch.randn(11, 130), torch.randn(130), torch.randn(130)]
    leaves = [(there(leaf) if compiled else leaf).requires_grad_() for leaf in leaves]

    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.layer_norm(x, (130,), weight, bias) * 3

    result = (torch.compile(norm, dynamic=False) if compiled else norm)(*leaves)
    weights = torch.randn(11, 130)
    result.backward(there(weights) if compiled else weights)
    return [result.detach(), *(leaf.grad for leaf in leaves)]


def dynamic_sizes(compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    function = torch.compile(softmax_of_gelu, dynamic=True) if compiled else softmax_of_gelu
    sizes = ((5, 7), (12, 33), (3, 4000))
    return [function(there(x) if compiled else x) for x in (torch.randn(size) for size in sizes)]


def training_step_of_a_block(compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    block, x = Block(), torch.randn(2, 9, 32)
    if compiled:
        block, x = block.to(new_device.NAME), there(x)

    def loss_of(x: Tensor) -> Tensor:
        return block(x).square().mean()

    new_device.eager_operators.clear()
    loss = (torch.compile(loss_of) if compiled else loss_of)(x)
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in block.parameters())]


def steps_of_adamw(compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(size)) for size in ((7, 5), (64,), (3, 3))]
    gradients = [torch.randn(parameter.shape) for parameter in parameters]
    if compiled:
        parameters = [nn.Parameter(there(parameter.detach())) for parameter in parameters]
    optimizer = torch.optim.AdamW(parameters, lr=0.1)
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = there(gradient) if compiled else gradient
    step = torch.compile(optimizer.step) if compiled else optimizer.step
    step()  # makes moments of zeros as well
    new_device.eager_operators.clear()
    step()
    return [parameter.detach() for parameter in parameters]


CASES: dict[str, Callable[[bool], list[Any]]] = {
    "pointwise": simple(lambda x: torch.sin(x) * 2 + x.exp(), torch.randn(37, 65)),
    "softmax": simple(softmax_of_gelu, torch.randn(37, 65)),
    "transposed sums": simple(lambda x: x.t().sum(1) + x.amax(0), torch.randn(37, 65)),
    "pointwise of another shape": simple(
        lambda x: (x.sum(-1), x.reshape(37, 65).t() + 1), torch.randn(37, 5, 13)
    ),
    "made on the device": simple(
        lambda x: x + torch.arange(65, device=x.device.type), torch.randn(37, 65)
    ),
    "scalar of the CPU": lambda compiled: [
        (torch.compile(torch.mul) if compiled else torch.mul)(there(x) if compiled else x, torch.tensor(3.0))
        for x in (torch.arange(7.0),)
    ],
    "layer norm": layer_norm_and_gradients,
    "dynamic sizes": dynamic_sizes,
    "block": training_step_of_a_block,
    "AdamW": steps_of_adamw,
}  # fmt: skip


def outcome(case: Callable[[bool], list[Any]]) -> dict[str, Any]:
    expected = case(False)
    torch._dynamo.reset()
    halide_backend.reset_stats()
    new_device.eager_operators.clear()
    difference = ""
    try:
        found = case(True)
        eager = dict(+new_device.eager_operators)
        assert {each.device.type for each in torch.utils._pytree.tree_leaves(found)} == {new_device.NAME}
        here = torch.utils._pytree.tree_map(lambda tensor: tensor.to("cpu"), found)
        torch.testing.assert_close(here, expected)
    except Exception as error:
        difference, eager = f"{type(error).__name__}: {error}", {}
    stats = halide_backend.stats()
    kernels = {name: stats[name] for name in ("native_kernels", "delegation_reasons")}
    return {"difference": difference, "eager": eager, **kernels}


def refusal(call: Callable[[], Any]) -> list[str]:
    """The class and the message of the error that `call` raises, without what torch adds to it."""
    try:
        call()
    except Exception as error:
        inner = getattr(error, "inner_exception", error)
        return [type(inner).__name__, str(inner)]
    return ["", ""]


def register(name: str = new_device.NAME, **values: Any) -> list[str]:
    return refusal(lambda: halide_backend.register_device(name, **values))


def refuse(*_: Any) -> Any:
    raise Unsupported("unknown-operation", "a test")


def main() -> None:
    report: dict[str, Any] = {"before": register()}
    with redirect_stdout(io.StringIO()) as printed:
        new_device.main()
    report["example"] = printed.getvalue()
    report["cases"] = {name: outcome(case) for name, case in CASES.items()}
    report["refusals"] = {
        "same again": register(),
        "other values": register(delegate=None),
        "cpu": register("cpu"),
        "xpu": register("xpu"),
        "unknown": register("dome"),
        "target": register(target="gpu"),
        "delegate": register(delegate="triton"),
        "not callable": register(delegate=None, around_launch="guard"),
        "unguarded": register(around_launch=copy.copy),
    }
    report["doctor"] = checks.CHECKS["device types"]().finding
    report["devices"] = [kind.name for kind in halide_backend.devices()]
    report["key"] = halide_backend.config.save_config_portable(ignore_private_configs=False)["_devices"]
    x = there(torch.randn(9, 5))
    with inductor_config.patch(cpp_wrapper=True):
        report["refusals"]["cpp_wrapper"] = refusal(lambda: torch.compile(lambda x: x * 3 + 2)(x))
    scheduling.compile_program = refuse
    # Without programs that find out which vectors there are, and without precompiled headers.
    with inductor_config.patch({"cpp.simdlen": 0, "cpp_cache_precompile_headers": False}):
        report["delegated"] = outcome(simple(lambda x: (x * 2).sum(0), torch.randn(9, 5)))
    with halide_backend.config.patch(delegate=False):
        report["refusals"]["not delegated"] = refusal(lambda: torch.compile(lambda x: x * 5 + 2)(x))
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
