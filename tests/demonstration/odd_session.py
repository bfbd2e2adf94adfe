"""Stands in for a session of the demo, and ends as its environment says."""

from __future__ import annotations

import json
import os
import signal
import sys
import time

task = json.load(sys.stdin)
ending = os.environ["ODD_SESSION"]
print("a warning, then the last line", file=sys.stderr)
if ending == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if ending == "raises":
    raise ValueError(f"no row {task['row']}")
if ending == "silent":
    sys.exit(0)
if ending == "hangs":
    time.sleep(600)
print(json.dumps({"progress": "half-way"}), flush=True)
print(json.dumps({"result": {"row": task["row"]}}), flush=True)
if ending == "fails at exit":
    sys.exit(3)
if ending == "lingers":
    time.sleep(600)
