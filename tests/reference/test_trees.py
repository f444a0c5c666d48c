"""Draft trees of the reference against naive enumeration, chains, and plain greedy decoding."""

from itertools import product

import numpy as np
import pytest
from msgspec.structs import replace

from draftproof.properties.values.drafts import Eagle
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.values.tree import Tree, chain, depths
from draftproof.reference.decode import Greedy, verify
from draftproof.reference.drafts.base import propose
from draftproof.reference.drafts.eagle import ReferenceEagle
from draftproof.reference.drafts.eagle_tree import ReferenceEagleTree
from draftproof.reference.memo import Memo
from draftproof.reference.probe.drafts import ProbeEagleHead
from draftproof.reference.probe.target import ReferenceProbeTarget
from draftproof.reference.solve import solve
from draftproof.reference.trees import verify_tree
from tests.properties.evidence import HEAD, MODEL, TREE

DENSE = replace(MODEL, layers=2, layer_types=(), linear=None)
TOKENS = (3, 9, 4, 11, 30)
# Few bits of logits, so that scores are often equal; tokens in another order, and fewer of them.
PAIRS = [
    (DENSE, HEAD),
    (replace(DENSE, logit_bits=2), HEAD),
    (replace(DENSE, vocab=5, logit_bits=1), replace(HEAD, head_vocab=4, own_head=True)),
    (replace(DENSE, vocab=7), replace(HEAD, handed="before_norm", takes="before_norm", head_vocab=7)),
]


def made(model: ProbeModel, draft: Eagle) -> tuple[ReferenceProbeTarget, ProbeEagleHead]:
    memo = Memo()
    return ReferenceProbeTarget(model, memo), ProbeEagleHead(draft, model, memo)


def enumerated(
    target: ReferenceProbeTarget, head: ProbeEagleHead, tokens: tuple[int, ...], topk: int, depth: int
) -> dict[tuple[int, ...], tuple[float, tuple[int, ...]]]:
    """Every path of ranks below `topk`, whatever a beam would leave out: its score and its tokens.

    The head runs over all of a path at once, each entry with the state that a run of one entry less handed on.
    """
    whole = target.forward(tokens[:-1])
    given = whole.before_norm if head.takes == "before_norm" else whole.hidden
    found = {}
    for length in range(1, depth + 1):
        for ranks in product(range(topk), repeat=length):
            hidden, path, score = given, (), 0.0
            for rank in ranks:
                row = head.forward(tokens[1:] + path, hidden)
                logits = row.logits[-1]
                order = np.lexsort((np.arange(len(logits)), -logits))
                place = int(order[rank])
                score += logits[place] - logits.max()
                path += (place if head.ids is None else head.ids[place],)
                hidden = np.concatenate((hidden, row.hidden[-1:]))
            found[ranks] = (score, path)
    return found


