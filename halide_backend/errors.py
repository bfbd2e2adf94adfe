"""Every error a user can meet: what happened, where, and what to do about it.

All errors derive from `HalideBackendError`, which is a `RuntimeError` because that is what torch raises for a
failing kernel; errors with a more specific Python meaning derive from that class as well.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from halide_backend.refusals import Refusal


class HalideBackendError(RuntimeError):
    """Base of all errors of this package.

    `what` says what went wrong, `where` names the kernel, file or option, `cure` says what to do next.
    """

    def __init__(self, what: str, *, where: str = "", cure: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.cure = cure

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}\n  What to do: {self.cure}" if self.cure else text

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.what, self.where, self.cure)

    @property
    def code(self) -> str:
        """A stable short name of what went wrong: "worker-timeout" of a `WorkerTimeout`."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", type(self).__name__).lower()

    @property
    def reason(self) -> Refusal:
        """This error as the reason why a kernel is not this backend's.

        Raises:
            KeyError: it is none; `refusals.ERROR_CODES` has those that are.
        """
        return Refusal(self.code, f"{self.where}: {self.what}" if self.where else self.what, self.cure)


def _rebuild(kind: type[HalideBackendError], what: str, where: str, cure: str) -> HalideBackendError:
    return kind(what, where=where, cure=cure)


class UnsupportedVersionError(HalideBackendError):
    """An installed torch, halide or llvmlite is outside the supported range."""


class UnknownOptionError(HalideBackendError, AttributeError):
    """An option name that does not exist; the message names the nearest one that does."""


class MissingNativeExtensionError(HalideBackendError, ImportError):
    """The compiled part of the package is absent or does not fit this Python."""


class Unsupported(HalideBackendError):
    """A loop node that this backend cannot compile; it is delegated and the reason recorded.

    `refusal` is that reason, with a code of `halide_backend.refusals`.
    """

    def __init__(self, code: str, detail: str, hint: str = "", *, where: str = "") -> None:
        self.refusal = Refusal(code, detail, hint)
        super().__init__(str(self.refusal), where=where, cure=self.refusal.hint)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_unsupported, (*vars(self.refusal).values(), self.where)

    @property
    def code(self) -> str:
        """One of `halide_backend.refusals.KERNEL_CODES`."""
        return self.refusal.code

    @property
    def reason(self) -> Refusal:
        """The refusal, with the place where it was found."""
        return replace(self.refusal, detail=f"{self.where}: {self.refusal.detail}") if self.where else self.refusal


def _rebuild_unsupported(code: str, detail: str, hint: str, where: str) -> Unsupported:
    return Unsupported(code, detail, hint, where=where)


class ProgramError(HalideBackendError):
    """Text or JSON that is no program, or none of this version."""


class IllegalPlan(HalideBackendError):
    """A plan that would give another result, or none; `where` names the step, knob or value."""


class OldValueLost(IllegalPlan):
    """A plan in which memory would be overwritten before it is read."""


class UnusedKnob(IllegalPlan):
    """A setting of a knob that no rule of the kernel asks for; `where` is its key."""


class ScheduleError(HalideBackendError):
    """A schedule that the user asked for cannot be used; it is raised and its kernel never delegated."""


class ScheduleFileError(ScheduleError):
    """A schedule file that cannot be read or written, or is of a newer version."""


class KernelTextError(HalideBackendError):
    """The text of a kernel does not run, or does not define what a kernel text must define."""


class HalideCompileError(HalideBackendError):
    """Halide refused the pipeline or its schedule."""


class LLVMCompileError(HalideBackendError):
    """LLVM refused the IR that Halide wrote."""


class WorkerCrashed(HalideBackendError):
    """A worker process died (signal, abort, out of memory) with a task, a kernel to compile for example."""


class WorkerOutOfMemory(WorkerCrashed):
    """A task needed more memory than it was allowed."""


class WorkerNotStarted(HalideBackendError):
    """No worker process can be started."""


class WorkerTimeout(HalideBackendError):
    """A task took longer than its time limit; its worker process was killed."""


class TargetError(HalideBackendError):
    """A target that does not exist, targets that do not go together, or a package that could not run on its targets."""


class DeviceError(HalideBackendError):
    """A device cannot be registered as asked for, is not registered, or cannot be compiled for in this way."""


class WrongBackendError(HalideBackendError):
    """A callable that was compiled for one backend has or runs kernels of another."""


class LoadError(HalideBackendError):
    """A compiled object could not be loaded into this process."""


class KernelRuntimeError(HalideBackendError):
    """A kernel reported an error while it ran."""


class KernelArgumentError(HalideBackendError, TypeError):
    """A kernel was called with the wrong number or kind of arguments."""


class KernelIndexError(HalideBackendError, IndexError):
    """An index that a kernel computed or was given is out of range."""


class KernelZeroDivisionError(HalideBackendError, ZeroDivisionError):
    """An integer division or remainder by zero inside a kernel."""


class TrialLogError(HalideBackendError):
    """A log of trials that cannot be read or written, was written by a newer version, or is in use."""


class NothingToTune(HalideBackendError):
    """There is no kernel that could be tuned: none was captured, none has the name, or there is no time for any."""


class ScriptFailed(HalideBackendError):
    """A program whose kernels are to be tuned, or that is to be packaged, raised an exception, or cannot be found."""


class PackageError(HalideBackendError):
    """A package of AOTInductor that cannot be made, read or written."""


class MissingExtra(HalideBackendError, ImportError):
    """An optional package is needed and not installed."""
