"""Grammars by definition, against Python's `re` on every short string, and against texts that are emitted."""

import itertools
import random
import re

import numpy as np
import pytest
from msgspec.structs import replace

from draftproof.properties.lib.pattern import NO_STRING, PatternError, derivative, has_empty, parse
from draftproof.properties.validate import validate
from draftproof.properties.values.grammar import Grammar, end_token, token_texts
from draftproof.properties.values.sampling import Sampling
from draftproof.reference.decode import verify
from draftproof.reference.grammar import LOGIT_OF_EXCLUDED, ConstrainedTarget, allowed, state_after, state_of
from draftproof.reference.memo import Pass
from draftproof.reference.run import run
from draftproof.reference.sampling import probe_weights
from draftproof.reference.solve import solve
from tests.grammars import drawn_pattern
from tests.reference.scenarios import request, scenario

LONGEST = 5
STRINGS = ["".join(letters) for n in range(LONGEST + 1) for letters in itertools.product("abc", repeat=n)]


@pytest.mark.parametrize("seed", range(60))
def test_words_are_those_of_re(seed: int):
    pattern = drawn_pattern(random.Random(seed))
    words = {text for text in STRINGS if re.fullmatch(pattern, text)}
    for text in STRINGS:
        left = parse(pattern)
        for letter in text:
            left = derivative(left, letter)
        assert has_empty(left) == (text in words), (pattern, text)
        if any(word.startswith(text) for word in words):
            assert left != NO_STRING, (pattern, text)


def test_an_expression_that_is_not_nothing_has_a_word():
    for seed in range(200):
        pattern = drawn_pattern(random.Random(seed), depth=2)
        some = any(re.fullmatch(pattern, text) for text in STRINGS)
        assert (parse(pattern) != NO_STRING) == some, pattern


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a(", r"expected \) at place 2, got the end"),
        ("a)", "expected an expression before it ends at place 1, got '\\)'"),
        ("*a", "expected a letter of a .. z at place 0, got '\\*'"),
        ("a**", "expected a letter of a .. z at place 2"),
        ("a{2", "expected } at place 3, got the end"),
        ("a{,2}", "expected a number at place 2"),
        ("a{3,2}", "expected at least 3 as the second number"),
        ("[ab", "expected a letter of a .. z at place 3, got the end"),
        ("[]", "expected a letter of a .. z at place 1"),
        ("A", "expected a letter of a .. z at place 0, got 'A'"),
        ("((a{99}){99})", "expected at most 256 letters, with repetitions written out"),
    ],
)
def test_what_is_no_pattern_is_refused_with_its_place(pattern: str, message: str):
    with pytest.raises(PatternError, match=message):
        parse(pattern)


def test_tokens_spell_every_string_once_and_the_last_nothing():
    for vocab in (4, 5, 13, 40, 509):
        texts = token_texts(vocab)
        assert len(texts) == vocab
        assert texts[-1] == ""
        assert len(set(texts)) == vocab
        assert list(texts[:-1]) == sorted(texts[:-1], key=lambda text: (len(text), text))
        assert set(texts[:-1]) == set([text for text in _strings_to(len(texts[-2])) if text][: vocab - 1])


def _strings_to(longest: int) -> list[str]:
    return ["".join(letters) for n in range(longest + 1) for letters in itertools.product("abc", repeat=n)]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_allowed_begins_a_word_of_re(seed: int):
    """Words of at most LONGEST letters are known, so texts of a pattern whose words are no longer."""
    rng, vocab = random.Random(seed), 14
    pattern = "|".join(rng.sample(STRINGS[1:], k=5))
    words = {text for text in STRINGS if re.fullmatch(pattern, text)}
    texts = token_texts(vocab)
    for text in STRINGS:
        if not any(word.startswith(text) for word in words):
            continue
        left = parse(pattern)
        for letter in text:
            left = derivative(left, letter)
        expected = [token for token in range(vocab - 1) if any(word.startswith(text + texts[token]) for word in words)]
        assert list(allowed(left, vocab)) == expected + [end_token(vocab)] * (text in words)


