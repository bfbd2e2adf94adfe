"""The ops handler that records a loop body as `Value`s instead of printing code."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import sympy
import torch
from torch._inductor.dtype_propagation import DtypePropagationOpsHandler, promote_types
from torch._inductor.ops_handler import DefaultHandler
from torch._inductor.virtualized import V

from halide_backend.capture import bucketize, conditions, float_index, index_checks, scans
from halide_backend.capture.alignment import simplify
from halide_backend.capture.conditions import Bound
from halide_backend.capture.coordinates import beside_a_mask, coordinates
from halide_backend.capture.indexing import value_range, without_empty
from halide_backend.capture.program_builder import ProgramBuilder
from halide_backend.capture.recorded import Recorded, dtype_name
from halide_backend.capture.scans import Combine
from halide_backend.capture.sizes import MAX_ELEMENTS, extent
from halide_backend.errors import Unsupported
from halide_backend.program.index import ValueSymbol
from halide_backend.program.loop_program import Extent, Indirect, Load, Nest, Number, Reduction
from halide_backend.program.operation_names import (
    COMPARISONS,
    FLOAT_ONLY,
    LOGICAL,
    OPERATIONS,
    RENAMED,
)

#: Reductions that one value describes; the others are rewritten into these.
_REDUCTIONS = ("sum", "prod", "max", "min", "any", "xor_sum", "argmax", "argmin")


class Recorder(DefaultHandler):
    """Records one node's loop body, run over the axes of `nest`, into `builder`.

    A mean is corrected for the rounding errors of its sum where `corrects`; the many short sums of a GPU's threads
    have next to none.
    """

    def __init__(self, builder: ProgramBuilder, nest: Nest, *, corrects: bool = True) -> None:
        self.builder = builder
        self.corrects = corrects
        self.nest = nest
        self.extents: dict[sympy.Symbol, Extent] = {axis.symbol: axis.extent for axis in nest.axes}
        self.mask: Recorded | None = None
        self.bounds: tuple[Bound, ...] = ()  # of the mask
        self.types = _types()

    # -- values ------------------------------------------------------------------------------------------------

    def value(self, operation: str, dtype: torch.dtype, *operands: Recorded, attribute: object = None) -> Recorded:
        position = self.builder.value(operation, dtype_name(dtype), tuple(o.position for o in operands), attribute)
        return Recorded(position, dtype, is_scalar=operation == "constant")

    def constant(self, value: float | int | bool, dtype: torch.dtype) -> Recorded:
        number: float | int | bool
        if dtype.is_floating_point:
            number = float(value)
        elif dtype is torch.bool:
            number = bool(value)
        else:
            number = int(value)
        return self.value("constant", dtype, attribute=Number.of(number))

    def number(self, operand: Any, dtype: torch.dtype) -> Recorded:
        return operand if isinstance(operand, Recorded) else self.constant(operand, dtype)

    def cast(self, operand: Recorded, dtype: torch.dtype) -> Recorded:
        if operand.dtype is dtype:
            return operand
        return self.value("to_dtype", dtype, operand)

    def simplified(self, index: sympy.Expr | int) -> sympy.Expr:
        index = simplify(sympy.sympify(index), self.extents)
        return conditions.settled(conditions.with_c_remainders(index, self.extents), self.extents)

    def index_operands(self, index: sympy.Expr) -> tuple[Recorded, ...]:
        return tuple(
            Recorded(self.builder.indirect[symbol], torch.int32)
            for symbol in sorted(index.free_symbols, key=str)
            if symbol in self.builder.indirect
        )

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Recorded:
        index = self.simplified(expr)
        if float_index.is_float(index):
            return self.cast(float_index.record(index, self), dtype)
        return self.value("index", dtype, *self.index_operands(index), attribute=index)

    def value_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Recorded:
        return self.index_expr(expr, dtype)

    # -- memory ------------------------------------------------------------------------------------------------

    def load(self, name: str, index: sympy.Expr) -> Recorded:
        index = without_empty(self.simplified(index), self.nest.axes)
        dtype = V.graph.get_dtype(name)
        stored = self.builder.stored(name, index)
        if stored is not None:
            return Recorded(stored, dtype)
        load = Load(self.builder.read(name, index), index)
        masks: tuple[Recorded, ...] = ()
        if self.mask is not None and not conditions.in_range(index, size := self.builder.extent(name), self.extents):
            masks, (sizes, strides) = (self.mask,), self.builder.layout(name)
            # On a GPU a masked load is predicated, and its index has to be one line where strides are sizes.
            known = all(isinstance(n, int) for n in sizes + strides)
            if known or not self.builder.flattened:
                load = replace(load, coordinates=coordinates(index, sizes, strides, self.extents, self.bounds))
            if not self.builder.flattened and not (known and load.coordinates):
                line = beside_a_mask(index, size, self.extents, self.builder.values[self.mask.position].axes)
                inside = None if line else conditions.steps_inside(index, size, self.extents)
                load = replace(load, coordinates=line or load.coordinates, inside=inside)
        return self.value("load", dtype, *self.index_operands(index), *masks, attribute=load)

    def store(self, name: str, index: sympy.Expr, value: Recorded | float, mode: str | None = None) -> None:
        dtype = V.graph.get_dtype(name)
        if mode not in (None, "atomic_add"):
            raise Unsupported("unknown-store-mode", f"a store of mode {mode!r}")
        stored = self.cast(self.number(value, dtype), dtype)
        index = without_empty(self.simplified(index), self.nest.axes)
        self.builder.store(name, index, stored.position, Nest(self.nest.axes), mode)

    def store_reduction(self, name: str, index: sympy.Expr, value: Recorded) -> None:
        dtype = V.graph.get_dtype(name)
        stored = self.cast(self.number(value, dtype), dtype)
        index = without_empty(self.simplified(index), self.nest.iteration)
        self.builder.store(name, index, stored.position, Nest(self.nest.iteration), None)

    def bucketize(
        self,
        values: Recorded,
        boundaries: tuple[str, sympy.Expr, sympy.Expr, sympy.Expr],
        boundary_indices: Recorded | int,
        indexing_dtype: torch.dtype,
        right: bool,
        sorter: tuple[str, sympy.Expr] | None = None,
        sorter_indices: Recorded | int | None = None,
    ) -> Recorded:
        below = bucketize.record(self, values, boundaries, boundary_indices, right, sorter, sorter_indices)
        return self.cast(below, indexing_dtype)

    # -- indirect indices and checks ---------------------------------------------------------------------------

    def indirect_indexing(
        self, index: Any, size: sympy.Expr | int, check: bool = True, wrap_neg: bool = True
    ) -> sympy.Expr:
        if not isinstance(index, Recorded):
            return sympy.sympify(index)
        size = extent(size)
        signed = index.dtype not in (torch.bool, torch.uint8, torch.uint16, torch.uint32)
        if check:
            bad = index_checks.record(self, index, size, signed, wrap_neg)
            self.check(bad, "IndexError", f"index out of range: a dimension of size {size}")
        clamped = self.value("indirect", torch.int32, index, attribute=Indirect(size, wrap_neg and signed))
        symbol = ValueSymbol.of(clamped.position)
        self.builder.indirect[symbol] = clamped.position
        self.extents[symbol] = size
        return symbol

    def size_value(self, size: Extent) -> Any:
        return size if isinstance(size, int) else self.index_expr(size, torch.int64)

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        index = self.simplified(expr)
        span = value_range(index, self.extents)
        size = extent(size)
        inside = span is not None and (not lower or span[0] >= 0)
        if inside and (not upper or (isinstance(size, int) and span[1] < size)):  # type: ignore[index]
            return
        value = self.index_expr(index, torch.int64)
        bad = self.constant(False, torch.bool)
        if lower:
            bad = self.logical_or(bad, self.lt(value, 0))
        if upper:
            bad = self.logical_or(bad, self.ge(value, self.size_value(size)))
        self.check(bad, "IndexError", f"index out of range: {index} in a dimension of size {size}")

    def device_assert_async(self, cond: Recorded, msg: str) -> None:
        self.check(self.logical_not(cond), "RuntimeError", msg)

    def check(self, bad: Recorded, error: str, message: str) -> None:
        if self.mask is not None:
            bad = self.logical_and(self.mask, bad)
        self.builder.check(bad.position, error, message)

    def masked(self, mask: Recorded, body: Callable[[], Recorded], other: Any) -> Recorded:
        outer, bounds = self.mask, self.bounds
        if self.builder.number(mask.position) is not True:
            self.mask = mask if outer is None else self.logical_and(outer, mask)
            self.bounds = self.builder.bounds(self.mask.position)
        try:
            result = self.number(body(), torch.float32)
        finally:
            self.mask, self.bounds = outer, bounds
        other = self.cast(self.number(other, result.dtype), result.dtype)
        return self._decided("where", [mask, result, other]) or self.value("where", result.dtype, mask, result, other)

    # -- random numbers ----------------------------------------------------------------------------------------

    def load_seed(self, name: str, offset: Any) -> Recorded:
        return self.load(name, sympy.sympify(offset))

    def rand(self, seed: Recorded, offset: Recorded) -> Recorded:
        return self._random("rand", torch.float32, seed, offset)

    def randn(self, seed: Recorded, offset: Recorded) -> Recorded:
        return self._random("randn", torch.float32, seed, offset)

    def randint64(self, seed: Recorded, offset: Recorded, low: Any, high: Any) -> Recorded:
        return self._random("randint64", torch.int64, seed, offset, low, high)

    def rand_eager(self, seed: Any, base_offset: Any, *layout: Any) -> Recorded:
        # The layout of eager's CUDA generator; on CPU Inductor's C++ backend ignores it as well.
        return self._random("rand", torch.float32, seed, base_offset)

    def _random(self, operation: str, dtype: torch.dtype, *operands: Any) -> Recorded:
        words = [self.cast(self.number(o, torch.int64), torch.int64) for o in operands]
        return self.value(operation, dtype, *words)

    # -- types -------------------------------------------------------------------------------------------------

    def to_dtype(
        self, x: Recorded, dtype: torch.dtype, src_dtype: torch.dtype | None = None, use_compute_types: bool = True
    ) -> Recorded:
        operand = self.number(x, dtype)
        if use_compute_types or operand.dtype is not dtype or self.builder.is_rounded(operand.position):
            return self.cast(operand, dtype)
        return self.value("to_dtype", dtype, operand)

    def to_dtype_bitcast(self, x: Recorded, dtype: torch.dtype, src_dtype: torch.dtype) -> Recorded:
        if dtype.itemsize != src_dtype.itemsize:
            raise Unsupported("bitcast-of-another-size", f"{src_dtype} viewed as {dtype}")
        return self.value("bitcast", dtype, self.cast(x, src_dtype))

    # -- reductions --------------------------------------------------------------------------------------------

    def reduction(self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Any) -> Any:
        if reduction_type == "welford_reduce":
            return self._welford(self.cast(value, dtype))
        if reduction_type == "welford_combine":
            return self._combine(*(self.cast(part, dtype) for part in value))
        if reduction_type not in _REDUCTIONS:
            raise Unsupported("unknown-reduction", f"a reduction of kind {reduction_type!r}")
        return self._reduce(reduction_type, dtype, value)

    def _reduce(self, kind: str, dtype: torch.dtype, value: Any) -> Recorded:
        position: sympy.Expr | None = None
        if kind in ("argmax", "argmin"):
            if isinstance(value, tuple):
                raise Unsupported("argmax-of-pairs", f"{kind} of {len(value)} values, indices among them")
            elements = math.prod(axis.extent for axis in self.nest.reduction)
            if isinstance(elements, int) and elements > MAX_ELEMENTS:
                raise Unsupported("loop-too-long", f"{kind} of {elements} elements, more than {MAX_ELEMENTS}")
            position = sympy.Integer(0)
            for axis in self.nest.reduction:
                position = position * axis.extent + axis.symbol
            position = sympy.expand(position)
        elif kind == "any":
            dtype = torch.bool
            value = self.cast(value, dtype)
        else:
            value = self.cast(self.number(value, dtype), dtype)
        if not self.nest.reduction:
            return self.constant(0, dtype) if position is not None else value
        if kind in ("max", "min") and value.dtype is torch.bool:
            kind = "any" if kind == "max" else "all"
        return self.value("reduction", dtype, value, attribute=Reduction(kind, self.nest.reduction, position))

    def _welford(self, value: Recorded) -> tuple[Recorded, Recorded, Recorded]:
        # The corrected two-pass algorithm (Chan, Golub, LeVeque 1983, eq. 1.7): where Welford's update does not
        # vectorize, this does, over data that a row schedule keeps in cache. What the deviations do not sum up to
        # zero is the rounding error of the mean. Parts of a mean are summed up, which do not overflow: a sum of values
        # near the largest number would. Of equal values less than zero, or -0, may be left (seed 65383).
        dtype = value.dtype
        elements = math.prod(sympy.sympify(axis.extent) for axis in self.nest.reduction)
        count = self.cast(self.index_expr(elements, torch.int64), dtype)
        if not self.corrects:
            mean = self.truediv(self._reduce("sum", dtype, value), count)
            deviation = self.sub(value, mean)
            return mean, self._reduce("sum", dtype, self.mul(deviation, deviation)), count
        mean = self._reduce("sum", dtype, self.mul(value, self.reciprocal(count)))
        deviation = self.sub(value, mean)
        squares, left = (self._reduce("sum", dtype, term) for term in (self.mul(deviation, deviation), deviation))
        correction, overflows = self.truediv(left, count), self.isinf(squares)
        rest = self.where(overflows, squares, self.abs(self.sub(squares, self.mul(left, correction))))
        return self.where(overflows, mean, self.add(mean, correction)), rest, count

    def _combine(self, mean: Recorded, m2: Recorded, weight: Recorded) -> tuple[Recorded, Recorded, Recorded]:
        dtype = mean.dtype
        total = self._reduce("sum", dtype, weight)
        # A weight is a number of values. Of sizes that Inductor did not see, whole parts lie beyond the end: their
        # mean would be 0 / 0.
        values = self.maximum(total, self.constant(1, dtype))
        whole = self.truediv(self._reduce("sum", dtype, self.mul(mean, weight)), values)
        deviation = self.sub(mean, whole)
        spread = self.add(m2, self.mul(self.mul(deviation, deviation), weight))
        return whole, self._reduce("sum", dtype, spread), total

    def scan(self, dtypes: tuple[torch.dtype, ...], combine: Combine, values: tuple[Any, ...]) -> tuple[Recorded, ...]:
        return scans.record(dtypes, combine, values, self, Recorder(ProgramBuilder(()), Nest(())))

    # -- everything else: promote, then record -----------------------------------------------------------------

    def _default(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        operation = RENAMED.get(name, name)
        if operation not in OPERATIONS:
            raise Unsupported("unknown-operation", f"the operation {name}")
        if operation in ("floor_to_int", "ceil_to_int", "trunc_to_int", "round_to_int"):
            return self._rounded_to_int(operation, *args, **kwargs)
        dtype = getattr(self.types, name)(*args, **kwargs)
        if operation in ("floordiv", "truncdiv", "mod", "remainder", "fmod"):
            self._check_divisor(args[1], dtype)
        if operation == "where":
            condition, *branches = args
            operands = [self.cast(self.number(condition, torch.bool), torch.bool)]
            operands += [self.cast(self.number(b, dtype), dtype) for b in branches]
        elif operation in LOGICAL:
            operands = [self.cast(self.number(a, torch.bool), torch.bool) for a in args]
        elif operation in COMPARISONS or dtype is torch.bool:
            common = promote_types(args)
            operands = [self.cast(self.number(a, common), common) for a in args]
        elif operation in ("bitwise_left_shift", "bitwise_right_shift", "ldexp"):
            operands = [self.cast(self.number(args[0], dtype), dtype)]
            operands.append(self.number(args[1], torch.int32))
        else:
            operands = [self.cast(self.number(a, dtype), dtype) for a in args]
        if operation in FLOAT_ONLY and not dtype.is_floating_point:
            raise Unsupported("operation-on-integers", f"{name} of {dtype}")
        dtype_name(dtype)
        return self._decided(operation, operands) or self.value(operation, dtype, *operands)

    def _decided(self, operation: str, operands: list[Recorded]) -> Recorded | None:
        """What a condition on coordinates is known to be where the mask holds, if it is, or what it chooses."""
        if operation in COMPARISONS:
            lengths = self.extents.values()
            left, right = (self.builder.index(operand.position, lengths) for operand in operands)
            if left is None or right is None:
                return None
            if (known := conditions.decided(operation, left, right, self.extents, self.bounds)) is not None:
                return self.constant(known, torch.bool)
            if (sides := conditions.narrowed(operation, left, right, self.extents, self.bounds)) == (left, right):
                return None
            return self.value(operation, torch.bool, *(self.index_expr(side, torch.int64) for side in sides))
        if operation == "where" and isinstance(number := self.builder.number(operands[0].position), bool):
            return operands[1 if number else 2]
        if operation in ("logical_and", "bitwise_and"):
            for operand, other in (operands, operands[::-1]):
                if isinstance(number := self.builder.number(operand.position), bool):
                    return other if number else operand
        return None

    def frexp(self, x: Recorded) -> tuple[Recorded, Recorded]:
        # Low precisions are computed in float32: their mantissa and exponent are the same numbers.
        return self.value("frexp_mantissa", x.dtype, x), self.value("frexp_exponent", torch.int32, x)

    def polygamma(self, n: Any, x: Recorded) -> Recorded:
        """The n-th derivative of digamma: (-1)**(n+1) n! zeta(n+1, x), DLMF 25.11.12."""
        order = n if isinstance(n, int | float) else self.builder.number(n.position)
        if order is None:
            raise Unsupported("polygamma-order-is-data", "the order of polygamma is computed")
        dtype = self.types.polygamma(n, x)
        x = self.cast(x, dtype)
        if order == 0:
            return self.value("digamma", dtype, x)
        if order == 1:
            return self.value("trigamma", dtype, x)
        # exp(lgamma(n + 1)) is torch's factorial: infinite beyond the dtype.
        largest = torch.finfo(torch.float64 if dtype is torch.float64 else torch.float32).max
        factorial = math.gamma(order + 1) if order < 170 else math.inf
        factor = factorial if factorial <= largest else math.inf
        sum_of_powers = self.value("zeta", dtype, self.constant(order + 1, dtype), x)
        return self.value("mul", dtype, self.constant(factor if order % 2 else -factor, dtype), sum_of_powers)

    def _rounded_to_int(self, operation: str, x: Recorded, dtype: torch.dtype) -> Recorded:
        if x.dtype.is_floating_point:
            x = self.value(operation.removesuffix("_to_int"), x.dtype, x)
        return self.cast(x, dtype)

    def _check_divisor(self, divisor: Any, dtype: torch.dtype) -> None:
        if dtype.is_floating_point:
            return
        divisor = self.number(divisor, dtype)
        known = self.builder.number(divisor.position)
        if known is not None and known != 0:
            return
        self.check(self.eq(divisor, 0), "ZeroDivisionError", "integer division or remainder by zero")


@cache
def _types() -> DtypePropagationOpsHandler:
    """The one handler of all recorders: it has no state, and making it takes half as long as recording a node."""
    return DtypePropagationOpsHandler()
