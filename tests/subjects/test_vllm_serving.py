"""The vLLM adapter as far as it needs no vLLM: drafts of a round, rows of a batch, what a release lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from draftproof.properties.values.drafts import CheckpointDraft, Ngram
from draftproof.properties.values.scenario import Checkpoint, Memory, Request, RoundPlan, Scenario
from draftproof.properties.values.script import RequestScript, RoundScript, Script
from draftproof.subjects.vllm import drafting, engine, hooks, observing
from draftproof.subjects.vllm.observing import StepTurn
from draftproof.subjects.vllm.serving import Serving
from draftproof.subjects.vllm.stepping import fresh_scheduler, name_of
from draftproof.subjects.vllm.taps import Forward, StepSeen
from tests.named import named

MODEL = Checkpoint(path="nowhere", vocab=67)


@pytest.fixture
def scenario() -> Scenario:
    request = Request(arrival=0, prompt=(3, 4, 5), budget=6, rounds=(RoundPlan(num_drafts=3, num_correct=0),))
    memory = Memory(page_size=32, pages=4, request_slots=1, max_len=64)
    return replace(
        named("ngram_matches"), model=MODEL, draft=Ngram(max_n=3), steps=4, memory=memory, requests=(request,)
    )


def serving(scenario: Scenario, forced: tuple[int, ...] | None) -> Serving:
    """Return a run whose request has emitted one token."""
    round_ = RoundScript(context=-1, drafts=-1, forced=forced, correct_len=-1, emitted=())
    made = Serving(scenario, Script(requests=(RequestScript(tokens=(), stop=(), rounds=(round_,)),)))
    made.requests[0].round, made.requests[0].context, made.requests[0].emitted = 0, 3, [9]
    return made


def test_a_round_verifies_its_proposals_as_many_as_it_may_have(scenario):
    made = serving(scenario, None)
    assert made.next_drafts(made.requests[0], (7, 8, 9, 10)) == (7, 8, 9)


def test_forced_drafts_take_their_place(scenario):
    made = serving(scenario, (1, 2, 3))
    assert made.next_drafts(made.requests[0], (7, 8, 9, 10)) == (1, 2, 3)
    assert made.requests[0].proposed == (7, 8, 9)


@pytest.mark.parametrize(("budget", "max_len", "allowed"), [(3, 64, 1), (2, 64, 0), (6, 6, 2), (6, 5, 1)])
def test_limits_cut_drafts(scenario, budget, max_len, allowed):
    request = replace(scenario.requests[0], budget=budget)
    made = serving(replace(scenario, requests=(request,), memory=replace(scenario.memory, max_len=max_len)), None)
    assert len(made.next_drafts(made.requests[0], (7, 8, 9, 10))) == allowed


def turn(scenario: Scenario, **fields) -> StepTurn:
    one = serving(scenario, None).requests[0]
    whole = {"first": 3, "width": 4, "count": 4, "drafts": (1, 2, 3), "pages": (1,), "round": 1, "chunk": 0}
    return StepTurn(one=one, name="0", **whole | {"sampled": (1, 5)} | fields)


def forward(rows: int, vocab: int = 5) -> Forward:
    ids = np.arange(rows)
    logits = np.eye(rows, vocab)
    return Forward(ids, ids + 100, ids + 200, np.zeros((rows, 2)), np.ones((rows, 2)), logits)


def test_an_extend_reports_what_was_accepted_whether_the_drafter_ran_the_rest_or_not(scenario):
    for rows in (4, 2):
        seen = StepSeen(drafter=[forward(rows)])
        made = list(drafting.extends([turn(scenario)], seen, hidden=True))
        assert [one.value for one in made if one.channel == "extend.ids"] == [0, 1]
        assert [one.key.row for one in made if one.channel == "extend.positions"] == [3, 4]


def test_a_language_model_has_the_next_step_in_the_same_forward(scenario):
    seen = StepSeen(drafter=[forward(5)])
    ((_, number, made),) = drafting.steps([turn(scenario)], seen, hidden=False)
    assert (number, [one.value for one in made if one.channel == "draft.step.ids"]) == (1, [2])


def test_rows_that_nobody_can_tell_apart_are_told(scenario):
    with pytest.raises(drafting.UnknownRowsError, match="ran 3 rows: expected 4 or 2 for 1 requests"):
        list(drafting.extends([turn(scenario)], StepSeen(drafter=[forward(3)]), hidden=True))


def test_padding_of_a_prompt_is_left_out(scenario):
    """Beside decode rows vLLM pads the last token of a prompt to the width of a verify."""
    prefill = turn(scenario, first=2, width=4, count=1, drafts=(), round=0, sampled=(5,))
    prefill.rows = slice(0, 4)
    made = list(observing.of_target([prefill], StepSeen(target=[forward(4)])))
    assert [(one.channel, one.value[0]) for one in made] == [("verify.choice", 0)]


def test_a_choice_is_the_lowest_of_the_best():
    assert observing.choice(np.array([1.0, 3.0, 3.0, 0.0])) == (1, 0.0)


@dataclass(frozen=True)
class Pages:
    num_blocks: int


class Scheduler:
    """Has the parameters that vLLM's has."""

    def __init__(self, vllm_config: Any, kv_cache_config: Pages, log_stats: bool = True) -> None:
        self.vllm_config, self.kv_cache_config, self.log_stats = vllm_config, kv_cache_config, log_stats


