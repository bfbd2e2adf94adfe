"""The vocabulary of random programs: lines that read or write neighbouring elements, as of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .operations import has_nan, is_whole

if TYPE_CHECKING:
    from .generator import Generator, Variable


def _picture(g: Generator, least: int = 2, most: int = 4) -> tuple[Variable, str] | None:
    """A floating-point variable, and the text of a view of it with channels in front of its last two dimensions."""
    x = g.pick(floating=True, min_dim=least, nonempty=True)
    if x is None or x.dim > most:
        return None
    return x, "{0}" + "[None]" * (4 - x.dim if g.chance(2) else max(0, 3 - x.dim))


def pooling(g: Generator) -> None:
    found = _picture(g)
    if found is None:
        return
    x, view = found
    size = (g.draw.integer(1, 4), g.draw.integer(1, 4))
    stride = (g.draw.integer(1, 3), g.draw.integer(1, 3))
    pad = tuple(g.draw.integer(0, n // 2) for n in size)
    plain = f"{view}, {size}, {stride}, {pad}, ceil_mode={g.chance(2)}"
    kind = g.draw.integer(0, 4)
    if kind == 0:
        g.add(f"F.avg_pool2d({plain}, count_include_pad={g.chance(2)})", [x], keeps=False)
    elif kind == 1:
        output = (g.draw.integer(1, 5), g.draw.integer(1, 5))
        g.add(f"F.adaptive_avg_pool2d({view}, {output})", [x], keeps=False)
    elif kind == 2:
        g.add(f"F.max_pool1d({{0}}, {size[0]}, {stride[0]}, 0, 2)", [x], keeps=True)
    else:
        # A window all of whose elements are padding has a position of -1: with Inductor its gradient is an error, with C++, too.
        dilation = 1 if any(pad) else g.choose((1, 2, (1, 3)))
        indices = x.exact and g.chance(3)
        text = f"F.max_pool2d({plain}, dilation={dilation}, return_indices={indices})"
        g.add(text, [x], keeps=True)


def enlarged(g: Generator) -> None:
    found = _picture(g)
    if found is None:
        return
    x, _ = found
    view = "{0}" + "[None]" * (4 - x.dim)
    scale = g.choose(("2", "(2, 3)", "(0.5, 0.75)", "1.7"))
    kind = g.draw.integer(0, 3)
    if kind == 0:
        mode = g.choose(("nearest", "nearest-exact"))
        g.add(f"F.interpolate({view}, scale_factor={scale}, mode={mode!r})", [x], keeps=True)
    elif kind == 1:
        size = (g.draw.integer(1, 40), g.draw.integer(1, 40))
        mode = g.choose(("bilinear", "bicubic"))
        text = f"F.interpolate({view}, size={size}, mode={mode!r}, align_corners={g.chance(2)})"
        g.add(text, [x], keeps=False)
    elif kind == 2:
        g.add(f"F.interpolate({view}, scale_factor={scale}, mode='bilinear')", [x], keeps=False)
    else:
        g.add(f"F.interpolate({{0}}, size={g.draw.integer(1, 70)}, mode='linear')", [x], keeps=False)


def wrapped(g: Generator) -> None:
    """What is read beyond an edge lies inside."""
    found = _picture(g)
    if found is None:
        return
    x, view = found
    mode = g.choose(("reflect", "replicate", "circular"))
    most = [n - 1 if mode == "reflect" else n for n in x.shape[-2:]]
    widths = [min(g.draw.integer(0, 4), max(0, n)) for n in (most[1], most[1], most[0], most[0])]
    g.add(f"F.pad({view}, {tuple(widths)}, mode={mode!r})", [x], keeps=True)


def windows(g: Generator) -> None:
    x = g.pick(min_dim=1, nonempty=True)
    if x is None:
        return
    if g.chance(3) and x.dim >= 2 and x.value.is_floating_point():
        view = "{0}" + "[None]" * max(0, 4 - x.dim)
        size = (g.draw.integer(1, 3), g.draw.integer(1, 3))
        rest = f"dilation={g.draw.integer(1, 2)}, padding={g.draw.integer(0, 2)}, stride={g.draw.integer(1, 2)}"
        g.add(f"F.unfold({view}, {size}, {rest})", [x], keeps=True)
        return
    dim = g.draw.integer(0, x.dim - 1)
    size = g.draw.integer(1, min(5, x.shape[dim]))
    end = g.choose(("", ".contiguous()", ".amax(-1)", ".amin(-1)"))
    g.add(f"{{0}}.unfold({dim}, {size}, {g.draw.integer(1, 3)}){end}", [x], keeps=True)


def folded(g: Generator) -> None:
    """Sums of windows that overlap: the gradient of `F.unfold`."""
    x = g.pick(floating=True, min_dim=2, nonempty=True)
    if x is None or x.shape[-1] < 2 or x.shape[-2] % 4:
        return
    view, blocks = "{0}" + "[None]" * max(0, 3 - x.dim), x.shape[-1]
    g.add(f"F.fold({view}, ({blocks + 1}, 2), (2, 2))" if g.chance(2) else f"F.fold({view}, (2, {blocks + 1}), (2, 2))", [x], keeps=False)  # fmt: skip


def sampled(g: Generator) -> None:
    """Bilinear samples at computed places, whose dependence on these is continuous."""
    found = _picture(g)
    if found is None:
        return
    x, _ = found
    view = "{0}" + "[None]" * (4 - x.dim)
    if x.value.dtype.itemsize < 4:
        return
    batch = x.shape[0] if x.dim == 4 else 1
    grid = g.input((batch, g.draw.integer(1, 9), g.draw.integer(1, 20), 2), x.dtype, "normal")
    mode, corners = g.choose(("zeros", "border")), g.chance(2)
    g.add(f"F.grid_sample({view}, {{1}}, padding_mode={mode!r}, align_corners={corners})", [x, grid], keeps=False)


def mixed_pixels(g: Generator) -> None:
    x = g.pick(min_dim=3, nonempty=True)
    if x is None:
        return
    texts = ("F.pixel_shuffle({0}, 2)", "F.pixel_unshuffle({0}, 2)", "F.channel_shuffle({0}, 2)", "{0}.rot90(1, (-2, -1))",
             "{0}.flip(-1, -2)", "{0}.diff(dim=-1)", "{0}.diff(dim=-2)")  # fmt: skip
    text = g.choose(texts)
    g.add(text, [x], keeps="diff" not in text or is_whole(x))


def normalised_groups(g: Generator) -> None:
    x = g.pick(floating=True, min_dim=2, nonempty=True)
    if x is None or x.value.numel() < 4:
        return
    channels = x.shape[1]
    groups = g.choose([n for n in (1, 2, 3, 5, 8) if channels % n == 0])
    texts = (f"F.group_norm({{0}}, {groups})", "F.batch_norm({0}, None, None, training=True)", "F.instance_norm({0})",
             "F.local_response_norm({0}, 3)", "F.glu({0}, -1)", "F.glu({0}, 1)", "F.cosine_similarity({0}, {0}.flip(-1), -1)")  # fmt: skip
    g.add(g.choose(texts), [x], keeps=False)


#: Norms of rows that lie across memory, and what is made of their elements before these are stored.
_NORMS = (
    "F.rms_norm({view}, ({last},))", "F.layer_norm({view}, ({last},))", "torch.softmax({view}, -1)", "torch.log_softmax({view}, -1)",
    "{view} - {view}.mean(-1, keepdim=True)", "{view} / ({view}.abs().amax(-1, keepdim=True) + 1)",
    "{view} * {view}.sum(-1, keepdim=True).sigmoid()", "F.normalize({view}, dim=-1)", "{view}",
)  # fmt: skip
_AFTER = (
    "", "", ".to(torch.bfloat16)", ".to(torch.float16)", ".to(torch.float64)", ".float()", ".sigmoid()", ".clamp(-1, 1)", ".relu()", ".isnan()",
    ".isfinite().to(torch.uint8)", ".tanh().to(torch.bfloat16)", ".nan_to_num(0.5)", ".exp().to(torch.float16)",
)  # fmt: skip


def turned(g: Generator) -> None:
    x = g.pick(floating=True, min_dim=2, nonempty=True)
    if x is None:
        return
    view = g.choose(("{0}.mT", "{0}.movedim(0, -1)", "{0}.transpose(0, -1)", "{0}.mT[..., 1:]", "{0}[..., 1:].mT"))
    try:
        last = eval(view.format("x"), {"x": x.value}).shape[-1]
    except (RuntimeError, IndexError):
        return
    if not last:
        return
    norm, after = g.choose(_NORMS).format(view=view, last=last), g.choose(_AFTER)
    end = g.choose((".contiguous()", ".contiguous()", ".clone()", ".mT", ".mT.contiguous()", ""))
    exact = norm == view and after in ("", ".clamp(-1, 1)", ".relu()", ".nan_to_num(0.5)", ".to(torch.float64)")
    steps = any(word in after for word in ("isnan", "isfinite"))
    if steps and (norm != view or has_nan(x) or not x.exact):
        return
    g.add(f"({norm}){after}{end}", [x], keeps=exact or steps)
