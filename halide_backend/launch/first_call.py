"""FirstCall: a kernel with a schedule of the user's, compared with the rules' kernel when it is called first.

The rules' kernel runs on the caller's memory and the other one on copies, so that whatever the comparison finds, the
caller gets the results of the rules.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from halide_backend.errors import HalideBackendError

if TYPE_CHECKING:
    import torch

log = logging.getLogger("halide_backend")

#: How far two results may be apart, in units of the last place of the value and of the mean absolute value: float32
#: and wider numbers may be sums in another order, each right to 4 units or so (docs/design/schedules/reductions.md),
#: of terms that cancel each other; narrower ones are rounded once more.
_UNITS, _UNITS_NARROW = 1024, 4

#: Elements that are compared at a time, as float64: 128 MB.
_BLOCK = 1 << 24


class FirstCall:
    """The kernel `name` as a callable: `scheduled`, once its first call had the results of `rules()`, else that one.

    `written` are the positions of the arguments that it writes. `accepted` is called when the results agree. `title`
    says where the schedule comes from.
    """

    def __init__(
        self,
        name: str,
        title: str,
        scheduled: Callable[..., None],
        rules: Callable[..., None],
        written: Sequence[int],
        accepted: Callable[[], object],
    ) -> None:
        self._name = name
        self._title = title
        self._scheduled = scheduled
        self._rules = rules
        self._written = written
        self._accepted = accepted
        self._kernel: Callable[..., None] = self._compared

    def __call__(self, *arguments: Any) -> None:
        """Run the kernel."""
        self._kernel(*arguments)

    def _compared(self, *arguments: Any) -> None:
        import torch

        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            # Nothing can be compared while a graph is recorded; torch runs a kernel before it records it.
            self._scheduled(*arguments)
            return
        with torch.no_grad():
            try:
                copies = _copies(arguments, self._written)
            except RuntimeError:  # torch's errors for both kinds of memory
                log.warning("%s: no memory to check the results of %s", self._name, self._title)
                self._kernel = self._scheduled
                self._scheduled(*arguments)
                return
            failure = self._failure(copies)
            self._rules(*arguments)
            differing = failure or self._difference(arguments, copies)
        if not differing:
            self._accepted()
            self._kernel = self._scheduled
            return
        log.warning(
            "%s: this schedule of %s is left out, %s. What to do: remove it, and report it: no schedule that is legal "
            "should have other results.",
            self._title,
            self._name,
            differing,
        )
        self._kernel = self._rules

    def _failure(self, copies: Sequence[Any]) -> str:
        try:
            self._scheduled(*copies)
        except HalideBackendError as error:
            return f"it fails where the rules' kernel does not: {error}"
        return ""

    def _difference(self, arguments: Sequence[Any], copies: Sequence[Any]) -> str:
        """What differs, "" if nothing does."""
        for position in self._written:
            if number := _differing(copies[position], arguments[position]):
                of = arguments[position].numel()
                return f"{number} of {of} elements of argument {position} differ from those of the rules' kernel"
        return ""


def _copies(arguments: Sequence[Any], written: Sequence[int]) -> list[Any]:
    """The arguments, those that share memory with what is `written` in copies that share it in the same way."""
    import torch

    storages = {arguments[position].untyped_storage()._cdata for position in written}
    copied: dict[int, Any] = {}

    def one(argument: Any) -> Any:
        if not isinstance(argument, torch.Tensor):
            return argument
        storage = argument.untyped_storage()
        if storage._cdata not in storages:
            return argument
        if storage._cdata not in copied:
            copied[storage._cdata] = storage.clone()
        fresh = torch.empty(0, dtype=argument.dtype, device=argument.device)
        return fresh.set_(copied[storage._cdata], argument.storage_offset(), argument.size(), argument.stride())

    return list(map(one, arguments))


def _differing(found: torch.Tensor, wanted: torch.Tensor) -> int:
    """Elements that differ by more than rounding: any difference of integers and bools."""
    import torch

    if not wanted.numel():
        return 0
    if not wanted.is_floating_point():
        return int((found != wanted).sum())
    units = _UNITS if wanted.element_size() >= 4 else _UNITS_NARROW
    tolerance = units * torch.finfo(wanted.dtype).eps
    finite = sum(block.nan_to_num(0.0, 0.0, 0.0).abs().sum() for block in _blocks(wanted))
    mean = finite / wanted.numel()
    number = 0
    for got, right in zip(_blocks(found), _blocks(wanted)):
        close = (got == right) | (got.isnan() & right.isnan())
        close |= right.isfinite() & ((got - right).abs() <= tolerance * (right.abs() + mean))
        number += int((~close).sum())
    return number


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor as float64, in parts along its first axis that take little memory."""
    import torch

    rows = tensor if tensor.dim() else tensor.reshape(1)
    step = max(1, _BLOCK // max(1, rows[0].numel()))
    for start in range(0, rows.shape[0], step):
        yield rows[start : start + step].to(torch.float64)
