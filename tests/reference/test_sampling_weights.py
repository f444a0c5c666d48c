"""Weights of sampled requests: closed form, and filters against transformers' logits processors in float64."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from draftproof.properties.values.sampling import Sampling
from draftproof.reference.sampling import filtered, probe_weights
from tests.reference.scenarios import BRIEF


@st.composite
def filters(draw: st.DrawFn) -> Sampling:
    shares = st.integers(1, 65536).map(lambda n: n / 65536)
    return Sampling(
        top_k=draw(st.none() | st.integers(1, 12)),
        top_p=draw(st.just(1.0) | shares),
        min_p=draw(st.just(0.0) | shares),
    )


def warped(weights: list[int], sampling: Sampling) -> list[bool]:
    """Return which tokens transformers' processors keep, in float64."""
    with np.errstate(divide="ignore"):
        scores = torch.tensor(np.log(np.array(weights, float)))[None]
    processors = [TopKLogitsWarper(sampling.top_k)] if sampling.top_k else []
    processors += [TopPLogitsWarper(sampling.top_p)] if sampling.top_p < 1 else []
    processors += [MinPLogitsWarper(sampling.min_p)] if sampling.min_p else []
    for processor in processors:
        scores = processor(None, scores)
    return torch.isfinite(scores[0]).tolist()


def is_near_an_edge(weights: list[int], sampling: Sampling) -> bool:
    """Return whether a share is equal to a sum or to a weight, up to rounding."""
    kept = sorted(filtered(weights, Sampling(top_k=sampling.top_k)), reverse=True)
    sums = [before / sum(kept) for before in itertools.accumulate(kept)]
    shares = [weight / kept[0] for weight in kept]
    return any(abs(one - sampling.top_p) < 1e-9 for one in sums[:-1]) or sampling.min_p in shares


@BRIEF
@given(st.lists(st.integers(1, 1 << 20), min_size=1, max_size=12, unique=True), filters())
def test_filters_keep_what_those_of_transformers_keep(weights: list[int], sampling: Sampling):
    if not is_near_an_edge(weights, sampling):
        kept = filtered(weights, sampling)
        assert [weight > 0 for weight in kept] == warped(weights, sampling)
        assert all(one in (0, weight) for one, weight in zip(kept, weights, strict=True))


@BRIEF
@given(st.lists(st.sampled_from((0, 1, 1, 2, 5)), min_size=1, max_size=12).filter(any), filters())
def test_of_equal_weights_transformers_keeps_as_many_and_the_definition_the_lowest_ids(
    weights: list[int], sampling: Sampling
):
    if is_near_an_edge(weights, sampling):
        return
    kept, others = filtered(weights, sampling), warped(weights, sampling)
    assert sorted(kept) == sorted(weight * one for weight, one in zip(weights, others, strict=True))
    for weight in set(weights) - {0}:
        places = [bool(one) for one, given_ in zip(kept, weights, strict=True) if given_ == weight]
        assert places == sorted(places, reverse=True)


@pytest.mark.parametrize(
    ("weights", "how", "kept"),
    [
        ([4, 1, 4, 2, 2], {"top_k": 1}, [4, 0, 4, 0, 0]),
        ([4, 1, 4, 2, 2], {"top_k": 3}, [4, 0, 4, 2, 2]),
        ([4, 1, 4, 2, 2], {"top_k": 99}, [4, 1, 4, 2, 2]),
        # Before the third stands 8 of 16, which is not below a half.
        ([4, 4, 4, 4], {"top_p": 0.5}, [4, 4, 0, 0]),
        ([1, 4, 4, 4, 3], {"top_p": 0.5}, [0, 4, 4, 0, 0]),
        ([1, 4, 4, 4, 3], {"top_p": 0.5 + 1 / 65536}, [0, 4, 4, 4, 0]),
        ([2, 3, 2], {"top_p": 1 / 65536}, [0, 3, 0]),
        ([2, 2, 2], {"top_p": 1 / 65536}, [2, 0, 0]),
        ([8, 4, 2, 1], {"min_p": 0.25}, [8, 4, 2, 0]),
        ([8, 4, 2, 1], {"min_p": 0.25 + 1 / 65536}, [8, 4, 0, 0]),
        ([8, 4, 8, 1], {"min_p": 1.0}, [8, 0, 8, 0]),
        # Half of what top_k left, not of all.
        ([4, 3, 3, 3, 3], {"top_k": 1, "top_p": 0.5}, [4, 0, 0, 0, 0]),
        ([6, 5, 4, 3, 3], {"top_k": 3, "top_p": 0.5}, [6, 5, 0, 0, 0]),
        ([0, 0, 7], {"top_k": 2, "top_p": 0.5, "min_p": 1.0}, [0, 0, 7]),
    ],
)
def test_filters_at_ties_and_edges(weights: list[int], how: dict[str, float], kept: list[int]):
    assert filtered(weights, Sampling(**how)) == kept


@BRIEF
@given(
    st.lists(st.integers(0, (1 << 24) - 1) | st.sampled_from((0, 1 << 18, 1 << 20, 1 << 23)), min_size=1, max_size=9),
    st.integers(1, 1024),
)
def test_weights_of_a_probe_are_its_softmax_to_base_2_on_a_grid(logits: list[int], sixteenths: int):
    weights = probe_weights(np.array(logits, float), Sampling(temperature=sixteenths / 16))
    for logit, weight in zip(logits, weights, strict=True):
        below = Fraction((max(logits) - logit) * 64, 1 << 24) / Fraction(sixteenths, 16)
        assert weight == (2 ** (18 - int(below)) if below < 19 else 0)
        # Within a factor of two of 2^(18 - below), as long as there is a weight.
        assert weight == 0 or 2 ** (18 - float(below)) <= weight < 2 ** (19 - float(below)) * (1 + 1e-12)
    assert max(weights) == 1 << 18


def test_sums_of_weights_are_below_what_a_coin_takes():
    assert sum(probe_weights(np.zeros(4096), Sampling())) == 1 << 30
