"""The EAGLE-3 draft against the naive twin, passes over the final sequence, and changes of every input."""

import msgspec
import numpy as np
import pytest
from hypothesis import given

from draftproof.properties.lib.invalid import InvalidScenarioError
from draftproof.properties.values.drafts import Eagle3
from draftproof.properties.values.observed import DraftNeeds
from draftproof.properties.values.scenario import ProbeModel, Scenario
from draftproof.properties.values.trace import Key
from draftproof.properties.weights.probe import draft_vocabulary, draft_weights, target_weights
from draftproof.reference.build import build
from draftproof.reference.choose import choose, choose_rows
from draftproof.reference.memo import Memo
from draftproof.reference.probe.eagle3 import ProbeEagle3Head
from draftproof.reference.probe.target import ReferenceProbeTarget
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.naive_probe import naive_eagle3, naive_joined, naive_mix
from tests.reference.draft_rows import Told
from tests.reference.scenarios import BRIEF, WIDE, model, request, scenario, scenarios

MODEL = model(vocab=61, layers=3)
TOKENS = tuple(int(token) for token in np.random.default_rng(11).integers(0, 61, 24))


def draft(*features: int, vocab: int = 0, own: bool = False, lanes: int = 6) -> Eagle3:
    return msgspec.structs.replace(WIDE, features=features or (2, 0), head_vocab=vocab, own_embedding=own, lanes=lanes)


def head(spec: Eagle3, of: ProbeModel = MODEL) -> ProbeEagle3Head:
    return ProbeEagle3Head(spec, of, Memo(enabled=False))


def features_of(tokens: tuple[int, ...], spec: Eagle3, of: ProbeModel = MODEL) -> np.ndarray:
    """[n, F] of these tokens."""
    outputs = ReferenceProbeTarget(of, Memo(enabled=False)).forward(tokens).layers
    return np.concatenate([outputs[layer] for layer in spec.features], axis=1)


