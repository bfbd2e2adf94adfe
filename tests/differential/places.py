"""The vocabulary of random programs: lines whose places come from data, from counting, or from a view that is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .operations import is_whole

if TYPE_CHECKING:
    from .generator import Generator


def looked_up(g: Generator) -> None:
    """By two indices at once, by places in all elements, in a table, or in rows of one."""
    x = g.pick(min_dim=1, nonempty=True)
    if x is None:
        return
    kind, count = g.draw.integer(0, 4), g.draw.integer(1, 40)
    shape = (count,) if g.chance(2) else (g.draw.integer(1, 9), g.draw.integer(1, 9))
    integer = g.choose((torch.int64, torch.int64, torch.int32))

    def index(extent: int, shape: tuple[int, ...] = shape, dtype: torch.dtype = integer) -> object:
        return g.input(shape, dtype, f"index:{extent}")

    if kind == 0 and x.dim >= 2:
        first, second = index(x.shape[0]), index(x.shape[1], shape[-1:])
        g.add("{0}[{1}, {2}]", [x, first, second], keeps=True)  # type: ignore[list-item]
    elif kind == 1 and x.dim >= 3:
        first, second = index(x.shape[0]), index(x.shape[2], shape[-1:])
        g.add("{0}[{1}, :, {2}]", [x, first, second], keeps=True)  # type: ignore[list-item]
    elif kind == 2 and x.dim == 2 and x.value.is_floating_point():
        g.add("F.embedding({1}, {0})", [x, index(x.shape[0])], keeps=True)  # type: ignore[list-item]
    elif kind == 3:
        g.add("{0}.take({1})", [x, index(x.value.numel(), shape, torch.int64)], keeps=True)  # type: ignore[list-item]
    else:
        dim = g.draw.integer(0, x.dim - 1)
        shape = tuple(g.draw.integer(1, 9) if d == dim else g.choose((1, n)) for d, n in enumerate(x.shape))
        place = index(x.shape[dim], shape, torch.int64)
        g.add(f"torch.take_along_dim({{0}}, {{1}}, {dim})", [x, place], keeps=True)  # type: ignore[list-item]


def reduced_into(g: Generator) -> None:
    """Elements that are written, or reduced into others, at places in data; values are inputs of their own."""
    x = g.pick(min_dim=1, nonempty=True, boolean=False)
    if x is None:
        return
    dim, kind = g.draw.integer(0, x.dim - 1), g.draw.integer(0, 5)
    index = g.input(x.shape, torch.int64, f"index:{x.shape[dim]}", "contiguous")
    values = g.input(x.shape, x.dtype, "whole")
    if kind < 3:
        how = g.choose(("amax", "amin", "sum", "mean"))
        text = f"{{0}}.scatter_reduce({dim}, {{1}}, {{2}}, {how!r}, include_self={g.chance(2)})"
        # The division of whole numbers is truncated in eager, and rounded down with Inductor, whatever the backend.
        if how == "mean" and not x.value.is_floating_point():
            return
        g.add(text, [x, index, values], keeps=how in ("amax", "amin") or (how == "sum" and is_whole(x)))
    elif kind == 3:
        g.add(f"{{0}}.scatter({dim}, {{1}}, 2)", [x, index], keeps=True)
    elif kind == 4 and not g.gradients:
        place = g.input((g.draw.integer(1, 9),), torch.int64, f"index:{x.shape[dim]}")
        g.add(f"{{0}}.index_fill({dim}, {{1}}, 3)", [x, place], keeps=True)
    elif x.dim >= 2:
        count = g.draw.integer(1, 9)
        places = [g.input((count,), torch.int64, f"index:{n}") for n in x.shape[:2]]
        added = g.input((count, *x.shape[2:]), x.dtype, "whole")
        g.add("{0}.index_put(({1}, {2}), {3}, accumulate=True)", [x, *places, added], keeps=is_whole(x))


def found_between(g: Generator) -> None:
    x = g.pick(exact=True, floating=True, nonempty=True)
    if x is None or x.dtype not in (torch.float32, torch.float64):
        return
    bounds = [b / 4 for b in sorted({g.draw.integer(-20, 20) for _ in range(g.draw.integer(1, 9))})]
    table = f"torch.tensor({bounds}, dtype={x.dtype})"
    g.add(f"torch.bucketize({{0}}, {table}, right={g.chance(2)})", [x], keeps=True)


def counted(g: Generator) -> None:
    """Masks and numbers that depend on where an element lies."""
    x = g.pick(min_dim=1, nonempty=True)
    if x is None:
        return
    n, dim = x.shape[-1], g.draw.integer(0, x.dim - 1)
    step, less = g.choose((1, 2, 3, 7)), g.draw.integer(-3, 70)
    counts, others = f"torch.arange({n})", f"torch.arange({x.shape[dim]}).view(-1{', 1' * (x.dim - 1 - dim)})"
    mask = g.choose((
        f"{counts} < {less}", f"{counts} % {step} == 0", f"{counts} // {step} > {less}", f"{counts} + {less} >= {others}",
        f"({counts} - {others}).abs() < {abs(less) + 1}", f"{counts} * {step} - {less} < {others}", f"({counts} == {others})",
    ))  # fmt: skip
    if x.dtype is torch.bool:
        g.add(f"{{0}} & ({mask})", [x], keeps=True)
        return
    other = g.choose(
        ("2", "-inf", "nan", "inf", "0") if x.value.is_floating_point() and not g.gradients else ("2", "0")
    )
    texts = [f"torch.where({mask}, {{0}}, {other})", f"{{0}}.masked_fill({mask}, {other})"]
    if not x.value.is_floating_point():
        texts += [f"{{0}} + {counts}", f"{{0}} * ({counts} % {step})", f"{counts} - {{0}}", f"{{0}}.gather(-1, ({counts} * {step} % {n}).expand({x.shape}))"]  # fmt: skip
    g.add(g.choose(texts), [x], keeps=True)


def shifted_far(g: Generator) -> None:
    """Shifts by any number of bits, and quotients of the whole range of a type."""
    x = g.pick(floating=False, boolean=False)
    y = g.partner(x) if x else None
    if x and y:
        texts = ("{0} << {1}", "{0} >> {1}", "{0} << ({1} & 63)", "{0} >> ({1} & 63)", "torch.div({0}, {1} | 1, rounding_mode='floor')",
                 "{0} % ({1} | 1)", "torch.fmod({0}, {1} | 2)", "{0} // 7", "{0} % 16", "{0} % 10", "torch.div({0}, 10, rounding_mode='trunc')",
                 "torch.gcd({0} & 63, {1} & 31)", "({0} & 7) ** 3", "{0} // -3", "{0} - {1} < {0}")  # fmt: skip
        text = g.choose(texts)
        if "| 1" in text and x.dtype in (torch.int32, torch.int64):
            text = text.replace("| 1", "& 31 | 1")
        g.add(text, [x, y], keeps=True)


def rebuilt(g: Generator) -> None:
    """A tensor of which a part is replaced, or its diagonal."""
    x = g.pick(min_dim=1, nonempty=True)
    if x is None:
        return
    dim = g.draw.integer(0, x.dim - 1)
    n = x.shape[dim]
    start, step = g.draw.integer(0, n - 1), g.choose((1, 2, 3))
    cut = f"{':, ' * dim}{start}:{n}:{step}"
    texts = [
        f"torch.slice_scatter({{0}}, {{0}}[{cut}].flip({dim}), {dim}, {start}, {n}, {step})",
        f"torch.select_scatter({{0}}, {{0}}.select({dim}, {n - 1}), {dim}, {start})",
        "torch.diag_embed({0})",
        f"{{0}}.roll({g.draw.integer(-9, 9)})",
    ]
    if x.dim >= 2:
        offset = g.draw.integer(-2, 2)
        texts += [f"{{0}}.diagonal({offset})", f"{{0}}.diagonal({offset}, 0, -1).contiguous()", "torch.diagonal_scatter({0}, {0}.diagonal().flip(-1))"]  # fmt: skip
    g.add(g.choose(texts), [x], keeps=True)


def written_parts(g: Generator) -> None:
    """Parts that are overwritten in place: with steps, on a diagonal, at places in data, or under a mask."""
    if g.gradients:
        return
    x = g.pick(min_dim=1, nonempty=True)
    if x is None or x.overlaps:
        return
    number = "True" if x.dtype is torch.bool else "2"
    step, start = g.choose((2, 3)), g.draw.integer(0, 2)
    kind = g.draw.integer(0, 5)
    if kind == 0:
        g.add(f"{{0}}[..., {start}::{step}] = {number}", [x], keeps=True, inplace=True)
    elif kind == 1 and x.dim >= 2:
        g.add(f"{{0}}.diagonal().fill_({number})", [x], keeps=True, inplace=True)
    elif kind == 2 and x.dtype is not torch.bool:
        index = g.input((g.draw.integer(1, 20),), torch.int64, f"index:{x.shape[0]}")
        values = g.input((index.shape[0], *x.shape[1:]), x.dtype, "whole")
        g.add("{0}.index_put_(({1},), {2}, accumulate=True)", [x, index, values], keeps=is_whole(x), inplace=True)
    elif kind == 3 and x.dtype is not torch.bool:
        index = g.input(x.shape, torch.int64, f"index:{x.shape[-1]}", "contiguous")
        values = g.input(x.shape, x.dtype, "whole")
        g.add("{0}.scatter_reduce_(-1, {1}, {2}, 'amax')", [x, index, values], keeps=True, inplace=True)
    elif kind == 4:
        mask = g.input(x.shape, torch.bool)
        g.add(f"{{0}}.masked_fill_({{1}}, {number})", [x, mask], keeps=True, inplace=True)
    else:
        rows = g.input((len(range(start, x.shape[0], step)), *x.shape[1:]), x.dtype, "whole")
        g.add(f"{{0}}[{start}::{step}].copy_({{1}})", [x, rows], keeps=True, inplace=True)


def accumulated(g: Generator) -> None:
    x = g.pick(min_dim=1, nonempty=True, boolean=False)
    if x is None:
        return
    dim = g.draw.integer(0, x.dim - 1)
    if g.chance(2):
        g.add(
            f"({{0}} / 16).cumsum({dim})" if x.value.is_floating_point() else f"{{0}}.cumsum({dim})", [x], keeps=False
        )
    elif x.exact:
        g.add(f"torch.{g.choose(('cummax', 'cummin'))}({{0}}, {dim})", [x], keeps=True)


def compared_rows(g: Generator) -> None:
    """Several results of the same rows, and losses."""
    x = g.pick(floating=True, min_dim=1, nonempty=True)
    y = g.partner(x) if x else None
    if not x or not y:
        return
    dim = g.draw.integer(0, x.dim - 1)
    texts = [f"torch.var_mean({{0}}, {dim})", f"torch.std_mean({{0}}, {dim}, keepdim=True)", f"{{0}}.norm(dim={dim})", f"{{0}}.norm(1, dim={dim})",
             "F.smooth_l1_loss({0}, {1}, reduction='none')", "F.huber_loss({0}, {1}, reduction='none')", "F.mse_loss({0}, {1})",
             "F.binary_cross_entropy_with_logits({0}, {1}.sigmoid())", "F.l1_loss({0}, {1})", "{0} @ {0}.mT / 64", "torch.outer({0}.flatten()[:50], {1}.flatten()[:70])",
             "F.softmin({0}, -1) * {1}"]  # fmt: skip
    if x.exact and not g.gradients:
        texts += [f"torch.aminmax({{0}}, dim={dim})", f"torch.count_nonzero({{0}}, {dim})"]
    text = g.choose(texts)
    g.add(text, [x, y], keeps="aminmax" in text or "count" in text)


def classified(g: Generator) -> None:
    """The loss of rows whose classes are data."""
    x = g.pick(floating=True, min_dim=2, nonempty=True)
    if x is None or x.dim != 2 or x.dtype in (torch.float16, torch.bfloat16):
        return
    classes = g.input((x.shape[0],), torch.int64, f"index:{x.shape[1]}", "contiguous")
    reduction = g.choose(("mean", "none", "sum"))
    g.add(f"F.cross_entropy({{0}}, {{1}}, reduction={reduction!r}, ignore_index=0) / 8", [x, classes], keeps=False)
