"""The float64 DFlash draft against transformers' `MuseGlimmerAssistantModel` and its candidate generator."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import GenerationConfig, LlamaForCausalLM, MuseGlimmerAssistantModel
from transformers.cache_utils import DFlashCache
from transformers.generation.candidate_generator import DFlashTokenCandidateGenerator

from draftproof.properties.lib.errors import CheckpointError
from draftproof.reference.models.dflash import ReferenceDFlashModel
from draftproof.reference.models.registry import load_target
from draftproof.reference.models.target import ReferenceCheckpointTarget
from tests.checkpoints import DFLASH, VOCAB, add_tensors, tiny_dflash, tiny_glm4_moe, tiny_llama, tiny_qwen3_next
from tests.reference.witness import BOUND, TOKENS, worst
from tests.widen import Widen

MASK, BLOCK = DFLASH["mask_token_id"], DFLASH["block_size"]
CHANGES: dict[str, dict[str, Any]] = {
    "two-layers": {},
    "one-layer": {
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
        "target_layer_ids": [0],
        "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
    },
}


@dataclass(frozen=True)
class Pair:
    """A target with a draft, read both ways."""

    target: ReferenceCheckpointTarget
    path: Path
    head: ReferenceDFlashModel
    witness: MuseGlimmerAssistantModel
    model: LlamaForCausalLM


@pytest.fixture(scope="module", params=CHANGES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    llama = tiny_llama(folder / "target", seed=1)
    path = tiny_dflash(folder / "draft", seed=2, **CHANGES[request.param])
    target = load_target(llama)
    options: dict[str, Any] = {"dtype": torch.float32, "attn_implementation": "eager"}
    witness = MuseGlimmerAssistantModel.from_pretrained(path, **options).double().eval()
    model = LlamaForCausalLM.from_pretrained(llama, **options).double().eval()
    return Pair(target, path, ReferenceDFlashModel.load(target, path), witness, model)


def features(pair: Pair, tokens: Sequence[int]) -> Tensor:
    """f [n, F] of tokens."""
    outputs = pair.target.forward(tokens).layers
    return torch.cat([outputs[layer] for layer in pair.head.config.target_layer_ids], dim=-1)


def block(token: int, masked: int = BLOCK - 1) -> tuple[int, ...]:
    return (token, *(MASK,) * masked)


def witnessed(pair: Pair, ids: tuple[int, ...], context: Tensor) -> dict[str, Tensor]:
    """One block over a context from position zero; the cache ends up with the context's entries, then the block's."""
    cache = DFlashCache(config=pair.witness.config)
    cache.activate_past_recording()
    cache.set_previous_accepted_tokens(len(context))
    embedded = pair.target.embedding[list(ids)][None]
    with Widen(), torch.no_grad():
        out = pair.witness(noise_embeds=embedded, context_hidden_states=context[None], past_key_values=cache)
    found = {"g": out.last_hidden_state[0]}
    for i, layer in enumerate(cache.layers):
        found |= {f"k{i}": layer.keys[0].transpose(0, 1), f"v{i}": layer.values[0].transpose(0, 1)}
    return found


def computed(head: ReferenceDFlashModel, ids: tuple[int, ...], context: Tensor) -> dict[str, Tensor]:
    done = head.forward(ids, context)
    found = {"g": done.g}
    for i, (old, new) in enumerate(zip(head.entries(context), done.kv, strict=True)):
        found |= {f"k{i}": torch.cat((old[0], new[0])), f"v{i}": torch.cat((old[1], new[1]))}
    return found


@pytest.mark.parametrize(("n", "masked"), [(1, BLOCK - 1), (17, BLOCK - 1), (17, 1)])
def test_agrees_with_transformers_in_float64(pair: Pair, n: int, masked: int) -> None:
    """States of the block, and keys and values of context and block, of every layer."""
    context, ids = features(pair, TOKENS[:n]), block(TOKENS[n], masked)
    theirs = witnessed(pair, ids, context)
    assert theirs["k0"].shape[0] == n + 1 + masked
    assert worst(computed(pair.head, ids, context), theirs) < BOUND


def test_entries_do_not_depend_on_what_they_are_made_with(pair: Pair) -> None:
    context = features(pair, TOKENS[:17])
    for whole, part in zip(pair.head.entries(context), pair.head.entries(context[9:], 9), strict=True):
        for long, short in zip(whole, part, strict=True):
            assert float((long[9:] - short).abs().max()) < BOUND


def test_the_witness_notices_every_tensor(pair: Pair) -> None:
    context, ids = features(pair, TOKENS[:9]), block(TOKENS[9])
    theirs, unnoticed = witnessed(pair, ids, context), []
    for name, tensor in pair.head.tensors.items():
        noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        other = ReferenceDFlashModel(
            pair.target, pair.head.config, {**pair.head.tensors, name: tensor * (1 + 1e-6 * noise)}
        )
        if worst(computed(other, ids, context), theirs) < 1000 * BOUND:
            unnoticed.append(name)
    assert not unnoticed


def test_the_witness_notices_inputs(pair: Pair) -> None:
    context, ids = features(pair, TOKENS[:9]), block(TOKENS[9])
    theirs = witnessed(pair, ids, context)
    hidden = pair.target.forward(TOKENS[:9]).hidden
    for wrong in (
        computed(pair.head, block(TOKENS[8]), context),
        computed(pair.head, (*ids[:-1], 0), context),
        computed(pair.head, ids, context.roll(1, 0)),
        computed(pair.head, ids, context.roll(7, 1)),
        computed(pair.head, ids, torch.cat([hidden] * len(pair.head.config.target_layer_ids), dim=-1)),
    ):
        assert worst(wrong, theirs) > 1e-2


def test_a_row_sees_all_of_the_block(pair: Pair) -> None:
    """Row 1's state depends on the rows after it, and so a shorter block is another one."""
    context, ids = features(pair, TOKENS[:9]), block(TOKENS[9])
    whole = pair.head.forward(ids, context).g
    for other in (pair.head.forward(ids[:-1], context).g, pair.head.forward((*ids[:-1], 0), context).g):
        assert float((whole[1] - other[1]).abs().max()) > 1e-3


