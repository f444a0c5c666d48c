"""The guard over what both sides read: a weight without effect ends a check, and every other one has some."""

from functools import cache
from pathlib import Path

import msgspec
import numpy as np
import pytest

from draftproof.harness import weights as guard
from draftproof.harness.check import Checker, CheckReport
from draftproof.properties.values.drafts import algorithm
from draftproof.properties.values.scenario import ProbeModel, Sampling, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Trace
from draftproof.properties.values.verdict import Outcome, Verdict
from draftproof.properties.weights import probe
from draftproof.reference import vacuity
from draftproof.reference.drafts.base import Pick
from draftproof.reference.memo import Memo
from draftproof.reference.run import ReferenceSubject, run
from draftproof.reference.solve import resolve, solve
from draftproof.reference.vacuity import WeightTensor, is_alive, is_telling, tensors
from tests.harness.subjects import Altered, as_it_is
from tests.named import OF_DRAFT, named


def solved(scenario: Scenario) -> tuple[Script, Trace]:
    memo = Memo()
    script = resolve(scenario, solve(scenario, memo), {}, memo)
    return script, run(scenario, script, memo)


@cache
def telling(name: str) -> tuple[Scenario, Script, Trace]:
    """The named scenario with logits that are fine enough to show what every tensor does."""
    scenario = named(name)
    assert isinstance(scenario.model, ProbeModel)
    scenario = msgspec.structs.replace(scenario, model=msgspec.structs.replace(scenario.model, logit_bits=23))
    script, trace = solved(scenario)
    assert is_telling(scenario, script)
    return scenario, script, trace


@pytest.mark.parametrize("name", [*OF_DRAFT.values(), "five_in_graphs", "hybrid_snapshot", "images"])
def test_every_tensor_is_alive_but_those_that_are_dead_by_definition(name: str):
    scenario, script, trace = telling(name)
    kept = tensors(scenario)
    every = {
        WeightTensor(model, name, algorithm(scenario.draft) if model == "draft" else "")  # type: ignore[arg-type]
        for model, of_model in vacuity.weights_of(scenario).items()
        for name in of_model
    }
    alive = {tensor for tensor in every if is_alive(scenario, script, trace, tensor, "cut")}
    assert alive == set(kept)
    assert len(kept) > 10


def test_nothing_is_dead_in_the_run_itself():
    """The unperturbed run is compared with itself: not every run is another one."""
    scenario, script, trace = telling("five_in_graphs")
    lane = WeightTensor("target", "carried")
    same = pytest.MonkeyPatch()
    with same.context() as patched:
        patched.setattr(vacuity, "_perturbed", lambda scenario, _: [probe.target_weights(scenario.model)])
        assert not is_alive(scenario, script, trace, lane, "cut")


def test_a_drawn_draft_has_something_to_be_drawn_from_where_all_places_stand_for_one_token():
    """As in a perturbed table of ids: the last place may have no weight."""
    pick = Pick(Sampling(seed=1, temperature=0.5), vocab=8)
    picked = pick(np.array([4e6, 0.0, -4e8]), 3, (5, 5, 5))
    assert picked.choice.token == 5
    assert [token for token, weight in enumerate(picked.weights) if weight] == [5]


@pytest.fixture
def without_mlp(monkeypatch: pytest.MonkeyPatch):
    """The weights with those of every MLP at zero, for both sides."""
    made = probe._layer

    def zeroed(*given: object, **named: object) -> dict[str, np.ndarray]:
        layer = made(*given, **named)  # type: ignore[arg-type]
        return {name: array * np.uint64(not name.endswith("mlp.weight")) for name, array in layer.items()}

    monkeypatch.setattr(probe, "_layer", zeroed)
    for cached in (probe.target_weights, probe.draft_weights):
        cached.cache_clear()
    yield
    for cached in (probe.target_weights, probe.draft_weights):
        cached.cache_clear()


def of(report: CheckReport, name: str) -> Verdict:
    return next(one for one in report.contracts if one.name == name)


def checked(scenarios: list[Scenario], tmp_path: Path, subject: object = None) -> CheckReport:
    return Checker(subject or ReferenceSubject(), cases=tmp_path).check(scenarios, 3)  # type: ignore[arg-type]


def test_a_tensor_without_effect_ends_a_check_that_every_contract_passes(
    without_mlp: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(guard, "EACH", 100)
    report = checked([fresh(telling("five_in_graphs")[0])], tmp_path, Altered(as_it_is))
    assert report.verdict is Outcome.ERROR
    assert {one.verdict for one in report.contracts if one.name != guard.WEIGHTS_CONTRACT} <= {
        Outcome.PASS,
        Outcome.SKIP,
        Outcome.INCONCLUSIVE,
    }
    reason = of(report, guard.WEIGHTS_CONTRACT).reason
    assert "mlp.weight of the " in reason
    assert " in scenario " in reason
    assert "draft eagle" in reason
    assert "properties/weights/probe.py" in reason


def fresh(scenario: Scenario) -> Scenario:
    """The scenario with weights that no engine of this process has kept."""
    assert isinstance(scenario.model, ProbeModel)
    return msgspec.structs.replace(scenario, model=msgspec.structs.replace(scenario.model, seed=4_000_000_001))


def test_a_check_counts_what_it_perturbed(tmp_path: Path):
    scenarios = [telling("five_in_graphs")[0]] * 3
    report = checked(scenarios, tmp_path)
    assert of(report, guard.WEIGHTS_CONTRACT).verdict is Outcome.PASS
    assert of(report, guard.WEIGHTS_CONTRACT).scenarios == 3
    assert sum(report.weights.values()) == 3 * guard.EACH
    # Each kind has a turn before another has its second.
    assert set(report.weights.values()) == {1}
    assert report.weights == checked(scenarios, tmp_path).weights


def test_a_check_that_perturbed_nothing_is_inconclusive(tmp_path: Path):
    scenario = named("eagle_padded")
    assert scenario.model.logit_bits < vacuity.LEAST_BITS
    verdict = of(checked([scenario], tmp_path), guard.WEIGHTS_CONTRACT)
    assert verdict.verdict is Outcome.INCONCLUSIVE
    assert verdict.missing == ("weights perturbed >= 1",)
