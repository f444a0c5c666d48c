"""Draft trees of a real model: what the engine does passes, what is wrong fails, and a tie of the ranking is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.trace import Trace
from tests.checkpoints import tiny_llama, tiny_qwen3_next
from tests.named.real import real


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A scenario with a tree whose own drafts are verified, on the engine, and which is no chain."""
    path = tiny_llama(tmp_path_factory.mktemp("llama"))
    (scenario,) = real(path, ["tree_eagle"])
    return evidence(EngineSubject(), scenario)


def test_what_the_engine_does_passes(ran: Evidence) -> None:
    assert counts(ran)["trees_of_their_own"]
    assert counts(ran)["beams"]
    assert not [found for found in judge(ran).results.values() if found]
    assert not ran.draft_ties
    assert {"tree.steered", "tree.walked", "beam.ids", "beam.candidates"} <= judge(ran).results.keys()


def changed(trace: Trace, channel: str, change: Any) -> Trace:
    """The trace with the last value of a channel that can be changed changed."""
    told = list(trace.observations)
    place = max(place for place, one in enumerate(told) if one.channel == channel and one.value)
    told[place] = told[place]._replace(value=change(told[place].value))
    return replace(trace, observations=tuple(told))


@pytest.mark.parametrize("channel", ["propose.tokens", "propose.parents", "draft.beam.candidates"])
def test_another_tree_is_a_difference(ran: Evidence, channel: str) -> None:
    wrong = replace(ran, subject=changed(ran.subject, channel, lambda value: (*value[:-1], (value[-1] + 1) % 7)))
    assert any(judge(wrong).results.values())


def test_a_tree_that_rounding_may_have_ranked_otherwise_ends_the_comparison_of_its_drafts(ran: Evidence) -> None:
    """With the closest ranking of the reference told as none at all, another proposal is a tie."""
    subject = changed(ran.subject, "draft.beam.candidates", lambda value: (*value[:-1], (value[-1] + 1) % 7))
    subject = changed(subject, "propose.tokens", lambda value: (*value[:-1], (value[-1] + 1) % 7))
    places = [one.key for one in subject.observations if one.channel == "propose.tokens" and one.value]
    last = max(places, key=lambda key: [one.key for one in subject.observations].index(key))
    near = {**ran.reference.near, ("propose.parents", last): ((0, 0.0),)}
    tied = replace(ran, subject=subject, reference=replace(ran.reference, near=near))
    assert last.request in tied.draft_ties
    kept = tied.comparable("propose.tokens", tied.subject.channel("propose.tokens"))
    assert last not in kept
    told = tied.subject.channel("propose.tokens").keys()
    assert {key for key in told if key.request != last.request} <= kept.keys()


def test_states_of_a_checkpoint_follow_its_trees(tmp_path: Path) -> None:
    """Of each way to commit a scenario in which a path is committed that does not begin with the first rows."""
    path = tiny_qwen3_next(tmp_path / "next")
    seen = [evidence(EngineSubject(), one) for one in real(path, ["tree_hybrid_snapshot", "tree_hybrid_replay"])]
    assert not [found for one in seen for found in judge(one).results.values() if found]
    counted = [counts(one) for one in seen]
    assert all(sum(one[f"tree_states_{commit}"] for one in counted) for commit in ("snapshot", "replay"))


def test_other_drafts_have_none(ran: Evidence) -> None:
    with pytest.raises(
        InvalidScenarioError,
        match=r"invalid trees with draft .dflash.: expected a draft that can have it, eagle, ngram",
    ):
        validate(msgspec.structs.replace(ran.scenario, draft=CheckpointDraft(algorithm="dflash", path="somewhere")))
