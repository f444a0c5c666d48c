"""Scenarios of real checkpoints: the scenarios of probes, with their models replaced."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from draftproof.properties.choose import require_seeded
from draftproof.properties.features import FEATURES
from draftproof.properties.features.adaptive_steps import with_steps
from draftproof.properties.features.kv_quantization import without_kv_quantization
from draftproof.properties.features.prefix_cache import without_prefix_cache
from draftproof.properties.features.trees import without_tree
from draftproof.properties.fit import fitted
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.lib.errors import require_input
from draftproof.properties.strategies.base import unforced
from draftproof.properties.strategies.drafts import repeating
from draftproof.properties.strategies.scenarios import generate, generated
from draftproof.properties.strategies.shapes import SIZES
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import (
    ALGORITHMS,
    DRAFT_KINDS_BY_NAME,
    Algorithm,
    CheckpointDraft,
    Draft,
    KvCacheDtype,
    Ngram,
    algorithm,
    kind_of,
    proposing,
    read_from,
)
from draftproof.properties.values.fp8 import draft_keeps
from draftproof.properties.values.grammar import end_token
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import VARIANTS, Checkpoint, Graphs, Request, Scenario, States, Variant
from draftproof.reference.build import build
from draftproof.reference.memo import Memo

_MOST_STEPS = 64
_FROM_FOLDER = read_from("directory", "directory or seed")
_READ = read_from("directory", "directory or seed", "target")
_LOOKUP_TOKENS = 3
# Every third scenario of a draft that can be a tree is one, from its second on: of a probe's scenarios every fifth.
_A_TREE, _MOST_TREES = 3, 8
_TREED = tuple(
    name for name in ALGORITHMS if DRAFT_KINDS_BY_NAME[name].trees and DRAFT_KINDS_BY_NAME[name].proposes == "steps"
)
_SPARE = 128
"""Positions of a model that are left free: where pages are larger, contexts become longer (properties/fit.py)."""


class RealDraft(NamedTuple):
    """A draft that goes with a checkpoint, the most drafts that it has for a round, and where it comes from."""

    draft: Draft
    steps: int
    origin: str

    @property
    def name(self) -> Algorithm:
        return algorithm(self.draft)


class Offer(NamedTuple):
    """The drafts that the given directories allow, and why they do not allow others."""

    drafts: tuple[RealDraft, ...]
    lacking: Mapping[Algorithm, str]


class KvDtypes(NamedTuple):
    """How target and draft keep their entries (S-KV-4)."""

    target: KvCacheDtype = "auto"
    draft: KvCacheDtype = "auto"


AUTO = KvDtypes()


def one_draft(
    path: Path,
    name: Algorithm,
    folder: Path | None,
    seed: int,
    *,
    built_in: bool = False,
    kv_dtypes: KvDtypes = AUTO,
) -> RealDraft:
    """Return the named draft for the checkpoint in `path`. Raises ValueError if the directories do not make it.

    An EAGLE head comes from `folder`, is the checkpoint's own first MTP layer (`built_in`), or is made from the seed; a
    DFlash draft and a smaller model come from `folder`.
    """
    if folder is None and DRAFT_KINDS_BY_NAME[name].checkpoint == "directory":
        raise ValueError("needs a directory of its own")
    draft, origin = _draft(name, folder, seed, built_in)
    if isinstance(draft, CheckpointDraft):
        draft = msgspec.structs.replace(draft, kv_cache_dtype=kv_dtypes.draft)
    model = Checkpoint(path=str(path), vocab=read_config(path).vocab_size, kv_cache_dtype=kv_dtypes.target)
    first = without_prefix_cache(with_steps(without_tree(generate(seed, 1, sizes=SIZES[:1])[0]), 1))
    _, built = build(_exchange(first, model, draft, "none"), Memo())
    if not DRAFT_KINDS_BY_NAME[name].layer_a_draft:
        return RealDraft(draft, _MOST_STEPS, origin)
    layers = built.config()[1]
    return RealDraft(draft, layers, f"{layers} {'layer' if layers == 1 else 'layers'} of the checkpoint")


def every_draft(path: Path, folder: Path | None, seed: int, kv_dtypes: KvDtypes = AUTO) -> Offer:
    """Each draft that the checkpoint in `path`, and a draft's directory `folder`, allow.

    Raises ValueError if the checkpoint is bad, or the directory fits no draft.
    """
    found = {name: one_draft(path, name, None, seed, kv_dtypes=kv_dtypes) for name in read_from("directory or seed")}
    lacking: dict[Algorithm, str] = {}
    for name in ALGORITHMS:
        if name in found and folder is None:
            continue
        try:
            own = folder if name in _FROM_FOLDER else None
            found[name] = one_draft(path, name, own, seed, kv_dtypes=kv_dtypes)
        except (ValueError, OSError) as error:
            lacking[name] = str(error)
    if folder is not None and not any(found[name].origin == str(folder) for name in found):
        reasons = "; ".join(f"as {name}: {lacking[name]}" for name in _FROM_FOLDER)
        raise ValueError(f"{folder} fits no draft: {reasons}")
    if folder is not None:
        # A directory is of one kind.
        lacking |= {name: f"{folder} is of another draft" for name in _FROM_FOLDER if name in lacking}
    return Offer(tuple(found[name] for name in ALGORITHMS if name in found), lacking)


def _draft(name: Algorithm, folder: Path | None, seed: int, built_in: bool) -> tuple[Draft, str]:
    kind = DRAFT_KINDS_BY_NAME[name]
    if kind.proposes == "lookup":
        return Ngram(max_n=_LOOKUP_TOKENS), "of the request's own tokens"
    if name not in _READ:
        known = ", ".join((*_READ, *proposing("lookup")))
        raise ValueError(f"invalid draft {name}: expected one that a checkpoint can have, {known}")
    own = built_in or kind.checkpoint == "target"
    draft = CheckpointDraft(algorithm=cast(Any, name), path=str(folder) if folder else "", seed=seed, built_in=own)
    return draft, "the checkpoint's first MTP layer" if own else str(folder or "made up from the seed")


def real_scenarios(
    path: Path, drafts: Sequence[RealDraft], seed: int, count: int, kv_cache_dtype: KvCacheDtype = "auto"
) -> list[Scenario]:
    """`count` scenarios of a checkpoint directory, in which the drafts take turns.

    A function of the arguments and of what the directories hold. Raises ValueError if the checkpoint is bad.
    """
    return list(generated_real(path, drafts, seed, count, kv_cache_dtype))


def generated_real(
    path: Path, drafts: Sequence[RealDraft], seed: int, count: int, kv_cache_dtype: KvCacheDtype = "auto"
) -> Iterator[Scenario]:
    """Yield what `real_scenarios` returns, each drawn when it is asked for. Raises ValueError at once."""
    return _turns(RealTarget(path, drafts, kv_cache_dtype), drafts, seed, count)


def _turns(target: RealTarget, drafts: Sequence[RealDraft], seed: int, count: int) -> Iterator[Scenario]:
    drawn = generated(seed, count, sizes=SIZES[:1])
    of_probes = {"chain_as_tree", "alone"} if target.hybrid else {"chain_as_tree", "alone", "other_commit"}
    variants = tuple(variant for variant in VARIANTS if variant not in of_probes)
    trees = (one for one in generated(seed, _MOST_TREES * count, _TREED, SIZES[:1]) if one.tree)
    for turn, (scenario, variant) in enumerate(zip(drawn, itertools.cycle(variants), strict=False)):
        # Where both turns would come round together, drafts slip by one.
        slip = turn // math.lcm(len(variants), len(drafts))
        chosen = drafts[(turn + slip) % len(drafts)]
        of_draft = turn // len(drafts)
        if chosen.name in _TREED and of_draft % _A_TREE == 1 and not draft_keeps(chosen.draft):
            scenario = next(trees)
        yield target.made(scenario, chosen, turn, of_draft, variant)


class RealTarget:
    """A checkpoint in the place of probes, with the drafts that go with it. Raises ValueError for a bad checkpoint."""

    def __init__(self, path: Path, drafts: Sequence[RealDraft], kv_cache_dtype: KvCacheDtype = "auto") -> None:
        config = read_config(path)
        self.hybrid = config.has_states
        self._drafts = {one.name: one for one in drafts}
        self._model = Checkpoint(path=str(path), vocab=config.vocab_size, kv_cache_dtype=kv_cache_dtype)
        self._positions, self._begins = config.max_position_embeddings, config.bos_token_id

    def exchanged(self, scenario: Scenario, turn: int) -> Scenario:
        """Return a probe's scenario with the checkpoint, the draft of the same name, and the variant that it has."""
        has_none = scenario.variant in ("chain_as_tree", "alone") or (
            scenario.variant == "other_commit" and not self.hybrid
        )
        variant: Variant = "none" if has_none else scenario.variant
        return self.made(scenario, self._drafts[algorithm(scenario.draft)], turn, turn, variant)

    def made(self, scenario: Scenario, chosen: RealDraft, turn: int, of_draft: int, variant: Variant) -> Scenario:
        """Return a probe's scenario with the checkpoint; numbers of the turn and of the draft's own turn vary it."""
        made = with_steps(scenario if chosen.name in _TREED else without_tree(scenario), chosen.steps)
        if self._positions is not None:
            made = _within(made, max(self._positions - _SPARE, self._positions // 2))
        if DRAFT_KINDS_BY_NAME[chosen.name].proposes == "lookup" and not made.schedule.prefix_cache:
            # An n-gram draft finds something in such prompts.
            made = repeating(made, turn, made.model.vocab)
        made = _exchange(made, self._model, _form(chosen, of_draft), variant, self._begins)
        return _with_states(made, turn, of_draft) if self.hybrid else made


def _within(scenario: Scenario, most: int) -> Scenario:
    """Return the scenario with contexts of at most `most` tokens: long prompts keep their end, with room to decode."""
    memory = scenario.memory
    if memory.max_len <= most:
        return scenario
    requests = tuple(
        msgspec.structs.replace(one, prompt=one.prompt[-(most - min(one.budget, most // 2)) :])
        for one in scenario.requests
    )
    shorter = msgspec.structs.replace(memory, max_len=most)
    return validate(msgspec.structs.replace(scenario, requests=requests, memory=shorter))


def _form(chosen: RealDraft, turn: int) -> Draft:
    """Every third scenario of a chain of several layers runs them unchained, as some engines do."""
    draft = chosen.draft
    if isinstance(draft, CheckpointDraft) and DRAFT_KINDS_BY_NAME[chosen.name].layer_a_draft and chosen.steps > 1:
        return msgspec.structs.replace(draft, chain=turn % 3 != 1)
    return draft


def _with_states(scenario: Scenario, turn: int, commit: int) -> Scenario:
    """Both ways to commit take turns; a scenario made for a dense probe keeps checkpoints of some interval, or none."""
    checkpoint, memory = scenario.states.checkpoint or (2, 0, 3)[turn % 3], scenario.memory
    if scenario.schedule.prefix_cache:
        # Nothing is served but behind a state.
        checkpoint = scenario.states.checkpoint or memory.page_size
        memory = msgspec.structs.replace(memory, checkpoint_slots=memory.checkpoint_slots or 3)
    states = States(commit="replay" if commit % 2 else "snapshot", checkpoint=checkpoint)
    return msgspec.structs.replace(scenario, states=states, memory=memory)


def _exchange(
    scenario: Scenario, model: Checkpoint, draft: Draft, variant: Variant, begins: int | None = None
) -> Scenario:
    """Relations take turns, since a real model's budget is a few scenarios. Every prompt `begins` with that token."""
    is_treed = kind_of(draft).trees and not draft_keeps(draft)
    scenario = _for_checkpoint(scenario if is_treed else without_tree(scenario))
    # Chunks and verify rows of a checkpoint have launches of their own.
    variant = "none" if variant in ("unmixed", "unoverlapped") else variant
    scenario = msgspec.structs.replace(scenario, draft=draft)
    scenario = unforced(scenario) if variant == "taps_off" else scenario
    requests = tuple(_spread(request, scenario.model.vocab, model.vocab) for request in scenario.requests)
    if begins is not None:
        requests = tuple(_beginning(request, begins, model.vocab) for request in requests)
    graphs = scenario.graphs
    if variant in ("graph_vs_eager", "other_batches") and not graphs.sizes:
        graphs = Graphs(sizes=(scenario.schedule.max_batch,))
    return validate(msgspec.structs.replace(scenario, model=model, requests=requests, graphs=graphs, variant=variant))


def _for_checkpoint(scenario: Scenario) -> Scenario:
    """Return a scenario of a probe with nothing that is not defined for a checkpoint."""
    for feature in reversed(FEATURES):
        scenario = feature.without(scenario) if feature.of_probes else scenario
    return without_kv_quantization(scenario)


def _spread(request: Request, small: int, large: int) -> Request:
    """Spread tokens of the prompt, further stop tokens, and those with a bias over the whole vocabulary."""
    prompt, stops = (tuple(token * large // small for token in ids) for ids in (request.prompt, request.stops))
    if request.grammar:
        stops = tuple(dict.fromkeys((*stops, end_token(large))))
    penalties = request.penalties and request.penalties.spread(small, large)
    sampling = request.sampling and msgspec.structs.replace(request.sampling, draft="greedy")
    return msgspec.structs.replace(request, prompt=prompt, stops=stops, sampling=sampling, penalties=penalties)


def _beginning(request: Request, token: int, vocab: int) -> Request:
    """Let a prompt begin with the token that a tokenizer begins texts with, and have it nowhere else."""
    behind = tuple(one if one != token else (one + 1) % vocab for one in request.prompt[1:])
    return msgspec.structs.replace(request, prompt=(token, *behind))


_GREEDY = Limits(
    models=("checkpoint",),
    features=("adaptive-steps", "draft-batch", "trees", "preemption", "prefix-cache", "kv-quantization"),
)


def checkpoint_scenarios(
    path: Path | str,
    *,
    draft: Algorithm = ALGORITHMS[0],
    draft_model: Path | str | None = None,
    seed: int = 0,
    count: int = 24,
    limits: Limits = _GREEDY,
) -> list[Scenario]:
    """Return `count` scenarios of the Hugging Face checkpoint in `path`, with a draft of the directory `draft_model`.

    Without one the draft is of the checkpoint itself, an EAGLE head of random weights, or looks tokens up. They are
    fitted to the `limits` of a subject, by default to greedy requests without penalties. Raises ValueError for a bad
    checkpoint or a draft that it cannot have, and UnfitError for a draft that the subject does not take.
    """
    require_seeded(seed, count)
    alone = [name for name in ALGORITHMS if DRAFT_KINDS_BY_NAME[name].checkpoint != "directory"]
    known, what = (alone, "without") if draft_model is None else (_FROM_FOLDER, "with")
    require_input(draft in known, "draft", draft, f"one {what} a directory of its own, {', '.join(known)}")
    require_input(isinstance(path, Path | str), "path", path, "the directory of a checkpoint")
    path, folder = Path(path), None if draft_model is None else Path(draft_model)
    return fitted(real_scenarios(path, [one_draft(path, draft, folder, seed)], seed, count), limits)
