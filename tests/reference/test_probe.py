"""The probe models against a naive twin in Python integers, closed forms, and changes of every input.

`L` lanes, `V` vocabulary; a row is one position.
"""

from typing import Any

import msgspec
import numpy as np
import pytest

from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import splitmix, target_weights
from draftproof.reference.choose import choose_rows
from draftproof.reference.memo import Memo
from draftproof.reference.probe.drafts import ProbeEagleHead
from draftproof.reference.probe.target import ReferenceProbeTarget, mix
from draftproof.reference.protocols import taken
from tests.naive_probe import MASK, naive_head, naive_mix, naive_target

MODEL = ProbeModel(seed=3, layers=2, heads=4, kv_heads=2, key_dim=3, value_dim=5, lanes=7, vocab=61, agreement=160)
HEAD = Eagle(seed=5, heads=3, kv_heads=1, key_dim=2, value_dim=4, lanes=6)
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"handed": "before_norm", "own_head": True},
    {"own_embedding": True, "masks_first": True},
    {"own_embedding": True, "own_head": True, "head_vocab": 9, "handed": "before_norm", "masks_first": True},
)
TOKENS = tuple(int(token) for token in np.random.default_rng(11).integers(0, MODEL.vocab, 24))


def target(spec: ProbeModel = MODEL) -> ReferenceProbeTarget:
    return ReferenceProbeTarget(spec, Memo(enabled=False))


def eagle(spec: ProbeModel = MODEL) -> ProbeEagleHead:
    return ProbeEagleHead(HEAD, spec, Memo(enabled=False))


@pytest.mark.parametrize("bits", [1, 5, 23])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_equals_the_naive_twin(bits: int, form: dict[str, Any]) -> None:
    spec = ProbeModel(
        seed=bits, layers=2, heads=4, kv_heads=2, key_dim=3, value_dim=5, lanes=6, vocab=13, logit_bits=bits
    )
    tokens = tuple(token % 13 for token in TOKENS[:6])
    hidden, logits, kv, _ = naive_target(spec, tokens)
    got = target(spec).forward(tokens)
    assert got.hidden.tolist() == hidden
    assert got.logits.tolist() == logits
    assert [layer.tolist() for layer in got.kv] == kv
    draft = msgspec.structs.replace(HEAD, **form)
    g, logits, entries = naive_head(draft, spec, tokens[1:], hidden[:-1])
    head = ProbeEagleHead(draft, spec, Memo(enabled=False)).forward(tokens[1:], got.hidden[:-1])
    assert head.hidden.tolist() == g
    assert head.logits.tolist() == logits
    assert head.kv[0].tolist() == entries


def test_mix_is_splitmix_and_every_bit_matters() -> None:
    """10,000 draws: one changed bit changes the result, and about half of its bits."""
    rng = np.random.default_rng(1)
    x = rng.integers(0, 2**64, 10_000, dtype=np.uint64)
    flipped = x ^ (np.uint64(1) << rng.integers(0, 64, 10_000, dtype=np.uint64))
    assert (mix(x) == splitmix(x)).all()
    assert mix(x[:50]).tolist() == [naive_mix(value) for value in x[:50].tolist()]
    assert (mix(x) != mix(flipped)).all()
    assert 31.5 < np.bitwise_count(mix(x) ^ mix(flipped)).mean() < 32.5


def test_carry_is_a_plain_sum_that_the_head_continues() -> None:
    w = target_weights(MODEL)
    c = int(w["layers.0.v.position"][0])
    total, sums = 0, []
    for place, token in enumerate(TOKENS):
        total += naive_mix((int(w["embed"][token, 0]) + place * c) & MASK)
        sums.append(total & MASK)
    hidden = target().forward(TOKENS).hidden
    assert hidden[:, 0].tolist() == sums
    g = eagle().forward(TOKENS[1:], hidden[:-1]).hidden
    assert g[:, 0].tolist() == sums[1:]


def test_the_state_before_the_norm_mixes_to_the_one_after_it_and_has_the_carry() -> None:
    done = target().forward(TOKENS)
    assert mix(done.before_norm[:, 1:]).tolist() == done.hidden[:, 1:].tolist()
    assert done.before_norm[:, 0].tolist() == done.hidden[:, 0].tolist()
    assert done.before_norm[:, 1:].tolist() == done.layers[-1][:, 1:].tolist()


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("takes", ["after_norm", "before_norm"])
def test_a_head_with_anything_of_its_own_chooses_the_favourite(form: dict[str, Any], takes: str) -> None:
    """As the target does where all favourites count; where the head has no such token, another."""
    of = msgspec.structs.replace(MODEL, agreement=256)
    done = target(of).forward(TOKENS)
    head = ProbeEagleHead(msgspec.structs.replace(HEAD, takes=takes, **form), of, Memo(enabled=False))
    ids = head.ids or range(MODEL.vocab)
    chosen = choose_rows(head.forward(TOKENS[1:], taken(head, done)[:-1]).logits)[1:]
    pairs = list(zip((ids[choice.token] for choice in chosen), choose_rows(done.logits)[2:], strict=True))
    assert all(mine == its.token for mine, its in pairs if its.token in ids)
    assert len(set(ids)) == len(ids)


