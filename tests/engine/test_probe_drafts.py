"""Probe models of the drafts beside their definitions in Python integers, on a paged cache, eagerly and in graphs.

`N` layers, `L` lanes of the target, `B` rows, `W` columns of a block, `P` page size. A request is a row of the table.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from draftproof.engine.cache import PagedCache, TargetCache
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models.base import BEFORE_NORM, AttentionMetadata, CacheShape, LayerOutputs, LinearSizes
from draftproof.engine.models.config_fields import FULL_ATTENTION
from draftproof.engine.models.probe import ProbeTarget, standalone
from draftproof.engine.probes import Probes
from draftproof.properties.values.scenario import Linear, ProbeModel
from draftproof.properties.weights.probe import draft_weights, target_weights
from tests.engine.naive_drafts import (
    DFLASH,
    MTP,
    PAGE,
    POISON,
    STANDALONE,
    TARGET,
    TEXT,
    Batch,
    Request,
    block,
    cache_of,
    chain,
    chain_spec,
    entry,
    numbers,
    parts,
    run_of,
    shape,
    target,
    tensors,
    unsigned,
    where_of,
)
from tests.naive_probe import dot, lists, naive_chain_layer, naive_layer, naive_logits, naive_mix

FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"handed": "before_norm"},
    {"own_embedding": True},
    {"own_head": True, "handed": "before_norm"},
    {"head_vocab": 7},
    {"masks_first": True},
    {"own_embedding": True, "own_head": True, "head_vocab": 11, "masks_first": True, "handed": "before_norm"},
)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_chain_is_its_definition_in_every_layer_and_in_pieces(form: dict[str, Any]) -> None:
    model, texts = chain(**form), {2: TEXT, 1: TEXT[::-1][:5]}
    cache = cache_of(model.cache_shape)
    taken = {row: numbers(row, len(ids), TARGET.lanes) for row, ids in texts.items()}
    for layer in range(MTP.layers):
        ids = {row: [(token + layer) % TARGET.vocab for token in text] for row, text in texts.items()}
        states, out = ({row: torch.empty_like(x) for row, x in taken.items()} for _ in range(2))
        for spans in ({2: (0, 4), 1: (0, 2)}, {2: (4, 8)}, {1: (1, 5), 2: (7, 8)}):
            where = where_of(cache, [place for row, span in spans.items() for place in run_of(row, *span)])
            packed = torch.tensor([token for row, span in spans.items() for token in ids[row][slice(*span)]])
            hidden = torch.cat([taken[row][slice(*span)] for row, span in spans.items()])
            got = [
                part.split([b - a for a, b in spans.values()])
                for part in model.forward(layer, packed, hidden, where, cache)
            ]
            for i, (row, span) in enumerate(spans.items()):
                states[row][slice(*span)], out[row][slice(*span)] = got[0][i], got[1][i]
        for row in texts:
            expected = naive_chain_layer(chain_spec(**form), TARGET, layer, tuple(ids[row]), unsigned(taken[row]))
            assert unsigned(out[row]) == expected[0], (layer, row)
            assert model.layer_logits(layer, states[row]).tolist() == expected[1], (layer, row)
            assert [entry(cache, layer, row, p) for p in range(len(ids[row]))] == expected[2], (layer, row)
        taken = out


def greedy(
    tokens: tuple[int, ...], more: int, kept: LayerOutputs | None = None
) -> tuple[tuple[int, ...], torch.Tensor]:
    """`tokens` and what the target goes on with; its hidden states of all but the last."""
    model = target()
    for count in range(more + 1):
        cache = cache_of(model.cache_shape)
        hidden = model.forward(torch.tensor(tokens), where_of(cache, run_of(1, len(tokens))), cache, kept)
        if count < more:
            tokens = (*tokens, int(model.logits(hidden)[-1].argmax()))
    return tokens, hidden


@pytest.mark.parametrize("handed", ["after_norm", "before_norm"])
@pytest.mark.parametrize("chained", [True, False])
def test_only_a_chain_keeps_the_carry_that_agrees_with_the_target(handed: str, chained: bool) -> None:
    tokens, hidden = greedy(TEXT[:4], 5)
    model, known, agreed = chain(handed=handed), hidden[:4], []
    cache, taken = cache_of(model.cache_shape), hidden[:4]
    for layer in range(MTP.layers):
        where = where_of(cache, run_of(0, 4))
        states, out = model.forward(layer, torch.tensor(tokens[layer + 1 : layer + 5]), taken, where, cache)
        agreed.append(int(model.logits(states)[-1].argmax()) == tokens[layer + 5])
        taken = out if chained else known
    assert agreed[0]
    assert all(agreed) == chained


def changed(x: torch.Tensor, *place: int) -> torch.Tensor:
    other = x.clone()
    other[place] ^= 1
    return other


def test_every_input_of_a_chain_changes_what_depends_on_it() -> None:
    model = chain(handed="before_norm")
    ids, hidden = torch.tensor(TEXT[:3]), numbers(1, 3, TARGET.lanes)

    def run(layer: int, ids: torch.Tensor, hidden: torch.Tensor, first: int = 0) -> tuple[torch.Tensor, ...]:
        cache = cache_of(model.cache_shape)
        for pool in (*cache.keys, *cache.values):
            pool.zero_()
        return model.forward(layer, ids, hidden, where_of(cache, run_of(1, first, first + 3)), cache)

    before = run(1, ids, hidden)
    others = [run(0, ids, hidden), run(1, ids, hidden, 1), run(1, changed(ids, 0), hidden)]
    others += [run(1, ids, changed(hidden, 0, lane)) for lane in range(TARGET.lanes)]
    for number, other in enumerate(others):
        for one, two in zip(before, other, strict=True):
            assert bool((one[0, 1:] != two[0, 1:]).all())
            assert bool(one[0, 0] != two[0, 0]) == (number < 4), "only lane 0 of a hidden state is its carry"
            assert bool((one[2, 1:] != two[2, 1:]).all()), "what comes later attends to it"
            assert bool(one[2, 0] != two[2, 0]) == (number < 2)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("takes", ["after_norm", "before_norm"])
def test_a_draft_with_anything_of_its_own_agrees_with_the_target(form: dict[str, Any], takes: str) -> None:
    """Where its vocabulary has the target's favourite: with all of its inputs right the carry is."""
    outputs = LayerOutputs((BEFORE_NORM,))
    tokens, hidden = greedy(TEXT[:4], 5, outputs)
    taken = (outputs.concatenated() if takes == "before_norm" else hidden)[:4]
    model = chain(takes=takes, **form)
    cache, ids = cache_of(model.cache_shape), range(TARGET.vocab)
    if model.target_ids is not None:
        ids = model.target_ids.tolist()
    for layer in range(MTP.layers):
        where, shifted = where_of(cache, run_of(0, 4)), torch.tensor(tokens[layer + 1 : layer + 5])
        states, taken = model.forward(layer, shifted, taken, where, cache)
        proposed = ids[int(model.layer_logits(layer, states)[-1].argmax())]
        assert proposed == tokens[layer + 5] or tokens[layer + 5] not in ids


