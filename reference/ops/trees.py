"""Naive twins of decisions on draft trees. `B` rows of a launch, `W` verify width, `T` tokens, `V` vocabulary."""

from torch import Tensor


def best_choices(token_ids: Tensor, scores: Tensor, logits: Tensor) -> None:
    """Set token_ids [T,k] to the ids of the highest logits [T,V], and scores to how far each is below the highest.

    Lower ids come first among equals.
    """
    for t in range(logits.shape[0]):
        ranked = sorted((-value, token) for token, value in enumerate(logits[t].tolist()))
        for place in range(token_ids.shape[1]):
            token_ids[t, place] = ranked[place][1]
            scores[t, place] = ranked[0][0] - ranked[place][0]


def accept_tree(
    correct_len: Tensor,
    bonus: Tensor,
    accept_index: Tensor,
    input_ids: Tensor,
    target_tokens: Tensor,
    parents: Tensor,
    num_drafts: Tensor,
) -> None:
    """Walk from the root to the child whose token is the target's choice there, until there is none or A are walked."""
    for r, count in enumerate(num_drafts.tolist()):
        ids, choices = input_ids[r].tolist(), target_tokens[r].tolist()
        above = [-1, *parents[r].tolist()][: max(count, 0) + 1]
        walked = [0] if count >= 0 else []
        while 0 < len(walked) < accept_index.shape[1]:
            at = walked[-1]
            children = [m for m in range(1, len(above)) if above[m] == at and ids[m] == choices[at]]
            if not children:
                break
            walked.append(children[0])
        correct_len[r] = len(walked) - 1
        bonus[r] = choices[walked[-1]] if walked else 0
        for place in range(accept_index.shape[1]):
            accept_index[r, place] = walked[place] if place < len(walked) else -1
