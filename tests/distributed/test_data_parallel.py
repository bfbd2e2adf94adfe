"""DistributedDataParallel: two processes train what one would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

GPUS = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices")


@pytest.mark.parametrize("kind", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, GPUS])])
def test_two_ranks_train_what_one_would(kind: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["-m", "tests.distributed.data_parallel", kind]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1", "HALIDE_BACKEND_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    reports = json.loads(done.stdout)
    assert len(reports) == 2
    assert all(report["native"] > 5 and report["delegated"] == {} for report in reports)
