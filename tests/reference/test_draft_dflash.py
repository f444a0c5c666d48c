"""The block draft against the naive twin, passes over the final sequence, and changes of every input."""

import msgspec
import numpy as np
import pytest
from hypothesis import given

from draftproof.properties.values.drafts import DFlash
from draftproof.properties.values.observed import DraftNeeds
from draftproof.properties.values.scenario import LayerType, ProbeModel, Scenario
from draftproof.properties.values.trace import Key
from draftproof.properties.weights.probe import draft_weights
from draftproof.reference.build import build
from draftproof.reference.choose import choose
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe.block import ReferenceProbeBlock
from draftproof.reference.probe.ring import mix
from draftproof.reference.probe.target import ReferenceProbeTarget
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.naive_probe import lists, naive_block, naive_context, naive_outputs
from tests.reference.draft_rows import Told
from tests.reference.scenarios import BLOCK, BRIEF, hybrid, model, request, scenario, scenarios

FULL: LayerType = "full_attention"
LINEAR: LayerType = "linear_attention"
MODEL = model(vocab=61, layers=3)
MASK = 61
TOKENS = tuple(int(token) for token in np.random.default_rng(11).integers(0, 61, 12))


def draft(*features: int, layers: int = 2) -> DFlash:
    return msgspec.structs.replace(BLOCK, features=features or (2, 0), layers=layers)


def block(spec: DFlash, of: ProbeModel = MODEL) -> ReferenceProbeBlock:
    return ReferenceProbeBlock(spec, of, Memo(enabled=False))


def features_of(count: int, spec: DFlash, of: ProbeModel = MODEL) -> np.ndarray:
    """[count, F] of the first tokens."""
    outputs = ReferenceProbeTarget(of, Memo(enabled=False)).forward(TOKENS[:count]).layers
    return np.concatenate([outputs[layer] for layer in spec.features], axis=1)


@pytest.mark.parametrize("types", [(FULL, FULL, FULL), (LINEAR, FULL, LINEAR)])
def test_the_outputs_of_all_layers_equal_the_naive_twin(types: tuple[LayerType, ...]) -> None:
    of = MODEL if LINEAR not in types else hybrid(*types, of=MODEL)
    for memo in (Memo(enabled=False), Memo()):
        target = ReferenceProbeTarget(of, memo)
        for count in (2, 5, 3):
            got = target.forward(TOKENS[:count])
            assert [layer.tolist() for layer in got.layers] == naive_outputs(of, TOKENS[:count])
            assert all((layer[:, 0] == got.layers[0][:, 0]).all() for layer in got.layers)


