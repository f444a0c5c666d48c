"""N-gram trees in the engine: the index of several places, the trie, and whole runs against every contract."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.engine.drafts.ngram_tree import NgramTreeIndex, merge
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

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=20)
MATCH: tuple[Literal["earliest", "latest"], ...] = ("earliest", "latest")


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


def every_path(tokens: list[int], settings: NgramSettings, most: int, count: int) -> list[list[int]]:
    """Search the whole text for the longest suffix that has occurred before."""
    for size in range(settings.max_n, settings.min_n - 1, -1):
        ends = range(size, len(tokens)) if settings.match == "earliest" else range(len(tokens) - 1, size - 1, -1)
        places = [end for end in ends if tokens[end - size : end] == tokens[len(tokens) - size :]]
        if places:
            return [tokens[place : place + most] for place in places[:count]]
    return []


@given(TOKENS, st.lists(TOKENS, max_size=4), st.integers(1, 3), st.integers(1, 3), st.sampled_from(MATCH))
def test_an_index_that_grew_has_the_paths_of_a_search_of_everything(
    prompt: list[int], rounds: list[list[int]], one: int, other: int, match: Literal["earliest", "latest"]
) -> None:
    settings = NgramSettings(max(one, other), min(one, other), match)
    index, tokens = NgramTreeIndex(settings, prompt), list(prompt)
    for new in rounds:
        index.advance(new)
        tokens += new
    paths, first = index.paths(3, 4), index.propose(3)
    assert paths == every_path(tokens, settings, 3, 4)
    assert paths[:1] == ([first] if first else [])


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
