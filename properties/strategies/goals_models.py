"""Aims at what concerns a whole scenario: layers, steps, the controller, the variant, the draft.

`P` page size, `K` drafts of a round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.coverage.points import OF_ENTRIES, drafts_with
from draftproof.properties.strategies.drafts import with_draft, with_steps
from draftproof.properties.strategies.examples import integers, sampled
from draftproof.properties.strategies.models import models
from draftproof.properties.strategies.sampling import greedy
from draftproof.properties.values.drafts import ALGORITHMS, Algorithm, Eagle, algorithm, kind_of
from draftproof.properties.values.paths import put_in
from draftproof.properties.values.scenario import Adaptive, Graphs, Scenario, States, pages_needed
from draftproof.properties.variants import NEED_SIZES

Draw = st.DrawFn
Wanted = Mapping[str, str]
# What plans decide is best aimed at where nothing else changes how many drafts there are.
_FREE = frozenset({"draft", "layers", "start", "page size", "variant", "taps", "poison", "control", "tie", *OF_ENTRIES})
MODELS = _FREE | {"chain", "checkpoint"}
_TURNS = 60
# The first of a bin of more than one number of drafts.
_MANY = "68"


def able(wanted: Wanted, drafts: Sequence[Algorithm]) -> Sequence[Algorithm]:
    """Return those of some drafts that can have all these values, all of them if none can."""
    return [name for name in drafts if all(name in drafts_with(*pair) for pair in wanted.items())] or drafts


def aim_model(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Aim at each part in this order: a draft is made for the steps that there are."""
    name = able(wanted, (algorithm(scenario.draft), *ALGORITHMS))[0]
    scenario = _eagle(draw, scenario)
    for edit in (_layers, _control, _steps, _memory, _variant):
        scenario = edit(draw, scenario, wanted)
    turns = [turn for turn in range(_TURNS) if "chain" not in wanted or _CHAINS[wanted["chain"]](turn)]
    scenario = with_draft(fitted(scenario), name, draw(sampled(turns)))
    return _decided(_entries(scenario, wanted), wanted)


def fitted(scenario: Scenario, *, tight: bool = False) -> Scenario:
    """Make room for everything: pages for all at once, or only for the one that needs most."""
    scenario = greedy(scenario) if scenario.dynamic else scenario
    memory, requests = scenario.memory, scenario.requests
    most = max(memory.max_len, max(len(request.prompt) for request in requests) + 1)
    scenario = put_in(scenario, "memory", max_len=most)
    needs = [pages_needed(scenario, request) for request in requests]
    at_once = max(Counter(request.arrival for request in requests).values())
    return put_in(
        scenario,
        "memory",
        pages=max(needs) if tight else max(sum(needs), memory.pages),
        request_slots=max(memory.request_slots, at_once, scenario.schedule.max_batch),
    )


def _eagle(draw: Draw, scenario: Scenario) -> Scenario:
    """Put in an EAGLE draft of the sizes that the draft has, to be exchanged for another."""
    draft = scenario.draft
    if set(Eagle.__struct_fields__) <= set(draft.__struct_fields__):
        eagle = Eagle(**{name: getattr(draft, name) for name in Eagle.__struct_fields__})
    else:
        eagle = replace(draw(models(False))[1], head_vocab=0)
    return replace(scenario, draft=eagle)


