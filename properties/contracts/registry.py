"""All contracts of engine traces, by name; kernel contracts are apart (properties/kernels)."""

from __future__ import annotations

from draftproof.properties.contracts import (
    aborts,
    adaptive_steps,
    configuration,
    disaggregation,
    discarded,
    drafts,
    ends,
    grammars,
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
    tensor_ranks,
    token_budget,
    totals,
    trees,
    variants,
    work,
)
from draftproof.properties.contracts.base import Contract
from draftproof.properties.lib.names import did_you_mean

_OF_REQUESTS = (drafts, trees, rounds, grammars, ends, returned, steering, states, slots)
_OF_SCHEDULE = (schedule, progress, preemption, aborts, token_budget, prefix_cache, disaggregation, overlap)
_OF_LAUNCHES = (ranks, tensor_ranks, launches, packed, discarded, work)
_OF_ENGINE = (pools, memory, *_OF_SCHEDULE, *_OF_LAUNCHES, adaptive_steps, totals, configuration, variants)
ALL: tuple[Contract, ...] = tuple(contract for room in _OF_REQUESTS + _OF_ENGINE for contract in room.CONTRACTS)
CONTRACTS_BY_NAME = {contract.name: contract for contract in ALL}


def find(name: str) -> Contract:
    """Return a contract by its name. Raises KeyError with the nearest name."""
    if name in CONTRACTS_BY_NAME:
        return CONTRACTS_BY_NAME[name]
    raise KeyError(f"no contract {name!r}{did_you_mean(name, CONTRACTS_BY_NAME)}")
