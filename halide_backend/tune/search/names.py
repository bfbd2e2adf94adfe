"""The names of the strategies, for the command line, which imports no library."""

from __future__ import annotations

#: What `--strategy` takes, the default first; all of them begin with the rules' settings.
STRATEGIES = ("hill-climb", "random", "tpe", "model")
