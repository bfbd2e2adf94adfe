"""What the loops of a Halide algorithm become: steps as data, rules that choose them, one function that applies them."""

from __future__ import annotations
