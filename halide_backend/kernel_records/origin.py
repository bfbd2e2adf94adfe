"""Where a kernel comes from: nodes of the FX graph, and lines of the user's program."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from functools import cache

_FRAME = re.compile(r'File "([^"\n]*)", line (\d+), in ([^\n]*)(?:\n(?![ \t]*File ")([^\n]*))?')


@dataclass(frozen=True)
class SourceLine:
    """A line of a program: `text` is what stands there, without its indentation."""

    file: str
    line: int
    function: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: {self.text}"


@dataclass(frozen=True)
class Origin:
    """An FX node of the graph that Inductor compiled, a part of which a kernel computes.

    `node` is its name, `target` what it calls, `stack_trace` where the user's program called that, as torch wrote it
    down, innermost frame last; "" where torch does not know.
    """

    node: str
    target: str
    stack_trace: str

    @property
    def frames(self) -> tuple[SourceLine, ...]:
        """The stack, outermost frame first."""
        found = _FRAME.findall(self.stack_trace)
        return tuple(SourceLine(file, int(line), function, text.strip()) for file, line, function, text in found)

    @property
    def line(self) -> SourceLine | None:
        """The innermost frame that is not torch's own; of what only torch calls, as in an optimizer, the innermost one.

        None where torch does not know.
        """
        frames = self.frames
        users = [frame for frame in frames if not frame.file.startswith(_torch())]
        return users[-1] if users else frames[-1] if frames else None


@cache
def _torch() -> tuple[str, ...]:
    """The folder of torch, as a prefix of paths."""
    spec = importlib.util.find_spec("torch")
    return tuple(f"{place}/" for place in (spec.submodule_search_locations or ())) if spec else ()
