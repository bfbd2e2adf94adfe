"""What the figures of a benchmark belong to: machine, versions, command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import torch

from halide_backend.build.target import Target
from halide_backend.inspection import machine


def provenance(device: str, target: str = "") -> dict[str, str]:
    """Facts by title; of a CPU the level `target` that kernels are limited to, or all that it has."""
    program, *words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv)
    command = " ".join(["halide-backend" if program == "cli.py" else program, *words])
    facts = {**machine.facts(), "command": command}
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        told = subprocess.run(query, capture_output=True, text=True, check=False).stdout
        return facts | {
            "device": properties.name,
            "driver": told.partition("\n")[0],
            "triton": machine.version("triton"),
        }
    found = Target.named(target)
    return facts | {"threads": str(torch.get_num_threads()), "target": f"{found.cpu}: {found.halide}"}
