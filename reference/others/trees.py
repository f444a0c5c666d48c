"""Naive twins of ops on draft trees, from the definition of a tree. `B` rows of a launch, `W` verify width."""

from __future__ import annotations

from torch import Tensor


def build_tree(
    positions: Tensor,
    retrieve_index: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    mask: Tensor,
    parents: Tensor,
    selected: Tensor,
    seq_lens: Tensor,
    topk: int,
    steps: int,
) -> None:
    """Lay out the tree of candidates `selected` [B,W-1] behind the root; parents[b,g] is the parent of group g.

    positions [B,W] are seq_lens + depth; next_token and next_sibling [B,W] link first children and siblings, -1 for
    none; mask [B,W,W] is 1 where a node sees another: itself and its ancestors; retrieve_index numbers all nodes.
    """
    width = positions.shape[1]
    for b, length in enumerate(seq_lens.tolist()):
        above = _parents(parents[b].tolist(), selected[b].tolist(), topk)
        for n in range(width):
            path = _path(above, n)
            positions[b, n] = length + len(path) - 1
            retrieve_index[b, n] = b * width + n
            for m in range(width):
                mask[b, n, m] = int(m in path)
            below = [m for m in range(width) if above[m] == n]
            next_token[b, n] = below[0] if below else -1
            later = [m for m in range(n + 1, width) if above[m] == above[n]]
            next_sibling[b, n] = later[0] if later else -1


def _parents(parents: list[int], selected: list[int], topk: int) -> list[int]:
    """Return the parent of each node: -1 of the root, the root's 0 of the first `topk` candidates."""
    return [-1, *(0 if one < topk else 1 + selected.index(parents[one // topk]) for one in selected)]


def _path(above: list[int], node: int) -> list[int]:
    """Return a node and its ancestors, the root last."""
    return [node] if above[node] < 0 else [node, *_path(above, above[node])]


def tree_accept(
    predict: Tensor,
    accept_index: Tensor,
    correct_len: Tensor,
    candidates: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    target: Tensor,
) -> None:
    """Walk from the root to the child whose token is the target's choice at the node, as long as there is one.

    accept_index [B,A] lists the nodes b * W + n on the walk, then -1, and a walk ends after A nodes; correct_len counts
    the nodes after the root. predict [B,W] of a node on the walk is the target's choice there; others stay.
    """
    width, most = candidates.shape[1], accept_index.shape[1]
    for b in range(candidates.shape[0]):
        walked, node = [0], 0
        while len(walked) < most:
            child = int(next_token[b, node])
            while child >= 0 and int(candidates[b, child]) != int(target[b, node]):
                child = int(next_sibling[b, child])
            if child < 0:
                break
            walked.append(child)
            node = child
        for i in range(most):
            accept_index[b, i] = b * width + walked[i] if i < len(walked) else -1
        for one in walked:
            predict[b, one] = target[b, one]
        correct_len[b] = len(walked) - 1
