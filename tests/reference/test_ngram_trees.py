"""Trees of n-gram drafts against chains and naive counting, and chains against trees of one beam."""

import random
from itertools import product

import pytest
from msgspec.structs import replace

from draftproof.properties.values.chain_tree import as_tree, script_as_tree
from draftproof.properties.values.drafts import Ngram
from draftproof.properties.values.tree import Tree, chain, lineage
from draftproof.reference.drafts.base import ReferenceProposal
from draftproof.reference.drafts.ngram import ReferenceNgram
from draftproof.reference.drafts.ngram_tree import ReferenceNgramTree
from draftproof.reference.memo import Pass
from draftproof.reference.run import run
from draftproof.reference.solve import solve
from tests.properties.evidence import BESIDE_TREE, MATCHES_BESIDE_TREE

NOTHING: Pass = None  # type: ignore[assignment]  # a lookup takes nothing of the target
MATCHES = ("earliest", "latest")


def proposed(spec: Ngram, tokens: tuple[int, ...], topk: int, nodes: int, depth: int) -> ReferenceProposal:
    return ReferenceNgramTree(spec, Tree(topk=topk, nodes=nodes)).propose(tokens, NOTHING, depth)


@pytest.mark.parametrize(
    ("match", "topk", "nodes", "depth", "tokens", "parents"),
    [
        # 7 goes on as 1 2, 1 3 and 4 5.
        ("earliest", 3, 9, 2, (1, 4, 2, 3, 5), (0, 0, 1, 1, 2)),
        ("latest", 3, 9, 2, (4, 1, 5, 3, 2), (0, 0, 1, 2, 2)),
        ("earliest", 2, 9, 2, (1, 2, 3), (0, 1, 1)),
        ("latest", 2, 9, 2, (4, 1, 5, 3), (0, 0, 1, 2)),
        # Two paths go through 1; of the others the first.
        ("earliest", 3, 1, 2, (1,), (0,)),
        ("latest", 3, 1, 2, (1,), (0,)),
        ("latest", 3, 2, 2, (4, 1), (0, 0)),
        ("earliest", 3, 9, 1, (1, 4), (0, 0)),
        ("earliest", 3, 9, 0, (), ()),
        # The last path ends with what is known.
        ("earliest", 3, 10, 4, (1, 4, 2, 3, 5, 7, 7, 7, 1, 4), (0, 0, 1, 1, 2, 3, 4, 5, 6, 7)),
    ],
)
def test_matches_are_merged(
    match: str, topk: int, nodes: int, depth: int, tokens: tuple[int, ...], parents: tuple[int, ...]
) -> None:
    spec = Ngram(max_n=1, match=match)  # type: ignore[arg-type]
    own = proposed(spec, (7, 1, 2, 7, 1, 3, 7, 4, 5, 7), topk, nodes, depth)
    assert (own.tokens, own.parents) == (tokens, parents)


@pytest.mark.parametrize(("match", "longest"), list(product(MATCHES, (1, 2, 3))))
def test_rows_are_the_nodes_that_most_matches_share(match: str, longest: int) -> None:
    """Every prefix of a path, counted on its own: what is left out is shared by no more than what is kept."""
    spec, source, branching = Ngram(max_n=longest, match=match), random.Random(longest), 0  # type: ignore[arg-type]
    for _ in range(300):
        tokens = tuple(source.randrange(3) for _ in range(source.randint(2, 24)))
        topk, depth, nodes = source.randint(1, 5), source.randint(1, 4), source.randint(1, 8)
        own, whole = (proposed(spec, tokens, topk, most, depth) for most in (nodes, 64))
        length, _ = ReferenceNgram(spec).match(tokens)
        ends = [end for end in range(length, len(tokens)) if length and tokens[end - length : end] == tokens[-length:]]
        ends = (ends if match == "earliest" else ends[::-1])[:topk]
        paths = [tokens[end : end + depth] for end in ends]
        prefixes = [path[:count] for path in paths for count in range(1, len(path) + 1)]
        rows, every = (
            [tuple(one.tokens[row - 1] for row in lineage(one.parents, at)) for at in range(1, len(one.tokens) + 1)]
            for one in (own, whole)
        )
        assert sorted(every) == sorted(set(prefixes))
        assert len(rows) == min(nodes, len(every))
        assert rows == [row for row in every if row in set(rows)]
        assert [len(row) for row in every] == sorted(len(row) for row in every)
        assert all(len(row) == 1 or row[:-1] in rows for row in rows)
        least = min((prefixes.count(row) for row in rows), default=0)
        left_out = [row for row in every if row not in rows]
        assert all(prefixes.count(row) <= least for row in left_out)
        branching += len({row[0] for row in every}) > 1
    assert branching > 20


@pytest.mark.parametrize(("match", "longest"), list(product(MATCHES, (1, 3))))
def test_one_match_is_the_chain(match: str, longest: int) -> None:
    spec, source = Ngram(max_n=longest, match=match), random.Random(longest)  # type: ignore[arg-type]
    found = 0
    for _ in range(300):
        tokens = tuple(source.randrange(4) for _ in range(source.randint(1, 20)))
        depth = source.randint(0, 5)
        tree = proposed(spec, tokens, 1, max(depth, 1), depth)
        of_chain = ReferenceNgram(spec).propose(tokens, NOTHING, depth)
        assert tree.tokens == of_chain.tokens
        assert tree.parents == chain(len(tree.tokens))
        assert tree.said[:1] == of_chain.said
        found += bool(tree.tokens)
    assert found > 100


@pytest.mark.parametrize("scenario", [BESIDE_TREE, MATCHES_BESIDE_TREE], ids=["eagle", "ngram"])
def test_the_trace_of_a_tree_of_one_beam_is_that_of_the_chain(scenario) -> None:
    own = replace(scenario, variant="none")
    script, tree = solve(own), as_tree(own)
    one, other = run(own, script), run(tree, script_as_tree(script))
    shared = one.channels & other.channels
    assert {"propose.tokens", "verify.choice", "verify.hidden", "accept.index", "commit.kv"} <= shared
    for channel in shared:
        assert repr(sorted(one.channel(channel).items())) == repr(sorted(other.channel(channel).items())), channel
    for name in ("ids", "positions", "hidden_in"):
        beams = {key._replace(row=-1): value for key, value in other.channel(f"draft.beam.{name}").items()}
        assert beams == one.channel(f"draft.step.{name}")


def test_a_tree_of_one_beam_solves_itself_as_the_chain_does() -> None:
    """Where nothing is forced, the script of the tree is made without the chain's."""
    requests = tuple(
        replace(one, grammar=None, sampling=None, rounds=(replace(one.rounds[0], num_drafts=3, num_correct=-1),))
        for one in MATCHES_BESIDE_TREE.requests
    )
    for scenario in (BESIDE_TREE, MATCHES_BESIDE_TREE):
        own = replace(scenario, variant="none", requests=requests)
        assert solve(as_tree(own)) == script_as_tree(solve(own))
