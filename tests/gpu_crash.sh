#!/usr/bin/env bash
# A campaign on a GPU with a fault that makes an illegal memory access: a CRASH with its step, and the campaign goes on.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
run=$(mktemp -d)/run
"$PYTHON" -P -m draftproof.cli fuzz --run "$run" --device cuda --fault kv-write-offset-wraps \
  --time "${TIME:-90s}" --workers "${WORKERS:-4}" --seed 0 --json "${OUT:-$run}/crash.json" >"$run.txt" 2>&1
code=$?
tail -n 40 "$run.txt"
[ "$code" = 3 ] || { echo "exit code is $code, 3 (CRASH) was expected"; exit 1; }
grep -q "illegal memory access" "$run.txt" || { echo "no illegal memory access was named"; exit 1; }
grep -q "engine step" "$run.txt" || { echo "the step was not named"; exit 1; }
