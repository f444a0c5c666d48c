"""Every draft on a real model: what it is made of, that decoding with it is plain decoding, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draftproof.properties.lib.errors import CheckpointError
from draftproof.properties.values.drafts import CheckpointDraft, Draft, Ngram
from draftproof.properties.values.scenario import Checkpoint, Graphs, Memory, Request, RoundPlan, Scenario, Schedule
from draftproof.properties.values.trace import Key
from draftproof.reference import checkpoints
from draftproof.reference.drafts.base import ReferenceDraft
from draftproof.reference.memo import Memo
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget
from draftproof.reference.protocols import ReferenceTarget
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.checkpoints import tiny_deepseek_v3, tiny_dflash, tiny_glm4_moe, tiny_llama, tiny_qwen3, tiny_qwen3_next

PROMPT = (1, 2, 3, 4, 5, 2, 3)
VOCAB = 53


class Case(NamedTuple):
    """A target, a draft's directory if it has one, and the draft."""

    target: Callable[[Path], Path]
    directory: Callable[[Path], Path] | None
    draft: CheckpointDraft | Ngram


def glm(path: Path) -> Path:
    return tiny_glm4_moe(path, seed=1, mtp=3)


def deepseek(path: Path) -> Path:
    return tiny_deepseek_v3(path, seed=3, mtp=2)


def smaller(path: Path) -> Path:
    return tiny_llama(path, seed=4, num_hidden_layers=2, hidden_size=24)


STANDALONE = CheckpointDraft(algorithm="standalone")
CASES: dict[str, Case] = {
    "glm-mtp": Case(glm, None, CheckpointDraft(algorithm="mtp", built_in=True)),
    "glm-eagle": Case(glm, None, CheckpointDraft(built_in=True)),
    "glm-made-up": Case(glm, None, CheckpointDraft(seed=5)),
    "deepseek-mtp": Case(deepseek, None, CheckpointDraft(algorithm="mtp", built_in=True)),
    "deepseek-eagle": Case(deepseek, None, CheckpointDraft(built_in=True)),
    "deepseek-made-up": Case(deepseek, None, CheckpointDraft(seed=5)),
    "qwen3-next-mtp": Case(tiny_qwen3_next, None, CheckpointDraft(algorithm="mtp", built_in=True)),
    "qwen3-next-dflash": Case(tiny_qwen3_next, tiny_dflash, CheckpointDraft(algorithm="dflash")),
    "qwen3-next-standalone": Case(tiny_qwen3_next, smaller, STANDALONE),
    "llama-dflash": Case(tiny_llama, tiny_dflash, CheckpointDraft(algorithm="dflash")),
    "glm-dflash": Case(glm, tiny_dflash, CheckpointDraft(algorithm="dflash")),
    "llama-standalone": Case(tiny_llama, smaller, STANDALONE),
    "qwen3-standalone": Case(tiny_qwen3, deepseek, STANDALONE),
    "deepseek-standalone": Case(deepseek, glm, STANDALONE),
    "llama-ngram": Case(tiny_llama, None, Ngram(max_n=3)),
}
STEPS = {"glm-mtp": 3, "deepseek-mtp": 2, "qwen3-next-mtp": 1}


class Made(NamedTuple):
    """A scenario of a case, and its target."""

    scenario: Scenario
    target: ReferenceCheckpointTarget


@pytest.fixture(scope="module", params=CASES)
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    case, folder = CASES[request.param], tmp_path_factory.mktemp(request.param)
    path, draft = case.target(folder / "target"), case.draft
    if case.directory and isinstance(draft, CheckpointDraft):
        draft = replace(draft, path=str(case.directory(folder / "draft")))
    return Made(scenario(path, draft, STEPS.get(request.param, 4)), load_target(path))


def scenario(path: Path, draft: Draft, steps: int) -> Scenario:
    plans = ((3, 1), (4, -1), (2, 2), (0, 0), (4, 0))
    rounds = tuple(RoundPlan(num_drafts=min(drafts, steps), num_correct=min(right, steps)) for drafts, right in plans)
    return Scenario(
        model=Checkpoint(path=str(path), vocab=VOCAB),
        draft=draft,
        steps=steps,
        memory=Memory(page_size=4, pages=32, request_slots=4, max_len=40),
        graphs=Graphs(),
        schedule=Schedule(max_batch=2, chunk=8),
        requests=(
            Request(arrival=0, prompt=PROMPT, budget=12, rounds=rounds),
            Request(arrival=0, prompt=(30, 7), budget=9, rounds=(RoundPlan(num_drafts=steps, num_correct=-1),)),
        ),
    )


