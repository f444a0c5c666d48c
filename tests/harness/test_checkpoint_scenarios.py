"""Scenarios of probes on a checkpoint: no context is longer than the positions that the model has."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from draftproof.harness.checkpoint_scenarios import RealTarget, one_draft
from draftproof.properties.fit import fit
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from tests.checkpoints import SIZES, tiny_llama
from tests.named import named

POSITIONS = SIZES["max_position_embeddings"]


def longer(tokens: int) -> Scenario:
    """A scenario whose first request has a long prompt."""
    drawn = named("ngram_matches")
    first, *others = drawn.requests
    prompt = (first.prompt * tokens)[:tokens]
    memory = replace(drawn.memory, max_len=tokens + 40, pages=drawn.memory.pages + tokens)
    return replace(drawn, requests=(replace(first, prompt=prompt), *others), memory=memory)


@pytest.mark.parametrize("tokens", [100, 200, 400])
def test_contexts_end_within_the_positions_of_the_model(tmp_path: Path, tokens: int):
    path = tiny_llama(tmp_path / "llama")
    target = RealTarget(path, [one_draft(path, "ngram", None, 0)])
    made = target.exchanged(longer(tokens), 0)
    assert made.memory.max_len == POSITIONS // 2
    assert all(len(one.prompt) < made.memory.max_len for one in made.requests)
    whole = replace(made, memory=replace(made.memory, page_seed=1))
    assert fit(whole, Limits(models=("checkpoint",), page_sizes=(32,))).memory.max_len <= POSITIONS


def test_what_fits_is_left_as_it_is(tmp_path: Path):
    path = tiny_llama(tmp_path / "llama")
    target = RealTarget(path, [one_draft(path, "ngram", None, 0)])
    assert target.exchanged(longer(60), 0).memory.max_len == 100
