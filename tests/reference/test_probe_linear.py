"""Gated delta net layers of a probe against the naive twin, a closed form, and changes of every input."""

from collections.abc import Iterator

import numpy as np
import pytest

from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.scenario import LayerType, Linear, ProbeModel
from draftproof.properties.weights.probe import target_weights
from draftproof.reference.choose import choose_rows
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe.drafts import ProbeEagleHead
from draftproof.reference.probe.linear import LinearLayer
from draftproof.reference.probe.target import ReferenceProbeTarget
from tests.naive_probe import MASK, dot, naive_mix, naive_target

FULL: LayerType = "full_attention"
LINEAR: LayerType = "linear_attention"
SIZES = Linear(key_heads=2, value_heads=4, key_dim=3, value_dim=2, conv=4, start=True)
TOKENS = tuple(int(token) for token in np.random.default_rng(11).integers(0, 61, 14))
PROJECTIONS = ("qkv.weight", "z.weight", "a.weight", "b.weight", "conv.weight", "o.weight", "mlp.weight")
VECTORS = ("a_log", "dt_bias", "norm.weight", "start.conv", "start.ssm")


def model(*types: LayerType, sizes: Linear = SIZES, seed: int = 3) -> ProbeModel:
    parts = {"heads": 4, "kv_heads": 2, "key_dim": 3, "value_dim": 5, "lanes": 6, "vocab": 61, "agreement": 160}
    return ProbeModel(seed=seed, layers=len(types), layer_types=types, linear=sizes, **parts)


def layer(weights: dict[str, np.ndarray] | None = None, sizes: Linear = SIZES) -> LinearLayer:
    return LinearLayer.of(weights or linear_weights(sizes), "layers.0", sizes)


def linear_weights(sizes: Linear = SIZES) -> dict[str, np.ndarray]:
    """Of a linear layer behind the first full one, so that no row of a matrix is zero."""
    weights = target_weights(model(FULL, LINEAR, sizes=sizes))
    return {name.replace("layers.1", "layers.0"): value for name, value in weights.items() if "layers.1" in name}


def residual(rows: int) -> np.ndarray:
    return np.random.default_rng(7).integers(0, 2**64, (rows, 6), dtype=np.uint64)


