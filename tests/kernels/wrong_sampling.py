"""Hand-made wrong implementations of the draws. `T` tokens, `C` drafts for one place, `V` vocabulary."""

from collections.abc import Callable

import torch

from draftproof.properties.kernels.contract import Kernel
from draftproof.reference import ops
from draftproof.reference.sampling import ACCEPT, DRAW, Coin, coins, rejected_or_not, sample
from tests.kernels.wrong import WRONG, packed, takes, then, wrong

_BLOCK = 8
"""How many tokens a wrong kernel looks at together."""


def _listed(op: str, name: str, kernel: Kernel) -> Kernel:
    WRONG.append((op, name, kernel))
    return kernel


def _by_row(choose: Callable[[list[int], list[int], Coin], int | None], coins_of: Callable[[int, int], Coin] = coins):
    """Return the op that makes this choice of a row with weights, given its drafts and coins; None: nothing is set."""

    def op(token_ids, weights, drafts, seeds, positions):
        rows = zip(weights.tolist(), drafts.tolist(), seeds.tolist(), positions.tolist(), strict=True)
        for t, (row, siblings, seed, position) in enumerate(rows):
            known = [draft for draft in siblings if 0 <= draft < len(row)]
            token = choose(row, known, coins_of(seed, position)) if sum(row) else None
            if token is not None:
                token_ids[t] = token

    return op


def without(weights: list[int], drafts: list[int]) -> list[int]:
    """Return the weights of all tokens but the drafts."""
    return [0 if token in drafts else weight for token, weight in enumerate(weights)]


def drawn(weights: list[int], number: int) -> int | None:
    """Return the first token at which the sum of the weights exceeds the number, if any."""
    return next((token for token in range(len(weights)) if sum(weights[: token + 1]) > number), None)


def accepted(weights: list[int], drafts: list[int], coin: Coin) -> int | None:
    """Return the first draft at which the running sum of their weights exceeds its coin, if any."""
    found = drawn([weights[draft] for draft in drafts], coin(ACCEPT, sum(weights)))
    return None if found is None else drafts[found]


def chooses(choose: Callable[[list[int], list[int], Coin], int | None]) -> Kernel:
    """List the op that chooses so."""
    return _listed("sampled_choice", choose.__name__, _by_row(choose))


def draws(draw: Callable[[list[int], int], int | None]) -> Kernel:
    """List the op that accepts rightly, and else draws so from the weights of all but the drafts and their coin."""

    def choose(row, drafts, coin):
        rest, found = without(row, drafts), accepted(row, drafts, coin)
        return draw(rest, coin(DRAW, sum(rest))) if found is None else found

    return _listed("sampled_choice", draw.__name__, _by_row(choose))


def accepts(accept: Callable[[list[int], list[int], Coin], int | None]) -> Kernel:
    """List the op that accepts so, and else draws rightly."""

    def choose(row, drafts, coin):
        rest, found = without(row, drafts), accept(row, drafts, coin)
        return drawn(rest, coin(DRAW, sum(rest))) if found is None else found

    return _listed("sampled_choice", accept.__name__, _by_row(choose))


def coins_are(coins_of: Callable[[int, int], Coin]) -> Kernel:
    """List the op with these coins."""
    return _listed("sampled_choice", coins_of.__name__, _by_row(sample, coins_of))


@accepts
def a_coin_of_its_weight_accepts(row, drafts, coin):
    if drafts and not sum(without(row, drafts)):
        return accepted(row, drafts, coin)
    return accepted(row, drafts, lambda draw, most: coin(draw, most) - 1)


@accepts
def siblings_are_asked_alone(row, drafts, coin):
    return next((draft for draft in drafts if coin(ACCEPT, sum(row)) < row[draft]), None)


@accepts
def only_the_first_sibling_is_asked(row, drafts, coin):
    return accepted(row, drafts[:1], coin)


