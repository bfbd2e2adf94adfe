"""The options a user can set: their names, types, defaults, environment variables and meaning.

This is the description alone, free of torch, for the documentation and the command line; the values
live in `halide_backend.config`.
"""

from __future__ import annotations

import difflib
import logging
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from halide_backend.build.named_targets import GPU_TARGETS, NAMED_TARGETS
from halide_backend.errors import HalideBackendError


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: attribute of `halide_backend.config`, and key in `torch.compile(..., options=...)`.
        default: value if neither the user nor the environment says otherwise; its type is the
            option's type. meaning: one sentence, with the unit. choices: all values that are
            allowed; empty means any of the type. several: whether a value is any number of them, with commas in
            between. minimum: the smallest number that is allowed.
    """

    name: str
    default: bool | int | float | str | tuple[str, ...]
    meaning: str
    choices: tuple[str, ...] = ()
    several: bool = False
    minimum: float | None = None

    @property
    def type(self) -> type:
        """Type of every value: bool, int, float, str, or tuple for one of texts."""
        return type(self.default)

    @property
    def environment(self) -> str:
        """Environment variable that replaces the default when the process starts."""
        return f"HALIDE_BACKEND_{self.name.upper()}"

    def check(self, value: Any) -> Any:
        """Return `value`, an int as float where the option is a float, and a list as a tuple where it is a tuple.

        Raises:
            HalideBackendError: the type is another, or the value is not allowed.
        """
        if self.type is float and type(value) is int:
            value = float(value)
        if self.type is tuple and type(value) is list:
            value = tuple(value)
        if type(value) is not self.type:
            allowed = f"must be of type {self.type.__name__}"
        elif isinstance(value, tuple) and not all(isinstance(each, str) for each in value):
            allowed = "must hold texts alone"
        elif self.several and not set(str(value).replace(" ", "").split(",")) <= {"", *self.choices}:
            allowed = f"must be some of {', '.join(map(repr, self.choices))}, with commas in between"
        elif self.choices and not self.several and value not in self.choices:
            allowed = f"must be one of {', '.join(map(repr, self.choices))}"
        elif self.minimum is not None and isinstance(value, (int, float)) and not value >= self.minimum:
            allowed = f"must be at least {self.minimum:g}"
        elif value == math.inf:
            allowed = "must be finite"
        else:
            return value
        raise HalideBackendError(
            f"{value!r} is not allowed: the option {allowed}",
            where=f"halide_backend.config.{self.name}",
            cure=f"{self.meaning} The default is {self.default!r}.",
        )

    def initial(self) -> Any:
        """Value at the start of the process: the environment's, or the default.

        An environment variable that cannot be read is reported once, as a log line, and ignored: it
        may be set for all processes of a machine, and must not stop those that never use this
        backend.
        """
        text = os.environ.get(self.environment)
        if text is None:
            return self.default
        try:
            return self.check(_PARSERS[self.type](text.strip()))
        except (ValueError, HalideBackendError):
            logging.getLogger("halide_backend").warning(
                "%s=%r is ignored: it is not a value of the option %s, which stays %r. %s",
                self.environment,
                text,
                self.name,
                self.default,
                self.meaning,
            )
            return self.default


def _bool(text: str) -> bool:
    names = {"1": True, "true": True, "0": False, "false": False}
    if text.lower() not in names:
        raise ValueError(text)
    return names[text.lower()]


def _texts(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(os.pathsep)))


_PARSERS: dict[type, Any] = {bool: _bool, int: int, float: float, str: str, tuple: _texts}

OPTIONS = (
    Option(
        "compile_workers",
        0,
        "Processes that compile kernels at the same time; 0 means one per processor core.",
        minimum=0,
    ),
    Option(
        "compile_time_limit",
        60.0,
        "Seconds that one kernel may take to compile before its worker is ended and replaced.",
        minimum=0.1,
    ),
    Option(
        "compile_memory_limit_mb",
        4096,
        "Megabytes of memory that a worker may use before it is ended and replaced.",
        minimum=256,
    ),
    Option(
        "target",
        "",
        "Instruction set to compile for: empty means all that this machine has, a level runs on "
        "every machine that has it.",
        choices=("", *NAMED_TARGETS),
    ),
    Option(
        "aot_targets",
        "",
        "Targets of AOTInductor packages, several with commas in between: each kernel is compiled for all of them, "
        "and which one runs is chosen when the package is loaded; empty means the one that target says.",
        choices=(*NAMED_TARGETS, *GPU_TARGETS),
        several=True,
    ),
    Option(
        "delegate",
        True,
        "Whether a kernel that this backend cannot compile is left to Inductor's own backend, with "
        "the reason recorded; otherwise it is an error.",
    ),
    Option(
        "schedule_files",
        (),
        "Schedule files, the first that has a schedule for a kernel wins; in the environment with "
        f"{os.pathsep!r} between them.",
    ),
    Option(
        "schedule_folder",
        "halide_schedules",
        "Folder whose files *.toml are schedule files as well, looked through after schedule_files; "
        "relative to the working directory, may be absent; empty means none.",
    ),
    Option(
        "schedule_function",
        "",
        'Python function "module:function" that is asked before all files: called with program and '
        "device, it returns a Plan or None.",
    ),
    Option(
        "check_schedules",
        True,
        "Whether the first call of a kernel with a schedule of the user's compares its results with "
        "those of the rules' kernel.",
    ),
    Option(
        "tune",
        "use",
        "Tuned schedules: use applies those that were found on this machine or come with the package; "
        "never leaves them out, and searches for none in any mode.",
        choices=("use", "never"),
    ),
    Option(
        "tune_seconds",
        60.0,
        "Seconds that the mode max-autotune may search for schedules of the kernels of one graph; 0 means "
        "not at all. No other mode searches.",
        minimum=0.0,
    ),
    Option(
        "kept_memory_mb",
        256,
        "Megabytes of freed memory that glibc keeps for a model's next call on a CPU instead of giving them back to "
        "the system, 2047 at most; one setting for the whole process, of which the largest holds. 0 leaves glibc's "
        "own, and so does any environment variable for them, such as MALLOC_TRIM_THRESHOLD_.",
        minimum=0,
    ),
    Option(
        "product_library",
        "auto",
        "Library that computes float32 matrix products on a CPU: auto means the one that halide-backend calibrate "
        "found, or a rule for the processor's family says, to be faster.",
        choices=("auto", "aten", "onednn"),
    ),
    Option(
        "attention",
        "auto",
        "What computes attention of float32 and its gradients on a CPU: auto means a kernel of this backend where a "
        "rule for the processor says that it is faster.",
        choices=("auto", "aten", "halide"),
    ),
    Option(
        "bfloat16_products",
        "auto",
        "Type in which matrix products and convolutions of bfloat16 are computed on a CPU: auto means float32 where a "
        "rule for the processor says that it is faster; results are rounded to bfloat16 in any case.",
        choices=("auto", "bfloat16", "float32"),
    ),
    Option(
        "winograd",
        True,
        "Whether convolutions of float32 with filters of 3 x 3, and gradients of their pictures, are computed by "
        "Winograd's algorithm on a CPU. Errors are relative to the largest of 4 x 4 elements of a picture, of which an "
        "infinity makes 2 x 2 results NaN.",
    ),
)


def option(name: str) -> Option:
    """Return the option called `name`.

    Raises:
        KeyError: there is none.
    """
    return {option.name: option for option in OPTIONS}[name]


def nearest(name: str, names: Iterable[str]) -> str:
    """A sentence with the one of `names` that looks most like `name`, else with our options."""
    close = difflib.get_close_matches(name, sorted(names), n=1)
    if close:
        return f"Did you mean {close[0]!r}?"
    listed = ", ".join(option.name for option in OPTIONS)
    return f"The options of halide_backend are {listed}."
