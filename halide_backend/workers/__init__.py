"""Work that may crash, hang or eat all memory, done in processes that may be lost.

A *server* is a process that has imported and prepared what a kind of work needs, and then only forks. A *worker* is
one such fork: it runs tasks one after another, each under limits of wall-clock time, memory and cores that the
operating system enforces. Whatever a task does, in Python or in C++, ends that worker and nothing else, and is raised
where the task was asked for, as an error that names it.

    this process                                 server                    worker (a fork of the server)
    Workers ----- control socket: "fork" ----->  forks
    Worker  <---- lifeline: how it ended ------  waits for it, kills it
            <==== conversation: task, reports, answer ==================>  works
            <---- output: what it prints, a file in memory ------------->

A kind of work is a program that calls `serving.serve(work)`. `server` starts such a program and asks it for forks,
`pool` replaces servers and workers that died and streams many tasks through several workers, `task` says what is to be
done under which limits, and `threads` wait for workers without holding up the end of the interpreter. Nothing here
imports more than the standard library. docs/design/system.md says why it is made like this.
"""

from __future__ import annotations
