"""What shrinking tries with everything but the requests: machinery off, fewer layers and steps, less memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from msgspec.structs import replace

from draftproof.fuzz.shrinking.of_requests import all_requests, at_once, fewer, lowered
from draftproof.properties.features import FEATURES
from draftproof.properties.features.adaptive_steps import with_steps
from draftproof.properties.features.hybrid import without_hybrid
from draftproof.properties.features.trees import with_nodes
from draftproof.properties.features.windows import large_enough
from draftproof.properties.lib.paths import get, lower, put, without
from draftproof.properties.values.drafts import DFlash, Eagle3
from draftproof.properties.values.scenario import Graphs, Scenario, States, pages_needed

OFF: tuple[tuple[str, object], ...] = (
    ("graphs", Graphs()),
    ("variant", "none"),
    ("schedule.services", 1),
    ("graphs.tokens", ()),
    ("memory.checkpoint_slots", 0),
    ("taps", True),
    ("states", States()),
    ("states.commit", "snapshot"),
    ("states.checkpoint", 0),
    ("draft.takes", "after_norm"),
    ("draft.handed", "after_norm"),
    ("draft.own_embedding", False),
    ("draft.own_head", False),
    ("draft.head_vocab", 0),
    ("draft.masks_first", False),
)
PLAIN: tuple[tuple[str, object], ...] = (
    ("schedule.row_seed", 0),
    ("memory.page_seed", 0),
    ("memory.poison", 0),
    ("model.seed", 0),
    ("draft.seed", 0),
    ("draft.match", "earliest"),
    ("model.logit_bits", 23),
    ("model.linear.start", False),
)
_SIZES = {
    0: "adaptive_steps.warmup",
    1: """
        model.kv_heads model.key_dim model.value_dim model.linear.key_dim model.linear.value_dim
        draft.kv_heads draft.key_dim draft.value_dim draft.max_n adaptive_steps.interval states.checkpoint
    """,
    2: "model.lanes model.linear.conv draft.lanes",
}
"""Numbers by the least that they can be."""
# Heads come in multiples of these.
_GROUPED = (
    ("model.heads", "model.kv_heads"),
    ("draft.heads", "draft.kv_heads"),
    ("model.linear.value_heads", "model.linear.key_heads"),
)


def everything_off(scenario: Scenario) -> Iterator[Scenario]:
    """Everything off that can be, all at once."""
    off = _one_layer(_all_set(_bare(scenario), OFF))
    yield _all_set(off, PLAIN)
    yield off


def without_features(scenario: Scenario) -> Iterator[Scenario]:
    """No features at all; then without each of them."""
    yield _bare(scenario)
    for feature in reversed(FEATURES):
        yield feature.without(scenario)


def _bare(scenario: Scenario) -> Scenario:
    for feature in reversed(FEATURES):
        scenario = feature.without(scenario)
    return scenario


def _all_set(scenario: Scenario, wanted: Iterable[tuple[str, object]]) -> Scenario:
    for path, value in wanted:
        if get(scenario, path) is not None:
            scenario = put(scenario, path, value)
    return scenario


def settings(wanted: tuple[tuple[str, object], ...]) -> Callable[[Scenario], Iterator[Scenario]]:
    """All settings at once, then each alone."""

    def each(scenario: Scenario) -> Iterator[Scenario]:
        yield _all_set(scenario, wanted)
        for setting in wanted:
            yield _all_set(scenario, (setting,))

    return each


def smaller_windows(scenario: Scenario) -> Iterator[Scenario]:
    """Windows of fewer positions, of a page at least."""
    for path in ("model.window", "draft.window"):
        for window in lower(get(scenario, path) or 0, 0):
            yield large_enough(put(scenario, path, window))


def fewer_layers(scenario: Scenario) -> Iterator[Scenario]:
    """Dense in place of hybrid, one layer, fewer layers, fewer linear ones."""
    yield _one_layer(without_hybrid(scenario))
    yield without_hybrid(scenario)
    types, count = get(scenario, "model.layer_types") or (), get(scenario, "model.layers") or 1
    for places in without(count) if count > 1 else ():
        yield _with_layers(scenario, tuple(types[place] for place in places if types), len(places))
    for place, kind in enumerate(types):
        if kind != "full_attention":
            yield _with_layers(scenario, (*types[:place], "full_attention", *types[place + 1 :]), count)


def _one_layer(scenario: Scenario) -> Scenario:
    if get(scenario, "model.layers") is None or get(scenario, "model.layer_types"):
        return scenario
    return _with_layers(scenario, (), 1)


def _with_layers(scenario: Scenario, types: tuple[str, ...], count: int) -> Scenario:
    made = put(put(scenario, "model.layers", count), "model.layer_types", types)
    if get(made, "model.window") and "sliding_attention" not in types:
        made = put(made, "model.window", 0)
    if types and "linear_attention" not in types:
        made = without_hybrid(made)
    if not isinstance(made.draft, DFlash | Eagle3):
        return made
    return put(made, "draft.features", tuple(layer for layer in made.draft.features if layer < count) or (count - 1,))


def fewer_steps(scenario: Scenario) -> Iterator[Scenario]:
    """Return a smaller K; of a chain with a layer a step also fewer layers."""
    for steps in lower(scenario.steps, 1):
        made = with_steps(scenario, steps)
        if get(made, "draft.layers") == scenario.steps:
            yield put(made, "draft.layers", steps)
        yield made


def smaller_trees(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer rows of a tree, and fewer beams."""
    if scenario.tree is None:
        return
    for nodes in lower(scenario.tree.nodes, scenario.steps):
        yield with_nodes(scenario, nodes)
    yield from lowered(scenario, "tree.topk", 2)