def _layers(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    layers = wanted.get("layers", "")
    need = layers in ("snapshot", "replay") or bool({"checkpoint", "state", "start"} & set(wanted))
    hybrid = scenario.model.linear is not None  # type: ignore[union-attr]  # a probe's
    if need != hybrid and (need or layers == "dense"):
        model = replace(draw(models(need))[0], vocab=scenario.model.vocab)
        states = States(checkpoint=draw(sampled((2, 3, 0)))) if need else States()
        scenario = replace(scenario, model=model, states=states)
    if layers in ("snapshot", "replay"):
        scenario = put_in(scenario, "states", commit=layers)
    linear = scenario.model.linear  # type: ignore[union-attr]  # a probe's
    if "start" in wanted and linear is not None:
        linear = replace(linear, start=wanted["start"] == "other")
        scenario = put_in(scenario, "model", linear=linear)
    if "checkpoint" in wanted:
        every = {"off": (0,), "two and more": (1,), "one": (2, 3), "none yet": (16,), "kept": (7,)}
        scenario = put_in(scenario, "states", checkpoint=draw(sampled(every[wanted["checkpoint"]])))
    return scenario


def _control(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Add a controller that moves after the first round; batches of two rows and more are too large for drafts."""
    asked = wanted.get("control") or _needed_control(wanted)
    if asked is None:
        return scenario
    scenario = put_in(scenario, "schedule", draft_batch=1 if "draft batch" in asked else 0)
    if "adaptive" not in asked:
        return replace(scenario, adaptive=None)
    initial = 3 if wanted.get("switch") == "down" else 1
    candidates = draw(sampled(((1, 3), (1, 2, 3))))
    made = Adaptive(initial=initial, candidates=candidates, alpha=0.75, interval=1, warmup=0, down=0.0, up=0.0)
    return replace(with_steps(scenario, 3), adaptive=made, steps=3)


def _needed_control(wanted: Wanted) -> str | None:
    if wanted.get("switch") in ("up", "down") or wanted.get("limit") == "steps":
        return "adaptive"
    if wanted.get("limit") == "batch":
        return "draft batch"
    return None if set(wanted) <= _FREE else "fixed"


def _steps(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Allow as many drafts a round as the plans will need."""
    if scenario.adaptive is not None:
        return scenario
    if wanted.get("chain") == "one layer":
        return with_steps(scenario, 1)
    return replace(scenario, steps=max(_least(draw, wanted), scenario.steps))


def _least(draw: Draw, wanted: Wanted) -> int:
    least = int(wanted.get("K", "0")[0]) + (draw(integers(0, 1)) if wanted.get("K", "0")[0] in _MANY else 0)
    if wanted.get("crossing") == "more":
        least = max(least, int(wanted.get("page size", "2")[0]) + 1)
    if "limit" in wanted or "block" in wanted or wanted.get("stage") == "only":
        least = max(least, 4)
    several = {"partial", "unequal", "chained", "unchained", "layers to spare", "stop", "stop in run", "max_len"}
    return max(least, 3 if several & set(wanted.values()) else 2)


def _memory(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    if "page size" in wanted:
        size = int(wanted["page size"][0])
    else:
        sizes = {"every": (1,), "inside": (4, 5), "after": (3, 4, 5), "before": (2, 3, 4), "at": (2, 3, 4)}
        crossing = {"more": (1, 2), "none": (3, 4, 5)}.get(wanted.get("crossing", ""), (scenario.memory.page_size,))
        size = draw(sampled(sizes.get(wanted.get("page", ""), crossing)))
    poison = int(wanted.get("poison", scenario.memory.poison))
    return put_in(scenario, "memory", page_size=size, poison=poison)


def _variant(draw: Draw, scenario: Scenario, wanted: Wanted) -> Scenario:
    """Set the variant, with graphs if it needs any; one that the scenario had may not fit it any longer."""
    variant = wanted.get("variant", scenario.variant)
    dense = scenario.model.linear is None  # type: ignore[union-attr]  # a probe's
    if variant == "other_commit" and dense and "variant" in wanted:
        model = replace(draw(models(True))[0], vocab=scenario.model.vocab)
        scenario = replace(scenario, model=model)
    elif variant == "other_commit" and dense:
        variant = "none"
    taps = wanted.get("taps", "on")
    variant = {"off": "none", "on and off": "taps_off"}.get(taps, variant)
    if variant in NEED_SIZES and "variant" in wanted and not scenario.graphs.sizes:
        scenario = replace(scenario, graphs=Graphs(sizes=(scenario.schedule.max_batch + 1,)))
    return replace(scenario, variant=variant, taps=taps != "off")


def _entries(scenario: Scenario, wanted: Wanted) -> Scenario:
    """Set what a draft of entries takes, hands on and has of its own."""
    vocab = scenario.model.vocab
    ids = {"target's": 0, "other order": vocab, "reduced": max(vocab - vocab // 8, 2)}
    fields = {name: wanted[name] for name in ("takes", "handed") if name in wanted}
    has = {"embedding": "own_embedding", "head": "own_head", "first embedding": "masks_first"}
    changes: dict[str, object] = {
        name: wanted[point] in ("own", "masked") for point, name in has.items() if point in wanted
    }
    if "vocabulary" in wanted:
        changes["head_vocab"] = ids[wanted["vocabulary"]]
    return put_in(scenario, "draft", **fields, **changes) if fields or changes else scenario


def _decided(scenario: Scenario, wanted: Wanted) -> Scenario:
    """Set how alike logits are, and how often a head is right; a draft may bring both along."""
    model = scenario.model
    if "tie" in wanted:
        model = replace(model, logit_bits=2 if wanted["tie"] == "yes" else 23)
    lookup = kind_of(scenario.draft).proposes == "lookup"
    if lookup and (wanted.get("end", "").startswith("stop") or wanted.get("cut") == "stop"):
        # More tokens, so that the one to stop at does not come at once.
        model = replace(model, vocab=37, logit_bits=23, agreement=192)
    own = {"all": 256, "none": 0, "partial": 128}.get(wanted.get("accept", ""))
    if wanted.get("proposals") == "own" and own is not None and not lookup:
        model = replace(model, agreement=own)
    return replace(scenario, model=model)


# The turns at which with_draft makes a chain of that form.
_CHAINS: dict[str, Callable[[int], bool]] = {
    "one layer": lambda turn: turn // 7 % 2 == 0,
    "chained": lambda turn: turn % 7 != 5 and turn % 4 != 3 and turn % 5 in (0, 2, 4),
    "unchained": lambda turn: turn % 7 != 5 and turn % 4 == 3,
    "layers to spare": lambda turn: turn % 7 != 5 and turn % 4 != 3 and turn % 5 in (1, 3),
}
