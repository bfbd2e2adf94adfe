"""What the loops of a Halide algorithm become: steps as data, rules to choose and one function to apply them."""

from __future__ import annotations
