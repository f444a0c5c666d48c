"""Verdicts of a campaign: what a subject cannot show is not demanded, and what it can show is."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.fuzz.campaign.settings import Settings
from draftproof.fuzz.campaign.store import Store
from draftproof.fuzz.campaign.verdicts import verdicts
from draftproof.harness.workers.messages import Answer
from draftproof.properties.contracts.registry import CONTRACTS_BY_NAME
from draftproof.properties.coverage.counts import unreached
from draftproof.properties.coverage.covered import not_covered
from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.judge import COMMON, REAL, WORK
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.subject_choice import SubjectChoice
from draftproof.properties.values.verdict import Outcome, Verdict
from tests.fuzz.test_store import SCENARIOS, waiting

TEXT = frozenset({"accept.emitted"})
LACKED = ("adaptive-steps", "draft-batch", "eos", "min-tokens", "stop-sequences")
LIMITS = Limits(
    models=("checkpoint",),
    steering="none",
    arrivals="together",
    features=tuple(name for name in FEATURES_BY_NAME if name not in LACKED),
    variants=(),
)
FOREIGN = Settings(drafts=("eagle",), subject=SubjectChoice(name="openai"), model="somewhere")
TOKENS = {"tokens_emitted": 50, "settled_tokens": 50}
COUNTS = dict.fromkeys((*WORK, *COMMON, "requests", "stops_in_accepted_run", "limits_hit"), 3)


def answer(number: int, channels: frozenset[str], **counts: int) -> Answer:
    """What a subject with LIMITS says that reports these channels."""
    beyond = not_covered(LIMITS, channels)
    able = {name: count for name, count in {**COUNTS, **counts}.items() if name not in beyond}
    judged = tuple(name for name, one in CONTRACTS_BY_NAME.items() if one.fits(channels))
    return Answer(
        number=number,
        outcome=Outcome.PASS,
        judged=judged,
        counts={
            "scenarios_shown": 1,
            "texts_shown": 1,
            **able,
            "scenarios": 1,
            "tokens_emitted": 50,
            "settled_tokens": 50,
        },
        beyond=tuple(sorted(beyond)),
        channels=tuple(sorted(channels)),
    )


def judged(path: Path, settings: Settings, *answers: Answer) -> dict[str, Verdict]:
    store = Store(path / "results.sqlite")
    store.queue(0, waiting())
    for one in answers:
        store.done(one, 1.0)
    found = verdicts(store.sums(), settings)
    store.close()
    return {one.name: one for one in found}


def test_a_subject_that_shows_its_text_only_can_pass(tmp_path: Path):
    found = judged(tmp_path, FOREIGN, *(answer(number, TEXT) for number in range(len(SCENARIOS))))
    assert {one.verdict for one in found.values()} == {Outcome.PASS, Outcome.SKIP}
    assert found["output.lossless"].verdict is Outcome.PASS
    assert found["draft.positions"].reason == "the subject does not report draft.step.positions"


def test_what_one_scenario_could_have_reached_is_demanded(tmp_path: Path):
    able = replace(answer(1, TEXT), beyond=())
    found = judged(tmp_path, FOREIGN, answer(0, TEXT), able)
    assert "graph_replays >= 1" in found["runs"].missing
    assert found["runs"].verdict is Outcome.INCONCLUSIVE


def test_the_built_in_engine_is_held_to_all(tmp_path: Path):
    found = judged(tmp_path, Settings(drafts=("eagle",)), replace(answer(0, TEXT), beyond=(), channels=()))
    assert set(found["runs.eagle"].missing) >= set(unreached(COMMON, {**COUNTS, "scenarios": 1}, frozenset()))
    assert found["runs"].verdict is Outcome.INCONCLUSIVE


def test_a_real_model_is_held_to_what_few_scenarios_reach(tmp_path: Path):
    counts = {name: 0 for name in COMMON if name not in REAL}
    few = replace(answer(0, TEXT, **counts), beyond=())
    assert "padded_replays >= 1" not in judged(tmp_path, FOREIGN, few)["runs.eagle"].missing


@pytest.mark.parametrize(("ties", "outcome"), [(0, Outcome.PASS), (2, Outcome.INCONCLUSIVE)])
def test_too_many_ties_prove_nothing(ties: int, outcome: Outcome, tmp_path: Path):
    assert judged(tmp_path, FOREIGN, answer(0, TEXT, token_ties=ties))["output.lossless"].verdict is outcome
