"""The channel table: every observable that a subject may report, in the order of first divergence."""

from __future__ import annotations

from draftproof.properties.values.channel import PHASES, Channel
from draftproof.properties.values.drafts import KINDS
from draftproof.properties.values.observed import (
    BatchRow,
    Choice,
    ConfigSeen,
    DraftNeeds,
    LaunchRecord,
    LayerKind,
    PoolReport,
    StatePoolReport,
    StepsInForce,
    TokenIds,
    Vector,
    WriteSet,
)

_TABLE = (
    Channel("round.rows", "plan", 1, ("step",), BatchRow, "rows"),
    Channel("round.table", "plan", 2, ("row",), int, "page"),
    Channel("round.state", "plan", 3, (), int, "state slot"),
    Channel("config.seen", "plan", 4, ("step",), ConfigSeen, "-", scope="engine"),
    Channel("config.routing", "plan", 5, ("layer",), LayerKind, "layer type", scope="engine"),
    Channel("config.draft", "plan", 7, (), DraftNeeds, "-", scope="engine"),
    Channel("control.steps", "plan", 6, (), StepsInForce, "tokens", scope="engine"),
    Channel("draft.step.ids", "draft", 1, ("step",), int, "id"),
    Channel("draft.step.positions", "draft", 2, ("step",), int, "token"),
    Channel("draft.step.slots", "draft", 3, ("step",), int, "KV slot"),
    Channel("draft.step.hidden_in", "draft", 4, ("step",), Vector, "-"),
    Channel("draft.step.proposal", "draft", 5, ("step",), Choice, "id"),
    Channel("draft.block.ids", "draft", 1, ("row",), int, "id"),
    Channel("draft.block.positions", "draft", 2, ("row",), int, "token"),
    Channel("draft.block.slots", "draft", 3, ("row",), int, "KV slot"),
    Channel("draft.block.visible", "draft", 4, ("row",), int, "token"),
    Channel("draft.block.proposal", "draft", 5, ("row",), Choice, "id"),
    Channel("propose.tokens", "propose", 2, (), TokenIds, "id"),
    Channel("verify.ids", "verify", 1, ("row",), int, "id"),
    Channel("verify.positions", "verify", 2, ("row",), int, "token"),
    Channel("verify.slots", "verify", 3, ("row",), int, "KV slot"),
    Channel("verify.hidden", "verify", 5, ("row",), Vector, "-"),
    Channel("verify.choice", "verify", 6, ("row",), Choice, "id, logit"),
    Channel("accept.correct_len", "accept", 1, (), int, "tokens"),
    Channel("accept.index", "accept", 2, (), tuple[int, ...], "row"),
    Channel("accept.bonus", "accept", 3, (), int, "id"),
    Channel("accept.emitted", "accept", 4, (), TokenIds, "id"),
    Channel("commit.length", "commit", 1, (), int, "tokens"),
    Channel("commit.step_index", "commit", 2, (), int, "row"),
    Channel("commit.state", "commit", 3, ("layer",), Vector, "-"),
    Channel("commit.intermediate", "commit", 4, ("layer", "row"), Vector, "-", commit="snapshot"),
    Channel("commit.kv", "commit", 5, ("layer", "row"), Vector, "-"),
    Channel("commit.written", "commit", 6, ("step",), WriteSet, "slots", scope="engine"),
    Channel("commit.pending", "commit", 7, (), int, "tokens", commit="replay"),
    Channel("commit.base", "commit", 8, ("layer",), Vector, "-", commit="replay"),
    Channel("commit.checkpoint", "commit", 9, ("layer",), Vector, "-"),
    Channel("commit.final", "commit", 10, ("layer",), Vector, "-"),
    Channel("commit.unfolded", "commit", 11, (), int, "tokens", commit="replay"),
    Channel("extend.ids", "extend", 1, ("layer", "row"), int, "id"),
    Channel("extend.positions", "extend", 2, ("layer", "row"), int, "token"),
    Channel("extend.slots", "extend", 3, ("layer", "row"), int, "KV slot"),
    Channel("extend.hidden_in", "extend", 4, ("layer", "row"), Vector, "-"),
    Channel("extend.kv", "extend", 5, ("layer", "row"), Vector, "-"),
    Channel("extend.proposal", "extend", 6, ("layer",), Choice, "id"),
    Channel("control.average", "control", 1, (), Vector, "tokens", scope="engine"),
    Channel("graph.replay", "graph", 1, ("step",), LaunchRecord, "rows", scope="engine"),
    Channel("pool.owners", "pool", 1, (), PoolReport, "pages", scope="engine"),
    Channel("pool.guards", "pool", 2, (), tuple[int, ...], "bytes", scope="engine"),
    Channel("pool.states", "pool", 3, (), StatePoolReport, "state slots", scope="engine"),
    Channel("pool.drafts", "pool", 4, (), tuple[int, ...], "requests", scope="engine"),
)
_OF_DRAFTS = tuple(channel for kind in KINDS for channel in kind.channels)
CHANNELS: dict[str, Channel] = {
    channel.name: channel for channel in sorted((*_OF_DRAFTS, *_TABLE), key=lambda channel: PHASES.index(channel.phase))
}
TAPPED = frozenset(channel.name for channel in _TABLE if channel.is_tapped)
