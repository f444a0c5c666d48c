"""A whole run of sampled requests beside a checkpoint, whose coins fall as near to an edge as seeds can be found."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.models.target import CheckpointTarget
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.judge import judge
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.real_sampling import RealRow
from draftproof.reference.sampling import DRAW, coins
from tests.checkpoints import tiny_llama
from tests.named.real import real

SEEDS = 1 << 14


class AtEdge(NamedTuple):
    """A scenario, and the token behind which its first coin falls at an edge, or before."""

    scenario: Scenario
    token: int
    gap: float


def at_an_edge(scenario: Scenario) -> AtEdge:
    """Return the scenario with the seed of its first request for which the first token is the nearest to another."""
    target, _ = build(scenario, Memo())
    first, *others = scenario.requests
    logits = target.forward(first.prompt).logits[-1]
    likely = np.exp(logits - logits.max())
    edges = np.cumsum(likely)[:-1] / likely.sum()
    draws = np.array([coins(seed, len(first.prompt))(DRAW, 1 << 53) for seed in range(SEEDS)]) * 2.0**-53
    far = np.abs(draws[:, None] - edges) / (edges * (1 - edges) + 1e-12)
    best, token = map(int, np.unravel_index(far.argmin(), far.shape))
    sampling = Sampling(temperature=1.0, seed=best)
    gap = RealRow(logits, sampling, (), len(first.prompt)).near()[0][1]
    requests = (replace(first, sampling=sampling, penalties=None, grammar=None), *others)
    return AtEdge(replace(scenario, requests=requests, variant="none"), token, gap)


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[AtEdge]:
    path = tiny_llama(tmp_path_factory.mktemp("draws") / "llama")
    names = ["sampled_eagle", "sampled_hybrid_snapshot", "sampled_hybrid_replay", "every_choice"]
    drawn = real(path, names, limits=NO_LIMITS)
    return [next(one for one in map(at_an_edge, others_of(scenario)) if one.gap < 5e-5) for scenario in drawn]


def others_of(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario with other tokens in its first prompt."""
    first, *behind = scenario.requests
    for at in range(scenario.model.vocab):
        prompt = tuple((token + at) % scenario.model.vocab for token in first.prompt)
        yield replace(scenario, requests=(replace(first, prompt=prompt), *behind))


def ran(one: AtEdge, patch: pytest.MonkeyPatch, off: float) -> tuple[int, list[str]]:
    """How many ties an engine has whose logits are off by so much, up to the token and below it; and what fails."""
    own = CheckpointTarget.token_weights

    def nudged(self: CheckpointTarget, logits: Tensor, temperatures: Tensor) -> Tensor:
        signs = torch.where(torch.arange(logits.shape[1]) <= one.token, off, -off)
        return own(self, logits.double() + signs, temperatures)

    with patch.context() as scope:
        scope.setattr(CheckpointTarget, "token_weights", nudged)
        done = evidence(EngineSubject(), one.scenario)
    return counts(done)["token_ties"], [name for name, found in judge(done).results.items() if found]


def test_a_token_beyond_an_edge_is_right_if_rounding_explains_it_and_wrong_if_not(
    scenarios: list[AtEdge], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up or down: one of the two makes another token of the first; and logits that are far off are noticed."""
    assert len(scenarios) == 4
    for one in scenarios:
        near = [ran(one, monkeypatch, off) for off in (3e-5, -3e-5)]
        assert not [name for _, failed in near for name in failed]
        assert sum(ties for ties, _ in near)
    far = (failed for one in scenarios for off in (0.05, -0.05) for failed in ran(one, monkeypatch, off)[1])
    assert "output.lossless" in far