def requests() -> list[Request]:
    return [Request(2, 5, 2), Request(0, 2, 5), Request(1, 9, 1)]


def test_a_block_is_its_definition_with_fewer_rows_for_some_of_a_batch() -> None:
    model = block()
    batch = Batch(model, requests(), 6)
    states = model.forward(batch.ids, batch.where, batch.cache).view(3, 6, -1)
    for request, got in zip(batch.requests, states, strict=True):
        count, (expected, logits, kv) = request.drafts + 1, request.naive()
        assert unsigned(got[:count]) == expected
        assert model.logits(got[:count]).tolist() == logits
        for layer, of_layer in enumerate(kv):
            assert [entry(batch.cache, layer, request.row, p) for p in range(len(of_layer))] == of_layer
    untouched = entry(batch.cache, 0, 2, 8)
    assert untouched == [POISON] * len(untouched)


def test_an_accepted_position_is_appended_over_the_row_of_its_block() -> None:
    model, request = block(), Request(1, 4, 2)
    batch = Batch(model, [request], 3)
    model.forward(batch.ids, batch.where, batch.cache)
    *_, after_block = request.naive()
    grown = Request(1, 6, 1)
    model.append(grown.features[4:], where_of(batch.cache, run_of(1, 4, 6)), batch.cache)
    grown.features[:4] = request.features
    *_, expected = grown.naive()
    for layer in range(DFLASH.layers):
        assert [entry(batch.cache, layer, 1, p) for p in range(6)] == expected[layer][:6]
        assert entry(batch.cache, layer, 1, 6) == after_block[layer][6]


