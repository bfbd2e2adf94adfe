"""A GPT-style byte model: one inference pass, and training steps with AdamW."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from halide_backend.demonstration import source_text
from halide_backend.demonstration.training import Training
from halide_backend.demonstration.workload import ONE_GRAPH, WHOLE_MODEL, Compiler, Workload

SEED = 0
VOCABULARY = 256


@dataclass(frozen=True)
class Shape:
    """Sizes of the model and of what it is fed."""

    layers: int = 4
    heads: int = 4
    width: int = 128
    context: int = 128
    rows: int = 8
    steps: int = 30

    def words(self) -> str:
        """The sizes in one phrase."""
        return (
            f"GPT-style transformer, {self.layers} blocks of width {self.width}, "
            f"on {self.rows} x {self.context} bytes of Python's standard library"
        )


FULL = Shape()
QUICK = Shape(layers=1, heads=2, width=32, context=32, rows=2, steps=5)


class Attention(nn.Module):
    """Causal self-attention, written out so that its softmax is a loop kernel, no library call."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.project_in = nn.Linear(shape.width, 3 * shape.width)
        self.project_out = nn.Linear(shape.width, shape.width)
        future = torch.ones(shape.context, shape.context, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("future", future)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns, width = x.shape
        q, k, v = (
            part.view(rows, columns, self.heads, width // self.heads).transpose(1, 2)
            for part in self.project_in(x).chunk(3, dim=-1)
        )
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        future = self.get_buffer("future")[:columns, :columns]
        weights = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
        mixed = (weights @ v).transpose(1, 2).reshape(rows, columns, width)
        return self.project_out(mixed)


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.norm_2 = nn.LayerNorm(shape.width)
        self.wide = nn.Linear(shape.width, 4 * shape.width)
        self.narrow = nn.Linear(4 * shape.width, shape.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm_1(x))
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm_2(x))))


class Transformer(nn.Module):
    """Token and position embedding, blocks, and a head over the bytes."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, VOCABULARY)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(text.shape[1], device=text.device)
        x = self.tokens(text) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def loss(self, text: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        """Mean cross-entropy, in nats a byte, of predicting `following`."""
        return nn.functional.cross_entropy(self(text).flatten(0, 1), following.flatten())


class Inference:
    """One pass over one batch of source text; the value is the logits."""

    def __init__(self, compiler: Compiler, quick: bool) -> None:
        shape = QUICK if quick else FULL
        torch.manual_seed(SEED)
        model = Transformer(shape).eval()
        self._text = source_text.batches(1, shape.rows, shape.context)[0][0]
        self._forward = compiler(model)

    def step(self) -> torch.Tensor:
        with torch.no_grad():
            return self._forward(self._text)

    def values(self) -> dict[str, torch.Tensor]:
        return {"logits": self.step()}


def training(compiler: Compiler, quick: bool) -> Training:
    """AdamW over batches of source text."""
    shape = QUICK if quick else FULL
    torch.manual_seed(SEED)
    model = Transformer(shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Training(compiler, model, optimizer, source_text.batches(shape.steps, shape.rows, shape.context))


INFERENCE = Workload(
    name="gpt inference",
    model="gpt",
    summary=f"one pass of a {FULL.words()}",
    quick_summary=f"one pass of a {QUICK.words()}",
    tolerances={"logits": ONE_GRAPH},
    start=Inference,
)
TRAINING = Workload(
    name="gpt training",
    model="gpt",
    summary=f"{FULL.steps} steps, forward, backward and AdamW, of a {FULL.words()}",
    quick_summary=f"{QUICK.steps} steps, forward, backward and AdamW, of a {QUICK.words()}",
    tolerances={"gradients of the first step": ONE_GRAPH, "loss curve": WHOLE_MODEL},
    start=training,
)
