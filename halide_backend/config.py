"""The options of this backend, as a configuration module like `torch._inductor.config`.

    halide_backend.config.compile_workers = 4
    with halide_backend.config.patch(compile_time_limit=5.0): ...
    torch.compile(model, backend="halide_backend", options={"compile_time_limit": 5.0})

`halide_backend.options` says what each means. All of them take part in the keys of Inductor's
caches. Values set at run time belong to the thread that sets them, as those of all of torch's
configuration do (with torch 2.11: to the process).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from halide_backend.config_module import declare, install

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    patch: Callable[..., Any]

compile_workers: int = declare("compile_workers")
compile_time_limit: float = declare("compile_time_limit")
compile_memory_limit_mb: int = declare("compile_memory_limit_mb")
target: str = declare("target")
aot_targets: str = declare("aot_targets")
delegate: bool = declare("delegate")
schedule_files: tuple[str, ...] = declare("schedule_files")
schedule_folder: str = declare("schedule_folder")
schedule_function: str = declare("schedule_function")
check_schedules: bool = declare("check_schedules")
tune: str = declare("tune")
tune_seconds: float = declare("tune_seconds")
kept_memory_mb: int = declare("kept_memory_mb")
product_library: str = declare("product_library")
attention: str = declare("attention")
bfloat16_products: str = declare("bfloat16_products")
winograd: bool = declare("winograd")

install(__name__)
