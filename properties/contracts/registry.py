"""All contracts of engine traces, by name; kernel contracts are apart (properties/kernels)."""

from __future__ import annotations

from draftproof.properties.contracts import (
    aborts,
    configuration,
    control,
    discarded,
    drafts,
    ends,
    grammars,
    handovers,
    launches,
    memory,
    overlap,
    packed,
    pools,
    preemption,
    prefix_cache,
    progress,
    ranks,
    returned,
    rounds,
    schedule,
    slots,
    states,
    steering,
    step_tokens,
    tensor_ranks,
    totals,
    trees,
    variants,
    work,
)
from draftproof.properties.contracts.base import Contract
from draftproof.properties.lib.names import did_you_mean

_OF_REQUESTS = (drafts, trees, rounds, grammars, ends, returned, steering, states, slots)
_OF_SCHEDULE = (schedule, progress, preemption, aborts, step_tokens, prefix_cache, handovers, overlap)
_OF_LAUNCHES = (ranks, tensor_ranks, launches, packed, discarded, work)
_OF_ENGINE = (pools, memory, *_OF_SCHEDULE, *_OF_LAUNCHES, control, totals, configuration, variants)
ALL: tuple[Contract, ...] = tuple(contract for room in _OF_REQUESTS + _OF_ENGINE for contract in room.CONTRACTS)
BY_NAME = {contract.name: contract for contract in ALL}


def find(name: str) -> Contract:
    """Return a contract by its name. Raises KeyError with the nearest name."""
    if name in BY_NAME:
        return BY_NAME[name]
    raise KeyError(f"no contract {name!r}{did_you_mean(name, BY_NAME)}")
