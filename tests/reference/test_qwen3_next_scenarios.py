"""Hybrid checkpoints as the models of a scenario."""

from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint, Graphs, Memory, Request, RoundPlan, Scenario, Schedule
from draftproof.reference import checkpoints
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.registry import load_target
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.checkpoints import tiny_head, tiny_llama, tiny_qwen3_5, tiny_qwen3_next

PROMPT = (1, 2, 3, 4, 5)
WRITERS = {"qwen3-next": (tiny_qwen3_next, 53), "qwen3.5": (tiny_qwen3_5, 59)}


@pytest.fixture(scope="module", params=WRITERS)
def scenario(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Scenario:
    writer, vocab = WRITERS[request.param]
    path = writer(tmp_path_factory.mktemp(request.param), seed=8)
    rounds = tuple(
        RoundPlan(num_drafts=drafts, num_correct=right) for drafts, right in ((3, 1), (4, -1), (0, 0), (4, 0))
    )
    return Scenario(
        model=Checkpoint(path=str(path), vocab=vocab),
        draft=CheckpointDraft(built_in=True),
        steps=4,
        memory=Memory(page_size=4, pages=32, request_slots=4, max_len=40),
        graphs=Graphs(),
        schedule=Schedule(max_batch=2, chunk=8),
        requests=(Request(arrival=0, prompt=PROMPT, budget=14, rounds=rounds),),
    )


def with_head(scenario: Scenario, head: CheckpointDraft) -> Scenario:
    return replace(scenario, draft=head)


def path_of(scenario: Scenario) -> Path:
    assert isinstance(scenario.model, Checkpoint)
    return Path(scenario.model.path)


def test_a_pass_has_entries_and_states_by_layer_type(scenario: Scenario) -> None:
    target, _ = build(scenario, Memo())
    hybrid = load_target(path_of(scenario))
    found, whole = target.forward(PROMPT), hybrid.forward(PROMPT)
    assert target.layer_types == hybrid.layer_types
    assert len(found.kv) == target.layer_types.count("full_attention")
    assert len(found.states) == target.layer_types.count("linear_attention") == 3
    assert np.array_equal(found.hidden, whole.hidden.numpy())
    assert np.array_equal(found.kv[0][2], torch.cat([part[2].flatten() for part in whole.kv[0]]).numpy())
    for ours, theirs in zip(found.states, whole.states, strict=True):
        assert ours.dtype == np.float64
        assert np.array_equal(ours, theirs.numpy())


def test_a_dense_target_has_full_attention_throughout(tmp_path: Path) -> None:
    target, _ = checkpoints.load(Checkpoint(path=str(tiny_llama(tmp_path)), vocab=53), CheckpointDraft(), Memo())
    assert target.layer_types == ("full_attention",) * 3
    assert target.forward(PROMPT).states == ()


def test_which_head_it_is(scenario: Scenario, tmp_path: Path) -> None:
    """What the draft proposes and keeps is what the head computes, run again and again or once."""
    target = load_target(path_of(scenario))
    hidden = target.forward(PROMPT[:-1]).hidden
    directory = tiny_head(tmp_path, path_of(scenario), seed=3)
    heads = {
        CheckpointDraft(built_in=True): target.mtp_layers(path_of(scenario))[0],
        CheckpointDraft(algorithm="mtp", built_in=True): target.mtp_layers(path_of(scenario))[0],
        CheckpointDraft(seed=3): ReferenceEagleHead.random(target, 3),
        CheckpointDraft(path=str(directory)): ReferenceEagleHead.random(target, 3),
    }
    for named, head in heads.items():
        model, draft = build(with_head(scenario, named), Memo())
        assert draft.config() == (target.config.hidden_size, 1)
        whole, expected = model.forward(PROMPT[:-1]), head.forward(PROMPT[1:], hidden)
        assert draft.propose(PROMPT, whole, 1).tokens == (int(expected.logits[-1].argmax()),)
        kv = torch.cat([part.flatten(1) for part in expected.kv[0]], dim=1).numpy()
        found = [one.value for one in draft.extend(PROMPT, whole, 1) if one.channel == "extend.kv"]
        assert [list(map(float, row)) for row in found] == kv[1:].tolist()


def test_emits_what_plain_greedy_decoding_emits(scenario: Scenario) -> None:
    hybrid, tokens = load_target(path_of(scenario)), list(PROMPT)
    for _ in range(14):
        tokens.append(int(hybrid.forward(tokens).logits[-1].argmax()))
    for head in (CheckpointDraft(built_in=True), CheckpointDraft(seed=5)):
        made = with_head(scenario, head)
        script = solve(made)
        assert list(script.requests[0].tokens) == tokens[len(PROMPT) :]
        trace = run(made, script)
        found = sorted((key.round, value) for key, value in trace.of("accept.emitted", request=0))
        assert [token for _, emitted in found for token in emitted] == tokens[len(PROMPT) :]


def test_a_full_memo_changes_nothing(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    memo = Memo()
    target, _ = build(scenario, memo)
    assert target.forward(PROMPT) is target.forward(PROMPT)
    monkeypatch.setattr(checkpoints, "_REMEMBERED_BYTES", 0)
    poor, _ = build(scenario, Memo())
    first, again = poor.forward(PROMPT), poor.forward(PROMPT)
    assert first is not again
    for passes in ((first, again), (first, target.forward(PROMPT))):
        for one, other in zip(*((done.logits, *done.states) for done in passes), strict=True):
            assert np.array_equal(one, other)


def test_built_in_needs_an_mtp_layer(tmp_path: Path) -> None:
    built_in = CheckpointDraft(built_in=True)
    hybrid = tiny_qwen3_5(tmp_path / "hybrid", mtp=False)
    with pytest.raises(CheckpointError, match=r"tensor mtp\.fc\.weight is missing"):
        checkpoints.load(Checkpoint(path=str(hybrid), vocab=59), built_in, Memo())
    dense = tiny_llama(tmp_path / "dense")
    with pytest.raises(CheckpointError, match=r"architectures \['Llama.*no MTP layers"):
        checkpoints.load(Checkpoint(path=str(dense), vocab=53), built_in, Memo())
