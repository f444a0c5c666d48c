"""How large a call is where a kernel may cut it: as much of each size as is of consequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from draftproof.properties.kernels.case import KernelCase

Sizes = Callable[[KernelCase], Sequence[int]]
"""How large a dimension of a call is, in each of its rows; nothing where it is of no consequence."""
_SHORTEST = 1e-2


def _values(case: KernelCase, name: str) -> torch.Tensor:
    return case.buffers[name].tensor


def _known(case: KernelCase, pool: str, slots: str, place: int = 0) -> torch.Tensor:
    """Return which rows have a slot that exists."""
    index = _values(case, slots)
    return (index >= 0) & (index < case.buffers[pool].shape[place])


def shape(argument: str, place: int) -> Sizes:
    """Return the size of an argument's dimension."""
    return lambda case: (case.buffers[argument].shape[place],)


def number(argument: str) -> Sizes:
    """Return the value of an argument that is a number."""

    def value(case: KernelCase) -> tuple[int]:
        found = case.arguments[argument]
        assert isinstance(found, int), f"{argument} is a tensor"
        return (found,)

    return value


def elements(argument: str, first: int) -> Sizes:
    """Return how many elements the dimensions of an argument from one on have."""
    return lambda case: (torch.Size(case.buffers[argument].shape[first:]).numel(),)


def is_known(sizes: Sizes, pool: str, *slots: str, place: int = 0) -> Sizes:
    """Return sizes of calls in which a row has slots that exist."""

    def known(case: KernelCase) -> Sequence[int]:
        rows = torch.stack([_known(case, pool, one, place) for one in slots]).all(0)
        return sizes(case) if bool(rows.any()) else ()

    return known


def written(pool: str, *slots: str) -> Sizes:
    """Return one more than each slot that a row has."""
    return lambda case: [1 + at for one in slots for at in _values(case, one)[_known(case, pool, one)].tolist()]


def accepted(case: KernelCase) -> Sequence[int]:
    """Return how many tokens each row of a chain has that are accepted, its own included."""
    ids, targets, drafts = (_values(case, name) for name in ("input_ids", "target_tokens", "num_drafts"))
    counts = drafts.clamp(max=ids.shape[1] - 1)
    agrees = (ids[:, 1:] == targets[:, :-1]) & (torch.arange(ids.shape[1] - 1) < counts[:, None])
    return (1 + agrees.long().cumprod(1).sum(1)).tolist()


def chain(case: KernelCase) -> Sequence[int]:
    """Return the accepted drafts of rows of trees, counting only those that each follow the one before."""
    parents, most = _values(case, "parents"), case.buffers["accept_index"].shape[1]
    follows = (1 + (parents == torch.arange(parents.shape[1])).long().cumprod(1).sum(1)).tolist()
    return [min(most, *both) for both in zip(accepted(case), follows, strict=True)]


def live_columns(case: KernelCase) -> Sequence[int]:
    """Return how many columns are live in each row of a request that exists."""
    counts = _values(case, "num_drafts")[_known(case, "page_table", "req_rows")]
    return (1 + counts.clamp(max=case.buffers["positions"].shape[1] - 1)).tolist()


def seen(case: KernelCase) -> Sequence[int]:
    """Return how many positions there are from the first on up to the last one that each token sees."""
    rows, places = _values(case, "req_rows").tolist(), _values(case, "positions").tolist()
    firsts = _values(case, "first").tolist() if "first" in case.arguments else [0] * len(rows)
    return [_seen(case, *one) for one in zip(rows, firsts, places, strict=True)]


def _seen(case: KernelCase, row: int, first: int, place: int) -> int:
    table, size, (page,) = _values(case, "page_table"), case.buffers["k_pool"].shape[0], number("page_size")(case)
    if not 0 <= row < table.shape[0]:
        return 0
    at = torch.arange(max(first, 0), max(max(first, 0), min(place + 1, table.shape[1] * page)))
    entries = table[row, at // page]
    exists = (entries >= 0) & (entries < size)
    visible = (exists & (entries.where(exists, 0) * page + at % page < size)).nonzero()
    return int(visible.max()) + 1 if visible.numel() else 0


def last_of_pieces(case: KernelCase) -> int:
    """Return how many tokens the last piece has where tokens are cut into pieces that look at 2^18 numbers each.

    All look as far as the longest; 0 where there is one piece.
    """
    (_, heads, keys), values = case.buffers["k_pool"].shape, case.buffers["v_pool"].shape[2]
    (page,), places = number("page_size")(case), _values(case, "positions")
    length = min(int(places.max()) + 1, case.buffers["page_table"].shape[1] * page)
    step = max(1, (1 << 18) // max(1, length * heads * (keys + values)))
    return (len(places) - 1) % step + 1 if len(places) > step else 0


def sequence(pool: str) -> Sizes:
    """Return how many tokens the longest sequence with a slot has: the others run beside it."""

    def longest(case: KernelCase) -> Sequence[int]:
        lengths = _values(case, "cu_seqlens").diff()[_known(case, pool, "state_slots")]
        return (int(lengths.max()),) if len(lengths) else ()

    return longest


def folds(case: KernelCase, least: int, most: int, key_size: int = 0, value_size: int = 0) -> bool:
    """Return whether a row with all steps pending, and states of at least these sizes, has `least` to `most` tokens."""
    (_, _, height, width), steps = case.buffers["ssm"].shape, case.buffers["gates"].shape[2]
    slots = _values(case, "state_slots")[_known(case, "ssm", "state_slots")]
    full = bool((_values(case, "cursor")[slots, 0] == steps).any())
    return full and height >= key_size and width >= value_size and least <= steps + case.buffers["x"].shape[1] <= most


def goes_on(case: KernelCase) -> bool:
    """Return whether one token has enough gates that there are more blocks of them than programs."""
    (tokens, inputs), outputs = case.buffers["x"].shape, case.buffers["out"].shape[1]
    return tokens == 1 and 1024 < inputs <= 2048 and outputs > 1024


def is_tiled(case: KernelCase) -> bool:
    """Return whether states are so many, and so wide, that a program has 32 columns."""
    _, heads, _, width = case.buffers["ssm"].shape
    return width > 32 and case.buffers["state_slots"].shape[0] * heads * -(-width // 32) >= 528


def is_ahead(case: KernelCase) -> bool:
    """Return whether few rows of few tokens, one of which has a slot, have states of more than two tiles."""
    (rows, tokens, heads, width), known = case.buffers["out"].shape, _known(case, "ssm", "state_slots")
    return tokens <= 4 and width > 32 and rows * heads * -(-width // 16) <= 264 and bool(known.any())


def has_short_keys(case: KernelCase) -> bool:
    """Return whether queries and keys are so short that what a norm adds below its root is most of it."""
    name = next(one for one in ("qkv", "x", "inputs") if one in case.arguments)
    (heads, _, width), values = case.buffers["ssm"].shape[1:], _values(case, name)
    keys = values[..., : values.shape[-1] - heads * width].float().abs()
    live = keys[torch.isfinite(keys) & (keys < 100)]
    return bool(live.numel()) and float(live.max()) < _SHORTEST
