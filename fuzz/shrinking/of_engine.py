"""What shrinking tries with everything but the requests: machinery off, fewer layers and steps, less memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from draftproof.fuzz.shrinking.of_requests import all_requests
from draftproof.properties.strategies.drafts import with_steps
from draftproof.properties.values.drafts import DFlash
from draftproof.properties.values.paths import get, lower, put, without
from draftproof.properties.values.scenario import Graphs, Scenario, States, pages_needed

OFF: tuple[tuple[str, object], ...] = (
    ("graphs", Graphs()),
    ("variant", "none"),
    ("adaptive", None),
    ("schedule.draft_batch", 0),
    ("taps", True),
    ("states", States()),
    ("states.commit", "snapshot"),
    ("states.checkpoint", 0),
)
PLAIN: tuple[tuple[str, object], ...] = (
    ("schedule.row_seed", 0),
    ("memory.page_seed", 0),
    ("memory.poison", 0),
    ("model.seed", 0),
    ("draft.seed", 0),
    ("model.logit_bits", 23),
    ("model.linear.start", False),
)
_SIZES: tuple[tuple[str, int], ...] = (
    ("model.kv_heads", 1),
    ("model.key_dim", 1),
    ("model.value_dim", 1),
    ("model.lanes", 2),
    ("model.linear.key_dim", 1),
    ("model.linear.value_dim", 1),
    ("model.linear.conv", 2),
    ("draft.kv_heads", 1),
    ("draft.key_dim", 1),
    ("draft.value_dim", 1),
    ("draft.lanes", 2),
    ("draft.max_n", 1),
    ("adaptive.interval", 1),
    ("adaptive.warmup", 0),
)
# Heads come in multiples of these.
_GROUPED = (
    ("model.heads", "model.kv_heads"),
    ("draft.heads", "draft.kv_heads"),
    ("model.linear.value_heads", "model.linear.key_heads"),
)


def plain(scenario: Scenario) -> Iterator[Scenario]:
    """Everything off that can be, all at once."""
    off = _one_layer(_dense(_all_set(scenario, OFF)))
    yield _all_set(off, PLAIN)
    yield off


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


def _dense(scenario: Scenario) -> Scenario:
    if get(scenario, "model.linear") is None:
        return scenario
    return put(put(put(scenario, "model.layer_types", ()), "model.linear", None), "states", States())


def fewer_layers(scenario: Scenario) -> Iterator[Scenario]:
    """Dense in place of hybrid, one layer, fewer layers, fewer linear ones."""
    yield _one_layer(_dense(scenario))
    yield _dense(scenario)
    types, count = get(scenario, "model.layer_types"), get(scenario, "model.layers") or 1
    for places in without(count) if count > 1 else ():
        yield _with_layers(scenario, tuple(types[place] for place in places) if types else (), len(places))
    for place, kind in enumerate(types or ()):
        if kind == "linear_attention":
            yield _with_layers(scenario, (*types[:place], "full_attention", *types[place + 1 :]), count)


def _one_layer(scenario: Scenario) -> Scenario:
    if get(scenario, "model.layers") is None or get(scenario, "model.layer_types"):
        return scenario
    return _with_layers(scenario, (), 1)


def _with_layers(scenario: Scenario, types: tuple[str, ...], count: int) -> Scenario:
    made = put(put(scenario, "model.layers", count), "model.layer_types", types)
    if types and "linear_attention" not in types:
        made = _dense(made)
    draft = made.draft
    if isinstance(draft, DFlash):
        features = tuple(layer for layer in draft.features if layer < count) or (count - 1,)
        made = put(made, "draft.features", features)
    return made


def fewer_steps(scenario: Scenario) -> Iterator[Scenario]:
    """Return a smaller K; of a chain with a layer a step also fewer layers."""
    for steps in lower(scenario.steps, 1):
        made = with_steps(scenario, steps)
        if (layers := get(made, "draft.layers")) is not None and layers == scenario.steps:
            yield put(made, "draft.layers", steps)
        yield made


def fewer_choices(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer step counts to choose from."""
    adaptive = scenario.adaptive
    if adaptive is None:
        return
    for places in without(len(adaptive.candidates)):
        kept = msgspec.structs.replace(adaptive, candidates=tuple(adaptive.candidates[place] for place in places))
        yield with_steps(msgspec.structs.replace(scenario, adaptive=kept), max(kept.steps))


