"""How a kernel runs: mappings, steps and the rules that choose them, as data; one function applies the steps."""

from __future__ import annotations
