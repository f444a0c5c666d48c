"""Kernel contracts on a GPU in one process, which sanitize.py runs under compute-sanitizer.

    python -P tests/kernels/sanitized.py --examples 3 [--wheel FILE ..] [--only NAME ..] [--skip-own]

All own ops, then every binding of the packages whose wheels are named. Whoever fails its contract is named, too.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from draftproof.harness.bound_kernels import BOUND_PACKAGES, cases, found, judged
from draftproof.harness.bound_releases import ReleasedKernels
from draftproof.harness.interpreter import untuned
from draftproof.harness.kernel_runs import cases as own_cases
from draftproof.harness.kernel_runs import diverges
from draftproof.harness.wheels import wheels_of
from draftproof.properties.kernels.table import OPS


def main() -> int:
    """Run everything; return 1 if a contract fails or a kernel cannot be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=3)
    parser.add_argument("--wheel", type=Path, action="append", default=[])
    parser.add_argument("--only", action="append", default=[], help="ops and bindings with this in their name")
    parser.add_argument("--skip-own", action="store_true")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    failed = 0
    for name, run in _runs(given):
        if given.only and not any(one in name for one in given.only):
            continue
        try:
            said = run()
        except Exception as error:
            said = f"{type(error).__name__}: {error}".splitlines()[0]
        failed += said != "PASS"
        print(f"{name}: {said}", flush=True)
    return 1 if failed else 0


def _runs(given: argparse.Namespace) -> Iterator[tuple[str, object]]:
    for op in () if given.skip_own else OPS:
        yield op, lambda op=op: _own(op, given.examples, given.device)
    untuned()
    released = ReleasedKernels()
    for package in BOUND_PACKAGES:
        files = [file for file in given.wheel if file.name.startswith((f"{package}-", f"{package}_"))]
        for binding in found(package) if files else ():
            _, version, folder = wheels_of(files[:1], None, [binding])[0]
            yield f"{package} {version} {binding.name}", lambda b=binding, f=folder: _bound(released, b, f, given)


def _own(op: str, examples: int, device: str) -> str:
    first = next((one for case in own_cases(op, 0, examples) if (one := diverges(op, case, device))), None)
    return "PASS" if first is None else f"FAIL {first.channel}: {first.expected}, got {first.got}"


def _bound(released: ReleasedKernels, binding, folder: str, given: argparse.Namespace) -> str:
    kernel = released.kernel(binding, folder)
    for case in cases(binding, 0, given.examples)[0]:
        if first := judged(binding, kernel, case, given.device):
            return f"FAIL {first.channel}: {first.expected}, got {first.got}"
    return "PASS"


if __name__ == "__main__":
    sys.exit(main())