def greedy(target: ReferenceCheckpointTarget, prompt: tuple[int, ...], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(target.forward(tokens).logits[-1].argmax()))
    return tokens[len(prompt) :]


def test_emits_what_plain_greedy_decoding_emits(made: Made) -> None:
    script = solve(made.scenario)
    trace = run(made.scenario, script)
    for index, request in enumerate(made.scenario.requests):
        found = sorted((key.round, value) for key, value in trace.of("accept.emitted", request=index))
        emitted = [token for _, tokens in found for token in tokens]
        assert emitted == greedy(made.target, request.prompt, request.budget)
        assert emitted == list(script.requests[index].tokens)
    assert all(float(margin) > 1e-9 for _, (_, margin) in trace.of("verify.choice"))


def test_a_memo_changes_nothing(made: Made) -> None:
    slow = solve(made.scenario, Memo(enabled=False))
    assert solve(made.scenario) == slow
    quick, plain = run(made.scenario, slow, Memo()), run(made.scenario, slow, Memo(enabled=False))
    for a, b in zip(quick.observations, plain.observations, strict=True):
        assert a[:2] == b[:2]
        assert np.array_equal(a.value, b.value)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints by name."""
    path = tmp_path_factory.mktemp("checkpoints")
    writers = {"llama": tiny_llama, "qwen3-next": tiny_qwen3_next, "glm": glm, "deepseek": deepseek}
    for name, writer in writers.items():
        writer(path / name)
    tiny_dflash(path / "dflash")
    tiny_llama(path / "other", vocab_size=57)
    return path


def loaded(folder: Path, name: str, draft: CheckpointDraft) -> tuple[ReferenceTarget, ReferenceDraft]:
    return checkpoints.load(Checkpoint(path=str(folder / name), vocab=VOCAB), draft, Memo())


def test_a_chain_runs_every_layer_once(folder: Path) -> None:
    """Layer j takes tokens from i + 1 + j on, its predecessors' choices at the end, and what they handed on."""
    target, draft = loaded(folder, "glm", CheckpointDraft(algorithm="mtp", built_in=True))
    assert draft.config() == (30, 3)
    model = load_target(folder / "glm")
    layers = model.mtp_layers(folder / "glm")
    hidden, ids, chosen, said = model.forward(PROMPT[:-1]).hidden, PROMPT[1:], [], {}
    for j, layer in enumerate(layers):
        done = layer.forward(ids, hidden)
        said[j] = (ids[-1], hidden[-1].numpy(), torch.cat([part[-1].flatten() for part in done.kv[0]]).numpy())
        chosen.append(int(done.logits[-1].argmax()))
        ids, hidden = (*ids[1:], chosen[-1]), done.g
    whole = target.forward(PROMPT[:-1])
    assert draft.propose(PROMPT, whole, 3).tokens == tuple(chosen)
    assert draft.propose(PROMPT, whole, 2).tokens == tuple(chosen[:2])
    found = {(one.channel, one.layer, one.row): one.value for one in draft.extend(PROMPT, whole, 0)}
    last = len(PROMPT) - 2
    for j, (token, state, entry) in said.items():
        assert found["extend.ids", j, last] == token
        assert np.array_equal(found["extend.hidden_in", j, last], state)
        assert np.array_equal(found["extend.kv", j, last], entry)
    with pytest.raises(ValueError, match=r"steps needs MTP layer 3: expected 0 \.\. 2"):
        draft.propose(PROMPT, whole, 4)


def test_an_eagle_draft_of_the_first_layer(folder: Path) -> None:
    """It is run again on the state that it handed on."""
    target, draft = loaded(folder, "deepseek", CheckpointDraft(built_in=True))
    assert draft.config() == (30, 1)
    model = load_target(folder / "deepseek")
    layer = model.mtp_layers(folder / "deepseek")[0]
    hidden, ids = model.forward(PROMPT[:-1]).hidden, PROMPT[1:]
    for _ in range(3):
        done = layer.forward(ids, hidden)
        hidden, ids = torch.cat((hidden, done.g[-1:])), (*ids, int(done.logits[-1].argmax()))
    assert draft.propose(PROMPT, target.forward(PROMPT[:-1]), 3).tokens == ids[-3:]