def fewer_choices(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer step counts to choose from, or fewer slots of them."""
    yield from fewer(scenario, "adaptive_steps.rounding")
    slots = get(scenario, "adaptive_steps.slots") or ()
    of_slots = (
        put(scenario, "adaptive_steps.slots", (*slots[:place], smaller, *slots[place + 1 :]))
        for place, slot in enumerate(slots)
        for smaller in fewer(slot, "candidates")
    )
    for chosen in chain(
        fewer(scenario, "adaptive_steps.candidates"), fewer(scenario, "adaptive_steps.slots"), of_slots
    ):
        assert chosen.adaptive_steps is not None
        if most := max(chosen.adaptive_steps.steps):
            yield with_steps(chosen, most)


def smaller_draft(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer layers of the draft, and fewer that it is fed from."""
    return chain(lowered(scenario, "draft.layers", 1), fewer(scenario, "draft.features"))


def fewer_graphs(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer captured sizes, then smaller ones, and none before it is needed."""
    if scenario.graphs.at_start:
        yield put(scenario, "graphs.at_start", False)
    yield from fewer(scenario, "graphs.sizes")
    sizes = scenario.graphs.sizes
    for place, captured in enumerate(sizes):
        for smaller in lower(captured, 1):
            yield put(scenario, "graphs.sizes", (*sizes[:place], smaller, *sizes[place + 1 :]))


def smaller_batches(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller batches, no chunks, sooner arrivals, no stop tokens."""
    yield from lowered(scenario, "schedule.max_batch", 1)
    longest = max(len(request.prompt) for request in scenario.requests)
    for chunk in dict.fromkeys((longest, (longest + scenario.schedule.chunk + 1) // 2, scenario.schedule.chunk + 1)):
        yield put(scenario, "schedule.chunk", chunk)
    yield all_requests(scenario, lambda request: replace(request, arrival=0))
    yield at_once(scenario)


def smaller_pages(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller pages, with as much memory in all."""
    tokens = scenario.memory.pages * scenario.memory.page_size
    for smaller in lowered(scenario, "memory.page_size", 1):
        yield put(smaller, "memory.pages", -(-tokens // smaller.memory.page_size))


def smaller_sizes(scenario: Scenario) -> Iterator[Scenario]:
    """Heads and widths."""
    for heads, groups in _GROUPED:
        count = get(scenario, groups)
        if count is not None:
            yield put(put(scenario, heads, 1), groups, 1)
            yield put(scenario, heads, count)
            yield put(put(scenario, heads, get(scenario, heads) // count), groups, 1)
    for least, paths in _SIZES.items():
        for path in paths.split():
            yield from lowered(scenario, path, least)


def less_memory(scenario: Scenario) -> Iterator[Scenario]:
    """As little memory as there is room for, all of it at once, and each kind by itself."""
    longest = max(4, *(len(request.prompt) + request.budget for request in scenario.requests))
    room = put(scenario, "memory.max_len", min(scenario.memory.max_len, longest + scenario.steps))
    ample = sum(pages_needed(room, request) for request in scenario.requests)
    room = put(room, "memory.pages", min(scenario.memory.pages, ample))
    yield put(room, "memory.request_slots", scenario.schedule.max_batch)
    yield room
    for path, least in (("memory.request_slots", 1), ("memory.pages", 1), ("memory.max_len", 4)):
        yield from lowered(scenario, path, least)
    for chunk in (max(len(request.prompt) for request in scenario.requests), scenario.schedule.chunk - 1):
        yield put(scenario, "schedule.chunk", max(1, chunk))
