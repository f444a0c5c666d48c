"""N-gram trees in the engine: the index of several places, the trie, and whole runs against every contract."""

import random

import pytest
from msgspec.structs import replace

from draftproof.engine.drafts.ngram import NgramIndex
from draftproof.engine.drafts.ngram_tree import merge
from draftproof.engine.models.base import NgramSettings
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.grammar import Grammar, end_token
from draftproof.properties.values.penalties import Penalties
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import Graphs, Request
from draftproof.properties.values.tree import Tree
from tests.properties.evidence import MATCHES


@pytest.mark.parametrize(
    ("paths", "nodes", "tokens", "parents"),
    [
        ([], 4, [], []),
        ([[5, 6]], 4, [5, 6], [0, 1]),
        ([[5, 6], [5, 7], [8]], 9, [5, 8, 6, 7], [0, 0, 1, 1]),
        ([[8], [5, 6], [5, 7]], 9, [8, 5, 6, 7], [0, 0, 2, 2]),
        ([[8, 1], [5, 6], [5, 6]], 2, [5, 6], [0, 1]),
        ([[5, 8], [6, 8]], 4, [5, 6, 8, 8], [0, 0, 1, 2]),
        ([[1, 1, 1]], 2, [1, 1], [0, 1]),
    ],
)
def test_paths_are_merged(paths: list[list[int]], nodes: int, tokens: list[int], parents: list[int]) -> None:
    assert merge(paths, nodes) == (tokens, parents)


@pytest.mark.parametrize("match", ["earliest", "latest"])
def test_the_first_of_several_paths_is_that_of_a_chain(match: str) -> None:
    source, settings = random.Random(match), NgramSettings(2, 1, match)  # type: ignore[arg-type]
    several = 0
    for _ in range(200):
        tokens = [source.randrange(3) for _ in range(source.randint(1, 20))]
        index = NgramIndex(settings, tokens)
        paths, first = index.paths(3, 4), index.propose(3)
        assert paths[:1] == ([first] if first else [])
        assert len(paths) <= 4
        several += len(paths) > 1
    assert several > 60


def drawn(request: Request, seed: int) -> Request:
    return replace(request, sampling=Sampling(temperature=2.0, seed=seed), logprobs=1)


def constrained(request: Request) -> Request:
    return replace(request, grammar=Grammar(pattern="(a|b)*"), stops=(end_token(MATCHES.model.vocab),))


SCENARIOS = {
    "captured": MATCHES,
    "eager": replace(MATCHES, graphs=Graphs()),
    "latest": replace(MATCHES, draft=replace(MATCHES.draft, match="latest")),
    "bushy": replace(MATCHES, tree=Tree(topk=4, nodes=12)),
    "one beam": replace(
        MATCHES,
        tree=Tree(topk=1, nodes=3),
        requests=tuple(replace(one, rounds=one.rounds[-1:]) for one in (MATCHES.requests[0], MATCHES.requests[3])),
    ),
    "sampled": replace(MATCHES, requests=tuple(map(drawn, MATCHES.requests, range(4)))),
    "penalised": replace(
        MATCHES, requests=tuple(replace(one, penalties=Penalties(presence=3)) for one in MATCHES.requests)
    ),
    "constrained": replace(MATCHES, requests=(constrained(MATCHES.requests[0]), *MATCHES.requests[1:])),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_tree_of_matches_passes_every_contract(name: str) -> None:
    judged = judge(evidence(EngineSubject("cpu"), validate(SCENARIOS[name])))
    assert judged.passed, judged.first
    assert {"tree.steered", "tree.walked", "tree.proposed", "draft.match"} <= judged.results.keys()
    assert "beam.candidates" not in judged.results
