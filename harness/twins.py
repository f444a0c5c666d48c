"""Kernels exchanged for their naive twins in this process, and which kernels a scenario uses.

Run as `python -P -m draftproof.harness.twins`, it reads a Question as JSON from standard input, runs its
scenario once, and says the name of each kernel on a line of standard output when it is first called: also of a run that
dies.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import msgspec

from draftproof.harness.workers.messages import SubjectSpec
from draftproof.properties.kernels.table import OPS
from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import Scenario

NAMESPACE = "draftproof"
KERNELS = tuple(OPS)
"""Every kernel has a naive twin of its name."""
Kernel = Callable[..., None]
_FOR_GOOD = ExitStack()


class Question(Value, frozen=True, kw_only=True):
    """Which kernels does this subject use for this scenario?"""

    spec: SubjectSpec
    scenario: Scenario


@contextmanager
def twins(names: Iterable[str], device: str) -> Iterator[None]:
    """Every call of these ops on `device` is served by the naive twin meanwhile.

    On CUDA the twin works on copies on the host, which cannot be captured. The package draftproof.kernels that is
    imported here must be the one under test. Raises ValueError for a name that is no kernel's.
    """
    wanted = tuple(dict.fromkeys(names))
    for name in wanted:
        if name not in KERNELS:
            raise ValueError(f"twin is {name!r}, allowed: {', '.join(KERNELS)}")
    import torch

    from draftproof import kernels
    from draftproof.reference import ops

    library = torch.library.Library(NAMESPACE, "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators", UserWarning)
            for name in wanted:
                twin: Kernel = getattr(ops, name)
                twin = _on_host(twin, getattr(kernels, name)) if device == "cuda" else twin
                library.impl(name, twin, device.upper(), allow_override=True)
        yield
    finally:
        library._destroy()


def use_twins(names: Iterable[str], device: str) -> None:
    """As `twins`, for the rest of the process."""
    _FOR_GOOD.enter_context(twins(names, device))


def _on_host(twin: Kernel, op: Any) -> Kernel:
    """The twin on copies of its tensors; what it may write is copied back."""
    import torch

    written = [place for place, one in enumerate(op._schema.arguments) if one.alias_info and one.alias_info.is_write]

    def call(*arguments: Any) -> None:
        host = [one.cpu() if isinstance(one, torch.Tensor) else one for one in arguments]
        twin(*host)
        for place in written:
            arguments[place].copy_(host[place])

    return call


def kernels_used(spec: SubjectSpec, scenario: Scenario, seconds: float) -> tuple[str, ...]:
    """The kernels that a subject calls when it runs a scenario, sorted; it is asked in a process of its own.

    Of a run that dies or takes longer, those called until then. Raises RuntimeError if not one was called.
    """
    question = msgspec.json.encode(Question(spec=msgspec.structs.replace(spec, twins=()), scenario=scenario))
    command = [sys.executable, "-P", "-m", "draftproof.harness.twins"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            said, log = process.communicate(question, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            said, log = process.communicate()
    names = sorted(set(said.decode().split()) & set(KERNELS))
    if not names:
        raise RuntimeError(f"the run called no kernel:\n{log.decode(errors='replace')[-2000:]}")
    return tuple(names)


def _watch(question: Question, say: Callable[[str], None]) -> None:
    """Run the scenario; `say` is told of each kernel before its first call."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    from draftproof.harness.lockstep import SubjectCrashedError, evidence
    from draftproof.harness.workers.subject import make

    class Watching(TorchDispatchMode):
        """Sees calls inside of captures and replays, too."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            space, _, name = func._schema.name.partition("::")
            if space == NAMESPACE:
                say(name)
            return func(*args, **(kwargs or {}))

    torch.set_num_threads(1)
    subject = make(question.spec)
    try:
        with Watching():
            evidence(subject, question.scenario)
    except SubjectCrashedError as crash:
        print(crash.trace, file=sys.stderr)


def main() -> None:
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    out, sys.stdout = sys.stdout, sys.stderr
    seen: set[str] = set()

    def say(name: str) -> None:
        if name not in seen:
            seen.add(name)
            print(name, file=out, flush=True)

    _watch(question, say)


if __name__ == "__main__":
    main()
