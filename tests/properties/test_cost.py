"""The estimate of what a scenario takes: each thing that takes time makes it larger."""

import pytest

from draftproof.properties.features import FEATURES_BY_NAME
from draftproof.properties.lib.paths import put, put_in
from draftproof.properties.strategies.cost import cost_of
from draftproof.properties.values.scenario import Ranks
from tests.named import named

PLAIN = named("eagle_padded")


DEARER = {
    "variant": put(PLAIN, "variant", "other_memory"),
    "services": put_in(PLAIN, "schedule", services=2),
    "chunk": put_in(PLAIN, "schedule", chunk=1),
    "token budget": put_in(PLAIN, "schedule", token_budget=1),
    "requests": put(PLAIN, "requests", PLAIN.requests * 2),
    "data ranks": put(PLAIN, "ranks", Ranks(data=2)),
    "tensor ranks": put(PLAIN, "ranks", Ranks(tensor=2)),
    "vocabulary": put(PLAIN, "model.vocab", 4 * PLAIN.model.vocab),
    "steps": put(PLAIN, "steps", 2 * PLAIN.steps),
}


@pytest.mark.parametrize("name", DEARER)
def test_what_takes_time_costs_more(name: str) -> None:
    assert cost_of(DEARER[name]) > cost_of(PLAIN) > 0


def test_layers_of_both_models_cost_more() -> None:
    hybrid, chained = named("hybrid_replay"), named("mtp_chain_partial")
    assert cost_of(hybrid) > cost_of(FEATURES_BY_NAME["hybrid"].without(hybrid))
    assert cost_of(chained) > cost_of(put(chained, "draft.layers", 1))
