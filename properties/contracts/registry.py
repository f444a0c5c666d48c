"""All contracts of engine traces, by name; kernel contracts are apart (properties/kernels)."""

from __future__ import annotations

from difflib import get_close_matches

from draftproof.properties.contracts import (
    configuration,
    control,
    drafts,
    launches,
    memory,
    pools,
    rounds,
    schedule,
    slots,
    states,
    variants,
)
from draftproof.properties.contracts.base import Contract

ALL: tuple[Contract, ...] = (
    *drafts.CONTRACTS,
    *rounds.CONTRACTS,
    *states.CONTRACTS,
    *slots.CONTRACTS,
    *pools.CONTRACTS,
    *memory.CONTRACTS,
    *schedule.CONTRACTS,
    *launches.CONTRACTS,
    *control.CONTRACTS,
    *configuration.CONTRACTS,
    *variants.CONTRACTS,
)
BY_NAME = {contract.name: contract for contract in ALL}


def find(name: str) -> Contract:
    """A contract by its name. Raises KeyError with the nearest name."""
    if name in BY_NAME:
        return BY_NAME[name]
    near = get_close_matches(name, BY_NAME, n=1)
    raise KeyError(f"no contract {name!r}" + (f"; the nearest is {near[0]!r}" if near else ""))