takes("sampled_choice", "siblings_are_asked_from_the_last_on", drafts=lambda drafts: drafts.flip(1))
takes("sampled_choice", "siblings_are_asked_by_their_ids", drafts=lambda drafts: drafts.sort(dim=1).values)


@chooses
def only_the_last_sibling_is_left_out(row, drafts, coin):
    rest, found = without(row, drafts[-1:]), accepted(row, drafts, coin)
    return drawn(rest, coin(DRAW, sum(rest))) if found is None else found


@draws
def a_sum_of_the_coin_draws(rest, number):
    return drawn(rest, number - 1)


@chooses
def a_rejected_draft_may_be_drawn(row, drafts, coin):
    found = accepted(row, drafts, coin)
    return drawn(row, coin(DRAW, sum(row))) if found is None else found


@chooses
def draws_below_the_sum_of_all(row, drafts, coin):
    if (draft := accepted(row, drafts, coin)) is not None:
        return draft
    found = drawn(without(row, drafts), coin(DRAW, sum(row)))
    return len(row) - 1 if found is None else found


@coins_are
def one_coin_for_both(seed, position):
    return lambda _draw, most: coins(seed, position)(ACCEPT, most)


@coins_are
def coins_exchanged(seed, position):
    return lambda draw, most: coins(seed, position)(1 - draw, most)


takes("sampled_choice", "positions_of_the_rows", positions=lambda positions: positions - 1)


@coins_are
def coins_of_32_bits(seed, position):
    return lambda draw, most: (coins(seed, position)(draw, 1 << 32) * most) >> 32


@coins_are
def coins_by_remainder(seed, position):
    return lambda draw, most: coins(seed, position)(draw, 1 << 64) % most


@coins_are
def coins_of_24_bits(seed, position):
    """As many as a float32 between 0 and 1 has."""
    return lambda draw, most: int((coins(seed, position)(draw, 1 << 24) / (1 << 24)) * most)


@wrong("sampled_choice")
def seeds_of_32_bits(token_ids, weights, drafts, seeds, positions):
    ops.sampled_choice(token_ids, weights, drafts, seeds & 0xFFFFFFFF, positions)


takes("sampled_choice", "one_seed_for_all", seeds=lambda seeds: seeds[:1].expand(len(seeds)))


@draws
def sums_of_blocks_not_carried(rest, number):
    blocks = [rest[start : start + _BLOCK] for start in range(0, len(rest), _BLOCK)]
    found = [(place, drawn(block, number)) for place, block in enumerate(blocks)]
    return next((place * _BLOCK + token for place, token in found if token is not None), len(rest))


