"""Tensor-parallel ranks: what each of them has of the values that all of them make together (S-TP).

`N` KV heads, `H` key size, `E` value size, `C` width of the convolution, `Q` its channels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from draftproof.properties.values.drafts import ProbeDraft
from draftproof.properties.values.scenario import Linear, ProbeModel, Scenario
from draftproof.properties.values.trace import Observation, Trace

STATE_CHANNELS = (
    "disaggregation.state",
    "commit.state",
    "commit.intermediate",
    "commit.base",
    "commit.checkpoint",
    "commit.cached",
    "commit.final",
)


@dataclass(frozen=True)
class TensorRanks:
    """What all ranks did, which serve the same requests; `whole` is what the reference says of one that is alone."""

    subjects: tuple[Trace, ...]
    whole: Trace


def part_of_rank(trace: Trace, scenario: Scenario, rank: int) -> Trace:
    """Return the trace of one that has everything, as tensor-parallel rank `rank` has it: with its heads (S-TP-2)."""
    cuts: dict[str, np.ndarray] = {}
    ranks, model, draft = scenario.ranks, scenario.model, scenario.draft
    assert isinstance(model, ProbeModel)
    cuts |= dict.fromkeys(("commit.kv", "disaggregation.kv"), _entries(model, rank, ranks.tensor))
    if isinstance(draft, ProbeDraft) and ranks.draft_tensor > 1:
        cuts |= dict.fromkeys(("extend.kv", "disaggregation.draft_kv"), _entries(draft, rank, ranks.tensor))
    if model.linear:
        cuts |= dict.fromkeys(STATE_CHANNELS, _states(model.linear, rank, ranks.tensor))
    own = tuple(_cut(one, cuts) for one in trace.observations)
    return replace(trace, observations=own)


def _cut(one: Observation, cuts: dict[str, np.ndarray]) -> Observation:
    own = cuts.get(one.channel)
    if own is None or not isinstance(one.value, bytes):
        return one
    return Observation(one.channel, one.key, np.frombuffer(one.value, dtype="<u8")[own].tobytes())


def _entries(part: ProbeModel | ProbeDraft, rank: int, ranks: int) -> np.ndarray:
    """Return the places of the rank's heads in an entry: N keys, then N values."""
    return _heads((part.kv_heads * part.key_dim, part.kv_heads * part.value_dim), rank, ranks)


def _states(sizes: Linear, rank: int, ranks: int) -> np.ndarray:
    """Return the places of the rank's heads in a state: C - 1 inputs of Q channels, then a matrix a value head."""
    keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
    return _heads((keys, keys, values) * (sizes.conv - 1) + (values * sizes.key_dim,), rank, ranks)


def _heads(sections: tuple[int, ...], rank: int, ranks: int) -> np.ndarray:
    """Return the places of the rank's part of each section: of several ranks each has as much, one behind the other."""
    parts = np.split(np.arange(sum(sections)), np.cumsum(sections)[:-1])
    return np.concatenate([np.split(part, ranks)[rank] for part in parts])
