#!/usr/bin/env bash
# The GPU lane: every test marked gpu, then every contract with real CUDA graphs and Triton kernels.
# Extra arguments go to pytest. Needs a CUDA device, and torch built for it; see `make test-gpu`.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
failed=0
"$PYTHON" -P -m pytest -q -m gpu -n "${WORKERS:-4}" tests "$@" || failed=1
"$PYTHON" -P -m draftproof.cli check --device cuda --seed 0 --examples "${EXAMPLES:-100}" || failed=1
exit $failed