def smaller_draft(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer layers of the draft, and fewer that it is fed from."""
    for layers in lower(get(scenario, "draft.layers") or 1, 1):
        yield put(scenario, "draft.layers", layers)
    features = get(scenario, "draft.features") or ()
    for places in without(len(features)):
        yield put(scenario, "draft.features", tuple(features[place] for place in places))


def fewer_graphs(scenario: Scenario) -> Iterator[Scenario]:
    """Fewer captured sizes, then smaller ones."""
    sizes = scenario.graphs.sizes
    for places in without(len(sizes)):
        yield put(scenario, "graphs.sizes", tuple(sizes[place] for place in places))
    for place, captured in enumerate(sizes):
        for smaller in lower(captured, 1):
            yield put(scenario, "graphs.sizes", (*sizes[:place], smaller, *sizes[place + 1 :]))


def smaller_batches(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller batches, no chunks, sooner arrivals, no stop tokens."""
    for batch in lower(scenario.schedule.max_batch, 1):
        yield put(scenario, "schedule.max_batch", batch)
    longest = max(len(request.prompt) for request in scenario.requests)
    for chunk in dict.fromkeys((longest, (longest + scenario.schedule.chunk + 1) // 2, scenario.schedule.chunk + 1)):
        yield put(scenario, "schedule.chunk", chunk)
    yield all_requests(scenario, lambda request: msgspec.structs.replace(request, arrival=0))
    first = min(request.arrival for request in scenario.requests)
    yield all_requests(scenario, lambda request: msgspec.structs.replace(request, arrival=request.arrival - first))


def smaller_pages(scenario: Scenario) -> Iterator[Scenario]:
    """Smaller pages, with as much memory in all."""
    memory = scenario.memory
    for page_size in lower(memory.page_size, 1):
        pages = -(-memory.pages * memory.page_size // page_size)
        yield put(put(scenario, "memory.page_size", page_size), "memory.pages", pages)


def smaller_sizes(scenario: Scenario) -> Iterator[Scenario]:
    """Heads and widths."""
    for heads, groups in _GROUPED:
        count = get(scenario, groups)
        if count is not None:
            yield put(put(scenario, heads, 1), groups, 1)
            yield put(scenario, heads, count)
            yield put(put(scenario, heads, get(scenario, heads) // count), groups, 1)
    for path, least in _SIZES:
        value = get(scenario, path)
        for smaller in lower(value, least) if value is not None else ():
            yield put(scenario, path, smaller)
    for interval in lower(scenario.states.checkpoint, 1):
        yield put(scenario, "states.checkpoint", interval)


def less_memory(scenario: Scenario) -> Iterator[Scenario]:
    """As little memory as there is room for, all of it at once, and each kind by itself."""
    longest = max(4, *(len(request.prompt) + request.budget for request in scenario.requests))
    room = put(scenario, "memory.max_len", min(scenario.memory.max_len, longest + scenario.steps))
    ample = sum(pages_needed(room, request) for request in scenario.requests)
    room = put(room, "memory.pages", min(scenario.memory.pages, ample))
    yield put(room, "memory.request_slots", scenario.schedule.max_batch)
    yield room
    for name in ("request_slots", "pages", "max_len"):
        for smaller in lower(get(scenario, f"memory.{name}"), 4 if name == "max_len" else 1):
            yield put(scenario, f"memory.{name}", smaller)
    for chunk in (max(len(request.prompt) for request in scenario.requests), scenario.schedule.chunk - 1):
        yield put(scenario, "schedule.chunk", max(1, chunk))