@draws
def last_block_wins(rest, number):
    return max(drawn(rest, number), (len(rest) - 1) // _BLOCK * _BLOCK)


@draws
def a_token_of_no_weight_is_drawn(rest, number):
    """Of the running sums the first is sought that reaches the number, not the first beyond it."""
    return next(token for token in range(len(rest)) if sum(rest[: token + 1]) >= number)


@chooses
def a_draft_of_no_weight_is_accepted(row, drafts, coin):
    return next((draft for draft in drafts if not row[draft]), sample(row, drafts, coin))


takes("sampled_choice", "no_draft_is_token_zero", drafts=lambda drafts: drafts.clamp(min=0))


@wrong("sampled_choice")
def no_draft_is_the_last_token(token_ids, weights, drafts, seeds, positions):
    ops.sampled_choice(token_ids, weights, torch.where(drafts < 0, weights.shape[1] - 1, drafts), seeds, positions)


@wrong("sampled_choice")
def a_draft_behind_the_vocabulary_is_the_last_token(token_ids, weights, drafts, seeds, positions):
    ops.sampled_choice(token_ids, weights, drafts.clamp(max=weights.shape[1] - 1), seeds, positions)


@then("sampled_choice")
def rows_without_weights_are_set(token_ids, weights):
    token_ids[weights.sum(1) == 0] = 0


@then("sampled_choice")
def rows_without_weights_take_their_draft(token_ids, weights, drafts):
    takes = (weights.sum(1) == 0) & (drafts[:, 0] >= 0)
    token_ids[takes] = drafts[takes, 0]


@coins_are
def sums_of_30_bits(seed, position):
    """The sum is taken for less than it can be."""
    return lambda draw, most: coins(seed, position)(draw, min(most, 1 << 30))


takes("sampled_choice", "packed_weights", weights=lambda weights: packed(weights).clamp(min=0, max=1 << 30))
takes("sampled_choice", "packed_tokens", token_ids=packed)
takes("sampled_choice", "packed_seeds", seeds=lambda seeds: packed(seeds) & (1 << 63) - 1)


@then("sampled_choice")
def weights_are_used_up(weights, drafts):
    """The draft's weight is taken out in place."""
    rows, columns = ((drafts >= 0) & (drafts < weights.shape[1])).nonzero().T
    weights[rows, drafts[rows, columns]] = 0


def _by_both(choose: Callable[[list[int], list[int], int, Coin], int | None], coins_of=coins):
    """Return the op that makes this choice of a row with weights of both kinds and a draft; None: nothing is set."""

    def op(token_ids, weights, draft_weights, drafts, seeds, positions):
        columns = (weights, draft_weights, drafts, seeds, positions)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        for t, (row, drawn_by, draft, seed, position) in enumerate(rows):
            if 0 <= draft < len(row) and sum(row) and drawn_by[draft]:
                token = choose(row, drawn_by, draft, coins_of(seed, position))
                token_ids[t] = token_ids[t] if token is None else token

    return op


def more(row: list[int], drawn_by: list[int]) -> list[int]:
    """Return what the target has more than the draft."""
    return [max(0, p * sum(drawn_by) - q * sum(row)) for p, q in zip(row, drawn_by, strict=True)]


def decides(choose: Callable[[list[int], list[int], int, Coin], int | None]) -> Kernel:
    """List the op that chooses so."""
    return _listed("rejection_choice", choose.__name__, _by_both(choose))


def coins_of_both_are(coins_of: Callable[[int, int], Coin]) -> Kernel:
    """List the op with these coins."""
    return _listed("rejection_choice", coins_of.__name__, _by_both(rejected_or_not, coins_of))


@decides
def ratio_inverted(row, drawn_by, draft, coin):
    if coin(ACCEPT, row[draft] * sum(drawn_by)) < drawn_by[draft] * sum(row):
        return draft
    return drawn(more(row, drawn_by), coin(DRAW, sum(more(row, drawn_by))))


@decides
def recovered_from_all(row, drawn_by, draft, coin):
    accepts = coin(ACCEPT, drawn_by[draft] * sum(row)) < row[draft] * sum(drawn_by)
    return draft if accepts else drawn(row, coin(DRAW, sum(row)))


@coins_of_both_are
def coin_of_acceptance_recovers(seed, position):
    return lambda _draw, most: coins(seed, position)(ACCEPT, most)


@coins_of_both_are
def coin_of_the_draft_recovers(seed, position):
    return lambda draw, most: coins(seed | (draw == DRAW) << 63, position)(draw, most)


@decides
def weights_not_normalised(row, drawn_by, draft, coin):
    """The draft's weights are taken for the target's, whatever their sums are."""
    rest = [max(0, p - q) for p, q in zip(row, drawn_by, strict=True)]
    if coin(ACCEPT, drawn_by[draft]) < row[draft]:
        return draft
    return drawn(rest, coin(DRAW, sum(rest)))


@decides
def only_the_draft_is_left_out(row, drawn_by, draft, coin):
    rest = without(row, [draft])
    accepts = coin(ACCEPT, drawn_by[draft] * sum(row)) < row[draft] * sum(drawn_by)
    return draft if accepts else drawn(rest, coin(DRAW, sum(rest)))


@then("rejection_choice")
def rows_without_draft_weights_are_set(token_ids, draft_weights):
    token_ids[draft_weights.sum(1) == 0] = 0
