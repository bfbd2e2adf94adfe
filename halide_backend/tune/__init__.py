"""Search for the settings of knobs that make a kernel fast: `halide-backend tune`.

    source        a script, a function, or records          -> kernels to tune
    space         a program on a device                     -> settings, by planning it
    search/       trials so far                             -> settings to try next
    measurement/  two compiled kernels, in a process apart  -> which one is faster, or what is wrong with one
    trial, log    what came of each                         -> JSON Lines
    tuner         all of these for one kernel; `session` for many, within a budget
    report        trials                                    -> table, page

docs/design/tuning.md says why it is made like this.
"""

from __future__ import annotations
