"""Halide's loop nest of a kernel's text, from a process that forks for each: Halide prints it to the standard error of
its process, and the names that it has given before decide the order of equal stages.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from types import TracebackType


class LoopNests:
    """A process that prints loop nests; a context manager."""

    def __enter__(self) -> LoopNests:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: TracebackType | None) -> None:
        self._process.communicate()

    def of(self, text: str, lowered: bool = False) -> str:
        """The loop nest of the pipeline that `text` defines, or all of its `lowered` statements.

        Raises:
            RuntimeError: the text does not run, or Halide refuses its schedule.
        """
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([text, lowered]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["failed"]:
            raise RuntimeError(answer["printed"])
        return str(answer["printed"])


def _answer_all() -> None:
    for line in sys.stdin:
        namespace: dict[str, object] = {}
        # What a text imports stays imported for the next one.
        text, lowered = json.loads(line)
        exec(text, namespace)
        with tempfile.TemporaryFile() as file:
            child = os.fork()
            if child == 0:
                _print(namespace, file.fileno(), lowered)
            _, status = os.waitpid(child, 0)
            file.seek(0)
            printed = file.read().decode()
        print(json.dumps({"failed": status != 0, "printed": printed}), flush=True)


def _print(namespace: dict[str, object], file: int, lowered: bool) -> None:
    """Print the loop nest to `file` and end the process."""
    os.dup2(file, 2)
    code = 1
    try:
        import halide as hl

        inputs, outputs = namespace["pipeline"]()  # type: ignore[operator]
        if lowered:
            target = hl.Target("x86-64-linux-no_asserts-no_bounds_query-no_runtime-strict_float")
            hl.Pipeline(outputs).compile_to_lowered_stmt("/dev/stderr", inputs, hl.StmtOutputFormat.Text, target)
        else:
            hl.Pipeline(outputs).print_loop_nest()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _answer_all()
