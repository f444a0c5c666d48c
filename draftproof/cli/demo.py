"""`draftproof demo`: a known bug, brought back into the built-in engine, found and explained, in less than a minute."""

from __future__ import annotations

import tempfile
from pathlib import Path

from draftproof.cli import cases, explain, inputs, screen, subjects
from draftproof.properties.values.drafts import Algorithm, drafts_of
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.verdict import EXIT_CODES, Outcome
from draftproof.report.numbers import plural

_FAULT, _SEED, DEMO_EXAMPLES = "draft-positions-advanced-early", 0, 24
_SECONDS = 20.0
"""At most this is spent on a smaller case."""
_CASE = Path(".draftproof/demo/case.json")


def demo(json: inputs.Json = None) -> None:
    """Bring a known bug back, find it and explain it, in a minute."""
    from draftproof.faults.catalogue import catalogue, find

    fault = find(_FAULT, catalogue()).fault
    screen.line(f"The bug, as in {fault.source}: {fault.mechanism}\n")
    under_test = subjects.UnderTest(fault=_FAULT, is_named=True)
    number = _found(under_test, drafts_of(fault.draft))
    if number is None:
        screen.line(f"INCONCLUSIVE: nothing failed in {plural(DEMO_EXAMPLES, 'scenario')}", "bold")
        raise inputs.Ended(EXIT_CODES[Outcome.INCONCLUSIVE])
    screen.line(f"found: scenario {number} fails, and passes without the bug; {_CASE} keeps it")
    done = explain.smaller(
        cases.given(_CASE), under_test, NO_LIMITS, _CASE.with_name("shrunk.json"), _SECONDS, subjects.MOST_WORKERS
    )
    done = explain.rest(done, under_test, NO_LIMITS, subjects.MOST_WORKERS)
    screen.line("\nThat took a known bug. For others: draftproof check, and draftproof explain CASE of what it finds.")
    inputs.finish(json, done, done.outcome)


def _found(under_test: subjects.UnderTest, drafts: tuple[Algorithm, ...]) -> int | None:
    """Return the first scenario that fails with the bug and passes without it, whose case is kept; None if none does.

    Raises InputError where the case cannot be written.
    """
    from draftproof.harness.execute import SCENARIO_DEADLINE, Executor
    from draftproof.harness.workers.messages import Order
    from draftproof.harness.workers.pool import Pool
    from draftproof.properties.strategies.scenarios import generated

    without = Executor(inputs.engine("cpu"))
    with (
        under_test.patched() as spec,
        tempfile.TemporaryDirectory(prefix="draftproof-") as journals,
        Pool(spec, 1, Path(journals), deadline=SCENARIO_DEADLINE) as pool,
    ):
        for number, scenario in enumerate(generated(_SEED, DEMO_EXAMPLES, drafts)):
            order = Order(number=number, scenario=scenario)
            (answer,) = pool.run([order])
            if answer.outcome is Outcome.FAIL and without.examine(order).outcome is Outcome.PASS:
                cases.keep(_CASE, scenario, f"draftproof demo with --fault {_FAULT}")
                return number
    return None
