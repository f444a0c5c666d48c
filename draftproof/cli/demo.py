"""`draftproof demo`: a known bug, brought back into the built-in engine, found and explained, in half a minute."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

from draftproof.cli import cases, explain, inputs, parts, screen, subjects
from draftproof.properties.values.drafts import Algorithm, drafts_of
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.verdict import EXIT_CODES, Outcome
from draftproof.report.numbers import plural

if TYPE_CHECKING:
    from draftproof.fuzz.explain import ExplainReport

_FAULT, _SEED, DEMO_EXAMPLES = "draft-positions-advanced-early", 0, 24
_SECONDS = 20.0
"""At most this is spent on a smaller case."""
_CASE = Path(".draftproof/demo/case.json")


def demo(json: inputs.Json = None) -> None:
    """Bring a known bug back, find it and explain it, in half a minute.

    A page of it opens, if this is a terminal.
    """
    from draftproof.faults.catalogue import catalogue, find

    fault = find(_FAULT, catalogue()).fault
    screen.line(f"The bug, as in {fault.source}: {fault.mechanism}\n")
    under_test = subjects.UnderTest(fault=_FAULT, is_named=True)
    number = _found(under_test, fault.contract, drafts_of(fault.draft))
    if number is None:
        screen.line(f"INCONCLUSIVE: nothing failed in {plural(DEMO_EXAMPLES, 'scenario')}", "bold")
        raise inputs.Ended(EXIT_CODES[Outcome.INCONCLUSIVE])
    screen.line(f"found: scenario {number} fails, and passes without the bug; {_CASE} keeps it")
    done = explain.smaller(
        cases.given(_CASE), under_test, NO_LIMITS, _CASE.with_name("shrunk.json"), _SECONDS, subjects.MOST_WORKERS
    )
    done = explain.rest(done, under_test, NO_LIMITS, subjects.MOST_WORKERS)
    page = _CASE.with_name("report.html")
    inputs.write_text("the page", page, _page(under_test, done, fault.mechanism))
    screen.line(f"As a page: {page}")
    if sys.stdout.isatty():
        webbrowser.open(page.resolve().as_uri())
    screen.line("\nThat took a known bug. For others: draftproof check, and draftproof explain CASE of what it finds.")
    inputs.finish(json, done, done.outcome)


def _page(under_test: subjects.UnderTest, done: ExplainReport, mechanism: str) -> str:
    """Return the smaller case as a page, run once more to see where the two sides part."""
    from draftproof.harness.workers.messages import Order
    from draftproof.harness.workers.pool import Pool
    from draftproof.report.commands import command
    from draftproof.report.html.case import case_page
    from draftproof.report.text import describe_scenario

    path = Path(done.shrunk.shrunk)
    scenario = cases.given(path).scenario
    with (
        under_test.patched() as spec,
        tempfile.TemporaryDirectory(prefix="draftproof-") as journals,
        Pool(spec, 1, Path(journals)) as pool,
    ):
        (answer,) = pool.run([Order(number=0, scenario=scenario, timeline=True)])
    assert answer.first is not None
    found = done.parts.found if done.parts else None
    facts = {"Smallest case": describe_scenario(scenario), "Parts": parts.describe_parts(found) if found else ""}
    replay = command("replay", done.shrunk.shrunk, **under_test.of_cases)
    return case_page(_FAULT, mechanism, answer.first, answer.timeline, facts, replay)


def _found(under_test: subjects.UnderTest, contract: str, drafts: tuple[Algorithm, ...]) -> int | None:
    """Return the first scenario that fails as the bug is named and passes without it, and keep its case; else None.

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
            named = answer.first is not None and answer.first.contract == contract
            if named and without.examine(order).outcome is Outcome.PASS:
                cases.keep(_CASE, scenario, f"draftproof demo with --fault {_FAULT}")
                return number
    return None
