"""A small ResNet-style network that learns where in a photograph a crop comes from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from halide_backend.demonstration import photograph
from halide_backend.demonstration.training import Training
from halide_backend.demonstration.workload import ONE_GRAPH, WHOLE_MODEL, Compiler, Workload

SEED = 0
#: Small enough that ten steps do not amplify rounding: at 0.01 eager's own float32 and float64 loss
#: curves part by
#: 2e-3, at 0.003 by 5e-7.
LEARNING_RATE = 0.003
CROP = 32
GRID = 4


@dataclass(frozen=True)
class Shape:
    """Sizes of the network and of what it is fed."""

    widths: tuple[int, ...] = (16, 32, 64)
    rows: int = 32
    steps: int = 10

    def words(self) -> str:
        """The sizes in one phrase."""
        widths = "-".join(map(str, self.widths))
        return (
            f"{self.steps} steps, forward, backward and SGD, of a ResNet-style network, "
            f"widths {widths}, on {self.rows} crops of a photograph"
        )


FULL = Shape()
QUICK = Shape(widths=(8, 16), rows=8, steps=3)


class Block(nn.Module):
    """Two 3x3 convolutions with batch normalisation beside a shortcut."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.convolution_1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm_1 = nn.BatchNorm2d(channels)
        self.convolution_2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm_2 = nn.BatchNorm2d(channels)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = torch.relu(self.norm_1(self.convolution_1(x)))
        return torch.relu(self.norm_2(self.convolution_2(inner)) + self.shortcut(x))


class ResidualNetwork(nn.Module):
    """A stem with max pooling, one block per width, global average pooling and a classifier."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        first = shape.widths[0]
        self.stem = nn.Sequential(
            nn.Conv2d(3, first, 3, padding=1, bias=False),
            nn.BatchNorm2d(first),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        blocks = []
        channels_in = first
        for number, channels in enumerate(shape.widths):
            blocks.append(Block(channels_in, channels, stride=1 if number == 0 else 2))
            channels_in = channels
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels_in, GRID * GRID)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.stem(pictures)).mean(dim=(2, 3)))

    def loss(self, pictures: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy, in nats, of naming the grid cell that each crop was taken from."""
        return nn.functional.cross_entropy(self(pictures), cells)


def crops(count: int, rows: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """`count` batches of crops, (rows, 3, 32, 32), and of their grid cells, (rows,) in [0, 16)."""
    picture = photograph.load()
    height, width = picture.shape[1] - CROP, picture.shape[2] - CROP
    generator = torch.Generator().manual_seed(SEED)
    batches = []
    for _ in range(count):
        tops = torch.randint(height, (rows,), generator=generator)
        lefts = torch.randint(width, (rows,), generator=generator)
        pieces = [
            picture[:, top : top + CROP, left : left + CROP]
            for top, left in zip(tops.tolist(), lefts.tolist(), strict=True)
        ]
        cells = (tops * GRID // height) * GRID + lefts * GRID // width
        batches.append((torch.stack(pieces), cells))
    return batches


class TrainingWithStatistics(Training):
    """Statistics of the batches are compared, too."""

    def after_first_step(self) -> dict[str, torch.Tensor]:
        statistics = torch.cat([buffer.flatten().float() for buffer in self._model.buffers()])
        return {**super().after_first_step(), "batch statistics of the first step": statistics}


def training(compiler: Compiler, quick: bool) -> Training:
    """SGD with momentum over crops."""
    shape = QUICK if quick else FULL
    torch.manual_seed(SEED)
    model = ResidualNetwork(shape)
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    return TrainingWithStatistics(compiler, model, optimizer, crops(shape.steps, shape.rows))


TRAINING = Workload(
    name="cnn training",
    model="cnn",
    summary=FULL.words(),
    quick_summary=QUICK.words(),
    tolerances={
        "gradients of the first step": ONE_GRAPH,
        "batch statistics of the first step": ONE_GRAPH,
        "loss curve": WHOLE_MODEL,
    },
    start=training,
)
