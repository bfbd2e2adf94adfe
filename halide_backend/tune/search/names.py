"""The names of the strategies and of Halide's autoschedulers, for the command line, which imports no library."""

from __future__ import annotations

#: What `--strategy` takes, the default first; all of them begin with the rules' settings.
STRATEGIES = ("hill-climb", "random", "tpe", "model")

#: What `--autoschedulers` takes: the plugins of Halide that schedule for CPUs.
AUTOSCHEDULERS = ("Adams2019", "Li2018", "Mullapudi2016")
