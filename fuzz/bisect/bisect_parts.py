"""Bisect the parts of the engine that a failing case needs, in worker processes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec

from draftproof.fuzz.bisect.ddmin import NotFailingError
from draftproof.fuzz.bisect.search import Bisection, bisect, kernels_used
from draftproof.harness.workers.messages import Order, SubjectSpec
from draftproof.harness.workers.pool import Pool
from draftproof.properties.values.base import Value
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Outcome


class PartsReport(Value, frozen=True, kw_only=True):
    """The result of a bisection of parts.

    `verdict` is that of the case, INCONCLUSIVE if it is flaky; `found` is None for a case that did not fail, or not
    again.
    """

    verdict: Outcome
    case: str
    found: Bisection | None = None
    flaky: bool = False


def bisect_parts(scenario: Scenario, case: str, spec: SubjectSpec, workers: int) -> PartsReport:
    """Return the smallest set of parts that must be on for a scenario, read from `case`, to fail.

    Raises RuntimeError if the case could not be judged.
    """
    with tempfile.TemporaryDirectory(prefix="draftproof-") as folder, Pool(spec, workers, Path(folder)) as pool:
        (answer,) = pool.run([Order(number=0, scenario=scenario)])
        if answer.outcome is Outcome.ERROR:
            raise RuntimeError(f"the case could not be judged:\n{answer.detail}")
        if answer.identity is None:
            return PartsReport(verdict=answer.outcome, case=case)
        kernels = kernels_used(pool, scenario)
        try:
            found = bisect(scenario, answer, kernels, pool.run, device=spec.device, width=workers)
        except NotFailingError:
            return PartsReport(verdict=Outcome.INCONCLUSIVE, case=case, flaky=True)
    found = msgspec.structs.replace(found, answer=found.answer.brief)
    return PartsReport(verdict=answer.outcome, case=case, found=found)
