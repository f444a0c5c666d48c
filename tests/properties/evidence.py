"""A passing piece of evidence to break: four requests, shrinking batches, reused pages, one engine run a relation."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from draftproof.engine.subject import EngineSubject
from draftproof.properties.contracts.evidence import Evidence
from draftproof.properties.relations import related
from draftproof.properties.values.scenario import (
    Graphs,
    Memory,
    ProbeHead,
    ProbeModel,
    Relation,
    Request,
    RoundWish,
    Scenario,
    Schedule,
)
from draftproof.properties.values.trace import Observation, Trace
from draftproof.properties.values.validate import validate
from draftproof.reference.run import run
from draftproof.reference.solve import solve

MODEL = ProbeModel(seed=7, layers=2, heads=4, kv_heads=2, key_dim=3, value_dim=5, lanes=6, vocab=41)
HEAD = ProbeHead(seed=8, heads=3, kv_heads=3, key_dim=2, value_dim=4, lanes=5)


def request(arrival: int, prompt: int, budget: int, wishes: str) -> Request:
    """`wishes` lists drafts/accept of the rounds."""
    rounds = tuple(RoundWish(drafts=int(drafts), accept=int(right)) for drafts, right in map(_split, wishes.split()))
    return Request(arrival=arrival, prompt=tuple(range(3, 3 + prompt)), budget=budget, rounds=rounds)


def _split(wish: str) -> list[str]:
    return wish.split("/")


SCENARIO = validate(
    Scenario(
        model=MODEL,
        head=HEAD,
        steps=3,
        memory=Memory(page_size=3, pages=18, request_slots=3, max_len=30),
        graphs=Graphs(sizes=(2,)),
        schedule=Schedule(max_batch=3, chunk=4),
        requests=(
            request(0, 7, 9, "3/1 2/2 3/0 0/0"),
            request(0, 5, 12, "3/3 3/0 0/0 3/2"),
            request(1, 4, 6, "2/2 3/3"),
            request(9, 2, 6, "2/-1 3/3"),
        ),
    )
)


@lru_cache
def evidence(relation: Relation = "none") -> Evidence:
    """The engine's own run, judged as it is; with a relation, its second run too."""
    scenario = msgspec.structs.replace(SCENARIO, relation=relation)
    script, subject = solve(scenario), EngineSubject()
    second = None if relation == "none" else subject.run(related(scenario), script)
    return Evidence(scenario, script, run(scenario, script), subject.run(scenario, script), second)


def with_observations(of: Evidence, observations: Iterable[Observation]) -> Evidence:
    """The same evidence with another trace of the subject."""
    trace = Trace(of.subject.subject, of.subject.channels, tuple(observations))
    return Evidence(of.scenario, of.script, of.reference, trace, of.related)
