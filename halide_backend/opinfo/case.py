"""What is asked of one run, and of one worker at a time."""

from __future__ import annotations

from dataclasses import dataclass

#: Data types of a full run, by torch's names without "torch.".
DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "bool", "uint8")

#: Seconds that one sample may take, compilation included.
TIME_LIMIT = 120.0


@dataclass(frozen=True)
class Request:
    """One run of the command.

    Attributes:
        device: torch's name of the device. dtypes: names as in `DTYPES`. ops: names or shell
            patterns of operators, all if empty.
        all_samples: every sample input of an operator instead of the first one. gradients: compare
            the gradients, too.
        jobs: number of worker processes. against: "cpp" to run what failed with Inductor's C++
            backend as well, or "".
        time_limit: seconds a sample may take. output: the file for results, "" for none. resume:
            keep what that file holds from an earlier run of the same kind, and run the rest.
        checkout: root folder of a PyTorch checkout whose own test is to be run instead, or "".
    """

    device: str = "cpu"
    dtypes: tuple[str, ...] = DTYPES
    ops: tuple[str, ...] = ()
    all_samples: bool = False
    gradients: bool = False
    jobs: int = 1
    against: str = ""
    time_limit: float = TIME_LIMIT
    output: str = ""
    resume: bool = False
    checkout: str = ""


@dataclass(frozen=True)
class Case:
    """One operator with one data type.

    Attributes:
        op: name in torch's database, with ".variant" where it has one. backend: as of
            `halide_backend.inspection.compiled`. samples: numbers of the sample inputs to run; all if None.
    """

    op: str
    dtype: str
    device: str = "cpu"
    backend: str = "halide_backend"
    gradients: bool = False
    samples: tuple[int, ...] | None = (0,)

    def __str__(self) -> str:
        return f"{self.op} {self.dtype}"
