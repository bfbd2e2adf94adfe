"""docs/how-to/tune-a-kernel.md is a session that works: its commands print what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "tune-a-kernel.md").read_text()


def session() -> list[tuple[str, list[str]]]:
    """The commands of the page, each with the lines that it prints among others, in this order."""
    found: list[tuple[str, list[str]]] = []
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
    return found


def pattern(line: str) -> str:
    """A line with "..." for anything, and another time."""
    parts = re.split(r"(line \.\.\.|\d+ us)", line)
    return "".join(r".*" if k % 2 else re.escape(part) for k, part in enumerate(parts))


def test_the_session_prints_what_the_page_says(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    # The shortest of fewer calls: times are not what is tested.
    (tmp_path / "model.py").write_text(program.replace("repeat=500", "repeat=5"))
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (("python", ""), ("halide-backend", "-m halide_backend.cli")):
        (commands / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (commands / name).chmod(0o755)
    # What pip leaves for torch to find; the environment of the tests may run from the sources.
    (tmp_path / "site" / "halide_backend-0.dist-info").mkdir(parents=True)
    (tmp_path / "site" / "halide_backend-0.dist-info" / "entry_points.txt").write_text(
        "[torch_dynamo_backends]\nhalide_backend = halide_backend.plugin:compile_graph\n"
    )
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(commands), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(tmp_path / "site")]),
        "HALIDE_BACKEND_CACHE_DIR": str(tmp_path / "kernels"),
        "HALIDE_BACKEND_TARGET": "",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
    }
    steps = session()
    assert len(steps) == 16
    # One shell for all, as the reader has: what is exported stays.
    script = "\n".join(f"echo '@@{number}'; {{ {command}\n}} 2>&1" for number, (command, _) in enumerate(steps))
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    printed = re.split(r"^@@\d+\n", done.stdout, flags=re.MULTILINE)[1:]
    assert len(printed) == len(steps), done.stderr
    for (command, lines), output in zip(steps, printed):
        rest = iter(output.splitlines())
        for line in lines:
            assert any(re.fullmatch(pattern(line), other) for other in rest), f"$ {command}\n{output}\nlacks: {line}"
