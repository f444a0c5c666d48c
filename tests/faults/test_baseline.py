"""What the baseline tests see of a fault: its output, and how many drafts are accepted."""

import pytest
from msgspec.structs import replace

from draftproof.faults.baseline import AGREEMENT, Baseline, BaselineRun, add, compare, unsteered
from draftproof.faults.catalogue import catalogue
from draftproof.faults.matrix import FaultReport
from draftproof.faults.run import run_faults
from draftproof.faults.served import ForkServer
from draftproof.faults.trial import FaultOutcome
from draftproof.harness.execute import Executor
from draftproof.harness.workers.messages import PlainOrder
from draftproof.properties.validate import validate
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.values.trace import Observation
from draftproof.reference.solved import Solved, solved
from tests.faults.listed import NAMES
from tests.faults.test_run import STEP, fault
from tests.harness.subjects import Altered, Raising, as_it_is
from tests.named import named, names

SILENT, LOUD = "draft-positions-advanced-early", "first-draft-unverified"


def plain(count: int) -> list[Solved]:
    """Named scenarios; the first request of the first one ends with its prompt."""
    first, *others = (named(name) for name in NAMES[:count])
    short = replace(first, requests=(replace(first.requests[0], budget=1, min_tokens=0), *first.requests[1:]))
    return [solved(unsteered(scenario)) for scenario in (short, *others)]


def run_of(subject: Altered, scenarios: list[Solved]) -> BaselineRun:
    known = {one.scenario: one for one in scenarios}
    executor, run = Executor(subject, reference=known.__getitem__), BaselineRun()
    for number, scenario in enumerate(known):
        run = add(run, executor.answer(PlainOrder(number=number, scenario=scenario)))
    return run


def test_nothing_is_steered_or_tapped():
    for scenario in map(named, names()):
        changed = validate(unsteered(scenario))
        assert isinstance(changed.model, ProbeModel)
        assert (changed.taps, changed.variant, changed.model.agreement) == (False, "none", AGREEMENT)
        script = solved(changed).script
        assert all(round_.forced is None for request in script.requests for round_ in request.rounds)
        assert all(chain is None for request in script.requests for chains in request.chains for chain in chains)


def test_the_healthy_engine_accepts_what_the_reference_says():
    scenarios = [known for known in plain(12) if not known.scenario.dynamic]
    rounds = [one for known in scenarios for request in known.script.requests for one in request.rounds]
    found = run_of(Altered(as_it_is), scenarios)
    expected = BaselineRun(
        scenarios=len(scenarios), accepted=sum(one.correct_len for one in rounds), rounds=len(rounds)
    )
    assert found == expected
    assert found.accepted > 20


def test_a_wrong_token_is_seen_in_its_scenario():
    def wrong(one: Observation) -> Observation:
        first = one.channel == "accept.emitted" and one.key.request == 0 and one.key.round == 1
        return one._replace(value=(*one.value[:-1], one.value[-1] + 1)) if first else one  # type: ignore[index,operator]

    scenarios = plain(12)
    altered = sum(len(known.script.requests[0].tokens) > 1 for known in scenarios)
    found = run_of(Altered(wrong), scenarios)
    assert (found.scenarios, found.changed) == (12, altered)
    assert 1 < altered < 12


def test_tokens_that_never_come_are_seen():
    found = run_of(Altered(lambda one: one._replace(value=()) if one.channel == "accept.emitted" else one), plain(1))
    assert found.changed == 1


def test_a_crash_ends_a_run_and_both_tests_see_it():
    found = run_of(Raising(as_it_is), plain(1))
    assert found == BaselineRun(crash="IndexError: page 9 is out of range")
    seen = compare(found, BaselineRun(scenarios=2, accepted=3, rounds=2))
    assert (seen.output, seen.acceptance, seen.mean, seen.expected) == (True, True, None, 1.5)


@pytest.mark.parametrize(("accepted", "seen"), [(100, False), (95, False), (105, False), (94, True), (106, True)])
def test_five_percent_of_acceptance_are_let_pass(accepted, seen):
    twin = BaselineRun(scenarios=1, accepted=100, rounds=40)
    found = compare(BaselineRun(scenarios=1, accepted=accepted, rounds=40), twin)
    assert (found.acceptance, found.output) == (seen, False)


def test_nothing_accepted_is_no_less_than_nothing():
    twin = BaselineRun(scenarios=1, rounds=4)
    assert not compare(twin, twin).acceptance
    assert compare(BaselineRun(scenarios=1), twin).acceptance


@pytest.fixture(scope="module")
def report(server: ForkServer) -> FaultReport:
    known = catalogue()
    dies = fault("dies", STEP, "        import os, signal", "        os.kill(os.getpid(), signal.SIGSEGV)")
    return run_faults([known[SILENT], known[LOUD], dies], seeds=[1], examples=6, baseline=True, serve=server.run)


def baseline_of(report: FaultReport, name: str) -> Baseline:
    found = next(row.baseline for row in report.faults if row.id == name)
    assert found is not None
    return found


def test_a_silent_fault_changes_no_output(report):
    """A wrong position lowers acceptance and leaves the text as it is."""
    found = baseline_of(report, SILENT)
    assert (found.scenarios, found.changed, found.output, found.acceptance) == (6, 0, False, True)
    assert found.mean < 0.9 * found.expected


def test_an_unverified_draft_changes_the_output(report):
    found = baseline_of(report, LOUD)
    assert found.output
    assert found.changed > 0


def test_a_dead_process_is_a_crash_to_both(report):
    found = baseline_of(report, "dies")
    assert (found.output, found.acceptance, found.crash) == (True, True, "killed by SIGSEGV")
    assert [row.outcome for row in report.faults if row.id == "dies"] == [FaultOutcome.CRASHED]


def test_the_report_sums_up_both_kinds(report):
    sums = report.totals
    assert (sums.faults, sums.measured, sums.ours, sums.output, sums.either) == (3, 3, 3, 2, 3)