def generator(pair: Pair) -> DFlashTokenCandidateGenerator:
    return DFlashTokenCandidateGenerator(
        assistant_model=pair.witness,
        main_model_input_embeddings=pair.model.get_input_embeddings(),
        main_model_output_embeddings=pair.model.lm_head,
        generation_config=GenerationConfig(max_length=100, do_sample=False),
    )


def test_proposals_of_the_candidate_generator(pair: Pair) -> None:
    """Round by round along TOKENS, with 7 tokens of prompt: it appends what was accepted and drops its own block."""
    found, n = generator(pair), 0
    for committed in (7, 1, 3, 5, 2):
        start, n = n, n + committed
        arguments = {
            "position_ids": torch.arange(n + 1)[None],
            "attention_mask": torch.ones(1, n + 1, dtype=torch.int64),
        }
        with Widen(), torch.no_grad():
            # As a verify leaves them: of the rows since the last commit, with two that were rejected.
            out = pair.model(torch.tensor([[*TOKENS[:n], 3, 4]]), output_hidden_states=True)
            late = SimpleNamespace(hidden_states=[layer[:, start:] for layer in out.hidden_states])
            candidates, _ = found.get_candidates(torch.tensor([TOKENS[: n + 1]]), arguments, late, False, committed - 1)
        ours = pair.head.forward(block(TOKENS[n]), features(pair, TOKENS[:n])).logits
        assert candidates[0, n + 1 :].tolist() == ours[1:].argmax(-1).tolist()


def test_generation_with_a_draft_equals_plain(pair: Pair) -> None:
    model, prompt, blocks = pair.model, TOKENS[:7], list[int]()
    model.generation_config.eos_token_id = None
    arguments: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    hook = pair.witness.register_forward_hook(lambda *found: blocks.append(found[2].last_hidden_state.shape[1]))
    with Widen(), torch.no_grad():
        plain = model.generate(torch.tensor([prompt]), **arguments)
        drafted = model.generate(
            torch.tensor([prompt]), assistant_model=pair.witness, speculation_type="dflash", **arguments
        )
    hook.remove()
    assert drafted.tolist() == plain.tolist()
    assert set(blocks) == {BLOCK}


def test_margins_are_clear(pair: Pair) -> None:
    tops = [
        pair.head.forward(block(TOKENS[n]), features(pair, TOKENS[:n])).logits[1:].topk(2).values for n in range(5, 17)
    ]
    top = torch.cat(tops)
    assert float((top[:, 0] - top[:, 1]).median()) > 0.3


@pytest.mark.parametrize("writer", [tiny_qwen3_next, tiny_glm4_moe])
def test_other_targets(tmp_path: Path, writer: Callable[[Path], Path]) -> None:
    target = load_target(writer(tmp_path / "target"))
    head = ReferenceDFlashModel.load(target, tiny_dflash(tmp_path / "draft"))
    outputs = target.forward(TOKENS[:5]).layers
    assert len(outputs) == len(target.layers)
    assert torch.equal(target.norm(outputs[-1], target.final_norm), target.forward(TOKENS[:5]).hidden)
    assert head.forward(block(3), torch.cat((outputs[1], outputs[0]), dim=-1)).logits.shape == (BLOCK, VOCAB)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["LlamaForCausalLM"]}, "invalid architectures .*MuseGlimmerAssistantModel"),
        ({"mask_token_id": VOCAB}, f"invalid mask_token_id {VOCAB} .*expected less than the target's vocab_size"),
        ({"target_layer_ids": [0, 2]}, r"invalid target_layer_ids \[0, 2\] .*expected layers 0 .. 1"),
        ({"head_dim": 8}, "config.json asks for"),
    ],
)
def test_errors_name_field_value_and_what_is_allowed(pair: Pair, tmp_path: Path, changes: Any, message: str) -> None:
    path = tiny_dflash(tmp_path)
    fields = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(fields | changes))
    with pytest.raises(CheckpointError, match=message):
        ReferenceDFlashModel.load(pair.target, path)


def test_a_draft_of_another_width(tmp_path: Path) -> None:
    target = load_target(tiny_llama(tmp_path / "target", hidden_size=36))
    with pytest.raises(CheckpointError, match=r"hidden_size 30 .*expected 36, as in the target"):
        ReferenceDFlashModel.load(target, tiny_dflash(tmp_path / "draft"))


def test_an_unknown_tensor(tmp_path: Path) -> None:
    path = tiny_dflash(tmp_path)
    add_tensors(path, {"lm_head.weight": load_file(path / "model.safetensors")["norm.weight"]})
    with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight is unknown"):
        ReferenceDFlashModel.load(load_target(tiny_llama(tmp_path / "target")), path)