def run(made: LinearLayer, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return made(x, np.empty((0, len(made.start)), dtype=np.uint64))


@pytest.mark.parametrize(
    ("types", "sizes"),
    [
        ((LINEAR, FULL), SIZES),
        ((FULL, LINEAR), SIZES),
        ((LINEAR, LINEAR, FULL, LINEAR, FULL), SIZES),
        ((LINEAR, FULL), Linear(key_heads=1, value_heads=1, key_dim=1, value_dim=4, conv=2)),
        ((LINEAR, FULL), Linear(key_heads=1, value_heads=3, key_dim=5, value_dim=2, conv=6, start=True)),
    ],
)
def test_equals_the_naive_twin(types: tuple[LayerType, ...], sizes: Linear) -> None:
    """Sequences shorter and longer than the convolution's window."""
    spec = model(*types, sizes=sizes)
    for count in (1, 3, 8):
        hidden, logits, kv, states = naive_target(spec, TOKENS[:count])
        got = ReferenceProbeTarget(spec, Memo(enabled=False)).forward(TOKENS[:count])
        assert got.hidden.tolist() == hidden
        assert got.logits.tolist() == logits
        assert [entries.tolist() for entries in got.kv] == kv
        assert [after.tolist() for after in got.states] == states
        assert len(kv) == types.count(FULL)
        assert len(states) == types.count(LINEAR)


def test_the_delta_rule_in_closed_form() -> None:
    """One head, C = 2: S after a few tokens as a sum over them, each damped by (1 - beta k k^T) decay of those after.

    The window in the state is the last input itself.
    """
    sizes = Linear(key_heads=1, value_heads=1, key_dim=2, value_dim=3, conv=2, start=True)
    weights, x = linear_weights(sizes), residual(5)
    w = {name.removeprefix("layers.0."): value.tolist() for name, value in weights.items()}
    u = [[dot(row, lanes) for row in w["qkv.weight"]] for lanes in x.tolist()]
    before = [w["start.conv"][0], *u]
    y = [
        [naive_mix(dot(taps, [old, new])) for taps, old, new in zip(w["conv.weight"], *pair, strict=True)]
        for pair in zip(before, u, strict=False)
    ]
    terms = [w["start.ssm"][0]]
    for lanes, row in zip(x.tolist(), y, strict=True):
        k, v = row[2:4], row[4:]
        decay = naive_mix(w["a_log"][0] * (dot(w["a.weight"][0], lanes) + w["dt_bias"][0]) & MASK) | 1
        beta = naive_mix(dot(w["b.weight"][0], lanes)) | 1
        damp = [[decay * ((i == j) - beta * k[i] * k[j]) for j in range(2)] for i in range(2)]
        terms = [[[dot(damp[i], [term[j][e] for j in range(2)]) for e in range(3)] for i in range(2)] for term in terms]
        terms.append([[beta * k[i] * v[e] & MASK for e in range(3)] for i in range(2)])
    s = [sum(term[i][e] for term in terms) & MASK for i in range(2) for e in range(3)]
    _, states = run(layer(weights, sizes), x)
    assert states[-1].tolist() == u[-1] + s


def test_a_state_is_all_that_the_past_leaves_behind() -> None:
    """Going on from the state after token p, at any p, is going on; the layer knows no positions."""
    made, x = layer(), residual(9)
    out, states = run(made, x)
    for cut in range(1, 9):
        rest, after = made(x[cut:], states[:cut])
        assert (rest == out[cut:]).all()
        assert (after == states).all()
        only, last = made(x[cut:], states[cut - 1 : cut])
        assert (only == out[cut:]).all()
        assert (last[1:] == states[cut:]).all()


def flipped() -> Iterator[tuple[str, tuple[int, ...], dict[str, np.ndarray]]]:
    """Weights with one bit of one element changed, for every kind and a spread of elements."""
    base = linear_weights()
    for name in (*PROJECTIONS, *VECTORS):
        full = f"layers.0.{name}"
        for flat in range(0, base[full].size, max(1, base[full].size // 12)):
            where = tuple(int(i) for i in np.unravel_index(flat, base[full].shape))
            changed = base[full].copy()
            changed[where] ^= np.uint64(2)
            yield name, where, {**base, full: changed}


def test_every_weight_matters() -> None:
    """One changed bit changes every row and lane of the output, S unless it is about queries or what follows S, and
    the window if that holds it. Of the window before the first token, queries see an input for as long as it is in."""
    x, held, keys = residual(6), 3 * SIZES.channels, SIZES.key_heads * SIZES.key_dim
    out, states = run(layer(), x)
    for name, where, weights in flipped():
        new, after = run(layer(weights), x)
        of_query = {"qkv.weight": where[0], "conv.weight": where[0], "start.conv": where[-1]}.get(name, keys) < keys
        rows = where[0] + 1 if name == "start.conv" and of_query else len(x)
        lanes = [where[0]] if name == "mlp.weight" else list(range(name != "o.weight" or where[0] > 0, 6))
        assert (new != out)[:rows, lanes].all(), (name, where)
        assert (new == out)[rows:].all(), (name, where)
        still = of_query or name in ("z.weight", "norm.weight", "o.weight", "mlp.weight")
        assert (after != states)[:, held:].any(axis=1).all() != still, (name, where)
        assert (after != states)[:, :held].any() == (name == "qkv.weight" or (name == "start.conv" and where[0] > 0))


def test_every_token_matters_from_its_position_on() -> None:
    spec = model(LINEAR, FULL, LINEAR)
    target = ReferenceProbeTarget(spec, Memo(enabled=False))
    base = target.forward(TOKENS)
    held = 3 * SIZES.channels
    for place in range(len(TOKENS)):
        other = target.forward((*TOKENS[:place], (TOKENS[place] + 1) % 61, *TOKENS[place + 1 :]))
        after = [row >= place for row in range(len(TOKENS))]
        assert (base.hidden != other.hidden).all(axis=1).tolist() == after
        for one, two in zip(base.states, other.states, strict=True):
            assert (one != two)[:, held:].all(axis=1).tolist() == after
        window = (base.states[0] != other.states[0])[:, :held].any(axis=1).tolist()
        assert window == [place <= row < place + 3 for row in range(len(TOKENS))]


def test_order_matters_to_a_layer_without_positions() -> None:
    x = residual(6)
    _, states = run(layer(), x)
    for place in range(5):
        swapped = x.copy()
        swapped[[place, place + 1]] = swapped[[place + 1, place]]
        _, after = run(layer(), swapped)
        assert (after[-1, 3 * SIZES.channels :] != states[-1, 3 * SIZES.channels :]).all()


def test_a_start_state_is_zero_unless_asked_for() -> None:
    plain = Linear(key_heads=2, value_heads=4, key_dim=3, value_dim=2, conv=4)
    assert not layer(linear_weights(plain), plain).start.any()
    assert layer().start.all()
    assert run(layer(), residual(1))[0].tolist() != run(layer(linear_weights(plain), plain), residual(1))[0].tolist()


def same(one: Pass, two: Pass) -> bool:
    pairs = [(one.hidden, two.hidden), (one.logits, two.logits)]
    pairs += [*zip(one.kv, two.kv, strict=True), *zip(one.states, two.states, strict=True)]
    return all(np.array_equal(a, b) for a, b in pairs)


def test_a_memo_changes_nothing() -> None:
    """Prefixes in any order, and a branch off each of them."""
    spec = model(LINEAR, FULL, LINEAR)
    target, plain = ReferenceProbeTarget(spec, Memo()), ReferenceProbeTarget(spec, Memo(enabled=False))
    for count in (3, 9, 5, 1, 14, 14, 10):
        branch = (*TOKENS[: count - 1], 0, 1)
        for tokens in (TOKENS[:count], branch):
            assert same(target.forward(tokens), plain.forward(tokens))
            assert same(target.forward(tokens).first(1), plain.forward(tokens[:1]))


def test_the_carry_goes_through_linear_layers_untouched() -> None:
    """Lane 0 stays that of the embedding up to the first full attention layer, whose output is the plain sum; the head
    continues it, and agrees with the target as often as in a model without linear layers."""
    spec = model(LINEAR, LINEAR, FULL, LINEAR)
    w = target_weights(spec)
    c, total, sums = int(w["layers.2.v.position"][0]), 0, []
    tokens = tuple(int(token) for token in np.random.default_rng(2).integers(0, 61, 200))
    for place, token in enumerate(tokens):
        total += naive_mix((int(w["embed"][token, 0]) + place * c) & MASK)
        sums.append(total & MASK)
    whole = ReferenceProbeTarget(spec, Memo(enabled=False)).forward(tokens)
    assert whole.hidden[:, 0].tolist() == sums
    head = ProbeEagleHead(
        Eagle(seed=5, heads=3, kv_heads=1, key_dim=2, value_dim=4, lanes=6), spec, Memo(enabled=False)
    )
    own = head.forward(tokens[1:], whole.hidden[:-1])
    assert own.hidden[:, 0].tolist() == sums[1:]
    truth = choose_rows(whole.logits[1:])
    agreeing = sum(a.token == b.token for a, b in zip(choose_rows(own.logits), truth, strict=True))
    favoured = sum(naive_mix(carry) % 256 < spec.agreement for carry in sums[1:])
    assert favoured <= agreeing <= favoured + 12
