#!/usr/bin/env bash
# Runs the tests on every supported minor version of torch that has been seen to differ, each in an environment of its
# own (.venv-2.11, ...), which is made on first use: about a minute and 5 GB each where only CUDA builds are offered.
#
#   tests/matrix.sh                     all versions, all tests
#   TORCH="2.15.0" tests/matrix.sh      one version
#   PYTEST_FLAGS="-n 2 tests/plugin" tests/matrix.sh
#
# Fails if any version fails, after all have run; the table at the end says which.
set -uo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
versions=${TORCH:-2.11.0 2.13.0 2.15.0}
cpu_builds=https://download.pytorch.org/whl/cpu

index=$("$python" -c "import urllib.request as u; u.urlopen('$cpu_builds/torch/', timeout=5)" 2>/dev/null &&
  echo "--extra-index-url $cpu_builds")

prepare() { # version, environment
  local stamp="$2/ready-$1.stamp"
  [[ -e "$stamp" && -z $(find pyproject.toml halide_backend/launch/*.[ch] -newer "$stamp") ]] &&
    return
  rm -f "$2"/*.stamp
  # $index is two words, or none.
  # shellcheck disable=SC2086
  "$python" -m venv "$2" &&
    "$2/bin/python" -m pip install --quiet $index "torch==$1" &&
    "$2/bin/python" -m pip install --quiet --editable ".[test]" &&
    touch "$stamp"
}

failed=0
table=""
for version in $versions; do
  environment=".venv-${version%.*}"
  started=$SECONDS
  echo "== torch $version ($environment)"
  if ! prepare "$version" "$environment"; then
    result="no environment"
    failed=1
  # shellcheck disable=SC2086
  elif "$environment/bin/python" -m pytest ${PYTEST_FLAGS:-}; then
    result="passed"
  else
    result="FAILED"
    failed=1
  fi
  table+=$(printf '%-10s %-16s %5d s' "$version" "$result" $((SECONDS - started)))$'\n'
done

printf '\ntorch      tests             time\n%s' "$table"
exit "$failed"
