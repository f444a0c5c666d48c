"""Checks of a request of a scenario that no single field can express."""

from __future__ import annotations

from collections import Counter

from draftproof.properties.lib.invalid import InvalidScenarioError, require
from draftproof.properties.lib.pattern import NO_STRING, SPELLED, PatternError, parse
from draftproof.properties.values.grammar import end_token
from draftproof.properties.values.penalties import REPETITION_UNIT, Penalties
from draftproof.properties.values.sampling import SHARE_UNIT, TEMPERATURE_UNIT, Sampling
from draftproof.properties.values.scenario import ProbeModel, Request, RoundPlan, Scenario, pages_needed
from draftproof.properties.values.tree import depths


def validate_request(scenario: Scenario, index: int) -> None:
    """Raise InvalidScenarioError if a request of a scenario cannot be run with the rest of it."""
    request, memory = scenario.requests[index], scenario.memory
    at = f"requests[{index}]"
    below = f"fewer than memory.max_len = {memory.max_len}"
    require(len(request.prompt) < memory.max_len, f"{at}.prompt", f"of {len(request.prompt)} tokens", below)
    top = max(request.prompt)
    require(top < scenario.model.vocab, f"token in {at}.prompt", top, f"below model.vocab = {scenario.model.vocab}")
    beyond = max(request.stops, default=0)
    require(beyond < scenario.model.vocab, f"{at}.stops", beyond, f"below model.vocab = {scenario.model.vocab}")
    _sampling(scenario, f"{at}.sampling", request.sampling)
    if request.sampling and scenario.dynamic:
        free = "-1, as its rounds depend on the schedule and it is sampled"
        require(request.stop_at < 0, f"{at}.stop_at", request.stop_at, free)
        right = max(plan.num_correct for plan in request.rounds)
        require(right < 0, f"{at}.rounds num_correct", right, free)
    _images(scenario, at, request)
    _penalties(scenario, f"{at}.penalties", request.penalties)
    _grammar(scenario, at, request)
    _ends(scenario, at, request)
    of_probe = isinstance(scenario.model, ProbeModel)
    if request.abort_at is not None:
        require(of_probe, f"{at}.abort_at", request.abort_at, "none beside a checkpoint")
        since = f"at least {at}.arrival = {request.arrival}"
        require(request.abort_at >= request.arrival, f"{at}.abort_at", request.abort_at, since)
    if request.prompt_logprobs is not None:
        require(of_probe, f"{at}.prompt_logprobs", "given", "none beside a checkpoint")
    pages = pages_needed(scenario, request)
    require(pages <= memory.pages, "memory.pages", memory.pages, f"at least {pages}, as {at} needs them")
    for number, plan in enumerate(request.rounds):
        where = f"{at}.rounds[{number}]"
        require(
            plan.num_drafts <= scenario.steps,
            f"{where}.num_drafts",
            plan.num_drafts,
            f"at most steps = {scenario.steps}",
        )
        require(
            plan.num_correct <= plan.num_drafts,
            f"{where}.num_correct",
            plan.num_correct,
            f"at most num_drafts = {plan.num_drafts}",
        )
        _shape(scenario, where, plan)


def _ends(scenario: Scenario, at: str, request: Request) -> None:
    """Check what ends a request besides its own stop ids (S-LIMIT-13 .. 15)."""
    if not (scenario.eos or request.has_ends):
        return
    vocab = scenario.model.vocab
    of_probe, names = isinstance(scenario.model, ProbeModel), "min_tokens, ignore_eos, stop sequences or eos"
    require(of_probe, at, f"with {names}", "none beside a checkpoint")
    top = max((token for tokens in request.stop_sequences for token in tokens), default=0)
    require(top < vocab, f"token in {at}.stop_sequences", top, f"below model.vocab = {vocab}")
    for number, span in enumerate(request.stop_sequences_at):
        where, least = f"{at}.stop_sequences_at[{number}]", -len(request.prompt)
        require(span.first >= least, f"{where}.first", span.first, f"at least {least}, the first token of the prompt")
        require(span.first <= span.last, f"{where}.last", span.last, f"at least {where}.first = {span.first}")
        hangs = request.sampling is not None and scenario.dynamic
        require(not hangs, where, "given", "none, as its rounds depend on the schedule and it is sampled")
    least, most = request.min_tokens, request.budget
    require(least <= most, f"{at}.min_tokens", least, f"at most {at}.budget = {most}")
    require(not (least and request.grammar), f"{at}.min_tokens", least, "0 beside a grammar, which says when it ends")
    stops = len({*request.stops, *scenario.eos}) + int(request.stop_at >= 0)
    left = f"fewer than model.vocab = {vocab}, as none of them may come before min_tokens"
    require(not least or stops < vocab, f"{at}.stops and eos", f"of {stops} ids", left)


