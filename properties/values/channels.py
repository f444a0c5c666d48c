"""The channel table: every observable that a subject may report, in the order of first divergence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["int", "ints", "vector", "choice"]
PHASES = ("plan", "draft", "propose", "verify", "accept", "commit", "extend", "control", "graph", "pool")


@dataclass(frozen=True)
class Channel:
    """One named observable. `keys` are those beside request and round; `kind` is the form of the value.

    int: one integer. ints: a tuple of integers. choice: (token, margin to the second). vector: raw little-endian
    bytes of a probe's integers, or a read-only float64 array of a real model.
    """

    name: str
    phase: str
    rank: int
    keys: tuple[str, ...]
    kind: Kind
    unit: str

    @property
    def order(self) -> tuple[int, int]:
        return (PHASES.index(self.phase), self.rank)


_TABLE = (
    Channel("round.rows", "plan", 1, ("step",), "ints", "rows"),
    Channel("round.table", "plan", 2, ("row",), "int", "page"),
    Channel("round.state", "plan", 3, (), "int", "state slot"),
    Channel("config.seen", "plan", 4, ("step",), "ints", "-"),
    Channel("config.routing", "plan", 5, ("layer",), "int", "layer type"),
    Channel("config.draft", "plan", 7, (), "ints", "-"),
    Channel("control.steps", "plan", 6, (), "ints", "tokens"),
    Channel("draft.step.ids", "draft", 1, ("step",), "int", "id"),
    Channel("draft.step.positions", "draft", 2, ("step",), "int", "token"),
    Channel("draft.step.slots", "draft", 3, ("step",), "int", "KV slot"),
    Channel("draft.step.hidden_in", "draft", 4, ("step",), "vector", "-"),
    Channel("draft.step.proposal", "draft", 5, ("step",), "choice", "id"),
    Channel("draft.block.ids", "draft", 1, ("row",), "int", "id"),
    Channel("draft.block.positions", "draft", 2, ("row",), "int", "token"),
    Channel("draft.block.slots", "draft", 3, ("row",), "int", "KV slot"),
    Channel("draft.block.visible", "draft", 4, ("row",), "int", "token"),
    Channel("draft.block.proposal", "draft", 5, ("row",), "choice", "id"),
    Channel("propose.match", "propose", 1, (), "ints", "tokens"),
    Channel("propose.tokens", "propose", 2, (), "ints", "id"),
    Channel("verify.ids", "verify", 1, ("row",), "int", "id"),
    Channel("verify.positions", "verify", 2, ("row",), "int", "token"),
    Channel("verify.slots", "verify", 3, ("row",), "int", "KV slot"),
    Channel("verify.hidden", "verify", 5, ("row",), "vector", "-"),
    Channel("verify.choice", "verify", 6, ("row",), "choice", "id, logit"),
    Channel("accept.correct_len", "accept", 1, (), "int", "tokens"),
    Channel("accept.index", "accept", 2, (), "ints", "row"),
    Channel("accept.bonus", "accept", 3, (), "int", "id"),
    Channel("accept.emitted", "accept", 4, (), "ints", "id"),
    Channel("commit.length", "commit", 1, (), "int", "tokens"),
    Channel("commit.step_index", "commit", 2, (), "int", "row"),
    Channel("commit.state", "commit", 3, ("layer",), "vector", "-"),
    Channel("commit.intermediate", "commit", 4, ("layer", "row"), "vector", "-"),
    Channel("commit.kv", "commit", 5, ("layer", "row"), "vector", "-"),
    Channel("commit.written", "commit", 6, ("step",), "ints", "slots"),
    Channel("commit.pending", "commit", 7, (), "int", "tokens"),
    Channel("commit.base", "commit", 8, ("layer",), "vector", "-"),
    Channel("commit.checkpoint", "commit", 9, ("layer",), "vector", "-"),
    Channel("commit.final", "commit", 10, ("layer",), "vector", "-"),
    Channel("commit.unfolded", "commit", 11, (), "int", "tokens"),
    Channel("extend.ids", "extend", 1, ("layer", "row"), "int", "id"),
    Channel("extend.positions", "extend", 2, ("layer", "row"), "int", "token"),
    Channel("extend.slots", "extend", 3, ("layer", "row"), "int", "KV slot"),
    Channel("extend.hidden_in", "extend", 4, ("layer", "row"), "vector", "-"),
    Channel("extend.kv", "extend", 5, ("layer", "row"), "vector", "-"),
    Channel("extend.proposal", "extend", 6, ("layer",), "choice", "id"),
    Channel("control.average", "control", 1, (), "vector", "tokens"),
    Channel("graph.replay", "graph", 1, ("step",), "ints", "rows"),
    Channel("pool.owners", "pool", 1, (), "ints", "pages"),
    Channel("pool.guards", "pool", 2, (), "ints", "bytes"),
    Channel("pool.states", "pool", 3, (), "ints", "state slots"),
    Channel("pool.drafts", "pool", 4, (), "ints", "requests"),
)
CHANNELS: dict[str, Channel] = {channel.name: channel for channel in _TABLE}
TAPPED = frozenset(name for name in CHANNELS if name.split(".")[0] in ("draft", "verify", "extend"))
"""What takes taps inside of launches; the rest is what a host sees anyway."""
