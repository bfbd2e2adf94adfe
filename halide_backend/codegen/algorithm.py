"""Algorithm: the first half of a kernel text."""

from __future__ import annotations

from dataclasses import dataclass

from halide_backend.kernel_library.arguments import Input, Output, Size, Status
from halide_backend.schedule.stage import StageGraph

#: Where texts take their functions from.
CPU_LIBRARY, CUDA_LIBRARY = "halide_backend.kernel_library", "halide_backend.kernel_library.cuda"


@dataclass(frozen=True)
class Algorithm:
    """The algorithm half of a kernel.

    `lines` are the statements of the text's function, `funcs` the names it defines, `inputs` and `outputs` its
    arguments in order (a `Status` last, if there are checks). The memory of those in `aligned` has to begin at a
    multiple of 16 bytes. `loads` is the cache priority of a GPU's loads, as PTX writes it, `registers` how many its
    threads may have (`schedule/mapping/registers.py`), `library` the package of the functions that statements call.
    """

    lines: tuple[str, ...]
    inputs: tuple[Input | Size, ...]
    outputs: tuple[Output | Status, ...]
    stages: StageGraph
    aligned: tuple[str, ...] = ()
    loads: str = ""
    registers: str | float = "auto"
    library: str = CPU_LIBRARY

    @property
    def funcs(self) -> tuple[str, ...]:
        return tuple(stage.name for stage in self.stages.stages)