def test_a_block_is_fed_with_outputs_of_chosen_layers(folder: Path) -> None:
    path = str(folder / "dflash")
    target, draft = loaded(folder, "llama", CheckpointDraft(algorithm="dflash", path=path))
    model = load_target(folder / "llama")
    head, done = ReferenceDFlashModel.load(model, path), model.forward(PROMPT[:-1])
    features = torch.cat((done.layers[1], done.layers[0]), dim=1)
    whole = target.forward(PROMPT[:-1])
    assert [layer.shape for layer in whole.layers] == [(6, 30), (6, 30), (6, 0)]
    assert draft.config() == (60, 2)
    mask = head.config.mask_token_id
    expected = head.forward((PROMPT[-1], mask, mask), features).logits.argmax(-1)[1:]
    assert draft.propose(PROMPT, whole, 2).tokens == tuple(expected.tolist())
    said = {(one.channel, one.layer, one.row): one.value for one in draft.extend(PROMPT, whole, 0)}
    assert np.array_equal(said["extend.hidden_in", 0, 4], features[4].numpy())
    entry = torch.cat([part[4].flatten() for part in head.entries(features)[1]])
    assert np.array_equal(said["extend.kv", 1, 4], entry.numpy())
    assert all(layer.shape[1] == 0 for layer in loaded(folder, "llama", CheckpointDraft())[0].forward(PROMPT).layers)


def test_a_standalone_draft_is_a_language_model(folder: Path) -> None:
    path = folder / "deepseek"
    target, draft = loaded(folder, "llama", CheckpointDraft(algorithm="standalone", path=str(path)))
    assert draft.config() == (0, 3)
    expected = greedy(load_target(path), PROMPT, 3)
    assert draft.propose(PROMPT, target.forward(PROMPT[:-1]), 3).tokens == tuple(expected)


def test_a_key_of_latent_attention_is_whole(folder: Path) -> None:
    """The entries of a DeepSeek-V3 layer: keys of all heads, then values of all heads."""
    made = scenario(folder / "deepseek", CheckpointDraft(seed=1), 4)
    trace = run(made, solve(made))
    k, v = load_target(folder / "deepseek").forward(PROMPT).kv[2]
    assert (k.shape[1:], v.shape[1:]) == ((6, 20), (6, 10))
    entry = trace.channel("commit.kv")[Key(0, 0, layer=2, row=3)]
    assert np.array_equal(entry, torch.cat((k[3].flatten(), v[3].flatten())).numpy())


@pytest.mark.parametrize(
    ("name", "draft", "message"),
    [
        ("llama", {"built_in": True}, r"architectures \['LlamaForCausalLM'\] .*no MTP layers"),
        ("llama", {"algorithm": "mtp"}, r"architectures \['LlamaForCausalLM'\] .*no MTP layers"),
        ("glm", {"algorithm": "mtp", "path": "llama"}, r"draft\.path '.*llama': expected ''"),
        ("glm", {"built_in": True, "path": "llama"}, r"draft\.path '.*llama': expected ''"),
        ("llama", {"algorithm": "dflash"}, r"draft\.path '': expected a checkpoint directory for dflash"),
        ("llama", {"algorithm": "standalone"}, r"draft\.path '': expected a checkpoint directory for standalone"),
        ("glm", {"algorithm": "standalone", "built_in": True}, r"draft\.built_in True: expected False for standalone"),
        ("llama", {"algorithm": "dflash", "path": "glm"}, r"architectures \['Glm4.*expected one of MuseGlimmer"),
        (
            "llama",
            {"algorithm": "standalone", "path": "qwen3-next"},
            r"architectures \['Qwen3NextForCausalLM'\] .*a standalone draft",
        ),
        ("llama", {"algorithm": "standalone", "path": "other"}, r"vocab_size 57 .*expected 53, as in the target"),
        ("llama", {"algorithm": "standalone", "path": "dflash"}, r"architectures \['MuseGlimmer.*expected one of"),
    ],
)
def test_what_is_refused(folder: Path, name: str, draft: dict[str, object], message: str) -> None:
    if "path" in draft:
        draft = {**draft, "path": str(folder / str(draft["path"]))}
    with pytest.raises(CheckpointError, match=message):
        loaded(folder, name, CheckpointDraft(**draft))  # type: ignore[arg-type]
