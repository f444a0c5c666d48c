"""Weights and filters of the engine, in large batches of rows that draw otherwise, against the definition."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch

from draftproof.engine.models.base import Target
from draftproof.engine.models.probe import ProbeTarget
from draftproof.engine.sampling import Sampled, SamplingParams, filtered, sample, sampling_columns
from draftproof.engine.upload import uploaded
from draftproof.properties.values.sampling import Sampling
from draftproof.reference import sampling as reference

CPU = torch.device("cpu")
ROWS = 300
EDGES = (1 / 65536, 1 / 16, 0.25, 0.5, 0.75, 65535 / 65536, 1.0)


def weights_of(logits: torch.Tensor, temperatures: torch.Tensor) -> torch.Tensor:
    return ProbeTarget.token_weights(cast("ProbeTarget", None), logits, temperatures)


TARGET = cast("Target", SimpleNamespace(token_weights=weights_of))


def drawn_samplings(generator: np.random.Generator, vocabulary: int) -> list[Sampling | None]:
    """Return one for each row, a sixth of them none; shares at edges as often as anywhere."""

    def share() -> float:
        return float(generator.choice(EDGES)) if generator.random() < 0.5 else generator.integers(1, 65537) / 65536

    def sampling() -> Sampling:
        return Sampling(
            temperature=float(generator.choice((1, 2, 15, 16, 17, 64, 1024))) / 16,
            top_k=int(generator.integers(1, vocabulary + 3)) if generator.random() < 0.5 else None,
            top_p=share() if generator.random() < 0.5 else 1.0,
            min_p=share() if generator.random() < 0.5 else 0.0,
            seed=int(generator.integers(0, (1 << 63) - 1, endpoint=True)),
        )

    return [sampling() if generator.random() < 5 / 6 else None for _ in range(ROWS)]


def drawn_logits(generator: np.random.Generator, vocabulary: int) -> np.ndarray:
    """Return logits that are far apart, near one another, or on the edges of the grid of weights."""
    shape = (ROWS, vocabulary)
    kinds = (
        generator.integers(0, 1 << 24, shape),
        (1 << 23) + generator.integers(0, 1 << 20, shape),
        generator.integers(0, 64, shape) << 18,
        (generator.integers(1, 64, shape) << 18) - generator.integers(0, 2, shape),
        generator.choice((0, (1 << 24) - 1), shape),
    )
    return np.choose(generator.integers(0, len(kinds), (ROWS, 1)), kinds)


def as_params(sampling: Sampling | None) -> SamplingParams | None:
    names = ("temperature", "top_k", "top_p", "min_p", "seed")
    return SamplingParams(**{name: getattr(sampling, name) for name in names}) if sampling else None


@pytest.mark.parametrize("vocabulary", [1, 2, 5, 23, 64])
@pytest.mark.parametrize("seed", range(3))
def test_weights_filters_and_choices_are_those_of_the_definition(vocabulary: int, seed: int):
    generator = np.random.default_rng((vocabulary, seed))
    samplings, logits = drawn_samplings(generator, vocabulary), drawn_logits(generator, vocabulary)
    inputs = uploaded(sampling_columns([as_params(one) for one in samplings]), CPU)
    raw = weights_of(torch.tensor(logits), inputs["temperatures"])
    kept = filtered(raw, inputs["top_ks"], inputs["top_ps"], inputs["min_ps"])
    expected = [
        reference.probe_weights(row.astype(float), one) if one else [0] * vocabulary
        for row, one in zip(logits, samplings, strict=True)
    ]
    assert kept.tolist() == expected

    drafts, positions = generator.integers(-1, vocabulary, ROWS), generator.integers(0, 1 << 20, ROWS)
    chosen = torch.arange(1000, 1000 + ROWS)
    places = torch.tensor(positions)
    sample(TARGET, chosen, torch.tensor(logits), torch.tensor(drafts)[:, None], places, Sampled.of(inputs))
    for row, one in enumerate(samplings):
        token = 1000 + row
        if one:
            draft = [int(drafts[row])] if drafts[row] >= 0 else []
            token = reference.sample(expected[row], draft, reference.coins(one.seed, int(positions[row])))
        assert chosen[row] == token


def test_the_largest_vocabulary_with_equal_logits_stays_below_2_to_the_31():
    inputs = uploaded(sampling_columns([SamplingParams(1.0, top_k=4096, top_p=0.5, min_p=1.0)]), CPU)
    raw = weights_of(torch.zeros(1, 4096, dtype=torch.int64), inputs["temperatures"])
    assert int(raw.sum()) == 1 << 30
    kept = filtered(raw, inputs["top_ks"], inputs["top_ps"], inputs["min_ps"])
    assert kept[0, :2048].tolist() == [1 << 18] * 2048
    assert not kept[0, 2048:].any()


def test_rows_of_a_width_draw_as_their_request_does():
    params = [SamplingParams(0.5, top_k=2, top_p=0.25, min_p=0.125, seed=(1 << 63) - 1), None]
    wide = Sampled.of(uploaded(sampling_columns(params), CPU), width=3)
    assert wide.temperatures.tolist() == [0.5] * 3 + [0.0] * 3
    assert wide.top_ks.tolist() == [2] * 3 + [0] * 3
    assert wide.top_ps.tolist() == [1 << 14] * 3 + [1 << 16] * 3
    assert wide.min_ps.tolist() == [1 << 13] * 3 + [0] * 3
    assert wide.seeds.tolist() == [(1 << 63) - 1] * 3 + [0] * 3
