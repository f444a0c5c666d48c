"""Scenarios of real checkpoints: those of the probes, with the models exchanged."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec

from draftproof.properties.strategies.scenarios import generate, unforced
from draftproof.properties.values.drafts import CheckpointDraft
from draftproof.properties.values.scenario import RELATIONS, Checkpoint, Graphs, Relation, Request, Scenario, States
from draftproof.properties.values.validate import validate
from draftproof.reference.hybrid_checkpoint import read_target_config
from draftproof.reference.hybrid_config import HybridConfig
from draftproof.reference.memo import Memo
from draftproof.reference.model import build

_OF_GRAPHS = ("graph_vs_eager", "padded_vs_exact", "other_bucket")


def real_scenarios(path: Path, head: Path | None, seed: int, count: int, *, built_in: bool = False) -> list[Scenario]:
    """`count` scenarios of a checkpoint directory, a function of seed and directory. Raises ValueError if it is bad.

    Without a `head` directory the draft is a head made from the seed, or its own MTP layer (`built_in`).
    """
    config = read_target_config(path)
    hybrid = isinstance(config, HybridConfig)
    if isinstance(config, HybridConfig) and "full_attention" not in config.types:
        raise ValueError("layer_types has no 'full_attention', allowed: at least one")
    model = Checkpoint(path=str(path), vocab=config.vocab)
    draft = CheckpointDraft(path=str(head) if head else "", seed=seed, built_in=built_in)
    turns = itertools.cycle(relation for relation in RELATIONS if hybrid or relation != "other_commit")
    scenarios = [_exchange(scenario, model, draft, next(turns)) for scenario in generate(seed, count)]
    if hybrid:
        scenarios = [_with_states(scenario, turn) for turn, scenario in enumerate(scenarios)]
    for scenario in scenarios[:1]:
        build(scenario, Memo())
    return scenarios


def _with_states(scenario: Scenario, turn: int) -> Scenario:
    """Both ways to commit take turns; a scenario made for a dense probe keeps checkpoints of some interval, or none."""
    checkpoint = scenario.states.checkpoint or (2, 0, 3)[turn % 3]
    states = States(commit="replay" if turn % 2 else "snapshot", checkpoint=checkpoint)
    return msgspec.structs.replace(scenario, states=states)


def _exchange(scenario: Scenario, model: Checkpoint, head: CheckpointDraft, relation: Relation) -> Scenario:
    """Relations take turns, since a real model's budget is a few scenarios."""
    scenario = unforced(scenario) if relation == "taps_off" else scenario
    requests = tuple(_spread(request, scenario.model.vocab, model.vocab) for request in scenario.requests)
    graphs = scenario.graphs
    if relation in _OF_GRAPHS and not graphs.sizes:
        graphs = Graphs(sizes=(scenario.schedule.max_batch,))
    return validate(
        msgspec.structs.replace(scenario, model=model, draft=head, requests=requests, graphs=graphs, relation=relation)
    )


def _spread(request: Request, small: int, large: int) -> Request:
    """Prompt tokens over the whole vocabulary."""
    return msgspec.structs.replace(request, prompt=tuple(token * large // small for token in request.prompt))
