#!/usr/bin/env bash
# Builds, tests and measures this backend on a machine with a GPU: a step is one command of at most nine minutes, and
# leaves JSON or a log in OUT_DIR. Steps on several GPUs can run at once, each with its own CUDA_VISIBLE_DEVICES.
#
#   benchmarks/gpu.sh OUT_DIR STEP [arguments of its command]
#
#   build      both extensions, in place (torch, halide and compilers have to be there)
#   tests      the tests marked gpu, with the shared C++ library first (docs/how-to/ship-a-model.md, of packages that crash)
#   bench      the benchmark suite against Triton, nothing compiled before; what 500 s are too short for runs in parts,
#              by --only GROUP and --sizes                                         -> bench.json, bench.svg
#   suite, dynamic, recorded   the large size, the same with every size dynamic, the kernels of models: compiled by many
#              processes and timed in three rounds, some two minutes each         -> suite-1.json to suite-3.json, ...
#   autotune   the suite against Triton with max-autotune                           -> autotune.json
#   check      the whole suite compared with eager, nothing timed                  -> check.log
#   launch     what a launch costs the host                                        -> launch.json
#   models     twelve architectures, training and inference; parts by --only      -> models.json
#   optimizer  a step of AdamW for many parameters                                 -> optimizer.json
#   opinfo     torch's operator tests, forward and gradients, against Triton       -> opinfo.json
#   memcheck, racecheck   the suite's kernels under compute-sanitizer              -> memcheck.log, racecheck.log
set -uo pipefail
cd "$(dirname "$0")/.."
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "benchmarks/${0##*/}"; exit 2; }
out=$1 step=$2; shift 2
python=${PYTHON:-python3}
mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
command="$python -m halide_backend.cli"

# So that a time to compile is one: no kernel of an earlier run.
cold() {
  export HALIDE_BACKEND_CACHE_DIR TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR
  HALIDE_BACKEND_CACHE_DIR=$(mktemp -d) TRITON_CACHE_DIR=$(mktemp -d) TORCHINDUCTOR_CACHE_DIR=$(mktemp -d)
}

case $step in
  build) $python - <<'PY' ;;
import subprocess, sysconfig, sys
from pathlib import Path
import halide, torch
suffix, include = sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_paths()["include"]
root = Path(halide.__file__).parent
launch, cuda = Path("halide_backend/launch"), Path("halide_backend/kernel_library/cuda")
c = ["gcc", "-O2", "-std=c11", "-fvisibility=hidden", "-shared", "-fPIC", f"-I{include}"]
subprocess.check_call([*c, *map(str, launch.glob("*.c")), "-o", str(launch / f"_native{suffix}"), "-ldl", "-lpthread"])
cpp = ["g++", "-O1", "-std=c++17", "-fvisibility=hidden", "-shared", "-fPIC", f"-I{include}", f"-I{root / 'include'}"]
cpp += [f"-I{Path(torch.__file__).parent / 'include'}", str(cuda / "intrinsics.cpp"), f"-L{root / 'lib64'}", "-lHalide"]
subprocess.check_call([*cpp, "-o", str(cuda / f"_intrinsics{suffix}")])
PY
  tests) LD_PRELOAD=${LD_PRELOAD:-$(g++ -print-file-name=libstdc++.so.6)} $python -m pytest -m gpu "${@:-tests}" 2>&1 | tee "$out/tests.log" | tail -15 ;;
  bench) cold; $command bench --device cuda --against triton --seconds 500 --json "$out/bench.json" --plot "$out/bench.svg" "$@" ;;
  suite) cold; $python benchmarks/gpu_suite.py --out "$out/suite" "$@" ;;
  dynamic) cold; $python benchmarks/gpu_suite.py --dynamic --out "$out/dynamic" "$@" ;;
  recorded) cold; $python benchmarks/gpu_suite.py --recorded benchmarks/kernels_of_models.json.gz --out "$out/recorded" "$@" ;;
  autotune) $command bench --device cuda --against triton-max-autotune --seconds 500 --json "$out/autotune.json" "$@" ;;
  check) $command bench --device cuda --no-timing --seconds 500 "$@" 2>&1 | tee "$out/check.log" | tail -15 ;;
  launch) $python benchmarks/gpu_launch.py --out "$out/launch.json" "$@" ;;
  models) $python benchmarks/gpu_models.py --out "$out/models.json" "$@" ;;
  optimizer) $python benchmarks/gpu_optimizer.py --out "$out/optimizer.json" "$@" ;;
  opinfo)
    $command opinfo --device cuda --dtypes float32 bfloat16 float16 int64 bool --gradients --against triton \
      --jobs "$(nproc)" --output "$out/opinfo.json" "$@" ;;
  memcheck | racecheck)
    compute-sanitizer --tool "$step" --kernel-regex kns=halide_ --print-limit 5 \
      $command bench --device cuda --no-timing --seconds 500 "$@" > "$out/$step.log" 2>&1
    tail -3 "$out/$step.log" ;;
  *) echo "no step $step"; exit 2 ;;
esac
