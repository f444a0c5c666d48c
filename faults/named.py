"""The contract and the channel that a fault names: there must be such, and the contract must be able to fail there."""

from __future__ import annotations

from draftproof.faults.catalogue import FaultFile
from draftproof.faults.patching import PatchError
from draftproof.faults.trial import HANG_CONTRACT
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import ALL, CONTRACTS_BY_NAME
from draftproof.properties.kernels.table import KERNEL_CONTRACTS, KERNEL_PREFIX
from draftproof.properties.lib.names import did_you_mean, group_of
from draftproof.properties.values.channels import CHANNELS

_VARIANTS = "variant"
"""The group of contracts that have nearly every channel."""


def validate_names(file: FaultFile) -> None:
    """Raise PatchError for an unknown contract or channel, or for a channel that the contract does not have."""
    contract, channel = file.fault.contract, file.fault.channel
    contracts = ("", HANG_CONTRACT, *CONTRACTS_BY_NAME, *KERNEL_CONTRACTS)
    if contract not in contracts:
        hint = did_you_mean(contract, contracts)
        raise PatchError(f"{file.path}: invalid contract {contract!r}: expected a contract of `draftproof check`{hint}")
    problem = f"{file.path}: invalid channel {channel!r}"
    if channel and channel not in CHANNELS and not channel.startswith(KERNEL_PREFIX):
        hint = did_you_mean(channel, CHANNELS)
        raise PatchError(f"{problem}: expected one of docs/semantics/channels.md, or {KERNEL_PREFIX}*{hint}")
    if contract and channel and not _has(contract, channel):
        owners = _owners(channel)
        raise PatchError(f"{problem} of contract {contract!r}, which has no such channel: expected {owners}")


def _has(contract: str, channel: str) -> bool:
    """Return whether a contract can fail on a channel; of a kernel it is the name of an argument."""
    if contract.startswith(KERNEL_PREFIX) or contract == HANG_CONTRACT:
        return contract != HANG_CONTRACT and channel.startswith(KERNEL_PREFIX)
    return channel in _judged(CONTRACTS_BY_NAME[contract])


def _judged(one: Contract) -> frozenset[str]:
    # One that only reads a channel can tell what is surplus there.
    return one.needs | one.partial | one.reads


def _owners(channel: str) -> str:
    """Say which contracts a channel belongs to."""
    if channel.startswith(KERNEL_PREFIX):
        return f"a contract {KERNEL_PREFIX}*"
    owners = [one.name for one in ALL if channel in one.needs | one.partial]
    proper = [name for name in owners if group_of(name) != _VARIANTS]
    return " or ".join(filter(None, [", ".join(proper), f"{_VARIANTS}.*" if proper != owners else ""]))
