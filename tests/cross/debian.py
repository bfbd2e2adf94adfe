"""Debian packages for another architecture, unpacked into a folder; the system's own apt knows nothing of them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


class Debian:
    """What the system's Debian, or its release `suite`, has for `architecture`, unpacked into `root`.

    Raises, like all its methods:
        OSError, subprocess.SubprocessError: it cannot be had here.
    """

    def __init__(self, folder: Path, architecture: str, suite: str | None = None) -> None:
        self.root = folder / "system"
        self._folder = folder
        settings = {"Dir::State": folder, "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache"}
        if suite:
            asked = ("--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
            mirror, *_ = self._said("apt-get", "indextargets", *asked).split() or [""]
            if not mirror:
                raise FileNotFoundError("this system knows no mirror of Debian")
            (folder / "sources").mkdir(parents=True)
            (folder / "sources/one.list").write_text(f"deb {mirror} {suite} main\n")
            settings |= {"Dir::Etc::sourcelist": "/dev/null", "Dir::Etc::sourceparts": folder / "sources"}
        (folder / "lists/partial").mkdir(parents=True)
        (folder / "cache/archives/partial").mkdir(parents=True)
        (folder / "status").touch()
        settings |= {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",
        }
        self._options = [option for name, value in settings.items() for option in ("-o", f"{name}={value}")]
        self._apt("apt-get", "update")

    @staticmethod
    def missing() -> str:
        """What is not installed here, in words; "" if nothing is."""
        tools = [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]
        return f"needs {' and '.join(tools)}, for Debian's packages" if tools else ""

    def version(self, package: str) -> str:
        """The first two numbers of a package's version: "3.11", for example."""
        said = self._apt("apt-cache", "show", package).splitlines()
        (version, *_) = (line.split()[1] for line in said if line.startswith("Version:"))
        return ".".join(version.split(".")[:2])

    def unpack(self, *packages: str, dependencies: bool = False) -> None:
        """Add packages, and if asked for all that they depend on."""
        command = ("install", "-y", "--download-only", "--no-install-recommends") if dependencies else ("download",)
        self._apt("apt-get", *command, *packages)
        for package in self._folder.rglob("*.deb"):
            subprocess.run(["dpkg", "-x", package, self.root], check=True)
            package.unlink()

    def _apt(self, program: str, *words: str) -> str:
        return self._said(program, "-qq", *self._options, *words)

    def _said(self, *command: str) -> str:
        folder = self._folder
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=300)
        return done.stdout
