"""Grammars beside a real model: masked as transformers masks, obeyed by what is emitted, and never a tie.

`V` vocabulary.
"""

import re

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from transformers.generation.logits_process import LogitsProcessorList, PrefixConstrainedLogitsProcessor

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.coverage.counts import counts
from draftproof.properties.evidence.tolerances import logit_bound
from draftproof.properties.judge import judge
from draftproof.properties.values.grammar import Grammar, end_token, token_texts
from draftproof.properties.values.limits import NO_LIMITS
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Scenario
from draftproof.reference.choose import choose_rows
from draftproof.reference.grammar import ConstrainedTarget
from draftproof.reference.memo import Pass
from draftproof.reference.real_sampling import RealRow, real_weights
from tests.checkpoints import tiny_llama
from tests.named.real import real
from tests.reference.test_real_sampling import SAMPLINGS, VOCAB, drawn_logits, warpers_of

WORDS = ("ab", "abc", "abca", "aab", "ba", "bab", "caac", "cb", "cbcba")
PROMPT = (7, 8)
TEXT = token_texts(VOCAB)


class Drawn:
    """A target of drawn logits, another row for every place, in a float type."""

    layer_types, widened = ("full_attention",), 1.0

    def __init__(self, dtype: str = "float64") -> None:
        self._dtype = dtype

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        logits = np.stack([drawn_logits(place) for place in range(len(tokens))]).astype(self._dtype)
        return Pass(np.empty((len(tokens), 0)), logits, ())


def allowed_by_re(_batch: int, tokens: torch.Tensor) -> list[int]:
    """Return what may follow, off the list of words; everything once there is no grammar any more."""
    spelled = ""
    for token in tokens.tolist()[len(PROMPT) :]:
        known = any(word.startswith(spelled + TEXT[token]) for word in WORDS)
        if token == end_token(VOCAB) or not known:
            return list(range(VOCAB))
        spelled += TEXT[token]
    some = [token for token in range(VOCAB - 1) if any(word.startswith(spelled + TEXT[token]) for word in WORDS)]
    return some + [end_token(VOCAB)] * (spelled in WORDS)


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=lambda one: f"T={one.temperature}")
def test_probabilities_are_those_of_transformers_under_the_same_mask(sampling: Sampling):
    target = ConstrainedTarget(Drawn(), len(PROMPT), Grammar(pattern="|".join(WORDS)))
    warpers = [PrefixConstrainedLogitsProcessor(allowed_by_re, 1), *warpers_of(sampling)]
    seen = set()
    # Texts that go on, that end, that leave the grammar, and what follows these.
    for text in ((), (0,), (0, 1), (0, 1, 2), (4,), (2, 1, 2), (4, end_token(VOCAB)), (0, 1, end_token(VOCAB)), (0, 2)):
        tokens = PROMPT + text
        row = len(tokens) - 1
        scores = LogitsProcessorList(warpers)(torch.tensor([tokens]), torch.tensor(drawn_logits(row))[None])
        weights = np.array(real_weights(target.forward(tokens).logits[row], sampling), float)
        expected = scores.softmax(-1)[0].numpy()
        assert np.abs(weights / weights.sum() - expected).max() <= VOCAB / 2.0**40
        assert not weights[expected == 0].any()
        seen.add(int((expected > 0).sum()))
    assert len(seen) > 1


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_no_rounding_comes_near_a_token_that_is_not_allowed(dtype: str):
    """Neither the best token nor a drawn one has such a neighbour, also where a single token is allowed."""
    for pattern in ("ab", "(ab)*", "[abc]{9,30}"):
        target = ConstrainedTarget(Drawn(dtype), len(PROMPT), Grammar(pattern=pattern))
        logits = target.forward((*PROMPT, 0)).logits[-1]
        excluded = np.flatnonzero(logits < -1e9)
        assert excluded.size
        near = dict(choose_rows(logits[None])[0].near())
        assert all(near[token] > 1e9 for token in near.keys() & excluded.tolist())
        for seed in range(8):
            row = RealRow(logits, Sampling(temperature=8.0, seed=seed), (int(excluded[0]),), 3)
            assert not {row.token, *dict(row.near())} & set(excluded.tolist())
            assert row.gap(int(excluded[0])) == np.inf


@pytest.fixture(scope="module")
def scenarios(tmp_path_factory: pytest.TempPathFactory) -> list[Scenario]:
    path = tiny_llama(tmp_path_factory.mktemp("grammars") / "llama")
    return real(path, ["grammar", "every_choice"], limits=NO_LIMITS)


def soon_ended(scenario: Scenario) -> Scenario:
    """The scenario with words of few letters."""
    requests = (replace(one, grammar=one.grammar and Grammar(pattern="[abc]{1,4}")) for one in scenario.requests)
    return replace(scenario, requests=tuple(requests))


def test_what_the_engine_emits_beside_a_checkpoint_obeys(scenarios: list[Scenario]):
    reached = dict.fromkeys(("grammar_changed_choice", "grammar_by_draft_in_window", "grammar_ends"), 0)
    for one in (*scenarios, *map(soon_ended, scenarios)):
        done = evidence(EngineSubject(), one)
        assert judge(done).passed
        assert 2 * logit_bound(one) < 1e-2
        found, end, texts = counts(done), end_token(one.model.vocab), token_texts(one.model.vocab)
        for name in reached:
            reached[name] += found[name]
        for index, request in enumerate(one.requests):
            text = done.subject.texts[index]
            if request.grammar and end in text:
                assert re.fullmatch(request.grammar.pattern, "".join(texts[token] for token in text))
    assert all(reached.values()), reached


def test_a_text_with_another_grammar_is_noticed(scenarios: list[Scenario], monkeypatch: pytest.MonkeyPatch):
    one = scenarios[0]
    own = EngineSubject.run

    def other(self: EngineSubject, scenario: Scenario, script: object):
        first, *others = scenario.requests
        first = replace(first, grammar=Grammar(pattern="[bc]*"))
        return own(self, replace(scenario, requests=(first, *others)), script)

    monkeypatch.setattr(EngineSubject, "run", other)
    failed = {name for name, found in judge(evidence(EngineSubject(), one)).results.items() if found}
    assert "verify.allowed" in failed
