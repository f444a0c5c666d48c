"""Checks of a whole scenario that no single field can express."""

from __future__ import annotations

from collections import Counter

import msgspec

from draftproof.properties.values.chain_tree import as_tree, pages_as_tree
from draftproof.properties.values.drafts import (
    ALGORITHMS,
    KINDS,
    CheckpointDraft,
    DFlash,
    Eagle,
    Eagle3,
    Mtp,
    Ngram,
    ProbeDraft,
    kind_of,
)
from draftproof.properties.values.fp8 import validate_fp8
from draftproof.properties.values.invalid import InvalidScenarioError, require
from draftproof.properties.values.scenario import Adaptive, Checkpoint, ProbeModel, Scenario, least_window
from draftproof.properties.values.validate_request import validate_request


def validate(scenario: Scenario) -> Scenario:
    """Return the scenario, or raise InvalidScenarioError at the first thing that does not fit together."""
    _memory(scenario)
    if isinstance(scenario.model, ProbeModel):
        _grouped("model", scenario.model)
    _draft(scenario)
    _linear(scenario)
    _windows(scenario)
    _adaptive(scenario)
    _tree(scenario)
    _step_tokens(scenario)
    _ranks(scenario)
    _mixed(scenario)
    _handover(scenario)
    _overlap(scenario)
    validate_fp8(scenario)
    beyond = max(scenario.eos, default=0)
    require(beyond < scenario.model.vocab, "eos", beyond, f"below model.vocab = {scenario.model.vocab}")
    runs = any(request.abort_at != request.arrival for request in scenario.requests)
    require(runs, "requests", "of which all are aborted as they come", "one that runs")
    for index in range(len(scenario.requests)):
        validate_request(scenario, index)
    _variant(scenario)
    return scenario


def is_valid(scenario: Scenario) -> bool:
    """Return True if a scenario can be run: by the types of its fields, and as a whole."""
    try:
        validate(msgspec.convert(msgspec.to_builtins(scenario), Scenario))
    except (InvalidScenarioError, msgspec.ValidationError):
        return False
    return True


def _memory(scenario: Scenario) -> None:
    slots, batch = scenario.memory.request_slots, scenario.schedule.max_batch
    most = f"at most memory.request_slots = {slots}"
    require(batch <= slots, "schedule.max_batch", batch, most)
    arrivals = Counter((request.arrival, request.rank) for request in scenario.requests)
    for (step, _), count in sorted(arrivals.items()):
        require(count <= slots, f"requests.arrival {step} of", f"{count} requests", most)
    sizes = scenario.graphs.sizes
    require(list(sizes) == sorted(set(sizes)), "graphs.sizes", list(sizes), "distinct and ascending")


def _grouped(name: str, part: ProbeModel | ProbeDraft) -> None:
    fits = part.heads % part.kv_heads == 0
    require(fits, f"{name}.heads", part.heads, f"a multiple of {name}.kv_heads = {part.kv_heads}")


def _draft(scenario: Scenario) -> None:
    draft = scenario.draft
    if isinstance(draft, Ngram):
        require(draft.min_n <= draft.max_n, "draft.min_n", draft.min_n, f"at most draft.max_n = {draft.max_n}")
        return
    kind = draft.__struct_config__.tag
    if isinstance(scenario.model, Checkpoint):
        require(isinstance(draft, CheckpointDraft), "draft.kind", repr(kind), "checkpoint or ngram, for a checkpoint")
        return
    if isinstance(draft, CheckpointDraft):
        raise InvalidScenarioError(f"invalid draft.kind {kind!r}: expected one of a probe, {', '.join(ALGORITHMS)}")
    _grouped("draft", draft)
    if isinstance(draft, Eagle | Mtp | Eagle3):
        most = scenario.model.vocab
        fits = draft.head_vocab == 0 or 2 <= draft.head_vocab <= most
        require(fits, "draft.head_vocab", draft.head_vocab, f"0 (all of them) or 2 .. model.vocab = {most}")
    if kind_of(draft).layer_a_draft:
        steps, layers = scenario.steps, getattr(draft, "layers", 1)
        require(layers >= steps, "draft.layers", layers, f"at least steps = {steps}, a layer a proposal")
    if isinstance(draft, DFlash | Eagle3):
        top = scenario.model.layers - 1
        fits = len(set(draft.features)) == len(draft.features) and max(draft.features) <= top
        require(fits, "draft.features", list(draft.features), f"distinct layers of the model, 0 .. {top}")


