"""What emitted tokens were chosen from, beside torch's softmax and texts that are decoded token by token."""

import random

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from draftproof.properties.validate import validate
from draftproof.properties.values.sampling import Sampling
from draftproof.reference.build import build
from draftproof.reference.memo import Memo
from draftproof.reference.run import run
from draftproof.reference.sampling import grid_weights, logprob, probe_weights
from draftproof.reference.solve import solve
from tests.properties.evidence import STATIC, TREE

VOCAB = 11


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_are_those_of_a_sorted_softmax(seed: int):
    """Logits a whole number of grid steps apart have weights whose shares are a softmax to base 2, exactly."""
    rng = random.Random(seed)
    steps = [rng.randrange(20) for _ in range(VOCAB)]
    logits = np.array([(1 << 24) - step * (1 << 18) for step in steps], float)
    sampling = rng.choice((None, Sampling(temperature=1.0), Sampling(temperature=1.0, top_k=3)))
    token, top = rng.randrange(VOCAB), rng.randrange(6)
    weights = probe_weights(logits, sampling or Sampling())
    own, total, *pairs = logprob(weights, token, top)
    assert (own, total) == (weights[token], sum(weights))
    drops = torch.tensor([min(steps) - step for step in steps], dtype=torch.float64)
    powers = torch.exp2(drops) * (drops >= -18)
    if sampling is None:
        assert own / total == (powers / powers.sum())[token].item()
    order = torch.tensor(weights).sort(descending=True, stable=True).indices.tolist()
    assert pairs == [number for other in order[:top] if weights[other] for number in (other, weights[other])]


def test_the_lightest_weight_counts():
    logits = np.array([18.0, 0.0, -1.0]) * (1 << 18)
    assert grid_weights(logits, Sampling()) == [1 << 18, 1, 0]
    assert logprob(grid_weights(logits, Sampling()), 0, 3) == (1 << 18, (1 << 18) + 1, 0, 1 << 18, 1, 1)


DRAWN = Sampling(temperature=3.0, top_k=4, seed=9)


@pytest.mark.parametrize("base", [STATIC, TREE], ids=["chain", "tree"])
@pytest.mark.parametrize("sampling", [None, DRAWN])
def test_every_token_has_that_of_the_text_before_it(base, sampling):
    requests = tuple(replace(one, logprobs=2, sampling=sampling) for one in base.requests)
    case = validate(replace(base, requests=requests))
    solved = solve(case)
    told = run(case, solved).channel("accept.logprobs")
    target, _ = build(case, Memo())
    for index, request in enumerate(case.requests):
        text = solved.requests[index].tokens
        found = [value for key, value in sorted(told.items()) if key.request == index]
        assert len(found) == len(text)
        for place, (token, value) in enumerate(zip(text, found, strict=True)):
            logits = target.forward(request.prompt + text[:place]).logits[-1]
            assert value == logprob(probe_weights(logits, sampling or Sampling()), token, 2)
