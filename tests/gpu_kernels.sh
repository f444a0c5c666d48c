#!/usr/bin/env bash
# Kernels of packages on a GPU: contracts, then speed beside ours, then all under compute-sanitizer.
#   tests/gpu_kernels.sh OUT WHEEL..     the steps alone: STEPS="check bench sanitize"
# Wheels without compiled modules (`draftproof lab kernels slim`) are enough; nothing is installed. OUT gets the results.
set -uo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
out=$1
shift
mkdir -p "$out"
failed=0
wheels=()
for file in "$@"; do wheels+=(--wheel "$file"); done
for step in ${STEPS:-check bench sanitize}; do
    case $step in
    check)
        for file in "$@"; do
            case $(basename "$file") in sglang*) name=sglang ;; vllm*) name=vllm ;; *) name=fla ;; esac
            "$PYTHON" -P -m draftproof.cli lab kernels check --impl "$name" --wheel "$file" --device cuda \
                --examples "${EXAMPLES:-12}" --workers "${WORKERS:-6}" --json "$out/$name.json" | tee "$out/$name.txt" || failed=1
        done
        ;;
    bench)
        PYTHONPATH=benchmarks:${PYTHONPATH:-} "$PYTHON" -P benchmarks/bench.py gdn-packages "${wheels[@]}" \
            --json "$out/gdn_packages.json" | tee "$out/gdn_packages.txt" || failed=1
        ;;
    sanitize)
        "$PYTHON" -P tests/kernels/sanitize.py "${wheels[@]}" --examples "${SANITIZED:-2}" --timeout "${LIMIT:-500}" \
            --logs "$out/sanitizer" | tee "$out/sanitizer.txt" || failed=1
        ;;
    esac
done
exit $failed
