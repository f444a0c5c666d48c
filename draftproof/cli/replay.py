"""`draftproof replay`: run one case again and show its first divergence in context."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from draftproof.cli import cases, inputs, screen, subjects
from draftproof.cli.again import again
from draftproof.cli.check import exercised
from draftproof.cli.groups import with_option_groups
from draftproof.properties.values.verdict import Outcome
from draftproof.report.text import block, describe_scenario, line

if TYPE_CHECKING:
    from draftproof.harness.replay import Replayed
    from draftproof.properties.values.scenario import Scenario


@with_option_groups(case=cases.given, under_test=subjects.chosen)
def replay(
    case: cases.GivenCase, under_test: subjects.UnderTest, debug: subjects.Debug = False, json: inputs.Json = None
) -> None:
    """Run one case again and show its first divergence.

    It also says what the case is and what was judged. The script that the reference makes of the scenario must be the
    one that the case file stores.
    """
    from draftproof.harness import replay as replays
    from draftproof.harness.subject_report import assumed
    from draftproof.harness.subject_run import closing
    from draftproof.properties.fit import require_fit

    subjects.require_whose(case.path, under_test)
    known = replays.solve_again(case.scenario, case.script, str(case.path))
    with under_test.patched() as spec, closing(under_test._replace(debug=debug).made(spec)) as made:
        require_fit(case.scenario, made.limits, str(case.path))
        without = case.missing_fault(under_test)
        done, assumes = replays.replay(made, known, str(case.path), without), assumed(made)
    _show_scenario(case.scenario, done)
    screen.show_assumed(assumes, done.report.verdict)
    _show(done)
    case.show_missing(under_test)
    repeated = again("replay", case.path, **case.where, **under_test.arguments)
    screen.line(f"{done.report.verdict}. Again: {repeated}", "bold")
    inputs.finish(json, done.report, done.report.verdict)


def _show_scenario(scenario: Scenario, done: Replayed) -> None:
    """Say what the scenario is, what of it was exercised, and how many contracts judged it."""
    from draftproof.properties.coverage.covered import not_covered

    screen.line(f"scenario: {describe_scenario(scenario)}")
    inert = f" (without effect: {', '.join(done.report.inert)})" if done.report.inert else ""
    screen.line(f"features: {', '.join(done.report.features) or 'none'}{inert}")
    if done.ran is None or done.judged is None:
        return
    beyond = not_covered(done.ran.limits, done.judged.channels)
    screen.line(exercised(done.report.counts, beyond, "--json"))
    contracts = done.report.contracts
    outcomes = Counter(one.verdict for one in contracts)
    judged = f"{len(contracts) - outcomes[Outcome.SKIP]} of {len(contracts)}"
    told = ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in Outcome if outcomes[outcome])
    few = " (one scenario has not all that a contract asks for)" if outcomes[Outcome.INCONCLUSIVE] else ""
    screen.line(f"contracts: {judged} judged it: {told}{few}\n")


def _show(done: Replayed) -> None:
    """Print the first divergence with its neighbours, and the other contracts that failed."""
    report, first = done.report, done.report.first
    if done.ran is None or done.judged is None:
        screen.line(report.detail.rstrip())
        return
    if first is None:
        return
    from draftproof.report.neighbours import neighbours

    screen.line(block(first), "red")
    if rows := neighbours(done.ran, first):
        numbers = ("round", "step", "layer", "row")
        screen.show(("", *numbers, "expected", "got"), rows, right=numbers)
    for name, found in done.judged.results.items():
        if found is not None and name != first.contract:
            screen.line(f"FAIL {name}: {line(found)}.")
