"""The rows of the demo's table; naming them imports no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halide_backend.demonstration.workload import Workload


def workloads() -> tuple[Workload, ...]:
    """All rows in the order of the table."""
    from halide_backend.demonstration import photograph, residual_network, transformer

    return (
        transformer.INFERENCE,
        transformer.TRAINING,
        residual_network.TRAINING,
        photograph.PIPELINE,
    )


#: Row names by model, readable without importing torch; a test compares them with `workloads()`.
ROWS = {
    "gpt": ("gpt inference", "gpt training"),
    "cnn": ("cnn training",),
    "image": ("image pipeline",),
}
