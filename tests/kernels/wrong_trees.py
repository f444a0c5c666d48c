"""Hand-made wrong implementations of decisions on draft trees. `W` verify width."""

import torch

from draftproof.reference import ops
from tests.kernels.wrong import wrong


@wrong("best_choices")
def highest_ids_first_on_ties(token_ids, scores, logits):
    ops.best_choices(token_ids, scores, logits.flip(1))
    token_ids.copy_(logits.shape[1] - 1 - token_ids)


@wrong("best_choices")
def scores_below_the_one_before(token_ids, scores, logits):
    ops.best_choices(token_ids, scores, logits)
    scores[:, 1:] = scores.diff(dim=1)


@wrong("best_choices")
def in_the_order_of_their_ids(token_ids, scores, logits):
    ops.best_choices(token_ids, scores, logits)
    token_ids.copy_(token_ids.sort(dim=1).values)


@wrong("best_choices")
def scores_are_logits(token_ids, scores, logits):
    ops.best_choices(token_ids, scores, logits)
    scores.copy_(logits.double().gather(1, token_ids))


@wrong("accept_tree")
def only_first_children_are_looked_at(correct_len, bonus, index, ids, choice, parents, counts):
    first = parents.clone()
    for row in range(parents.shape[0]):
        seen = set()
        for place, parent in enumerate(parents[row].tolist()):
            first[row, place] = -2 if parent in seen else parent
            seen.add(parent)
    ops.accept_tree(correct_len, bonus, index, ids, choice, first, counts)


@wrong("accept_tree")
def walks_into_surplus(correct_len, bonus, index, ids, choice, parents, counts):
    everything = torch.where(counts < 0, counts, ids.shape[1])
    ops.accept_tree(correct_len, bonus, index, ids, choice, parents, everything)


@wrong("accept_tree")
def rows_are_a_chain(correct_len, bonus, index, ids, choice, parents, counts):
    ops.accept_tree(correct_len, bonus, index, ids, choice, torch.arange(parents.shape[1]).expand_as(parents), counts)


@wrong("accept_tree")
def bonus_after_as_many_rows_as_are_accepted(correct_len, bonus, index, ids, choice, parents, counts):
    ops.accept_tree(correct_len, bonus, index, ids, choice, parents, counts)
    bonus.copy_(torch.where(counts < 0, 0, choice.gather(1, correct_len.clamp(min=0)[:, None])[:, 0]))


@wrong("accept_tree")
def rows_not_walked_are_root(correct_len, bonus, index, ids, choice, parents, counts):
    ops.accept_tree(correct_len, bonus, index, ids, choice, parents, counts)
    index.clamp_(min=0)