@pytest.mark.parametrize("features", [(0,), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize(("vocab", "own"), [(0, False), (40, False), (61, True), (2, True)])
def test_equals_the_naive_twin(features: tuple[int, ...], vocab: int, own: bool) -> None:
    spec = draft(*features, vocab=vocab, own=own)
    made, f = head(spec), features_of(TOKENS[:6], spec)
    x = made.join(f)
    assert x.tolist() == naive_joined(spec, MODEL, f.tolist())
    got = made.forward(TOKENS[1:7], x)
    # A draft step goes on from what the last entry handed on.
    x = np.concatenate((x, got.hidden[-1:]))
    got = made.forward(TOKENS[1:8], x)
    states, logits, entries = naive_eagle3(spec, MODEL, TOKENS[1:8], x.tolist())
    assert got.hidden.tolist() == states
    assert got.logits.tolist() == logits
    assert got.kv[0].tolist() == entries


def test_what_an_entry_hands_on_has_the_carry_and_its_token_s_lane() -> None:
    """Along draft steps, too: these are what the features of the true tokens would have given."""
    spec = draft(vocab=30, own=True)
    made, target = head(spec), ReferenceProbeTarget(MODEL, Memo(enabled=False))
    carries, lanes = target.forward(TOKENS).hidden[1:, 0], target_weights(MODEL)["embed"][list(TOKENS[1:]), 0]
    for first in (1, 5, len(TOKENS) - 1):
        x = made.join(features_of(TOKENS[:first], spec))
        for _ in range(first, len(TOKENS) - 1):
            x = np.concatenate((x, made.forward(TOKENS[1 : len(x) + 1], x).hidden[-1:]))
        g = made.forward(TOKENS[1:], x).hidden
        assert g[:, 0].tolist() == carries.tolist()
        assert g[:, 1].tolist() == lanes.tolist()


def test_every_feature_and_every_token_matters() -> None:
    """A changed one changes the entry, and from it on every lane of the states but the two that are no hash."""
    spec = draft(1, 0, own=True)
    f = features_of(TOKENS[:-1], spec)
    made, rows = head(spec), len(f)
    base = made.forward(TOKENS[1:], made.join(f))

    def check(tokens: tuple[int, ...], features: np.ndarray, place: int) -> None:
        got = made.forward(tokens, made.join(features))
        later, here = np.arange(rows) >= place, np.arange(rows) == place
        assert ((base.hidden[:, 2:] != got.hidden[:, 2:]) == later[:, None]).all()
        assert ((base.kv[0] != got.kv[0]).any(axis=1) == here).all()

    for place in range(rows):
        for lane in range(f.shape[1]):
            changed = f.copy()
            changed[place, lane] ^= np.uint64(1)
            check(TOKENS[1:], changed, place)
        tokens = list(TOKENS[1:])
        tokens[place] = (tokens[place] + 1) % MODEL.vocab
        check(tuple(tokens), f, place)


@pytest.mark.parametrize(("vocab", "own"), [(0, False), (45, True)])
def test_it_agrees_where_a_favourite_counts_that_it_has(vocab: int, own: bool) -> None:
    spec, tokens = draft(vocab=vocab, own=own), tuple(np.random.default_rng(2).integers(0, 61, 300).tolist())
    made, target = head(spec), ReferenceProbeTarget(MODEL, Memo(enabled=False)).forward(tokens)
    ids = draft_vocabulary(spec, MODEL)
    choices = choose_rows(made.forward(tokens[1:], made.join(features_of(tokens[:-1], spec))).logits)
    own_tokens = [ids[choice.token] for choice in choices]
    truth = [choice.token for choice in choose_rows(target.logits[1:])]
    favoured = [naive_mix(carry) % 256 < MODEL.agreement for carry in target.hidden[1:, 0].tolist()]
    for mine, right, counts in zip(own_tokens, truth, favoured, strict=True):
        assert mine == right or not counts or right not in ids
        assert mine != right or right in ids
    lacking = sum(right not in ids for right in truth)
    assert (lacking > 40) == bool(vocab)


def test_its_vocabulary_is_part_of_the_targets_in_ascending_order() -> None:
    for vocab in (2, 30, 61):
        spec = draft(vocab=vocab)
        kept = draft_vocabulary(spec, MODEL)
        assert list(kept) == sorted(set(kept))
        assert len(kept) == vocab
        assert set(kept) <= set(range(61))
        assert [v + int(offset) for v, offset in enumerate(draft_weights(spec, MODEL)["d2t"])] == list(kept)
    assert draft_vocabulary(draft(), MODEL) == tuple(range(61))
    assert "d2t" not in draft_weights(draft(), MODEL)


@BRIEF
@given(scenarios("eagle3"))
def test_extends_take_features_and_draft_steps_what_was_handed_on(made: Scenario) -> None:
    made = msgspec.structs.replace(made, requests=made.requests[:1])
    assert isinstance(made.model, ProbeModel)
    assert isinstance(made.draft, Eagle3)
    script = solve(made)
    trace, solved, prompt = run(made, script), script.requests[0], made.requests[0].prompt
    tokens, target = prompt + solved.tokens, build(made, Memo(enabled=False))[0]
    own, ids = head(made.draft, made.model), draft_vocabulary(made.draft, made.model)
    outputs = target.forward(tokens[:-1]).layers
    f = np.concatenate([outputs[layer] for layer in made.draft.features], axis=1)
    entries, n = own.forward(tokens[1:], own.join(f)), len(prompt)
    for number, round_ in enumerate((None, *solved.rounds)):
        told = Told(trace, number)
        for row, value in told.rows("extend.hidden_in", "row").items():
            assert value == f[row].tobytes()
            assert told("extend.kv", layer=0, row=row) == entries.kv[0][row].tobytes()
            assert told("extend.ids", layer=0, row=row) == tokens[row + 1]
            assert told("extend.positions", layer=0, row=row) == row
        if number < len(solved.rounds):
            place, margin = choose(entries.logits[told("commit.length") - 1])
            assert told("extend.proposal", layer=0) == (ids[place], margin)
        if round_ is None:
            continue
        chosen = [Told(trace, number - 1)("extend.proposal", layer=0)[0]]
        x = own.join(f[:n])
        for k in range(1, round_.drafts):
            x = np.concatenate((x, own.forward((*tokens[1 : n + 1], *chosen)[: len(x)], x).hidden[-1:]))
            assert told("draft.step.hidden_in", step=k) == x[-1].tobytes()
            place, margin = choose(own.forward((*tokens[1 : n + 1], *chosen), x).logits[-1])
            assert told("draft.step.proposal", step=k) == (ids[place], margin)
            chosen.append(ids[place])
        assert told("propose.tokens") == tuple(chosen[: round_.drafts])
        n += len(round_.emitted)


def test_it_says_what_it_is_fed_with() -> None:
    made = scenario(request(budget=1), of=model(layers=3), draft=draft(2, 0))
    assert run(made, solve(made)).channel("config.draft") == {Key(-1, 0): DraftNeeds(2 * made.model.lanes, 1)}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (draft(0, 0), "draft.features"),
        (draft(3), "draft.features"),
        (draft(vocab=1), "draft.head_vocab"),
        (draft(vocab=62), "draft.head_vocab"),
    ],
)
def test_a_head_that_does_not_fit_is_refused(spec: Eagle3, named: str) -> None:
    with pytest.raises(InvalidScenarioError, match=f"invalid {named}"):
        scenario(request(), of=MODEL, draft=spec)
