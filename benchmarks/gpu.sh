#!/usr/bin/env bash
# Builds both extensions in place on a machine with a GPU, runs the tests marked gpu, checks and times the kernels.
#
#   benchmarks/gpu.sh [OUT_DIR] [arguments of benchmarks/gpu.py]
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-benchmarks/results}; shift || true
python=${PYTHON:-python3}
mkdir -p "$out"
$python - <<'PY' || exit 1
import subprocess, sysconfig, sys
from pathlib import Path
import halide, torch
suffix, include = sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_paths()["include"]
root = Path(halide.__file__).parent
launch, cuda = Path("halide_backend/launch"), Path("halide_backend/algorithm/cuda")
c = ["gcc", "-O2", "-std=c11", "-fvisibility=hidden", "-shared", "-fPIC", f"-I{include}"]
subprocess.check_call([*c, *map(str, launch.glob("*.c")), "-o", str(launch / f"_native{suffix}"), "-ldl", "-lpthread"])
cpp = ["g++", "-O1", "-std=c++17", "-fvisibility=hidden", "-shared", "-fPIC", f"-I{include}", f"-I{root / 'include'}"]
cpp += [f"-I{Path(torch.__file__).parent / 'include'}", str(cuda / "intrinsics.cpp"), f"-L{root / 'lib64'}", "-lHalide"]
subprocess.check_call([*cpp, "-o", str(cuda / f"_intrinsics{suffix}")])
PY
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
$python -m pytest -q -m gpu tests 2>&1 | tee "$out/gpu-tests.log" | tail -15
$python benchmarks/gpu.py --out "$out/gpu.json" "$@"
