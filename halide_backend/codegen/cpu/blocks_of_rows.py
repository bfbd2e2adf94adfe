"""How many rows of a result are a task for a thread."""

from __future__ import annotations

#: Tasks for each thread, so that none waits long for the last one, and rows of a task at least, of which the first have
#: some rows of the picture to read again.
_TASKS, _FEWEST_ROWS = 2, 4


def rows_of_a_block(rows: int, pictures: int, threads: int) -> int:
    """Rows of a block of a picture of `rows`, if there are as many pictures and threads."""
    if threads == 1:
        return rows
    blocks = min(-(-_TASKS * threads // pictures), max(rows // _FEWEST_ROWS, 1))
    return -(-rows // blocks)
