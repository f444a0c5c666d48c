"""What is told of tokens beside a real model: log probabilities as transformers has them, and how far they may be off.

`V` vocabulary.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.models.target import CheckpointTarget
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.trace import Key, Trace
from draftproof.reference.logprobs import logprob_gaps, told_gap
from draftproof.reference.real_sampling import real_weights
from draftproof.reference.sampling import logprob
from tests.checkpoints import tiny_llama
from tests.named.real import real
from tests.reference.test_real_draws import at_an_edge
from tests.reference.test_real_sampling import SAMPLINGS, VOCAB, drawn_logits, warped

TOP = 4
OF_EACH = pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda one: f"T={one.temperature}")


def told_of(logits: np.ndarray, sampling: Sampling, place: int = 0, top: int = TOP) -> tuple[int, tuple[int, ...]]:
    """Return the token so many places behind the likeliest, or the last that has any weight, and its logprob."""
    weights = real_weights(logits, sampling)
    ranked = sorted((token for token in range(VOCAB) if weights[token]), key=lambda token: (-weights[token], token))
    token = ranked[min(place, len(ranked) - 1)]
    return token, logprob(weights, token, top)


@OF_EACH
def test_log_probabilities_are_those_of_transformers(sampling: Sampling):
    for seed in range(60):
        logits = drawn_logits(seed)
        with np.errstate(divide="ignore"):
            expected = np.log(warped(logits, sampling))
        token, (own, total, *pairs) = told_of(logits, sampling, seed % 5)
        for other, weight in [(token, own), *zip(pairs[::2], pairs[1::2], strict=True)]:
            # A part of less than one is cut off from each weight.
            assert math.log(weight / total) == pytest.approx(expected[other], abs=1 / weight + VOCAB / total + 1e-12)
        ranked = (-expected).argsort(kind="stable")[: len(pairs) // 2]
        assert pairs[::2] == ranked.tolist()
        assert len(pairs) == 2 * min(TOP, np.isfinite(expected).sum())


@OF_EACH
def test_what_logits_tell_that_are_off_by_little_has_a_small_gap(sampling: Sampling):
    """No right engine fails, also where other tokens are listed, or filtered out."""
    others, generator = 0, np.random.default_rng(11)
    for seed in range(60):
        logits = drawn_logits(seed) * (1.0, 0.2, 1e-3)[seed % 3]
        for d in (1e-6, 1e-3, 0.03):
            token, told = told_of(logits + d * generator.choice((-1.0, 1.0), VOCAB), sampling, seed % 6)
            assert told_gap(told, token, TOP, logits, sampling) <= 2 * d
            others += told[2::2] != told_of(logits, sampling)[1][2::2]
    assert others


def test_a_gap_is_no_larger_an_error_than_it_takes():
    """One token's logit is off by d, that of no other: all may be, so that half the difference is enough for each."""
    for seed in range(40):
        logits, d = drawn_logits(seed), 10.0 ** -(seed % 4 + 2)
        token, told = told_of(logits, Sampling(temperature=2.0))
        raised = logits.copy()
        raised[token] += d
        probability = told[0] / told[1]
        off = d * (1 - probability)
        gap = told_gap(told, token, TOP, raised, Sampling(temperature=2.0))
        assert 0.9 * off - 1e-9 <= gap <= d + 1e-9


Wrong = Callable[[tuple[int, ...]], tuple[int, ...]]
LOGITS = np.linspace(3.0, -3.0, VOCAB)
WRONG: dict[str, tuple[Wrong, float]] = {
    "own is heavier": (lambda told: (told[0] + (told[0] >> 4), *told[1:]), math.inf),
    "of another row": (lambda _: told_of(LOGITS[::-1].copy(), Sampling())[1], math.inf),
    "the sum without one": (lambda told: (told[0], told[1] - told[3], *told[2:]), 0.05),
    "of half of the logits": (lambda _: told_of(LOGITS / 2, Sampling())[1], 0.05),
    "one likeliest is left out": (lambda told: (*told[:4], *told[6:]), math.inf),
    "a heavy one is missing": (lambda told: (*told[:2], *told_of(LOGITS, Sampling(), 0, 5)[1][4:]), math.inf),
    "in another order": (lambda told: (*told[:2], *told[4:6], *told[2:4], *told[6:]), math.inf),
    "one twice": (lambda told: (*told[:4], *told[2:4], *told[6:]), math.inf),
    "nothing": (lambda _: (), math.inf),
    "one more": (lambda _: told_of(LOGITS, Sampling(), 0, TOP + 1)[1], math.inf),
    "no such token": (lambda told: (*told[:-2], VOCAB, told[-1]), math.inf),
    "no weight": (lambda told: (0, *told[1:]), math.inf),
}