@pytest.mark.parametrize(("cuts", "threshold", "budget"), [(True, 5, 5), (False, 0, 5 + 3)])
def test_a_run_has_a_scheduler_of_its_own(cuts, threshold, budget, scenario):
    """With a token budget that never keeps a prompt waiting that vLLM does not cut."""
    config = SimpleNamespace(enable_chunked_prefill=cuts)
    old = Scheduler(SimpleNamespace(scheduler_config=config), Pages(num_blocks=512))
    one_row = replace(scenario, schedule=replace(scenario.schedule, max_batch=1, chunk=2))
    made = fresh_scheduler(SimpleNamespace(scheduler=old), one_row)
    assert made is not old
    assert (made.kv_cache_config.num_blocks, made.log_stats) == (4 + 1, False)
    assert (config.max_num_seqs, config.long_prefill_token_threshold) == (1, threshold)
    assert made.max_num_scheduled_tokens == budget


def test_vllm_appends_something_to_names():
    assert (name_of("3"), name_of("3-abcd1234")) == ("3", "3")


def test_what_vllm_is_started_with(scenario):
    assert engine.speculative(scenario, MODEL, padded=True)["method"] == "ngram"
    with pytest.raises(engine.EngineStartError, match="expected earliest, which is vLLM's rule"):
        engine.speculative(replace(scenario, draft=Ngram(max_n=3, match="latest")), MODEL, padded=True)
    with pytest.raises(engine.EngineStartError, match="expected one in a folder"):
        engine.speculative(replace(scenario, draft=CheckpointDraft()), MODEL, padded=True)
    unpadded = engine.speculative(replace(scenario, draft=CheckpointDraft(path="head")), MODEL, padded=False)
    assert unpadded["disable_padded_drafter_batch"] is True


@pytest.mark.parametrize(("max_len", "positions", "room"), [(64, 512, 256), (300, 400, 400), (398, 400, 408)])
def test_an_engine_has_room_for_a_request(scenario, tmp_path, max_len, positions, room):
    (tmp_path / "config.json").write_text(json.dumps({"max_position_embeddings": positions}))
    longest = replace(scenario, memory=replace(scenario.memory, max_len=max_len))
    assert engine.room_for(longest, Checkpoint(path=str(tmp_path), vocab=67)) == room


def test_a_release_without_a_hook_loses_its_channels(monkeypatch):
    monkeypatch.setattr(
        hooks, "_TABLE", (("there", "json", "loads", "round.rows"), ("gone", "json", "no", "commit.kv"))
    )
    hooks.hooks.cache_clear()
    try:
        assert [(one.name, one.found) for one in hooks.hooks()] == [("there", True), ("gone", False)]
        assert hooks.carried() == {"round.rows"}
    finally:
        hooks.hooks.cache_clear()