def _linear(scenario: Scenario) -> None:
    model = scenario.model
    if isinstance(model, Checkpoint):
        return
    count = len(model.layer_types)
    require(count in (0, model.layers), "model.layer_types", f"of {count}", f"none or {model.layers}, one a layer")
    attends = set(model.types) != {"linear_attention"}
    some = "at least one full_attention or sliding_attention layer, for the carry"
    require(attends, "model.layer_types", list(model.layer_types), some)
    hybrid = "linear_attention" in model.types
    require(hybrid == (model.linear is not None), "model.linear", model.linear, "given if any layer is linear")
    if model.linear is not None:
        keys, values = model.linear.key_heads, model.linear.value_heads
        require(values % keys == 0, "model.linear.value_heads", values, f"a multiple of key_heads = {keys}")


def _windows(scenario: Scenario) -> None:
    model, draft, page = scenario.model, scenario.draft, scenario.memory.page_size
    if isinstance(model, Checkpoint):
        return
    slides = "sliding_attention" in model.types
    expected = "a window of 1 and more where a layer is sliding_attention, 0 where none is"
    require(slides == (model.window > 0), "model.window", model.window, expected)
    own, most = getattr(draft, "window", 0), least_window(scenario)
    least = f"at least memory.page_size = {page}: a window has a page of positions"
    if most > page:
        least = f"at least {most} with schedule.preemption: who decodes owns a page"
    # Of the target layer_types say whether there is a window at all.
    for field, window, none in (("model.window", model.window, ""), ("draft.window", own, "0 (none), or ")):
        require(window == 0 or window >= most, field, window, f"{none}{least}")
        beside = "none beside windows, or no windows: rows of a tree have none"
        require(window == 0 or scenario.tree is None, "tree", f"beside {field} {window}", beside)


def _adaptive(scenario: Scenario) -> None:
    adaptive = scenario.adaptive
    if adaptive is None:
        return
    largest = max(adaptive.steps)
    require(scenario.steps == largest, "steps", scenario.steps, f"the largest step count of adaptive, {largest}")
    if isinstance(adaptive, Adaptive):
        # As in SGLang, of which the later controller takes one.
        several = "two step counts or more with adaptive.initial among them, or no adaptive at all"
        require(len(adaptive.steps) > 1, "adaptive.candidates", list(adaptive.steps), several)
        return
    for name, sizes in (("slots.batch", [one.batch for one in adaptive.slots]), ("rounding", list(adaptive.rounding))):
        require(sizes == sorted(set(sizes)), f"adaptive.{name}", sizes, "distinct and ascending")