def _images(scenario: Scenario, at: str, request: Request) -> None:
    if not request.images:
        return
    takes = isinstance(scenario.model, ProbeModel) and scenario.model.mrope
    where = f"{at}.images"
    require(takes, where, f"{len(request.images)} of them", "none but with model.mrope: else tokens have one position")
    behind = 0
    for number, image in enumerate(request.images):
        span = f"{image.start} .. {image.end - 1}"
        within = f"within the prompt's {len(request.prompt)} tokens, behind the image before it (from {behind} on)"
        require(behind <= image.start and image.end <= len(request.prompt), f"{where}[{number}]", span, within)
        behind = image.end


def _shape(scenario: Scenario, where: str, plan: RoundPlan) -> None:
    """Check the shape of a round of a tree that is forced; any other has none."""
    tree, shape = scenario.tree, plan.shape
    if tree is None or plan.num_drafts == 0 or plan.num_correct < 0:
        require(shape is None, f"{where}.shape", "given", "none but in rounds of a tree whose drafts are forced")
        return
    if shape is None:
        raise InvalidScenarioError(f"invalid {where}.shape None: expected one, as the drafts of a tree are forced")
    rows, parents = len(shape.parents), shape.parents
    require(rows <= tree.nodes, f"{where}.shape.parents", f"of {rows} rows", f"at most tree.nodes = {tree.nodes}")
    before = all(parent < row for row, parent in enumerate(parents, start=1))
    require(before, f"{where}.shape.parents", list(parents), "rows before the row itself")
    deep = depths(parents)
    require(list(deep) == sorted(deep), f"{where}.shape.parents", list(parents), "rows level after level")
    require(max(deep) <= plan.num_drafts, f"{where}.shape.parents", list(parents), f"a depth of {plan.num_drafts}")
    most = max(Counter(parents).values())
    require(most <= tree.topk, f"{where}.shape.parents", f"{most} of one row", f"at most tree.topk = {tree.topk}")
    path = shape.path
    follows = all(0 < row <= rows and parents[row - 1] == at for at, row in zip((0, *path), path, strict=False))
    require(follows, f"{where}.shape.path", list(path), "rows of which each has the one before as its parent")
    length = len(path)
    require(length == plan.num_correct, f"{where}.num_correct", plan.num_correct, f"the {length} rows of shape.path")


def _sampling(scenario: Scenario, at: str, sampling: Sampling | None) -> None:
    if sampling is None:
        return
    for name, value, unit in (
        ("temperature", sampling.temperature, TEMPERATURE_UNIT),
        ("top_p", sampling.top_p, SHARE_UNIT),
        ("min_p", sampling.min_p, SHARE_UNIT),
    ):
        require((value / unit).is_integer(), f"{at}.{name}", value, f"a multiple of 1/{round(1 / unit)}")


def _penalties(scenario: Scenario, at: str, penalties: Penalties | None) -> None:
    if penalties is None:
        return
    sixteenths, vocab = penalties.repetition / REPETITION_UNIT, scenario.model.vocab
    unit = f"a multiple of 1/{round(1 / REPETITION_UNIT)}"
    require(sixteenths.is_integer(), f"{at}.repetition", penalties.repetition, unit)
    tokens = [one.token for one in penalties.bias]
    top = max(tokens, default=0)
    require(top < vocab, f"token in {at}.bias", top, f"below model.vocab = {vocab}")
    twice = next((token for token, count in Counter(tokens).items() if count > 1), None)
    require(twice is None, f"token in {at}.bias", f"{twice} twice", "each token once")


def _grammar(scenario: Scenario, at: str, request: Request) -> None:
    grammar = request.grammar
    if grammar is None:
        return
    vocab = scenario.model.vocab
    where, pattern = f"{at}.grammar.pattern", repr(grammar.pattern)
    try:
        expression = parse(grammar.pattern)
    except PatternError as problem:
        notation = "letters a .. z, (), |, [], *, +, ?, {m} and {m,n}"
        raise InvalidScenarioError(f"invalid {where} {pattern}: {problem}, in the notation of {notation}") from None
    spelled = ", ".join(sorted(SPELLED))
    some_word = f"a pattern with a word of the letters that tokens spell, {spelled}"
    require(expression != NO_STRING, where, pattern, some_word)
    ends, end = end_token(vocab) in request.stops, end_token(vocab)
    require(ends, f"{at}.stops", list(request.stops), f"the end token {end} among them, as there is a grammar")
