"""What observes an engine changes nothing of it: alone it emits the same tokens, by as many drafts."""

from collections import defaultdict
from typing import Any

import msgspec
import pytest
import torch

from draftproof.engine.engine import Engine
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.overlap import OverlapEngine
from draftproof.engine.packed import PackedTarget, columns, packing
from draftproof.engine.stages import DecodeRow, GenerationRequest, Proposal
from draftproof.engine.subject import EngineSubject, build
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import ALGORITHMS, DRAFT_KINDS_BY_NAME, Algorithm
from draftproof.properties.values.scenario import RoundPlan, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Trace
from draftproof.reference.solved import solved
from tests.named import OF_DRAFT, named, with_other_draft

CPU = torch.device("cpu")
OF_EAGLE = ("sampled_eagle", "overlapped_hybrid", "sampled_hybrid_snapshot", "sampled_hybrid_replay")
"""Scenarios in which any draft may stand."""
TREES: dict[Algorithm, tuple[str, ...]] = {"eagle": ("tree_eagle", "tree_sampled"), "ngram": ("tree_ngram",)}
TOTALS = ("rounds", "drafts", "accepted")


def unforced(scenario: Scenario) -> Scenario:
    """Return the scenario with the draft's own proposals in every round."""
    plans = tuple(RoundPlan(num_drafts=steps, num_correct=-1) for steps in (scenario.steps, 1))
    requests = tuple(msgspec.structs.replace(one, rounds=plans) for one in scenario.requests)
    return validate(msgspec.structs.replace(scenario, requests=requests))


def cases(draft: Algorithm) -> dict[str, Scenario]:
    """Return one of every kind: as a chain and as a tree, with and without samples, overlapped or not, on a hybrid."""
    plain = (OF_DRAFT[draft], *TREES.get(draft, ()))
    # Nothing is looked up in a text that is not known yet (S-OVERLAP-9).
    others = [
        name
        for name in OF_EAGLE
        if not (DRAFT_KINDS_BY_NAME[draft].proposes == "lookup" and named(name).schedule.overlap)
    ]
    return {
        **{name: named(name) for name in plain},
        **{name: with_other_draft(named(name), draft, number) for number, name in enumerate(others)},
    }


def beside_chunks(name: str) -> Scenario:
    """Return a scenario with an overlap, in which one request comes to its end while another's prompt runs."""
    scenario = named(name)
    ends, runs, *_ = scenario.requests
    ends, runs = (
        msgspec.structs.replace(ends, budget=scenario.steps + 2, stop_at=-1),
        msgspec.structs.replace(runs, prompt=(1, 2, 3, 4) * 5, arrival=1, budget=3, stop_at=-1),
    )
    schedule = msgspec.structs.replace(scenario.schedule, overlap=("early", "late"), chunk=1)
    memory = msgspec.structs.replace(scenario.memory, max_len=32)
    return validate(msgspec.structs.replace(scenario, requests=(ends, runs), schedule=schedule, memory=memory))


def alone(scenario: Scenario, script: Script) -> tuple[dict[int, tuple[int, ...]], dict[str, int]]:
    """Return the tokens of each request, and the totals, of an engine without probes."""
    models, config = build.models(scenario, CPU), build.config(scenario)
    kind = OverlapEngine if config.overlap else Engine
    engine = kind(models.target, models.draft, config, CPU)
    if scenario.graphs.sizes and scenario.graphs.capture:
        engine.capture(HostBackend())
    for request in build.requests(scenario, script):
        engine.add(request)
    texts = defaultdict[int, tuple[int, ...]](tuple)
    with torch.no_grad():
        while not engine.idle:
            for commit in engine.step():
                texts[commit.request] += commit.emitted
    return dict(texts), {name: getattr(engine.draft_counters, name) for name in TOTALS}


def observed(trace: Trace) -> tuple[dict[int, tuple[int, ...]], dict[str, int]]:
    """Return the same of what was observed."""
    texts = defaultdict[int, tuple[int, ...]](tuple)
    for key, tokens in sorted(trace.typed("accept.emitted", tuple).items()):
        texts[key.request] += tuple(tokens)
    return dict(texts), {name: trace.typed(f"total.{name}", int)[Key(-1, 0)] for name in TOTALS}


@pytest.mark.parametrize("draft", ALGORITHMS)
def test_alone_an_engine_does_what_it_does_observed(draft: Algorithm) -> None:
    for scenario in cases(draft).values():
        case = unforced(scenario)
        script = solved(case).script
        texts, totals = alone(case, script)
        assert (texts, totals) == observed(EngineSubject(device="cpu").run(case, script))
        assert totals["drafts"]


def test_alone_rounds_beside_chunks_have_the_drafts_that_they_turn_out_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under an overlap the host plans with bounds: without an observer nobody else tells a packed launch of less."""
    case, launched = unforced(beside_chunks("mixed_eagle")), list[tuple[list[int], list[int]]]()
    after_rounds = PackedTarget.after_rounds

    def noted(self: PackedTarget, out: Any, packed: Any, proposal: Proposal, inputs: Any) -> Any:
        launched.append((list(proposal.num_drafts), inputs["num_drafts"].tolist()))
        return after_rounds(self, out, packed, proposal, inputs)

    monkeypatch.setattr(PackedTarget, "after_rounds", noted)
    script = solved(case).script
    texts = alone(case, script)
    assert launched
    assert [planned for planned, _ in launched] == [found for _, found in launched]
    assert texts == observed(EngineSubject(device="cpu").run(case, script))


def test_a_row_without_a_position_left_has_no_tokens_in_a_packed_launch() -> None:
    asked = GenerationRequest(0, 0, (1, 2), 5, frozenset(), (2,))
    over, live = (DecodeRow(asked, row, 1, 4, 9, count) for row, count in ((1, -1), (2, 1)))
    proposal = Proposal(torch.tensor([[3, 4], [5, 6]]), (-1, 1), torch.tensor([[0, 1], [0, 1]]))
    packed = packing((), (over, live), proposal, row_seed=0)
    assert [row.ids for row in packed.rows] == [(), (9, 5)]
    assert packed.above == [-1, 0]
    assert columns(packed.places(verifies=True), 3) == [0, 0, 0, 0, 1, 1]