def paths(drafts: tuple[int, ...], parents: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The tokens from the root to each row."""
    to: list[tuple[int, ...]] = [()]
    for token, parent in zip(drafts, parents, strict=True):
        to.append((*to[parent], token))
    return to[1:]


@pytest.mark.parametrize("pair", range(len(PAIRS)))
@pytest.mark.parametrize(("topk", "nodes"), [(2, 2), (2, 4), (2, 6), (3, 5), (3, 12)])
def test_a_tree_of_two_steps_has_the_best_of_all_paths(pair: int, topk: int, nodes: int):
    """No beam is left out in two steps, so the best candidates are the best paths of all, lower ranks first."""
    model, draft = PAIRS[pair]
    target, head = made(model, draft)
    every = enumerated(target, head, TOKENS if model.vocab > 30 else (1, 2, 0, 3, 1), topk, 2)
    tokens = TOKENS if model.vocab > 30 else (1, 2, 0, 3, 1)
    best = sorted(every, key=lambda ranks: (-every[ranks][0], len(ranks), ranks))[:nodes]
    kept = sorted(best, key=lambda ranks: (len(ranks), ranks))
    own = propose(ReferenceEagleTree(head, Tree(topk=topk, nodes=nodes)), target, tokens, 2)
    assert paths(own.tokens, own.parents) == [every[ranks][1] for ranks in kept]


@pytest.mark.parametrize("pair", range(len(PAIRS)))
@pytest.mark.parametrize(("topk", "nodes", "depth"), [(2, 5, 3), (3, 20, 4), (2, 14, 4)])
def test_a_deeper_tree_is_what_beams_leave_of_all_paths(pair: int, topk: int, nodes: int, depth: int):
    model, draft = PAIRS[pair]
    target, head = made(model, draft)
    tokens = TOKENS if model.vocab > 30 else (1, 2, 0, 3, 1)
    every = enumerated(target, head, tokens, topk, depth)
    beams, candidates = [(rank,) for rank in range(topk)], [(rank,) for rank in range(topk)]
    for _ in range(1, depth):
        step = [(*beam, rank) for beam in beams for rank in range(topk)]
        candidates += step
        # A sort is stable: of equal scores the first.
        beams = sorted(step, key=lambda ranks: -every[ranks][0])[:topk]
    best = sorted(candidates, key=lambda ranks: -every[ranks][0])[:nodes]
    kept = [ranks for ranks in candidates if ranks in best]
    own = propose(ReferenceEagleTree(head, Tree(topk=topk, nodes=nodes)), target, tokens, depth)
    assert paths(own.tokens, own.parents) == [every[ranks][1] for ranks in kept]


def test_the_first_branch_of_one_step_is_the_first_draft_of_a_chain():
    target, head = made(*PAIRS[0])
    (first,) = propose(ReferenceEagle(head), target, TOKENS, 1).tokens
    tree = propose(ReferenceEagleTree(head, Tree(topk=3, nodes=3)), target, TOKENS, 1)
    assert (tree.tokens[0], tree.parents) == (first, (0, 0, 0))
    assert propose(ReferenceEagleTree(head, Tree(topk=3, nodes=3)), target, TOKENS, 0).tokens == ()


def test_a_tree_of_one_branch_is_verified_as_a_chain():
    target, _ = made(*PAIRS[0])
    truth = Greedy(target, TOKENS)
    right = tuple(truth.token(number) for number in range(4))
    tokens = (*TOKENS, right[0])
    for drafts in (right[1:], (*right[1:3], 0), (7, *right[2:]), ()):
        one, other = verify_tree(target, tokens, drafts, chain(len(drafts))), verify(target, tokens, drafts)
        assert (one.choices, one.accepted) == (other.choices, other.accepted)
        assert [position for _, position in one.rows] == [position for _, position in other.rows]
        hidden, others = (np.stack([whole.hidden[at] for whole, at in each.rows]) for each in (one, other))
        assert hidden.tobytes() == others.tobytes()
        assert one.emitted == other.emitted


def test_a_walk_leaves_the_first_branch_for_a_sibling():
    target, _ = made(*PAIRS[0])
    truth = Greedy(target, TOKENS)
    first, second, third = (truth.token(number) for number in range(3))
    wrong = (second + 1) % DENSE.vocab
    found = verify_tree(target, (*TOKENS, first), (wrong, second, third, third), (0, 0, 1, 2))
    assert (found.accepted, found.correct_len) == ((0, 2, 4), 2)
    assert found.emitted == (second, third, truth.token(3))
    assert [position for _, position in found.rows] == [5, 6, 6, 7, 7]


def test_texts_of_trees_are_those_of_greedy_decoding():
    for request, solved in zip(TREE.requests, solve(TREE).requests, strict=True):
        truth = Greedy(ReferenceProbeTarget(DENSE, Memo()), request.prompt)
        assert solved.tokens == tuple(truth.token(number) for number in range(len(solved.tokens)))
        assert sum((one.emitted for one in solved.rounds), solved.tokens[:1]) == solved.tokens


def test_forced_trees_go_as_far_as_their_path():
    rounds = [one for solved in solve(TREE).requests for one in solved.rounds]
    forced = [one for one in rounds if one.forced]
    assert len(forced) >= 6
    assert {one.correct_len for one in forced} >= {0, 1, 3}
    assert any(one.correct_len < max(depths(one.parents)) for one in forced)
    for one in forced:
        for row in range(len(one.parents) + 1):
            below = [one.forced[at] for at, parent in enumerate(one.parents) if parent == row and one.forced]
            assert len(set(below)) == len(below)
