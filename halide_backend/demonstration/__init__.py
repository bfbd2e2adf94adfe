"""The three models of `halide-backend demo`, how they are checked and timed, and the table at the
end.

`demo.run` is the way in. It starts one process per figure (`session.py`), each of which runs one
`Workload`
(`transformer.py`, `residual_network.py`, `photograph.py`), and prints what they measured
(`table.py`).
"""

from __future__ import annotations