def beside_tree(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of what a scenario has that is not defined beside trees."""
    schedule = scenario.schedule
    refused = {
        "a draft that proposes no tree": not kind_of(scenario.draft).trees,
        "adaptive steps": scenario.adaptive is not None,
        "schedule.draft_batch": schedule.draft_batch > 0,
        "schedule.preemption": schedule.preemption,
        "schedule.step_tokens": schedule.step_tokens > 0,
    }
    return tuple(name for name, has in refused.items() if has)


def _tree(scenario: Scenario) -> None:
    tree, draft = scenario.tree, scenario.draft
    if tree is None:
        return
    kind = draft.__struct_config__.tag
    takers = " or ".join(one.name for one in KINDS if one.trees)
    require(kind_of(draft).trees, "tree", f"of draft {kind!r}", f"none, or a draft that proposes one: {takers}")
    require(
        not scenario.dynamic,
        "tree",
        "of a dynamic scenario",
        "none with adaptive steps, schedule.draft_batch, schedule.preemption or schedule.step_tokens",
    )
    steps, most = scenario.steps, tree.candidates(scenario.steps)
    fits = steps <= tree.nodes <= most
    require(fits, "tree.nodes", tree.nodes, f"from steps = {steps}, the depth, to the {most} candidates of its steps")
    vocab = getattr(draft, "head_vocab", 0) or scenario.model.vocab
    require(tree.topk < vocab, "tree.topk", tree.topk, f"below the {vocab} tokens that the draft can propose")


def _variant(scenario: Scenario) -> None:
    """Check that requests could be served alone, and that chains which are compared with trees could be such."""
    if scenario.variant == "alone":
        require(isinstance(scenario.model, ProbeModel), "variant", "alone of a checkpoint", "another one, or none")
        by_batch = scenario.adaptive is not None or scenario.schedule.draft_batch > 0
        fixed = "another one, or numbers of drafts that do not hang on other requests"
        require(not by_batch, "variant", "alone beside adaptive steps or schedule.draft_batch", fixed)
    if scenario.variant != "chain_as_tree":
        return
    of_probe = isinstance(scenario.model, ProbeModel)
    require(of_probe, "variant", "chain_as_tree of a checkpoint", "another one, or none: it is defined for probes")
    require(scenario.tree is None, "variant", "chain_as_tree beside a tree", "another one, or drafts that are chains")
    keeps = scenario.schedule.prefix_cache
    require(not keeps, "variant", "chain_as_tree beside a prefix cache", "another one: trees leave it fewer pages")
    try:
        validate(msgspec.structs.replace(as_tree(scenario), variant="none"))
    except InvalidScenarioError as problem:
        fitting = "another one, or a scenario whose drafts could be trees"
        raise InvalidScenarioError(f"invalid variant chain_as_tree: expected {fitting}, but {problem}") from None
    pages, least = scenario.memory.pages, pages_as_tree(scenario)
    require(pages >= least, "memory.pages", pages, f"at least {least} with chain_as_tree, so that nobody waits for any")


def _of_other_schedules(scenario: Scenario) -> dict[str, bool]:
    """Return whether the scenario has what has rules of its own for who runs in a step, by name."""
    return {
        "a tree": scenario.tree is not None,
        "adaptive steps": scenario.adaptive is not None,
        "schedule.draft_batch": scenario.schedule.draft_batch > 0,
        "schedule.preemption": scenario.schedule.preemption,
        "schedule.prefix_cache": scenario.schedule.prefix_cache,
    }


def _refused_by_step_tokens(scenario: Scenario) -> dict[str, bool]:
    return {**_of_other_schedules(scenario), "aborts": scenario.has_aborts}


def beside_step_tokens(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of what a scenario has that is not defined beside a budget of tokens a step."""
    return tuple(name for name, has in _refused_by_step_tokens(scenario).items() if has)


def _step_tokens(scenario: Scenario) -> None:
    schedule, at = scenario.schedule, "schedule.step_tokens"
    if not schedule.step_tokens:
        return
    for name in beside_step_tokens(scenario):
        require(False, at, f"beside {name}", f"0, or none of {', '.join(_refused_by_step_tokens(scenario))}")
    require(isinstance(scenario.model, ProbeModel), at, "of a checkpoint", "0: it is defined for probes")


def beside_ranks(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of what a scenario has that is not defined beside ranks (S-RANK-6, S-TP-7)."""
    schedule = scenario.schedule
    refused = {
        "a checkpoint": not isinstance(scenario.model, ProbeModel),
        "a tree": scenario.tree is not None,
        "schedule.preemption": schedule.preemption,
        "schedule.prefix_cache": schedule.prefix_cache,
        "schedule.step_tokens": schedule.step_tokens > 0,
        "schedule.mixed": schedule.mixed,
        "schedule.handover": schedule.handover,
        "schedule.services": schedule.services > 1,
        "a variant": scenario.variant != "none",
    }
    return tuple(name for name, has in refused.items() if has)


def _ranks(scenario: Scenario) -> None:
    ranks = scenario.ranks
    for index, request in enumerate(scenario.requests):
        require(request.rank < ranks.data, f"requests[{index}].rank", request.rank, f"below ranks.data = {ranks.data}")
    _tensor_ranks(scenario)
    if ranks.size == 1:
        return
    serving = sorted({request.rank for request in scenario.requests})
    first = "requests on ranks 0, 1, ..: those without any are the last"
    require(serving == list(range(len(serving))), "requests.rank", serving, first)
    field, count = ("ranks.tensor", ranks.tensor) if ranks.tensor > 1 else ("ranks.data", ranks.data)
    for name in beside_ranks(scenario):
        require(False, field, f"{count} beside {name}", f"1, or a scenario without {name}")


def _tensor_ranks(scenario: Scenario) -> None:
    """Check that every rank has as many heads as any other of what is cut (S-TP-1)."""
    ranks = scenario.ranks
    same = "1, as ranks.tensor is 1" if ranks.tensor == 1 else f"1, or ranks.tensor = {ranks.tensor}"
    require(ranks.draft_tensor in (1, ranks.tensor), "ranks.draft_tensor", ranks.draft_tensor, same)
    both = ranks.data == 1 or ranks.tensor == 1
    require(both, "ranks.tensor", f"{ranks.tensor} beside ranks.data {ranks.data}", "1, or ranks.data 1")
    for field, count in heads_cut(scenario):
        size = ranks.draft_tensor if field.startswith("draft.") else ranks.tensor
        name = "ranks.draft_tensor" if field.startswith("draft.") else "ranks.tensor"
        require(count % size == 0, name, size, f"a divisor of {field} = {count}")
        lanes = getattr(scenario.draft if field.startswith("draft.") else scenario.model, "lanes", size)
        require(lanes >= size, name, size, f"at most {field.split('.')[0]}.lanes = {lanes}")


def heads_cut(scenario: Scenario) -> tuple[tuple[str, int], ...]:
    """Return the numbers of heads that tensor-parallel ranks share out, by the fields that have them."""
    found: list[tuple[str, int]] = []
    for field, part in (("model", scenario.model), ("draft", scenario.draft)):
        if isinstance(part, ProbeModel | ProbeDraft):
            found += [(f"{field}.heads", part.heads), (f"{field}.kv_heads", part.kv_heads)]
    if isinstance(scenario.model, ProbeModel) and scenario.model.linear:
        sizes = scenario.model.linear
        found += [("model.linear.key_heads", sizes.key_heads), ("model.linear.value_heads", sizes.value_heads)]
    return tuple(found)


def _mixed(scenario: Scenario) -> None:
    """Check that a schedule which is not mixed has no packed launches, and what a mixed one may have besides."""
    schedule, buckets = scenario.schedule, scenario.graphs.tokens
    require(list(buckets) == sorted(set(buckets)), "graphs.tokens", list(buckets), "distinct and ascending")
    packs = "none without schedule.mixed: no other launches are packed"
    require(schedule.mixed or not buckets, "graphs.tokens", list(buckets), packs)
    compared = scenario.variant == "unmixed"
    require(schedule.mixed or not compared, "variant", "unmixed", "another one, or none, without schedule.mixed")
    if not schedule.mixed:
        return
    at, model = "schedule.mixed", scenario.model
    if isinstance(model, Checkpoint):
        raise InvalidScenarioError(f"invalid {at} of a checkpoint: expected false: it is defined for probes")
    require(scenario.tree is None, at, "beside a tree", "false: rows of a tree see each other by masks")
    hybrid = model.linear is not None
    eager = "none beside linear layers: where states are depends on the rows of a launch"
    require(not (hybrid and buckets), "graphs.tokens", list(buckets), eager)
    taken = scenario.variant != "chain_as_tree"
    require(taken, "variant", "chain_as_tree beside schedule.mixed", "another one, or none: no row of a tree is packed")


def _refused_by_handover(scenario: Scenario) -> dict[str, bool]:
    schedule = scenario.schedule
    return {
        **_of_other_schedules(scenario),
        "schedule.step_tokens": schedule.step_tokens > 0,
        "schedule.mixed": schedule.mixed,
        "aborts": scenario.has_aborts,
        "windows": scenario.has_windows,
        "variant alone": scenario.variant == "alone",
        "variant chain_as_tree": scenario.variant == "chain_as_tree",
    }


def beside_handover(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of what a scenario has that is not defined beside a hand-over (S-HANDOVER-8)."""
    return tuple(name for name, has in _refused_by_handover(scenario).items() if has)


def _handover(scenario: Scenario) -> None:
    at = "schedule.handover"
    if not scenario.schedule.handover:
        return
    for name in beside_handover(scenario):
        require(False, at, f"true beside {name}", f"false, or none of {', '.join(_refused_by_handover(scenario))}")
    require(isinstance(scenario.model, ProbeModel), at, "true of a checkpoint", "false: it is defined for probes")


def beside_overlap(scenario: Scenario) -> tuple[str, ...]:
    """Return the names of what a scenario has that is not defined beside an overlap (S-OVERLAP-9)."""
    schedule, model = scenario.schedule, scenario.model
    refused = {
        "a checkpoint": not isinstance(model, ProbeModel),
        "a tree": scenario.tree is not None,
        "a draft that looks up tokens": kind_of(scenario.draft).proposes == "lookup",
        "schedule.preemption": schedule.preemption,
        "schedule.prefix_cache": schedule.prefix_cache,
        "schedule.step_tokens": schedule.step_tokens > 0,
        "schedule.mixed": schedule.mixed,
        "schedule.handover": schedule.handover,
        "ranks": scenario.ranks.size > 1,
        "aborts": scenario.has_aborts,
        "windows": scenario.has_windows,
        "grammars": scenario.is_constrained,
        "penalties": scenario.is_penalized,
        "min_tokens": scenario.has_minimum,
        "variant alone": scenario.variant == "alone",
        "variant chain_as_tree": scenario.variant == "chain_as_tree",
    }
    return tuple(name for name, has in refused.items() if has)


def _overlap(scenario: Scenario) -> None:
    overlap, compared = scenario.schedule.overlap, scenario.variant == "unoverlapped"
    require(bool(overlap) or not compared, "variant", "unoverlapped", "another one, or none, without schedule.overlap")
    if not overlap:
        return
    fixed = "another one, or numbers of drafts that do not hang on when a controller decides"
    require(not (compared and scenario.dynamic), "variant", "unoverlapped of a dynamic scenario", fixed)
    for name in beside_overlap(scenario):
        require(
            False, "schedule.overlap", f"{list(overlap)} beside {name}", f"an empty list, or a scenario without {name}"
        )