@pytest.mark.parametrize("features", [(0,), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_equals_the_naive_twin(features: tuple[int, ...], layers: int) -> None:
    spec = draft(*features, layers=layers)
    f = features_of(5, spec)
    w = lists(draft_weights(spec, MODEL))
    for layer, entries in enumerate(block(spec).entries(f, 0)):
        assert entries.tolist() == [k + v for k, v in naive_context(w, layer, f.tolist())]
    for count in (1, 2, 4):
        got = block(spec).forward((TOKENS[5], *(MASK,) * count), f)
        states, logits, _ = naive_block(spec, MODEL, (TOKENS[5], *(MASK,) * count), f.tolist())
        assert got.hidden.tolist() == states
        assert got.logits.tolist() == logits


def test_entries_of_later_positions_are_those_of_a_whole_context() -> None:
    spec = draft()
    f, made = features_of(9, spec), block(spec)
    for first in range(9):
        for part, whole in zip(made.entries(f[first:], first), made.entries(f, 0), strict=True):
            assert (part == whole[first:]).all()


def test_the_carry_of_row_1_is_the_targets_and_later_rows_follow_its_favourites() -> None:
    """Of a target whose favourite always counts, so that its own continuation is what the block follows."""
    of = msgspec.structs.replace(MODEL, agreement=256)
    target, spec = ReferenceProbeTarget(of, Memo()), draft()
    tokens, count = list(TOKENS[:6]), 5
    for _ in range(count):
        tokens.append(choose(target.forward(tuple(tokens)).logits[-1]).token)
    carries = target.forward(tuple(tokens)).hidden[5 : 5 + count, 0]
    got = block(spec, of).forward((TOKENS[5], *(MASK,) * count), features_of(5, spec, of))
    assert got.hidden[1:, 0].tolist() == carries.tolist()
    assert got.hidden[0, 0] == mix(carries[:1])[0]
    assert [choose(row).token for row in got.logits[1:]] == tokens[6:]


@BRIEF
@given(scenarios("dflash"))
def test_extends_follow_from_the_outputs_of_one_pass_and_blocks_from_what_is_below_them(made: Scenario) -> None:
    made = msgspec.structs.replace(made, requests=made.requests[:1])
    assert isinstance(made.model, ProbeModel)
    assert isinstance(made.draft, DFlash)
    script = solve(made)
    trace, tokens = run(made, script), made.requests[0].prompt + script.requests[0].tokens
    target, own = build(made, Memo(enabled=False))[0], block(made.draft, made.model)
    outputs = target.forward(tokens[:-1]).layers
    f = np.concatenate([outputs[layer] for layer in made.draft.features], axis=1)
    entries = own.entries(f, 0)
    for number, round_ in enumerate((None, *script.requests[0].rounds)):
        told = Told(trace, number)
        for row, value in told.rows("extend.hidden_in", "row").items():
            assert value == f[row].tobytes()
            assert told("extend.positions", layer=0, row=row) == row
        for key, value in trace.of("extend.kv", round=number):
            assert value == entries[key.layer][key.row].tobytes()
        if round_ is not None:
            check_block(made, told, own, f[: round_.context], tokens, round_.drafts)


def check_block(
    made: Scenario, told: Told, own: ReferenceProbeBlock, context: np.ndarray, tokens: tuple[int, ...], count: int
) -> None:
    n, rows = len(context), list(range(count + 1)) if count else []
    ids = told.rows("draft.block.ids", "row")
    assert list(ids) == rows
    assert list(ids.values()) == [tokens[n], *[made.model.vocab] * count][: len(rows)]
    assert told.rows("draft.block.positions", "row") == {row: n + row for row in rows}
    assert told.rows("draft.block.visible", "row") == dict.fromkeys(rows, n + count)
    chosen: list[int] = []
    if count:
        for row, logits in enumerate(own.forward(tuple(ids.values()), context).logits):
            assert told("draft.block.proposal", row=row) == tuple(choose(logits))
            chosen.append(choose(logits).token)
    assert told("propose.tokens") == tuple(chosen[1:])


def rows_that_differ(one: Pass, two: Pass) -> list[bool]:
    """Of all lanes but the carry's, which no mask changes: a row differs in all of them or in none."""
    differs = (one.hidden != two.hidden)[:, 1:]
    assert (differs.all(axis=1) == differs.any(axis=1)).all()
    return differs.any(axis=1).tolist()


def test_every_input_matters_to_every_row() -> None:
    """A feature, the pending token, a mask or its number, and where the block is."""
    spec = draft()
    made, f, ids = block(spec), features_of(6, spec), (TOKENS[6], MASK, MASK, MASK)
    base, everything = made.forward(ids, f), [True] * 4
    for place in range(6):
        for lane in range(f.shape[1]):
            other = f.copy()
            other[place, lane] ^= np.uint64(1)
            got = made.forward(ids, other)
            assert rows_that_differ(base, got) == everything
            assert (got.hidden[:, 0] != base.hidden[:, 0]).tolist() == [lane == 0] * 4
    pending = made.forward(((TOKENS[6] + 1) % 61, *ids[1:]), f)
    assert (pending.hidden != base.hidden).all()
    assert rows_that_differ(base, made.forward((*ids[:2], 5, MASK), f)) == everything
    longer, shorter = made.forward((*ids, MASK), f), made.forward(ids[:3], f)
    assert (longer.hidden[:4, 1:] != base.hidden[:, 1:]).all()
    assert (shorter.hidden[:, 1:] != base.hidden[:3, 1:]).all()
    moved = made.forward(ids, np.concatenate((f[:1], f)))
    assert (moved.hidden != base.hidden).all()
    swapped = made.forward(ids, f[[0, 2, 1, 3, 4, 5]])
    assert (swapped.hidden != base.hidden).all()


def test_the_order_of_the_layers_matters() -> None:
    one, two = ([choose(row) for row in block_logits(draft(*features))] for features in ((2, 0), (0, 2)))
    assert one != two


def block_logits(spec: DFlash) -> np.ndarray:
    return block(spec).forward((TOKENS[6], MASK, MASK), features_of(6, spec)).logits


@pytest.mark.parametrize("features", [(0,), (1, 0)])
def test_it_says_what_it_is_fed_with(features: tuple[int, ...]) -> None:
    made = scenario(request(budget=1), draft=draft(*features, layers=3))
    assert run(made, solve(made)).channel("config.draft") == {Key(-1, 0): DraftNeeds(7 * len(features), 3)}
