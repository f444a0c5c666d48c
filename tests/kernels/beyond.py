"""Holds kernels to their twins at sizes just beyond the least block that they are compiled for; run as a program.

TRITON_INTERPRET=1 python beyond.py   prints the names of those that differ, as a JSON list
"""

import json

import torch

from draftproof import kernels
from draftproof.kernels import triton_decisions, triton_sampling, triton_state
from draftproof.reference import ops

WIDTH = triton_decisions.LEAST_W + 8
ROWS = triton_state.LEAST_B + 8
DRAFTS = triton_sampling.LEAST_K + 4
VOCABULARY = triton_decisions.LEAST_BLOCKS * 4096 + 7000


def ints(*shape: int, most: int, least: int = 0) -> torch.Tensor:
    """Return random numbers from `least` to below `most`."""
    return torch.randint(least, most, shape, generator=RANDOM)


def calls() -> dict[str, tuple[torch.Tensor | int, ...]]:
    """Return the arguments of one call of each."""
    chain = torch.arange(WIDTH - 1).repeat(2, 1)
    accepted, targets = ints(2, WIDTH, most=9), ints(2, WIDTH, most=9)
    targets[0, :-1] = accepted[0, 1:]
    drafts = torch.tensor([WIDTH - 1, WIDTH - 1])
    results = (ints(2, most=1), ints(2, most=1), ints(2, WIDTH, most=1))
    logits = ints(2, VOCABULARY, most=99)
    logits[0, VOCABULARY - 5] = 1000
    cursor = torch.stack([ints(ROWS + 1, most=4), ints(ROWS + 1, most=2)], 1)
    slots, pages = torch.randperm(ROWS, generator=RANDOM) + 1, torch.arange(2 * WIDTH).reshape(2, WIDTH)
    places = (ints(2, WIDTH, most=1), ints(2, WIDTH, most=1), pages, torch.tensor([1, 0]), torch.tensor([3, 0]))
    weights = ints(3, 600, most=50, least=1)
    alternatives = torch.stack([torch.randperm(600, generator=RANDOM)[:DRAFTS] for _ in range(3)])
    # What is drawn is far behind the first drafts: the last has nearly all of the weight.
    weights.scatter_(1, alternatives[:, -1:], 1 << 30)
    return {
        "assign_slots": (*places, drafts, 2, 2 * WIDTH),
        "greedy_accept": (*results, accepted, targets, drafts),
        "accept_tree": (*results, accepted, targets, chain, drafts),
        "greedy_choice": (ints(2, most=1), logits),
        "sampled_choice": (ints(3, most=1), weights, alternatives, ints(3, most=99), ints(3, most=99)),
        "replay_commit": (cursor, slots, ints(ROWS, most=3)),
        "replay_rewind": (cursor, slots),
    }


def differs(op: str, arguments: tuple[torch.Tensor | int, ...]) -> bool:
    """Return whether a kernel leaves any argument otherwise than its twin does."""
    ours, twins = ([one.clone() if isinstance(one, torch.Tensor) else one for one in arguments] for _ in range(2))
    getattr(kernels, op)(*ours)
    getattr(ops, op)(*twins)
    pairs = list(zip(ours, twins, arguments, strict=True))
    if all(torch.equal(twin, before) for _, twin, before in pairs if isinstance(before, torch.Tensor)):
        raise RuntimeError(f"{op} wrote nothing: expected a call that does")
    return any(not torch.equal(mine, twin) for mine, twin, _ in pairs if isinstance(mine, torch.Tensor))


if __name__ == "__main__":
    RANDOM = torch.Generator().manual_seed(1)
    print(json.dumps([op for op, arguments in calls().items() if differs(op, arguments)]))
