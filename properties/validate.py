"""Checks of a whole scenario that no single field can express."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import msgspec

from draftproof.properties.features import FEATURES_BY_NAME, features_of, refusal
from draftproof.properties.lib.invalid import InvalidScenarioError, require
from draftproof.properties.validate_request import validate_request
from draftproof.properties.values.adaptive_steps import Adaptive
from draftproof.properties.values.chain_tree import as_tree, pages_as_tree
from draftproof.properties.values.drafts import (
    ALGORITHMS,
    DRAFT_KINDS,
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
from draftproof.properties.values.scenario import Checkpoint, ProbeModel, Scenario, least_window
from draftproof.properties.variants import refused_by_variant


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
    _ranks(scenario)
    _mixed(scenario)
    _overlap(scenario)
    _features(scenario)
    validate_fp8(scenario)
    beyond = max(scenario.eos, default=0)
    require(beyond < scenario.model.vocab, "eos", beyond, f"below model.vocab = {scenario.model.vocab}")
    require(runs_anything(scenario), "requests", "that are all aborted or refused as they arrive", "one that runs")
    for index in range(len(scenario.requests)):
        validate_request(scenario, index)
    _variant(scenario)
    return scenario


def runs_anything(scenario: Scenario) -> bool:
    """Return whether there is a request that is not aborted or refused in the step in which it comes."""
    return any(request.leaves_at != request.arrival for request in scenario.requests)


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
    arrivals = Counter((request.arrival, request.rank) for request in scenario.requests if request.flaw == "none")
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


def _adaptive(scenario: Scenario) -> None:
    adaptive = scenario.adaptive_steps
    if adaptive is None:
        return
    largest = max(adaptive.steps)
    require(scenario.steps == largest, "steps", scenario.steps, f"the largest step count of adaptive_steps, {largest}")
    if isinstance(adaptive, Adaptive):
        # As in SGLang; its later controller takes a single one.
        several = "two step counts or more with adaptive_steps.initial among them, or no adaptive_steps at all"
        require(len(adaptive.steps) > 1, "adaptive_steps.candidates", list(adaptive.steps), several)
        return
    for name, sizes in (("slots.batch", [one.batch for one in adaptive.slots]), ("rounding", list(adaptive.rounding))):
        require(sizes == sorted(set(sizes)), f"adaptive_steps.{name}", sizes, "distinct and ascending")


def _tree(scenario: Scenario) -> None:
    tree, draft = scenario.tree, scenario.draft
    if tree is None:
        return
    steps, most = scenario.steps, tree.candidates(scenario.steps)
    fits = steps <= tree.nodes <= most
    require(fits, "tree.nodes", tree.nodes, f"from steps = {steps}, the depth, to the {most} candidates of its steps")
    vocab = getattr(draft, "head_vocab", 0) or scenario.model.vocab
    require(tree.topk < vocab, "tree.topk", tree.topk, f"below the {vocab} tokens that the draft can propose")


def _features(scenario: Scenario) -> None:
    """Check that every feature is defined for the model and the draft, and beside every other one."""
    kind = kind_of(scenario.draft)
    present = features_of(scenario)
    for name in present:
        row = FEATURES_BY_NAME[name]
        if row.of_probes and not isinstance(scenario.model, ProbeModel):
            raise InvalidScenarioError(f"invalid {name} of a checkpoint: expected none: it is defined for probes")
        if not row.drafts(kind):
            takers = ", ".join(one.name for one in DRAFT_KINDS if row.drafts(one))
            problem = f"invalid {name} with draft {kind.name!r}: expected a draft that can have it, {takers}"
            raise InvalidScenarioError(f"{problem}: {row.because}")
    for one, other in combinations(present, 2):
        if because := refusal(one, other):
            raise InvalidScenarioError(f"invalid {one} beside {other}: expected one of them: {because}")


def _variant(scenario: Scenario) -> None:
    """Check that two runs can be compared, and that chains which are compared with trees could be such."""
    variant = scenario.variant
    if variant == "none":
        return
    for name in features_of(scenario):
        if because := refused_by_variant(variant, name):
            raise InvalidScenarioError(f"invalid variant {variant} beside {name}: expected another one: {because}")
    if variant not in ("alone", "chain_as_tree"):
        return
    of_probe = isinstance(scenario.model, ProbeModel)
    require(of_probe, "variant", f"{variant} of a checkpoint", "another one, or none: it is defined for probes")
    if variant == "alone":
        return
    try:
        validate(msgspec.structs.replace(as_tree(scenario), variant="none"))
    except InvalidScenarioError as problem:
        fitting = "another one, or a scenario whose drafts could be trees"
        raise InvalidScenarioError(f"invalid variant chain_as_tree: expected {fitting}, but {problem}") from None
    pages, least = scenario.memory.pages, pages_as_tree(scenario)
    require(
        pages >= least,
        "memory.pages",
        pages,
        f"at least {least} with chain_as_tree, so that no request waits for pages",
    )


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
    once = "1 with ranks: they serve their requests once (S-RANK-6)"
    require(scenario.schedule.services == 1, "schedule.services", scenario.schedule.services, once)


def _tensor_ranks(scenario: Scenario) -> None:
    """Check that every rank has as many heads as any other of what is cut (S-TP-1)."""
    ranks = scenario.ranks
    same = "1, as ranks.tensor is 1" if ranks.tensor == 1 else f"1, or ranks.tensor = {ranks.tensor}"
    require(ranks.draft_tensor in (1, ranks.tensor), "ranks.draft_tensor", ranks.draft_tensor, same)
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
    if not schedule.mixed or isinstance(scenario.model, Checkpoint):
        return
    hybrid = scenario.model.linear is not None
    eager = "none beside linear layers: where states are depends on the rows of a launch"
    require(not (hybrid and buckets), "graphs.tokens", list(buckets), eager)


def _overlap(scenario: Scenario) -> None:
    overlap, compared = scenario.schedule.overlap, scenario.variant == "unoverlapped"
    if scenario.schedule.mixed and scenario.ranks.data > 1:
        require({*overlap} <= {"none"}, "schedule.overlap", list(overlap), "none with mixed steps of ranks (S-RANK-10)")
    require(bool(overlap) or not compared, "variant", "unoverlapped", "another one, or none, without schedule.overlap")
