"""Real models as scenarios: a tiny Llama and a tiny Qwen3 with an EAGLE-1 head, bookkeeping and losslessness."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.checkpoint_config.llama import LlamaConfig
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import Checkpoint, Graphs, Memory, Request, RoundPlan, Scenario, Schedule
from draftproof.properties.values.trace import Key, Trace
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.models.eagle_head import ReferenceEagleHead
from draftproof.reference.models.llama import ReferenceLlama
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget
from draftproof.reference.run import run
from draftproof.reference.solve import solve

VOCAB = 37
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "vocab_size": VOCAB,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
QWEN3 = LLAMA | {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}


@pytest.fixture(params=[LLAMA, QWEN3], ids=["llama", "qwen3"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A checkpoint with weights large enough that no two logits are close."""
    (tmp_path / "config.json").write_text(json.dumps(request.param))
    rng = np.random.default_rng(4)
    shapes = ReferenceLlama.shapes(read_config(tmp_path, LlamaConfig))
    weights = {
        name: (rng.normal(size=shape) * (2 / shape[-1] ** 0.5 if len(shape) > 1 else 1)).astype(np.float32)
        for name, shape in shapes.items()
    }
    save_file(weights, tmp_path / "model.safetensors")
    return tmp_path


def scenario(directory: Path, vocab: int = VOCAB) -> Scenario:
    plans = ((3, 1), (4, -1), (2, 2), (0, 0), (4, 0))
    rounds = tuple(RoundPlan(num_drafts=drafts, num_correct=right) for drafts, right in plans)
    return Scenario(
        model=Checkpoint(path=str(directory), vocab=vocab),
        draft=CheckpointDraft(seed=9),
        steps=4,
        memory=Memory(page_size=4, pages=32, request_slots=4, max_len=40),
        graphs=Graphs(),
        schedule=Schedule(max_batch=2, chunk=8),
        requests=(
            Request(arrival=0, prompt=(1, 2, 3, 4, 5), budget=14, rounds=rounds),
            Request(arrival=0, prompt=(30, 7), budget=20, rounds=rounds, stop_at=6),
        ),
    )


def greedy(dense: ReferenceCheckpointTarget, prompt: tuple[int, ...], count: int) -> list[int]:
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(dense.forward(tokens).logits[-1].argmax()))
    return tokens[len(prompt) :]


def emitted(trace: Trace, index: int) -> list[int]:
    found = sorted((key.round, value) for key, value in trace.of("accept.emitted", request=index))
    return [token for _, tokens in found for token in tokens]


def test_emits_what_plain_greedy_decoding_emits(directory: Path) -> None:
    made, dense = scenario(directory), load_target(directory)
    script = solve(made)
    trace = run(made, script)
    assert emitted(trace, 0) == greedy(dense, (1, 2, 3, 4, 5), 14)
    truth = greedy(dense, (30, 7), 20)
    assert emitted(trace, 1) == truth[: truth.index(truth[6]) + 1]
    assert [list(solved.tokens) for solved in script.requests] == [emitted(trace, 0), emitted(trace, 1)]
    assert all(float(margin) > 1e-6 for _, (_, margin) in trace.of("verify.choice"))


def test_vectors_are_those_of_the_models(directory: Path) -> None:
    """h is taken after the final norm; a KV entry is the keys of all heads, then the values."""
    made, dense = scenario(directory), load_target(directory)
    trace = run(made, solve(made))
    whole = dense.forward((1, 2, 3, 4, 5))
    hidden = trace.channel("extend.hidden_in")[Key(0, 0, layer=0, row=4)]
    assert np.array_equal(hidden, whole.hidden[4].numpy())
    assert not np.array_equal(hidden, whole.layers[-1][4].numpy())
    assert not hidden.flags.writeable
    entry = trace.channel("commit.kv")[Key(0, 0, layer=1, row=3)]
    assert np.array_equal(entry, torch.cat([part[3].flatten() for part in whole.kv[1]]).numpy())
    head = ReferenceEagleHead.random(dense, 9)
    first = emitted(trace, 0)[0]
    entries = head.forward((2, 3, 4, 5, first), whole.hidden)
    stand_in = trace.channel("draft.step.hidden_in")[Key(0, 1, step=1)]
    assert np.array_equal(stand_in, entries.g[4].numpy())


def test_a_memo_changes_nothing(directory: Path) -> None:
    made = scenario(directory)
    slow = solve(made, Memo(enabled=False))
    assert solve(made) == slow
    quick, plain = run(made, slow, Memo()), run(made, slow, Memo(enabled=False))
    for a, b in zip(quick.observations, plain.observations, strict=True):
        assert a[:2] == b[:2]
        assert np.array_equal(a.value, b.value)


def test_a_model_rewritten_in_place_is_read_again(directory: Path) -> None:
    before = solve(scenario(directory))
    weights = {name: -tensor for name, tensor in load_file(directory / "model.safetensors").items()}
    save_file(weights, directory / "model.safetensors")
    assert solve(scenario(directory)) != before


def test_a_wrong_vocabulary_is_refused(directory: Path) -> None:
    with pytest.raises(ValueError, match=r"invalid model\.vocab 38: expected 37"):
        build(scenario(directory, vocab=38), Memo())