@pytest.mark.parametrize("name", WRONG)
def test_no_logits_near_explain_what_is_wrong(name: str):
    wrong, least = WRONG[name]
    token, told = told_of(LOGITS, Sampling())
    assert told_gap(told, token, TOP, LOGITS, Sampling()) < 1e-9
    assert told_gap(wrong(told), token, TOP, LOGITS, Sampling()) >= least


SOME = ("eagle_padded", "every_choice", "sampled_eagle", "sampled_hybrid_replay", "sampled_hybrid_snapshot")


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    path = tiny_llama(tmp_path_factory.mktemp("logprobs") / "llama")
    return real(path, SOME, limits=NO_LIMITS)


def asking(scenario: Scenario) -> Scenario:
    requests = tuple(replace(one, logprobs=3) for one in scenario.requests)
    return replace(scenario, requests=requests, variant="none")


def failed(done: Evidence) -> list[str]:
    return [name for name, found in judge(done).results.items() if found]


def nudged(monkeypatch: pytest.MonkeyPatch, token: int, off: float) -> None:
    """Let the engine's logits be off by so much, up to a token and below it."""
    own = CheckpointTarget.token_weights

    def weights(self: CheckpointTarget, logits: Tensor, temperatures: Tensor) -> Tensor:
        return own(self, logits.double() + torch.where(torch.arange(logits.shape[1]) <= token, off, -off), temperatures)

    monkeypatch.setattr(CheckpointTarget, "token_weights", weights)


def test_whatever_is_told_is_of_the_token_that_is_emitted(scenarios: list[Scenario]):
    """A value for each, behind prompts, drafts and stops; and any that is changed is noticed."""
    checked = 0
    for one in map(asking, scenarios[:2]):
        done = evidence(EngineSubject(), one)
        assert not failed(done)
        told = done.subject.channel("accept.logprobs")
        assert len(told) == sum(map(len, done.subject.texts.values())) == len(done.reference.logprob_gaps)
        assert told != done.reference.channel("accept.logprobs")
        for key, (own, total, *pairs) in list(told.items())[::7]:
            for wrong in ((own, total + total // 100, *pairs), (own - own // 100, total, *pairs), (own, total)):
                assert failed(observing(done, key, wrong)) == ["accept.logprobs"]
                checked += 1
    assert checked > 9


def observing(done: Evidence, key: Key, value: tuple[int, ...]) -> Evidence:
    """Return the evidence as if something else had been told of a token."""
    observations = tuple(
        other._replace(value=value) if other[:2] == ("accept.logprobs", key) else other
        for other in done.subject.observations
    )
    subject = Trace(done.subject.subject, done.subject.channels, observations)
    gaps = logprob_gaps(done.scenario, done.reference, subject.typed("accept.logprobs", tuple))
    reference = dataclasses.replace(done.reference, logprob_gaps=gaps)
    return dataclasses.replace(done, subject=subject, reference=reference)


def test_of_a_text_that_another_coin_went_its_rows_are_told(scenarios: list[Scenario], monkeypatch: pytest.MonkeyPatch):
    some = [one for one in scenarios if one.requests[0].sampling]
    ties = 0
    for at_edge, off in itertools.product(map(at_an_edge, map(asking, some)), (3e-5, -3e-5)):
        with monkeypatch.context() as scope:
            nudged(scope, at_edge.token, off)
            done = evidence(EngineSubject(), at_edge.scenario)
        assert not failed(done)
        assert len(done.reference.logprob_gaps) == sum(map(len, done.subject.texts.values()))
        ties += len(done.followed)
    assert ties


def test_logits_that_are_off_by_much_are_noticed_where_they_change_no_token(
    scenarios: list[Scenario], monkeypatch: pytest.MonkeyPatch
):
    greedy = next(one for one in map(asking, scenarios) if not any(request.sampling for request in one.requests))
    nudged(monkeypatch, greedy.model.vocab // 2, 0.01)
    assert failed(evidence(EngineSubject(), greedy)) == ["accept.logprobs"]
