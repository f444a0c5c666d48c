"""Draws of real models: probabilities as transformers warps them, and gaps that tell what rounding can do."""

import numpy as np
import pytest
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from draftproof.engine.models.target import CheckpointTarget
from draftproof.properties.values.penalties import Penalties, TokenBias
from draftproof.properties.values.sampling import Sampling
from draftproof.reference.memo import Pass
from draftproof.reference.penalties import LOGIT_UNIT, PenalizedTarget
from draftproof.reference.real_sampling import FARTHEST, RealRow, real_weights
from draftproof.reference.sampling import coins, sample

VOCAB = 53
FIELDS = [(1.0, None, 1.0, 0.0), (0.5, 3, 1.0, 0.0), (2.0, None, 0.75, 0.0), (4.0, None, 1.0, 0.25)]
FIELDS += [(8.0, 9, 0.5, 0.0625)]
SAMPLINGS = [
    Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    for seed, (temperature, top_k, top_p, min_p) in enumerate(
        [
            (1.0, None, 1.0, 0.0),
            (0.5, 3, 1.0, 0.0),
            (2.0, None, 0.75, 0.0),
            (4.0, None, 1.0, 0.25),
            (8.0, 9, 0.5, 0.0625),
        ]
    )
]


def drawn_logits(seed: int) -> np.ndarray:
    return 5 * np.random.default_rng(seed).standard_normal(VOCAB)


def warpers_of(sampling: Sampling) -> LogitsProcessorList:
    """What transformers warps logits with, in its order."""
    warpers = LogitsProcessorList([TemperatureLogitsWarper(sampling.temperature)])
    if sampling.top_k is not None:
        warpers.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        warpers.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p > 0:
        warpers.append(MinPLogitsWarper(sampling.min_p))
    return warpers


def warped(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The probabilities of transformers, in float64."""
    scores = warpers_of(sampling)(torch.zeros((1, 1), dtype=torch.int64), torch.tensor(logits)[None])
    return scores.softmax(-1)[0].numpy()


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda one: f"T={one.temperature}")
def test_probabilities_are_those_of_transformers(sampling: Sampling) -> None:
    for seed in range(60):
        logits = drawn_logits(seed)
        weights = np.array(real_weights(logits, sampling), float)
        # A part of less than one is cut off from each weight, and the largest is 2^40.
        assert np.abs(weights / weights.sum() - warped(logits, sampling)).max() <= VOCAB / 2.0**40


def test_so_are_penalised_logits() -> None:
    """Bias and repetition in transformers' order; frequency and presence are in no processor of theirs."""
    own = Penalties(bias=(TokenBias(token=3, amount=3 << 20), TokenBias(token=9, amount=-(1 << 19))), repetition=1.25)
    bias = SequenceBiasLogitsProcessor({(one.token,): one.amount * LOGIT_UNIT for one in own.bias})
    processors = LogitsProcessorList([bias, RepetitionPenaltyLogitsProcessor(own.repetition)])
    logits, tokens = np.stack([drawn_logits(seed) for seed in range(6)]), (3, 8, 8, 40, 9, 2)

    class Plain:
        layer_types, widened = ("full_attention",), 1.0

        def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
            nothing = np.empty((len(tokens), 0))
            return Pass(nothing, logits[: len(tokens)], ())

    target = PenalizedTarget(Plain(), 3, own)
    got = target.forward(tokens).logits
    for row in range(2, 6):
        wanted = processors(torch.tensor([tokens[: row + 1]]), torch.tensor(logits[row])[None])[0].numpy()
        np.testing.assert_allclose(got[row], wanted, rtol=0, atol=1e-6)
    assert target.widened == 1.25


@pytest.mark.parametrize("drafts", [(), (0,), (1, 4)], ids=["none", "one", "siblings"])
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda one: f"T={one.temperature}")
def test_what_logits_draw_that_are_off_by_little_has_a_small_gap(sampling: Sampling, drafts: tuple[int, ...]) -> None:
    """No right engine fails: whatever is drawn from logits off by at most d has a gap of at most 2 d."""
    others, generator = 0, np.random.default_rng(7)
    for seed in range(90):
        logits, position = drawn_logits(seed) * (1.0, 0.2, 0.05)[seed % 3], seed + 1
        ranked = np.argsort(-logits)
        placed = tuple(int(ranked[place]) for place in drafts)
        row = RealRow(logits, sampling, placed, position)
        for d in (1e-6, 1e-3, 0.03):
            # At random, and all below a token against all others, which moves a sum of weights the farthest.
            split = np.arange(VOCAB) < generator.integers(VOCAB)
            for signs in (generator.choice((-1.0, 1.0), VOCAB), np.where(split, 1, -1), np.where(split, -1, 1)):
                near = real_weights(logits + d * signs, sampling)
                token = sample(near, placed, coins(sampling.seed, position))
                assert row.gap(token) <= 2 * d
                others += token != row.token
    assert others


def test_a_gap_is_no_larger_an_error_than_it_takes() -> None:
    """No wrong token passes: logits that are off by a little more than half the gap do draw it."""
    shown = 0
    for sampling in (SAMPLINGS[0], Sampling(temperature=2.0, seed=9)):
        for seed in range(120):
            logits, position = drawn_logits(seed), 3 * seed
            row, coin = RealRow(logits, sampling, (), position), coins(sampling.seed, position)
            for token, gap in row.near():
                weights = real_weights(logits, sampling)
                if gap == 0 or weights[token] < sum(weights) * 2.0**-20:
                    continue  # an edge of the grid, or a token that the next error of logits jumps over
                up_to = np.arange(VOCAB) <= token
                before = np.arange(VOCAB) < token
                moved = [
                    logits + (gap / 2 + 1e-9) * np.where(raised, 1, -1) for raised in (up_to, ~before, before, ~up_to)
                ]
                assert token in [sample(real_weights(one, sampling), (), coin) for one in moved]
                shown += 1
    assert shown > 30


def test_a_token_that_no_rounding_draws_has_no_gap() -> None:
    logits = np.zeros(VOCAB)
    logits[5] = 40.0
    row = RealRow(logits, SAMPLINGS[0], (), 1)
    assert (row.token, row.near(), row.gap(5), row.gap(6)) == (5, (), 0.0, np.inf)
    assert np.inf > FARTHEST


def test_a_filter_that_may_keep_either_token_makes_both_choices() -> None:
    """Two tokens as likely as each other but for a rounding, of which top_k keeps one."""
    logits = np.full(VOCAB, -9.0)
    logits[[11, 30]] = 1.0, 1.0 + 1e-7
    for seed in range(8):
        row = RealRow(logits, Sampling(temperature=1.0, top_k=1, seed=seed), (), 4)
        assert row.token == 30
        assert 0 <= row.gap(11) <= 2e-7


def test_the_engine_weighs_the_same_in_float32() -> None:
    temperatures = torch.tensor([1.0, 0.5, 8.0, 0.0])
    logits = np.stack([drawn_logits(seed) for seed in range(4)])
    got = CheckpointTarget.token_weights(None, torch.tensor(logits, dtype=torch.float32), temperatures)  # type: ignore[arg-type]
    assert got.dtype == torch.int64
    assert not got[3].any()
    for row, temperature in enumerate((1.0, 0.5, 8.0)):
        wanted = np.array(real_weights(logits[row], Sampling(temperature=temperature)), float)
        near = 1 + 4 * np.abs(logits[row] - logits[row].max()) / temperature
        assert (np.abs(got[row].numpy() - wanted) <= 1 + near * 2.0**-23 * wanted).all()
