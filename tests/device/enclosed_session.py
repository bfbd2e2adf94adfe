"""Launches of the example's device enclosed in a context manager, for another target and with its vendor's interface;
run twice with the same caches. Prints a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import new_device
import torch
import torch._inductor.compile_fx
from torch._dynamo.device_interface import get_interface_for_device, register_interface_for_device
from torch._dynamo.utils import counters
from torch._inductor.codegen import common
from torch._inductor.codegen.cpu_device_op_overrides import CpuDeviceOpOverrides

import halide_backend
from halide_backend.errors import DeviceError
from halide_backend.host_interface import HostInterface

events: list[str] = []


class VendorInterface(HostInterface):
    """What the vendor of the device registered before."""


@contextmanager
def guard(*arguments: Any) -> Iterator[None]:
    events.append(f"enter {' '.join(type(argument).__name__ for argument in arguments)}")
    try:
        yield
    finally:
        events.append("leave")


def taken() -> str:
    common.register_backend_for_device(new_device.NAME, object, object)
    try:
        halide_backend.register_device(new_device.NAME)
    except DeviceError as error:
        return error.what
    finally:
        del common.device_codegens[new_device.NAME]
    return ""


def main() -> None:
    new_device.make_device()
    report: dict[str, Any] = {"taken": taken()}
    register_interface_for_device(new_device.NAME, VendorInterface)
    overrides = CpuDeviceOpOverrides()
    halide_backend.register_device(new_device.NAME, "sse41", op_overrides=overrides, delegate=None, around_launch=guard)
    x = torch.arange(450.0).reshape(9, 50) / 50
    compiled = torch.compile(lambda x: torch.softmax(x, 1) * 2, dynamic=False)
    for _ in range(2):
        report["difference"] = float((compiled(x.to(new_device.NAME)).cpu() - torch.softmax(x, 1) * 2).abs().max())
    report["events"] = events
    report["hits"] = counters["inductor"]["fxgraph_cache_hit"]
    report["targets"] = [record.target.cpu for record in halide_backend.records() if record.target]
    report["kept"] = get_interface_for_device(new_device.NAME) is VendorInterface
    report["given"] = common.get_device_op_overrides(new_device.NAME) is overrides
    report["key"] = halide_backend.config.save_config_portable(ignore_private_configs=False)["_devices"]
    print("\n" + json.dumps(report))


if __name__ == "__main__":
    main()