def test_a_block_agrees_with_a_target_that_follows_its_favourites() -> None:
    features = LayerOutputs(DFLASH.features)
    tokens, _ = greedy(TEXT[:4], 6, features)
    model, request = block(), Request(1, 4, 5)
    request.features, request.ids[0] = features.concatenated()[:4], tokens[4]
    batch = Batch(model, [request], 6)
    logits = model.logits(model.forward(batch.ids, batch.where, batch.cache))
    assert tuple(logits.argmax(1).tolist()[1:]) == tokens[5:10]


def block_states(request: Request, ids: tuple[int, ...] = (1, 11, 11, 11), further: int = 0) -> torch.Tensor:
    """Of a block of four rows, whose positions are said to be `further` on."""
    model = block()
    batch = Batch(model, [request], 4)
    batch.where.positions.add_(further)
    return model.forward(torch.tensor([ids]), batch.where, batch.cache)


def test_every_input_of_a_block_changes_every_row() -> None:
    def request(lane: int = -1, context: int = 3) -> Request:
        made = Request(1, context, 3)
        made.features = numbers(1, 4, 2 * TARGET.lanes)[:context]
        made.features[0, lane] ^= int(lane >= 0)
        return made

    before = block_states(request())
    assert torch.equal(before, block_states(request()))
    others = [block_states(request(0)), block_states(request(context=2)), block_states(request(), further=1)]
    others += [block_states(request(), ids) for ids in ((2, 11, 11, 11), (1, 11, 11, 2), (1, 0, 11, 11))]
    for other in others:
        assert bool((before != other).all())
    for lane in range(1, 2 * TARGET.lanes):
        assert bool((before[:, 1:] != block_states(request(lane))[:, 1:]).all()), lane


def test_only_a_masked_row_adds_nothing_to_the_carry() -> None:
    model, request = block(), Request(1, 2, 2)
    batch = Batch(model, [request], 3)
    for ids in ((1, 11, 11), (1, 0, 11)):
        model.forward(torch.tensor([ids]), batch.where, batch.cache)
        first = [
            [unsigned(values[batch.where.slot_mapping[row]])[0][0] for values in batch.cache.values] for row in range(3)
        ]
        assert [of_row[0] == 0 for of_row in first] == [token == 11 for token in ids]
        assert all(of_row[1] for of_row in first)


def test_a_target_tells_of_every_layer_and_keeps_what_it_told() -> None:
    model, kept = target(), LayerOutputs((2, 0, 1))
    cache = cache_of(model.cache_shape)
    hidden = model.forward(torch.tensor(TEXT), where_of(cache, run_of(1, len(TEXT))), cache, kept)
    w = lists(target_weights(TARGET))
    xs, outputs = [w["embed"][token] for token in TEXT], []
    for layer in range(TARGET.layers):
        xs, _, _ = naive_layer(w, f"layers.{layer}", TARGET, xs)
        outputs.append(xs)
    assert unsigned(kept.concatenated()) == [c + a + b for a, b, c in zip(*outputs, strict=True)]
    assert unsigned(hidden[:, 1:]) == [[naive_mix(a) for a in x[1:]] for x in xs]


