"""The vocabulary of random programs: functions that each draw one line for a `Generator`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .generator import Generator, Variable

#: Unary float operations with one right result.
EXACT_FLOAT = (
    "torch.relu({0})", "-{0}", "{0}.abs()", "{0}.floor()", "{0}.ceil()", "{0}.round()", "{0}.trunc()", "{0}.sign()",
    "F.relu6({0})", "F.hardtanh({0})", "F.threshold({0}, 0.5, -1.0)", "F.threshold({0}, 0.5, -0.0)", "{0}.clamp(-1, 2)", "{0}.clamp(min=-0.5)",
)  # fmt: skip

#: Unary float operations that round.
ROUNDED_FLOAT = (
    "{0}.sigmoid()", "{0}.tanh()", "{0}.exp()", "{0}.abs().log1p()", "{0}.abs().sqrt()", "({0}.abs() + 1).rsqrt()",
    "{0}.sin()", "{0}.cos()", "{0}.erf()", "F.gelu({0})", "F.silu({0})", "F.gelu({0}, approximate='tanh')",
    "{0}.clamp(-3, 3).expm1()", "{0}.square()", "({0}.abs() + 1).reciprocal()", "F.softplus({0})", "F.elu({0})",
    "{0}.abs().add(1).log()", "{0} * 0.5 + 1", "F.leaky_relu({0}, 0.1)", "F.hardswish({0})", "F.mish({0})",
    "{0} / 3", "{0}.atan()", "{0}.exp2()", "({0}.abs() + 1).log2()", "F.logsigmoid({0})", "{0}.clamp(-1, 1).asin()",
    "{0}.pow(2)", "{0}.pow(3)", "{0}.abs().add(0.5).pow(1.5)", "{0}.nan_to_num(0.25, 2.0, -2.0)",
)  # fmt: skip

BINARY_FLOAT = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / ({1}.abs() + 1)", "torch.lerp({0}, {1}, 0.25)", "{0} + {1} * 2",
    "torch.atan2({0}, {1}.abs() + 1)", "({0}.abs() + 0.5).pow({1}.clamp(-2, 2))", "torch.hypot({0}, {1})",
    "torch.addcmul({0}, {0}, {1}, value=0.5)", "torch.logaddexp({0}, {1})", "1.5 - {0} * {1}",
)  # fmt: skip
EXACT_BINARY = (
    "torch.maximum({0}, {1})",
    "torch.minimum({0}, {1})",
    "torch.copysign({0}, {1})",
    "torch.fmax({0}, {1})",
)

INTEGER_UNARY = (
    "-{0}",
    "{0}.abs()",
    "~{0}",
    "{0}.sign()",
    "{0} * 3 + 1",
    "{0}.square()",
    "{0}.clamp(-5, 100)",
    "{0} >> 2",
    "{0} << 1",
)
INTEGER_BINARY = (
    "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} & {1}", "{0} | {1}", "{0} ^ {1}", "torch.maximum({0}, {1})",
    "torch.minimum({0}, {1})", "{0} << ({1} & 7)", "{0} >> ({1} & 7)",
    "torch.div({0}, ({1} & 15) + 1, rounding_mode='floor')", "torch.div({0}, ({1} & 15) + 1, rounding_mode='trunc')",
    "{0} % (({1} & 15) + 1)", "torch.fmod({0}, ({1} & 15) + 1)",
)  # fmt: skip
SIGNED_DIVISION = (
    "torch.div({0}, ({1} & 15) - 20, rounding_mode='floor')", "torch.div({0}, ({1} & 15) - 20, rounding_mode='trunc')",
    "{0} % (({1} & 15) - 20)", "torch.fmod({0}, ({1} & 15) - 20)",
)  # fmt: skip
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


def is_whole(variable: Variable) -> bool:
    """Whether sums and products of the values are exact: small whole numbers."""
    value = variable.value
    if not value.is_floating_point():
        return True
    if not variable.exact or value.dtype in (torch.float16, torch.bfloat16) or value.numel() == 0:
        return False
    return bool((value == value.trunc()).all()) and float(value.abs().max()) < 1000


def _has_signs(variable: Variable) -> bool:
    """Whether the signs of the values are right or wrong: IEEE 754 leaves that of a computed NaN open (6.3).

    Eager's own minimum of bfloat16 gives NaN a sign in its vectors and none in their tail (seed 38445).
    """
    return variable.exact and not has_nan(variable)


def has_nan(variable: Variable) -> bool:
    return bool(variable.value.isnan().any())


# -- pointwise -----------------------------------------------------------------------------------------------------


def exact_float(g: Generator) -> None:
    text = g.choose(EXACT_FLOAT)
    stepped = any(word in text for word in ("floor", "ceil", "round", "trunc", "sign", "threshold"))
    x = g.pick(floating=True, exact=stepped)
    if x:
        g.add(text, [x], keeps=True)


def rounded_float(g: Generator) -> None:
    x = g.pick(floating=True)
    if x:
        g.add(g.choose(ROUNDED_FLOAT), [x], keeps=False)


def binary_float(g: Generator) -> None:
    x = g.pick(floating=True)
    y = g.partner(x) if x else None
    if x and y:
        text = g.choose(BINARY_FLOAT)
        g.add(text, [x, y], keeps=is_whole(x) and is_whole(y) and text in BINARY_FLOAT[:3])


def exact_binary(g: Generator) -> None:
    text = g.choose(EXACT_BINARY)
    x = g.pick(floating=True, exact="copysign" in text)
    y = g.partner(x) if x else None
    if x and y and (_has_signs(y) or "copysign" not in text):
        g.add(text, [x, y], keeps=True)


def integer(g: Generator) -> None:
    x = g.pick(floating=False, boolean=False)
    if not x:
        return
    y = g.partner(x)
    if y is None or g.chance(3):
        g.add(g.choose(INTEGER_UNARY), [x], keeps=True)
    elif x.dtype is not torch.uint8 and g.chance(4):
        g.add(g.choose(SIGNED_DIVISION), [x, y], keeps=True)
    else:
        g.add(g.choose(INTEGER_BINARY), [x, y], keeps=True)


def logical(g: Generator) -> None:
    x = g.pick(boolean=True)
    y = g.partner(x) if x else None
    if x and y:
        g.add(
            g.choose(
                (
                    "{0} & {1}",
                    "{0} | {1}",
                    "{0} ^ {1}",
                    "~{0}",
                    "{0} == {1}",
                    "{0} + {1}",
                    "torch.logical_xor({0}, {1})",
                )
            ),
            [x, y],
            keeps=True,
        )


def comparison(g: Generator) -> None:
    x = g.pick(exact=True)
    y = g.partner(x, same_dtype=g.draw.integer(0, 2) > 0) if x else None
    if x and y and y.exact:
        g.add(f"{{0}} {g.choose(COMPARISONS)} {{1}}", [x, y], keeps=True)


def test(g: Generator) -> None:
    x = g.pick(exact=True, floating=True)
    if x is None:
        return
    text = g.choose(
        ("{0}.isnan()", "{0}.isinf()", "{0}.isfinite()", "{0} > 0", "{0}.signbit()", "{0}.bool()", "{0} != 0")
    )
    if _has_signs(x) or "signbit" not in text:
        g.add(text, [x], keeps=True)


def selection(g: Generator) -> None:
    mask = g.pick(boolean=True)
    x = g.partner(mask, same_dtype=False) if mask else None
    y = g.partner(x) if x else None
    if mask and x and y:
        texts = ("torch.where({0}, {1}, {2})", "{1}.masked_fill({0}, 2)", "torch.where({0}, {1}, 0)")
        g.add(g.choose(texts), [mask, x, y], keeps=True)


def triangle(g: Generator) -> None:
    x = g.pick(min_dim=2, nonempty=True)
    if x:
        side, end = g.choose(("tril", "triu")), g.choose(("", "", ".mT", ".mT.contiguous()"))
        g.add(f"{{0}}.{side}({g.draw.integer(-9, 9)}){end}", [x], keeps=True)


def mixed(g: Generator) -> None:
    x = g.pick()
    y = g.partner(x, same_dtype=False) if x else None
    if x and y:
        exact = x.value.is_floating_point() is False and y.value.is_floating_point() is False
        g.add(g.choose(("{0} + {1}", "{0} * {1}", "torch.maximum({0}, {1})")), [x, y], keeps=exact)


def cast(g: Generator) -> None:
    x = g.pick()
    if x is None:
        return
    target = g.choose(
        (
            torch.float32,
            torch.float64,
            torch.float16,
            torch.bfloat16,
            torch.int64,
            torch.int32,
            torch.int16,
            torch.int8,
            torch.uint8,
            torch.bool,
        )
    )
    if x.value.is_floating_point() and not target.is_floating_point:
        low = 0 if target is torch.uint8 else -100
        value = x.value.detach()
        inside = bool((torch.isfinite(value) & (value >= low) & (value < 100)).all())
        if not x.exact or (target is not torch.bool and not inside):
            return
    rounds = target in (torch.float16, torch.bfloat16)
    g.add(f"{{0}}.to({target})", [x], keeps=not rounds)


# -- reductions ----------------------------------------------------------------------------------------------------


def _dims(g: Generator, x: Variable) -> str:
    if x.dim == 0 or g.chance(6):
        return ""
    first = g.draw.integer(0, x.dim - 1)
    second = g.draw.integer(0, x.dim - 1)
    chosen = tuple(sorted({first, second})) if g.chance(3) else (first,)
    return f"dim={chosen!r}, keepdim={g.chance(2)}"


def _dim(g: Generator, x: Variable) -> str:
    return f"dim={g.draw.integer(-x.dim, x.dim - 1)}, keepdim={g.chance(2)}"


def float_reduction(g: Generator) -> None:
    x = g.pick(floating=True, nonempty=True)
    if x is None:
        return
    text = g.choose(
        (
            "{{0}}.sum({})",
            "{{0}}.mean({})",
            "{{0}}.amax({})",
            "{{0}}.amin({})",
            "torch.var({{0}}, {})",
            "torch.std({{0}}, {})",
            "({{0}} / 8).tanh().sum({})",
        )
    )
    exact = "amax" in text or "amin" in text
    dims = _dims(g, x)
    if not dims and ("var" in text or "std" in text):
        dims = "correction=0"
    g.add(text.format(dims), [x], keeps=exact)


def integer_reduction(g: Generator) -> None:
    x = g.pick(floating=False, nonempty=True)
    if x:
        texts = ("{{0}}.sum({})", "{{0}}.amax({})", "{{0}}.amin({})", "{{0}}.any({})", "{{0}}.all({})")
        # any and all of uint8 are uint8 in eager and bool with Inductor, whatever the backend.
        text = g.choose(texts[:3] if x.dtype is torch.uint8 else texts)
        dims = _dims(g, x)
        if "any" in text or "all" in text:
            dims = _dim(g, x) if x.dim else ""
        g.add(text.format(dims), [x], keeps=True)


def position(g: Generator) -> None:
    x = g.pick(exact=True, min_dim=1, boolean=False, nonempty=True)
    if x:
        text = g.choose(("{{0}}.argmax({})", "{{0}}.argmin({})", "{{0}}.max({})", "{{0}}.min({})"))
        g.add(text.format(_dim(g, x)), [x], keeps=True)


def product(g: Generator) -> None:
    x = g.pick(min_dim=1, nonempty=True)
    if x is None or x.dtype is torch.bool:
        return
    dim = _dim(g, x)
    if x.value.is_floating_point():
        g.add(f"(1 + {{0}}.tanh() / 100).prod({dim})", [x], keeps=False)
    else:
        g.add(f"{{0}}.prod({dim})", [x], keeps=True)


def normalisation(g: Generator) -> None:
    x = g.pick(floating=True, min_dim=1, nonempty=True)
    if x is None:
        return
    last = x.shape[-1]
    dim = g.draw.integer(-x.dim, x.dim - 1)
    g.add(
        g.choose(
            (
                f"torch.softmax({{0}}, {dim})",
                f"torch.log_softmax({{0}}, {dim})",
                f"torch.logsumexp({{0}}, {dim})",
                f"F.layer_norm({{0}}, ({last},))",
                f"F.rms_norm({{0}}, ({last},))",
                f"F.normalize({{0}}, dim={dim})",
                f"({{0}} - {{0}}.mean({dim}, keepdim=True))",
            )
        ),
        [x],
        keeps=False,
    )


def masked_softmax(g: Generator) -> None:
    mask = g.pick(boolean=True, min_dim=1, nonempty=True)
    if mask is None:
        return
    fitting = [v for v in g.variables if v.value.is_floating_point() and v.shape == mask.shape]
    if fitting:
        g.add("torch.softmax({0}.masked_fill({1}, -inf), -1)", [g.choose(fitting), mask], keeps=False)


# -- views and layouts -----------------------------------------------------------------------------------------------


def permutation(g: Generator) -> None:
    x = g.pick(min_dim=2)
    if x is None:
        return
    order = list(range(x.dim))
    for place in range(x.dim - 1, 0, -1):
        other = g.draw.integer(0, place)
        order[place], order[other] = order[other], order[place]
    suffix = ".contiguous()" if g.chance(3) else ""
    g.add(f"{{0}}.permute({tuple(order)}){suffix}", [x], keeps=True)


def section(g: Generator) -> None:
    x = g.pick(min_dim=1, nonempty=True)
    if x is None:
        return
    dim = g.draw.integer(0, x.dim - 1)
    extent = x.shape[dim]
    start = g.draw.integer(0, extent - 1)
    stop = g.draw.integer(start, extent)
    step = g.choose((1, 1, 1, 2, 3))
    index = ", ".join([*[":"] * dim, f"{start}:{stop}:{step}" if not g.chance(5) else str(start)])
    g.add(f"{{0}}[{index}]", [x], keeps=True)


def reshape(g: Generator) -> None:
    x = g.pick(min_dim=1)
    if x is None:
        return
    shape = list(x.shape)
    if x.dim >= 2 and g.chance(2):
        place = g.draw.integer(0, x.dim - 2)
        shape[place : place + 2] = [shape[place] * shape[place + 1]]
    else:
        place = g.draw.integer(0, x.dim - 1)
        divisors = [d for d in (1, 2, 3, 5, 8, 16) if shape[place] % d == 0]
        divisor = g.choose(divisors)
        shape[place : place + 1] = [divisor, shape[place] // divisor]
    g.add(f"{{0}}.reshape({tuple(shape)})", [x], keeps=True)


def expansion(g: Generator) -> None:
    x = g.pick()
    if x is None:
        return
    place = g.draw.integer(0, x.dim)
    extent = g.choose((1, 2, 3, 5))
    shape = [*x.shape[:place], extent, *x.shape[place:]]
    g.add(f"{{0}}.unsqueeze({place}).expand({tuple(shape)})", [x], keeps=True)


def arrangement(g: Generator) -> None:
    x = g.pick(min_dim=1)
    if x is None:
        return
    dim = g.draw.integer(0, x.dim - 1)
    shift = g.draw.integer(-3, 5)
    repeats = tuple(g.choose((1, 1, 2)) for _ in range(x.dim))
    g.add(
        g.choose(
            (
                f"{{0}}.flip({dim})",
                f"torch.roll({{0}}, {shift}, {dim})",
                f"{{0}}.repeat({repeats})",
                "{0}.contiguous()",
                "{0}.clone()",
                f"{{0}}.movedim({dim}, 0)",
            )
        ),
        [x],
        keeps=True,
    )


def joined(g: Generator) -> None:
    x = g.pick(min_dim=1)
    if x is None:
        return
    dim = g.draw.integer(0, x.dim - 1)
    rest = lambda v: v.shape[:dim] + v.shape[dim + 1 :]  # noqa: E731
    fitting = [v for v in g.variables if v.dtype is x.dtype and v.dim == x.dim and rest(v) == rest(x)]
    parts = [x, g.choose(fitting)] + ([g.choose(fitting)] if g.chance(3) else [])
    names = ", ".join(f"{{{k}}}" for k in range(len(parts)))
    same = all(part.shape == x.shape for part in parts)
    function = "stack" if same and g.chance(3) else "cat"
    g.add(f"torch.{function}([{names}], {dim})", parts, keeps=True)


def padding(g: Generator) -> None:
    x = g.pick(min_dim=1, nonempty=True)
    if x is None or x.dtype is torch.bool:
        return
    widths = [g.draw.integer(-1 if x.shape[-1] > 3 else 0, 3), g.draw.integer(0, 4)]
    if x.dim >= 2 and g.chance(2):
        widths += [g.draw.integer(0, 2), g.draw.integer(0, 2)]
    g.add(f"F.pad({{0}}, {tuple(widths)}, value={g.choose((0, 1))})", [x], keeps=True)


# -- positions from data -----------------------------------------------------------------------------------------------


def gathered(g: Generator) -> None:
    x = g.pick(min_dim=1, nonempty=True)
    if x is None:
        return
    dim = g.draw.integer(0, x.dim - 1)
    extent = x.shape[dim]
    kind = g.draw.integer(0, 2)
    if kind == 0:
        index = g.input((g.draw.integer(1, 20),), torch.int64, f"index:{extent}", "contiguous")
        g.add(f"{{0}}.index_select({dim}, {{1}})", [x, index], keeps=True)
    elif kind == 1:
        index = g.input((g.draw.integer(1, 20),), torch.int64, f"index:{extent}", "contiguous")
        g.add(f"{{0}}[{', '.join([*[':'] * dim, f'{{1}} - {extent}'])}]", [x, index], keeps=True)
    else:
        shape = list(x.shape)
        shape[dim] = g.draw.integer(1, 9)
        index = g.input(tuple(shape), torch.int64, f"index:{extent}", "contiguous")
        g.add(f"{{0}}.gather({dim}, {{1}})", [x, index], keeps=True)


def scattered(g: Generator) -> None:
    """The written values come from an input of their own: read from the tensor that is written, they would be the old
    ones in eager and the new ones with Inductor, which drops the copy for every backend."""
    x = g.pick(min_dim=1, nonempty=True, boolean=False)
    if x is None:
        return
    dim = g.draw.integer(0, x.dim - 1)
    extent = x.shape[dim]
    kind = g.draw.integer(0, 3)
    count = g.draw.integer(1, 20)
    if kind == 0:
        count = min(count, extent)
    if kind == 2:
        index = g.input(x.shape, torch.int64, f"index:{extent}", "contiguous")
        values = g.input(x.shape, x.dtype, "whole")
        text = f"{{0}}.scatter_add({dim}, {{1}}, {{2}})"
    else:
        index = g.input((count,), torch.int64, f"{'permutation' if kind == 0 else 'index'}:{extent}", "contiguous")
        shape = tuple(count if d == dim else n for d, n in enumerate(x.shape))
        values = g.input(shape, x.dtype, "whole")
        text = {
            0: "{0}.clone().index_put(({1},), {2})" if dim == 0 else f"torch.index_copy({{0}}, {dim}, {{1}}, {{2}})",
            1: "{0}.index_put(({1},), {2}, accumulate=True)" if dim == 0 else f"{{0}}.index_add({dim}, {{1}}, {{2}})",
            3: f"{{0}}.index_add({dim}, {{1}}, {{2}}, alpha=2)",
        }[kind]
    g.add(text, [x, index, values], keeps=is_whole(x))


# -- in place ------------------------------------------------------------------------------------------------------


def inplace(g: Generator) -> None:
    if g.gradients:
        return
    x = g.pick(nonempty=True)
    if x is None or x.overlaps:
        return
    partners = [
        v for v in g.variables
        if v.dtype is x.dtype and v.dim <= x.dim and all(a in (1, b) for a, b in zip(reversed(v.shape), reversed(x.shape)))
        and (v.storage != x.storage or v is x)
    ]  # fmt: skip
    y = g.choose(partners)
    if x.dtype is torch.bool:
        texts = ("{0}.logical_not_()", "{0}.copy_({1})", "{0}.logical_or_({1})", "{0}.fill_(True)")
    elif x.value.is_floating_point():
        texts = (
            "{0}.add_({1})",
            "{0}.mul_({1})",
            "{0}.copy_({1})",
            "{0}.relu_()",
            "{0}.clamp_(-1, 1)",
            "{0}.sub_({1}, alpha=0.5)",
            "{0}.fill_(0.5)",
            "{0}.sigmoid_()",
            "{0}.neg_()",
        )
    else:
        texts = (
            "{0}.add_({1})",
            "{0}.mul_({1})",
            "{0}.copy_({1})",
            "{0}.clamp_(0, 50)",
            "{0}.bitwise_or_({1})",
            "{0}.fill_(3)",
            "{0}.neg_()",
        )
    text = g.choose(texts)
    keeps = (
        not x.value.is_floating_point()
        or any(w in text for w in ("copy_", "relu_", "clamp_", "fill_", "neg_"))
        or (is_whole(x) and is_whole(y) and "add_" in text)
    )
    if x.dim >= 1 and x.shape[0] > 2 and g.chance(3):
        text = text.replace("{0}", "{0}[1:-1]", 1)
        if y.dim == x.dim and y.shape[0] == x.shape[0]:
            text = text.replace("{1}", "{1}[2:]" if y is not x else "{1}[1:-1]")
    elif x.dim == 2 and g.chance(3) and x.shape == y.shape:
        text = text.replace("{0}", "{0}.t()", 1).replace("{1}", "{1}.t()")
    g.add(text, [x, y], keeps=keeps, inplace=True)


def overwritten(g: Generator) -> None:
    """Old values that are needed after their memory is overwritten.

    (x.copy_(y) followed by y.copy_(old x) is not drawn: Inductor itself drops the copy of x, for every backend.)
    """
    if g.gradients:
        return
    x = g.pick(min_dim=1, nonempty=True)
    if x is None or x.overlaps:
        return
    fitting = [
        v
        for v in g.variables
        if v.dtype is x.dtype and v.shape == x.shape and v.storage != x.storage and not v.overlaps
    ]
    if not fitting:
        return
    y = g.choose(fitting)
    if g.add("torch.maximum({0}, {1})", [x, y], keeps=True):
        old = g.variables[-1]
        g.add("{0}.copy_({1})", [x, y], keeps=True, inplace=True)
        g.add("{0}.copy_({1})", [y, old], keeps=True, inplace=True)


TABLE: tuple[Callable[[Generator], None], ...] = (
    *[exact_float] * 2, *[rounded_float] * 4, *[binary_float] * 5, *[exact_binary] * 2, *[integer] * 4, logical,
    *[comparison] * 2, test, *[selection] * 3, *[mixed] * 2, *[cast] * 2,
    *[float_reduction] * 5, *[integer_reduction] * 2, *[position] * 2, product, *[normalisation] * 3, masked_softmax,
    *[permutation] * 3, *[section] * 3, *[reshape] * 2, expansion, *[arrangement] * 2, *[joined] * 2, padding,
    *[gathered] * 2, scattered, *[inplace] * 3, overwritten, *[triangle] * 2,
)  # fmt: skip