def test_after_a_token_that_is_not_allowed_and_after_the_end_everything_is():
    start, end = parse("ab"), end_token(5)
    assert allowed(start, 5) == (0,)
    assert state_after(start, 1, 5) is None
    assert state_after(start, end, 5) is None
    assert state_of(Grammar(pattern="ab"), (0, 1), 5) == parse("")
    assert allowed(state_of(Grammar(pattern="ab"), (0, 1), 5), 5) == (end,)
    assert allowed(state_of(Grammar(pattern="ab"), (0, 1, end), 5), 5) == tuple(range(5))
    assert allowed(None, 5) == tuple(range(5))


class Fixed:
    """A target of which every row has the same logits."""

    layer_types, widened = ("full_attention",), 0.0

    def __init__(self, *logits: float) -> None:
        self._logits = np.array(logits)

    def forward(self, tokens: tuple[int, ...], first: int = 0) -> Pass:
        rows = np.tile(self._logits, (len(tokens), 1))
        return Pass(hidden=rows, logits=rows, kv=())


FIXED = Fixed(1.0, 2.0, 3.0, 4.0, 5.0)


def test_rows_of_the_prompt_stay_and_each_row_behind_has_the_mask_of_its_text():
    target = ConstrainedTarget(FIXED, 2, Grammar(pattern="(ab|c)*"))
    logits = target.forward((4, 4, 0, 1, 2, 2)).logits
    kept = [[token for token in range(5) if row[token] != LOGIT_OF_EXCLUDED] for row in logits]
    assert kept == [[0, 1, 2, 3, 4], [0, 2, 4], [1], [0, 2, 4], [0, 2, 4], [0, 2, 4]]
    assert all(row[token] == token + 1 for row, tokens in zip(logits, kept, strict=True) for token in tokens)
    known = ConstrainedTarget(FIXED, 2, Grammar(pattern="(ab|c)*"), known=3).forward((4, 4, 0, 1, 2)).logits
    assert (known[2:] == known[2]).all()


def test_a_draft_that_is_not_allowed_is_rejected_and_the_state_is_of_what_was_emitted():
    target = ConstrainedTarget(FIXED, 1, Grammar(pattern="(ab|c)*"))
    # The end token, 4, is the best; then c.
    assert verify(target, (4, 0), (1, 4)).emitted == (1, 4, 4)
    assert verify(target, (4, 0), (2, 2)).emitted == (1,)
    assert verify(target, (4, 0), ()).emitted == (1,)


def test_what_is_excluded_has_no_weight_at_any_temperature_and_filters_count_the_rest():
    logits = ConstrainedTarget(FIXED, 1, Grammar(pattern="(ab|c)*")).forward((4,)).logits[0]
    for temperature in (1 / 16, 1.0, 64.0):
        weights = probe_weights(logits, Sampling(temperature=temperature))
        assert [bool(weight) for weight in weights] == [True, False, True, False, True]
    two = probe_weights(logits, Sampling(temperature=64.0, top_k=2))
    assert sum(map(bool, two)) == 3  # equals of the second stay: on the grid all three are
    spread = logits.copy()
    spread[[0, 2, 4]] = (0, 1 << 22, 1 << 23)
    assert [bool(one) for one in probe_weights(spread, Sampling(temperature=1.0, top_k=2))] == [0, 0, 1, 0, 1]


@pytest.mark.parametrize("pattern", ["([ab]|c[ab])*", "(a|b|cc)*", "(abc){2}", "b+"])
@pytest.mark.parametrize("sampling", [None, Sampling(temperature=4.0, seed=5)])
def test_texts_obey_whatever_drafts_are(pattern: str, sampling: Sampling | None):
    plain = scenario(request(prompt=5, budget=9))
    end = end_token(plain.model.vocab)
    own = [
        replace(one, grammar=Grammar(pattern=pattern), sampling=sampling, stops=(end,), stop_at=-1)
        for one in plain.requests
    ]
    case = validate(replace(plain, requests=tuple(own)))
    solved = solve(case)
    text = solved.requests[0].tokens
    spelled = "".join(token_texts(plain.model.vocab)[token] for token in text)
    left = parse(pattern)
    for letter in spelled:
        left = derivative(left, letter)
    assert left != NO_STRING
    if text[-1] == end:
        assert re.fullmatch(pattern, spelled)
    trace = run(case, solved)
    masks, choices = trace.channel("verify.allowed"), trace.choices("verify.choice")
    assert masks.keys() == choices.keys()
    assert all(choice[0] in masks[key] for key, choice in choices.items())
