"""A random program: input tensors, lines of torch code, and the names it returns."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from .tensors import Tensor


@dataclass(frozen=True)
class Given:
    """An input with these very values; the shrinker puts it in place of the lines that computed it."""

    name: str
    value: torch.Tensor

    def make(self) -> torch.Tensor:
        copy = torch.empty_strided(self.value.shape, self.value.stride(), dtype=self.value.dtype)
        return copy.copy_(self.value)

    def __str__(self) -> str:
        shape, dtype = tuple(self.value.shape), str(self.value.dtype)[6:]
        text = f"{self.name}: {shape} {dtype} strides {self.value.stride()}"
        return f"{text} = {self.value.tolist()}" if self.value.numel() <= 64 else text


@dataclass(frozen=True)
class Line:
    """One statement. `target` is the name it defines ("" for an in-place operation), `names` those it uses."""

    text: str
    target: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.target} = {self.text}" if self.target else self.text


@dataclass(frozen=True)
class Program:
    """`gradients` asks for a backward pass as well: all float inputs require gradients. `dynamic` asks for one
    compilation for all sizes."""

    inputs: tuple[Tensor | Given, ...]
    lines: tuple[Line, ...]
    outputs: tuple[str, ...]
    gradients: bool = False
    dynamic: bool = False

    def source(self) -> str:
        body = "\n".join([*map(str, self.lines), f"return {', '.join(self.outputs)},"])
        arguments = ", ".join(tensor.name for tensor in self.inputs)
        return f"def program({arguments}):\n{textwrap.indent(body, '    ')}\n"

    def function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        return compiled_source(self.source())

    def wide_function(self) -> Callable[..., tuple[torch.Tensor, ...]]:
        """The same program with float64 in place of every other floating-point type: the truth for rounded values."""
        source = self.source()
        for name in ("float32", "float16", "bfloat16"):
            source = source.replace(f"torch.{name}", "torch.float64")
        return compiled_source(source)

    def __str__(self) -> str:
        lines = [f"# {tensor}" for tensor in self.inputs]
        if self.gradients:
            lines.append("# with gradients")
        if self.dynamic:
            lines.append("# with dynamic shapes")
        return "\n".join([*lines, self.source()])


def compiled_source(source: str) -> Callable[..., tuple[torch.Tensor, ...]]:
    namespace: dict[str, object] = {"torch": torch, "F": F, "inf": float("inf"), "nan": float("nan")}
    exec(source, namespace)
    return namespace["program"]  # type: ignore[return-value]


_INPUT = re.compile(r"# (\w+): (\([^)]*\)) (\w+) (\S+) (\w+) seed (\d+)")
_NAME = re.compile(r"\b[av]\d+\b")


def parse(text: str) -> Program:
    """The program that was printed as `text`; its inputs must come from seeds."""
    inputs = [
        Tensor(name, ast.literal_eval(shape), getattr(torch, dtype), content, layout, int(seed))
        for name, shape, dtype, content, layout, seed in _INPUT.findall(text)
    ]
    statements = ast.parse(text).body[0].body  # type: ignore[attr-defined]
    lines: list[Line] = []
    for statement in statements[:-1]:
        target = statement.targets[0].id if isinstance(statement, ast.Assign) else ""
        source = ast.unparse(statement.value)
        lines.append(Line(source, target, tuple(dict.fromkeys(_NAME.findall(source)))))
    outputs = tuple(_NAME.findall(ast.unparse(statements[-1])))
    return Program(tuple(inputs), tuple(lines), outputs, "# with gradients" in text, "# with dynamic shapes" in text)