def changed_rows(a: np.ndarray, b: np.ndarray) -> list[bool]:
    """Per row: True if every element differs, False if none does; anything between is an error."""
    differs = a != b
    assert (differs.all(axis=1) == differs.any(axis=1)).all()
    return differs.any(axis=1).tolist()


def test_every_token_of_the_target_matters_from_its_position_on() -> None:
    base = target().forward(TOKENS)
    for place in range(len(TOKENS)):
        for other in range(1, MODEL.vocab, 7):
            token = (TOKENS[place] + other) % MODEL.vocab
            got = target().forward((*TOKENS[:place], token, *TOKENS[place + 1 :]))
            after = [row >= place for row in range(len(TOKENS))]
            assert changed_rows(base.hidden, got.hidden) == after
            assert changed_rows(base.kv[0], got.kv[0]) == [row == place for row in range(len(TOKENS))]
            assert changed_rows(base.kv[1], got.kv[1]) == after


def test_position_and_order_matter_in_the_target() -> None:
    """A repeated token never gives the same row twice; swapping two tokens changes all that sees both."""
    for token in range(MODEL.vocab):
        got = target().forward((token,) * 9)
        for rows in (got.hidden, *got.kv):
            assert all(len(set(lane.tolist())) == 9 for lane in rows.T)
    base = target().forward(TOKENS)
    for place in range(len(TOKENS) - 1):
        a, b = TOKENS[place : place + 2]
        if a != b:
            got = target().forward((*TOKENS[:place], b, a, *TOKENS[place + 2 :]))
            assert changed_rows(base.hidden, got.hidden) == [row >= place for row in range(len(TOKENS))]


def test_every_input_of_the_head_matters() -> None:
    """One changed hidden lane or token changes the entry's KV, and every lane but the carry's from there on."""
    hidden = target().forward(TOKENS).hidden[:-1]
    base, rows = eagle().forward(TOKENS[1:], hidden), len(hidden)
    for place in range(rows):
        after, here = [row >= place for row in range(rows)], [row == place for row in range(rows)]
        for lane in range(MODEL.lanes):
            changed = hidden.copy()
            changed[place, lane] ^= np.uint64(1)
            got = eagle().forward(TOKENS[1:], changed)
            assert changed_rows(base.hidden[:, 1:], got.hidden[:, 1:]) == after
            assert changed_rows(base.kv[0], got.kv[0]) == here
            assert (base.hidden[:, 0] != got.hidden[:, 0]).tolist() == [lane == 0 and row for row in here]
        tokens = list(TOKENS[1:])
        tokens[place] = (tokens[place] + 1) % MODEL.vocab
        got = eagle().forward(tuple(tokens), hidden)
        assert changed_rows(base.hidden[:, 1:], got.hidden[:, 1:]) == after
        assert (base.hidden[:, 0] != got.hidden[:, 0]).tolist() == here
    same = eagle().forward((TOKENS[0],) * rows, np.repeat(hidden[:1], rows, axis=0))
    for states in (same.hidden, same.kv[0]):
        assert all(len(set(lane.tolist())) == rows for lane in states.T)


def agreeing(tokens: tuple[int, ...], hidden: np.ndarray, shift: int = 0) -> int:
    """How many of the head's choices at entries 0 .. are the target's one position on; entries start at `shift`."""
    truth = choose_rows(target().forward(tokens).logits[1:])
    ids, states = tokens[:shift] + tokens[1:], np.concatenate((hidden[:shift], hidden))
    own = choose_rows(eagle().forward(ids, states).logits[shift:])
    return sum(a.token == b.token for a, b in zip(own, truth, strict=True))


def test_the_head_agrees_on_the_share_that_the_scenario_chooses() -> None:
    """Every favoured context agrees; with a wrong position, hidden state or token only chance does."""
    tokens = tuple(int(token) for token in np.random.default_rng(2).integers(0, MODEL.vocab, 400))
    hidden = target().forward(tokens).hidden
    favoured = sum(naive_mix(carry) % 256 < MODEL.agreement for carry in hidden[1:, 0].tolist())
    share = agreeing(tokens, hidden[:-1])
    assert favoured <= share <= favoured + 20
    assert share > 0.5 * 399 * MODEL.agreement / 256
    assert share < 399
    wrong = {
        "position": agreeing(tokens, hidden[:-1], shift=1),
        "hidden": agreeing(tokens, np.roll(hidden[:-1], 1, axis=0)),
        "stale token": agreeing(tokens, hidden[1:]),
    }
    assert all(count < share // 4 for count in wrong.values()), wrong
