"""Tensor-parallel ranks: what each of them has of the values that all of them make together (docs/semantics.md, S-TP).

`N` KV heads, `H` key size, `E` value size, `C` width of the convolution, `Q` its channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from draftproof.properties.values.drafts import ProbeDraft
from draftproof.properties.values.scenario import Linear, ProbeModel, Scenario
from draftproof.properties.values.trace import Observation, Trace

if TYPE_CHECKING:
    from draftproof.properties.evidence.evidence import Evidence

OF_STATES = ("commit.state", "commit.intermediate", "commit.base", "commit.checkpoint", "commit.final")
Cut = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class TensorRanks:
    """The runs of all ranks, which serve the same requests; `whole` is what the reference says of one that is alone."""

    all: tuple[Evidence, ...]
    whole: Trace


def part_of_rank(trace: Trace, scenario: Scenario, rank: int) -> Trace:
    """Return the trace of one that has everything, as tensor-parallel rank `rank` has it: with its heads (S-TP-2)."""
    cuts: dict[str, Cut] = {}
    ranks, model, draft = scenario.ranks, scenario.model, scenario.draft
    assert isinstance(model, ProbeModel)
    cuts["commit.kv"] = _entries(model, rank, ranks.tensor)
    if isinstance(draft, ProbeDraft) and ranks.draft_tensor > 1:
        cuts["extend.kv"] = _entries(draft, rank, ranks.tensor)
    if model.linear:
        cuts |= dict.fromkeys(OF_STATES, _states(model.linear, rank, ranks.tensor))
    own = tuple(_cut(one, cuts) for one in trace.observations)
    return replace(trace, observations=own)


def _cut(one: Observation, cuts: dict[str, Cut]) -> Observation:
    cut = cuts.get(one.channel)
    if cut is None or not isinstance(one.value, bytes):
        return one
    return one._replace(value=cut(np.frombuffer(one.value, dtype="<u8")).tobytes())


def _entries(part: ProbeModel | ProbeDraft, rank: int, ranks: int) -> Cut:
    """Return what takes the rank's heads of an entry: N keys, then N values."""
    return lambda entry: _heads(entry, (part.kv_heads * part.key_dim, part.kv_heads * part.value_dim), rank, ranks)


def _states(sizes: Linear, rank: int, ranks: int) -> Cut:
    """Return what takes the rank's heads of a state: C - 1 inputs of Q channels, then a matrix for each value head."""
    keys, values = sizes.key_heads * sizes.key_dim, sizes.value_heads * sizes.value_dim
    window = (sizes.conv - 1) * sizes.channels

    def cut(state: np.ndarray) -> np.ndarray:
        inputs = state[:window].reshape(sizes.conv - 1, sizes.channels)
        own = [_heads(row, (keys, keys, values), rank, ranks) for row in inputs]
        matrices = state[window:]
        return np.concatenate([*own, _heads(matrices, (len(matrices),), rank, ranks)])

    return cut


def _heads(vector: np.ndarray, sections: tuple[int, ...], rank: int, ranks: int) -> np.ndarray:
    """Return the rank's part of each section: of several ranks each has as much, one behind the other."""
    parts = np.split(vector, np.cumsum(sections)[:-1])
    return np.concatenate([np.split(part, ranks)[rank] for part in parts])


def tensor_counts(one: Evidence) -> dict[str, int]:
    """Return what ranks share of a scenario, by the names of facts, as the run of one of them tells."""
    if one.beside is None:
        return {}
    scenario = one.scenario
    model, has_layers = scenario.model, isinstance(scenario.draft, ProbeDraft)
    drawing = {number for number, request in enumerate(scenario.requests) if request.sampling}
    return {
        "tensor_ranks_run": len(one.beside.all),
        "tensor_drafts_cut": int(has_layers and scenario.ranks.draft_tensor > 1),
        "tensor_drafts_whole": int(has_layers and scenario.ranks.draft_tensor == 1),
        "tensor_padded_launches": sum(0 < launch.rows < launch.size for launch in one.schedule.launches),
        "tensor_hybrids": int(one.hybrid),
        "tensor_draws": sum(request in drawing for request, _ in one.schedule.decode_steps),
        "tensor_windows": int(isinstance(model, ProbeModel) and model.window > 0),
    }