class Forgetful(PagedCache):
    """Linear layers give nothing."""

    def recur(self, layer: int, weights: object, x: torch.Tensor, a: torch.Tensor, *rest: object) -> torch.Tensor:  # type: ignore[override]
        return x.new_zeros((x.shape[0], a.shape[1], 2))


def test_linear_layers_are_told_of_too() -> None:
    sizes = Linear(key_heads=1, value_heads=2, key_dim=2, value_dim=2, conv=2)
    spec = ProbeModel(
        seed=1, layers=2, heads=2, kv_heads=1, key_dim=2, value_dim=2, lanes=4, vocab=8,
        layer_types=("linear_attention", "full_attention"), linear=sizes,
    )  # fmt: skip
    config = {"num_hidden_layers": 2, "layer_types": list(spec.types)}
    model = ProbeTarget(tensors(target_weights(spec)), config, shape(spec), LinearSizes(1, 2, 2, 2, 2), 20, 256)
    paged = cache_of(model.cache_shape)
    cache, kept = Forgetful(paged.keys, paged.values, paged.page_table, PAGE), LayerOutputs((0, 1))
    ids = torch.tensor(TEXT[:2])
    model.forward(ids, where_of(cache, run_of(1, 2)), cache, kept)
    first, second = kept.concatenated().split(4, dim=1)
    assert torch.equal(first[:, 0], model.embed(ids)[:, 0])
    assert torch.equal(second[:, 0], model.embed(ids)[:, 0])
    assert bool((first[:, 1:] != second[:, 1:]).all())


def test_a_standalone_model_is_a_probe_of_its_own_that_agrees_with_the_target() -> None:
    weights = draft_weights(STANDALONE, TARGET)
    model, (tokens, _) = standalone(parts(STANDALONE)), greedy(TEXT[:3], 5)
    assert model.layer_types == ("full_attention",) * 2
    assert model.state_shape is None
    cache = cache_of(model.cache_shape)
    pieces = [(tokens[a:b], where_of(cache, run_of(1, a, b))) for a, b in ((0, 2), (2, 7), (7, 8))]
    hidden = torch.cat([model.forward(torch.tensor(ids), where, cache) for ids, where in pieces])
    w = lists(weights)
    xs = [w["embed"][token] for token in tokens]
    for layer in range(STANDALONE.layers):
        xs, entries, firsts = naive_layer(w, f"layers.{layer}", STANDALONE, xs)  # type: ignore[arg-type]
        carry = carry if layer else firsts  # noqa: F821
        assert [entry(cache, layer, 1, p) for p in range(len(tokens))] == [k + v for k, v in entries]
    expected = [[first, *map(naive_mix, x[1:])] for first, x in zip(carry, xs, strict=True)]
    assert unsigned(hidden) == expected
    assert model.logits(hidden).tolist() == [naive_logits(w, h, 20, 256) for h in expected]
    assert model.logits(hidden).argmax(1).tolist()[2:-1] == list(tokens[3:])


