"""An image pipeline in torch operators, on the photograph that matplotlib ships."""

from __future__ import annotations

import math
from pathlib import Path

import numpy
import torch

from halide_backend.demonstration.workload import ONE_GRAPH, Compiler, Trial, Workload

#: Weights of red, green and blue in luma, ITU-R BT.601.
LUMA = (0.299, 0.587, 0.114)
#: Sensitivity of the corner measure; Harris and Stephens 1988 and most textbooks use 0.04 to 0.06.
HARRIS = 0.05
#: Pixels repeated at each border: two filters in a row of the widest radius, 3 sigma of 4.0.
BORDER = 24


def load() -> torch.Tensor:
    """The photograph of Grace Hopper, float32 (3, 600, 512) in [0, 1].

    Raises RuntimeError when matplotlib (which brings it and pillow) is not installed.
    """
    try:
        from matplotlib.cbook import get_sample_data
        from PIL import Image
    except ImportError as missing:
        raise RuntimeError(
            'the demo\'s photograph comes with matplotlib, which is not installed: pip install "halide-backend[demo]"'
        ) from missing
    with Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)) as picture:
        pixels = numpy.asarray(picture.convert("RGB"), dtype=numpy.float32) / 255
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()


def save(picture: torch.Tensor, file: Path) -> None:
    """Write a (3, H, W) or (H, W) picture in [0, 1] as PNG."""
    from PIL import Image

    pixels = (picture.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    Image.fromarray(pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels).save(file)


def gaussian(sigma: float) -> list[float]:
    """Weights of a Gaussian, sampled out to 3 sigma and normalised to sum 1."""
    radius = math.ceil(3 * sigma)
    weights = [math.exp(-0.5 * (i / sigma) ** 2) for i in range(-radius, radius + 1)]
    return [weight / sum(weights) for weight in weights]


def correlate(picture: torch.Tensor, weights: list[float], dim: int) -> torch.Tensor:
    """Weighted sum of shifted copies along `dim`, which loses len(weights) - 1."""
    extent = picture.shape[dim] - len(weights) + 1
    total = weights[0] * picture.narrow(dim, 0, extent)
    for offset, weight in enumerate(weights[1:], start=1):
        total = total + weight * picture.narrow(dim, offset, extent)
    return total


def blur(picture: torch.Tensor, sigma: float) -> torch.Tensor:
    """Separable Gaussian blur over the last two dimensions, which lose twice its radius."""
    weights = gaussian(sigma)
    return correlate(correlate(picture, weights, -2), weights, -1)


def centre(picture: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """The middle `height` x `width` of the last two dimensions."""
    top, left = (picture.shape[-2] - height) // 2, (picture.shape[-1] - width) // 2
    return picture[..., top : top + height, left : left + width]


def luma(picture: torch.Tensor) -> torch.Tensor:
    """Grey value (H, W) of an RGB picture (3, H, W)."""
    red, green, blue = LUMA
    return red * picture[0] + green * picture[1] + blue * picture[2]


def corners(grey: torch.Tensor) -> torch.Tensor:
    """Harris and Stephens' corner measure over its maximum, zero but at its local maxima."""
    smooth, slope = [0.25, 0.5, 0.25], [-0.5, 0.0, 0.5]
    dx = correlate(correlate(grey, smooth, -2), slope, -1)
    dy = correlate(correlate(grey, slope, -2), smooth, -1)
    xx, xy, yy = blur(dx * dx, 1.5), blur(dx * dy, 1.5), blur(dy * dy, 1.5)
    measure = xx * yy - xy * xy - HARRIS * (xx + yy) ** 2
    neighbourhood = torch.nn.functional.max_pool2d(measure[None], 5, stride=1, padding=2)[0]
    return torch.where(measure == neighbourhood, measure, 0.0).clamp(min=0) / measure.max()


def pipeline(picture: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """(blurred, sharpened, corner measure, local contrast) of a picture (3, H, W), each H x W.

    The borders are repeated once, at the picture itself; every filter then reads only what exists.
    """
    height, width = picture.shape[1:]
    wide = torch.nn.functional.pad(picture[None], [BORDER] * 4, mode="replicate")[0]
    grey = luma(wide)

    blurred = centre(blur(wide, 2.0), height, width)
    sharpened = (picture + 1.5 * (picture - blurred)).clamp(0, 1)
    corner_measure = centre(corners(grey), height, width)

    mean = blur(grey, 4.0)
    # Squares of differences, not a difference of squares, which would lose half the digits.
    detail = centre(grey, *mean.shape) - mean
    deviation = torch.sqrt(blur(detail * detail, 4.0) + 1e-3)
    contrast = (0.5 + 0.2 * centre(detail, height, width) / deviation).clamp(0, 1)
    return blurred, sharpened, corner_measure, contrast


class Pipeline:
    """The whole pipeline on one photograph."""

    def __init__(self, compiler: Compiler, quick: bool) -> None:
        self.before = load()
        if quick:
            self.before = self.before[:, 100:228, 180:308].contiguous()
        self._compiled = compiler(pipeline)

    def step(self) -> tuple[torch.Tensor, ...]:
        with torch.no_grad():
            pictures: tuple[torch.Tensor, ...] = self._compiled(self.before)
        return pictures

    def values(self) -> dict[str, torch.Tensor]:
        return dict(zip(("blur", "sharpen", "corners", "local contrast"), self.step(), strict=True))


def write_pictures(trial: Trial, folder: Path) -> list[Path]:
    """Write the photograph and what the pipeline made of it; returns the files in that order."""
    if not isinstance(trial, Pipeline):
        raise TypeError(f"pictures come from a Pipeline, not from {type(trial).__name__}")
    values = trial.values()
    # A dot of 5x5 pixels for every corner of at least one percent of the strongest.
    strong = (values["corners"] > 0.01).float()
    dots = torch.nn.functional.max_pool2d(strong[None], 5, stride=1, padding=2)
    marked = trial.before * (1 - dots) + dots * torch.tensor([0.0, 1.0, 0.0]).view(3, 1, 1)
    pictures = {
        "before": trial.before,
        "after-blur": values["blur"],
        "after-sharpen": values["sharpen"],
        "after-corners": marked,
        "after-local-contrast": values["local contrast"],
    }
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, picture in pictures.items():
        files.append(folder / f"{name}.png")
        save(picture, files[-1])
    return files


PIPELINE = Workload(
    name="image pipeline",
    model="image",
    summary="blur, sharpen, Harris corners and local contrast of a photograph of 512 x 600 pixels",
    quick_summary="blur, sharpen, Harris corners and local contrast of 128 x 128 pixels",
    tolerances=dict.fromkeys(("blur", "sharpen", "corners", "local contrast"), ONE_GRAPH),
    start=Pipeline,
    write_pictures=write_pictures,
)
