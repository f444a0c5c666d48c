"""Kernels of releases held to their contracts, in workers: one that crashes or hangs costs its own verdict."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftproof.harness.workers.bound import BOUND_MODULE, DONE, NOT_TAKEN, TAKEN
from draftproof.harness.workers.messages import Answer, BoundOrder, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.harness.workers.start import spawning
from draftproof.properties.formats.kernel_binding import KernelBinding
from draftproof.properties.formats.kernel_fault import KernelFault
from draftproof.properties.formats.kernel_report import KernelHeld, KernelRelease, KernelReport
from draftproof.properties.values.verdict import Outcome, worst

_ABSENT, _NOT_IMPORTABLE = "AbsentError", "WheelImportError"


@dataclass(frozen=True)
class Release:
    """A release of a package: the folder of its unpacked wheel, or nothing at all for what is installed."""

    package: str = ""
    version: str = ""
    folder: str = ""


@dataclass(frozen=True)
class KernelsAsked:
    """What is to be checked: bindings of a module, on a device, and how many calls of each."""

    module: str
    bindings: Sequence[KernelBinding]
    op: str | None
    device: str
    seed: int
    examples: int
    timeout: float
    workers: int


def check_kernels(
    asked: KernelsAsked, releases: Sequence[Release], tell: Callable[[Release, KernelHeld], None]
) -> KernelReport:
    """Hold each binding's kernel of each release to the contract of its op."""
    rows = []
    for release in releases:
        held: dict[int, KernelHeld] = {}
        for place, one in runs(asked, release, [(binding, None) for binding in asked.bindings]):
            held[place] = one
            tell(release, one)
        kernels = tuple(held[place] for place in sorted(held))
        rows.append(KernelRelease(package=release.package, version=release.version, kernels=kernels))
    return KernelReport(
        verdict=worst([one.verdict for row in rows for one in row.kernels]),
        implementation=asked.module,
        device=asked.device,
        seed=asked.seed,
        examples=asked.examples,
        releases=tuple(rows),
    )


def runs(
    asked: KernelsAsked, release: Release, wanted: Sequence[tuple[KernelBinding, KernelFault | None]]
) -> Iterator[tuple[int, KernelHeld]]:
    """Yield what became of each binding with the fault that is put into it, by its place, as soon as it is known."""
    spec = SubjectSpec(device="cuda" if asked.device == "cuda" else "cpu")
    count = min(asked.workers, len(wanted))
    with (
        tempfile.TemporaryDirectory(prefix="draftproof-") as folder,
        Pool(spec, count, Path(folder), deadline=asked.timeout, start=spawning(BOUND_MODULE)) as pool,
    ):
        for place, (binding, fault) in enumerate(wanted):
            if asked.device == "cpu" and not binding.interpreted:
                yield place, _not_here(binding)
                continue
            pool.submit(
                BoundOrder(
                    number=place,
                    implementation=f"{asked.module}:{binding.name}",
                    op=asked.op or "",
                    wheel=release.folder,
                    seed=asked.seed,
                    count=asked.examples,
                    fault=fault,
                )
            )
        while pool.busy:
            for answer in pool.poll(1.0):
                yield answer.number, _held(wanted[answer.number][0], answer)


def _not_here(binding: KernelBinding) -> KernelHeld:
    why = "Triton's interpreter cannot run it; --device cuda can"
    return KernelHeld(name=binding.name, op=binding.op, verdict=Outcome.SKIP, cannot=binding.cannot, reason=why)


def _held(binding: KernelBinding, answer: Answer) -> KernelHeld:
    done = answer.counts.get(DONE, 0)
    call = answer.place.step if answer.place and answer.place.step >= 0 else done
    verdict, reason = answer.outcome, answer.reason
    if answer.error in (_ABSENT, _NOT_IMPORTABLE):
        verdict = Outcome.ABSENT if answer.error == _ABSENT else Outcome.INCONCLUSIVE
    elif answer.stubs and not answer.failing:
        verdict, reason = Outcome.INCONCLUSIVE, f"it uses what is not there: {', '.join(answer.stubs)}"
    elif verdict is Outcome.INCONCLUSIVE:
        reason = f"the kernel takes none of the {answer.counts.get(NOT_TAKEN, 0)} generated calls"
    elif answer.failing:
        reason = f"call {call + 1} of {answer.counts.get(TAKEN, 0) or '?'}{f': {reason}' if reason else ''}"
    return KernelHeld(
        name=binding.name,
        op=binding.op,
        verdict=verdict,
        calls=call + 1 if answer.failing else done,
        left_out=answer.counts.get(NOT_TAKEN, 0),
        cannot=binding.cannot,
        first=answer.first,
        reason=reason,
        detail=answer.detail,
        stubs=answer.stubs,
        lacks=answer.lacks,
        seconds=answer.seconds,
    )