@pytest.mark.parametrize("whose", [PagedCache, TargetCache])
def test_a_cache_writes_without_attending_and_sees_what_it_is_told(whose: type[PagedCache]) -> None:
    sizes, on_layer = CacheShape(2, 1, 2, 3, torch.int64), []

    class Watch(Probes):
        def on_layer(self, layer_type: str, index: int) -> None:
            on_layer.append((layer_type, index))

    paged = cache_of(sizes)
    parts = (paged.keys, paged.values, paged.page_table, PAGE)
    cache = TargetCache(*parts, None, Watch()) if whose is TargetCache else PagedCache(*parts)
    k, v, q = numbers(1, 5, 1, 2), numbers(2, 5, 1, 3), numbers(3, 5, 1, 2)
    places, untouched = run_of(1, 5), cache.keys[0].clone()
    cache.write(1, k, v, where_of(cache, places))
    assert not on_layer
    assert torch.equal(cache.keys[0], untouched)
    assert [entry(cache, 1, 1, p) for p in range(5)] == [unsigned(k[p, 0]) + unsigned(v[p, 0]) for p in range(5)]
    for visible in (None, [4, 4, 0, 1, 2]):
        got = cache.attend(1, q, k, v, where_of(cache, places, visible), 1.0)
        for t, last in enumerate(visible or range(5)):
            scores = [naive_mix(dot(*map(unsigned, (q[t, 0], k[s, 0])))) | 1 for s in range(last + 1)]
            assert unsigned(got[t, 0]) == [dot(scores, unsigned(v[: last + 1, 0, e])) for e in range(3)]
    assert on_layer == ([(FULL_ATTENTION, 1)] * 2 if whose is TargetCache else [])


def same_in_a_graph(
    function: Callable[[], tuple[torch.Tensor, ...]], inputs: list[torch.Tensor], weights: tuple, cache: PagedCache
) -> None:
    """Captured once, replayed on other inputs and memory: what runs eagerly from the same start."""
    pools = [*cache.keys, *cache.values]
    clean = [pool.clone() for pool in pools]
    function()
    graph = HostBackend().capture(function, [*inputs, *weights, *pools, cache.page_table])
    for seed in range(2):
        inputs[0].add_(1)
        starts = [numbers(seed, *pool.shape) if seed else before for pool, before in zip(pools, clean, strict=True)]
        results = []
        for run in (function, lambda: (graph.replay(), graph.outputs)[1]):
            for pool, start in zip(pools, starts, strict=True):
                pool.copy_(start)
            results.append([tensor.clone() for tensor in (*run(), *pools)])
        assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


def parts_of(where: AttentionMetadata) -> list[torch.Tensor]:
    return [
        part for part in (where.req_rows, where.positions, where.slot_mapping, where.last_visible) if part is not None
    ]


@pytest.mark.parametrize("handed", ["after_norm", "before_norm"])
@pytest.mark.parametrize("layer", [0, 2])
def test_a_layer_of_a_chain_in_a_graph(handed: str, layer: int) -> None:
    model = chain(handed=handed)
    cache, ids, hidden = cache_of(model.cache_shape), torch.tensor(TEXT[:3]), numbers(1, 4, TARGET.lanes)
    where, ids = where_of(cache, [*run_of(1, 3), (-1, 0)]), torch.cat([ids, ids[:1]])

    def function() -> tuple[torch.Tensor, ...]:
        states, out = model.forward(layer, ids, hidden, where, cache)
        return states, out, model.logits(states)

    same_in_a_graph(function, [ids, hidden, *parts_of(where)], model.weights(), cache)


@pytest.mark.parametrize("width", [2, 3, 6])
def test_a_block_and_what_is_appended_in_a_graph(width: int) -> None:
    model = block()
    batch = Batch(model, [Request(2, 5, 1), Request(0, 2, width - 1)], width)
    features, behind = numbers(9, 2, 2 * TARGET.lanes), where_of(batch.cache, [(2, 5), (-1, 0)])
    pending = torch.tensor([1, 5])

    def function() -> tuple[torch.Tensor, ...]:
        ids = torch.full((2, width), model.mask)
        ids[:, 0].copy_(pending)
        states = model.forward(ids, batch.where, batch.cache)
        logits = model.logits(states)
        model.append(features, behind, batch.cache)
        return states, logits

    inputs = [pending, features, *parts_of(batch.where), *parts_of(behind)]
    same_in_a_graph(function, inputs, model.weights(), batch.cache)
