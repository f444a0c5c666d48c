"""The channel table: every observable that a subject may report, in the order of first divergence."""

from __future__ import annotations

from draftproof.properties.values import observed
from draftproof.properties.values.channel import PHASES, Channel
from draftproof.properties.values.drafts import KINDS

_TABLE = (
    Channel("round.rows", "plan", 1, ("step",), observed.BatchRow, "rows"),
    Channel("round.table", "plan", 2, ("row",), int, "page"),
    Channel("round.state", "plan", 3, (), int, "state slot"),
    Channel("round.cached", "plan", 9, (), int, "prompt tokens"),
    Channel("round.attempt", "plan", 10, (), int, "attempts"),
    Channel("config.seen", "plan", 4, ("step",), observed.ConfigSeen, "-", scope="engine"),
    Channel("config.routing", "plan", 5, ("layer",), observed.LayerKind, "layer type", scope="engine"),
    Channel("config.draft", "plan", 7, (), observed.DraftNeeds, "-", scope="engine"),
    Channel("config.index_bytes", "plan", 8, (), observed.IndexBytes, "bytes", scope="engine"),
    Channel("control.steps", "plan", 6, (), observed.StepsInForce, "tokens", scope="engine"),
    Channel("draft.step.ids", "draft", 1, ("step",), int, "id"),
    Channel("draft.step.positions", "draft", 2, ("step",), int, "token"),
    Channel("draft.step.slots", "draft", 3, ("step",), int, "KV slot"),
    Channel("draft.step.hidden_in", "draft", 4, ("step",), observed.Vector, "-"),
    Channel("draft.step.proposal", "draft", 5, ("step",), observed.Choice, "id"),
    Channel("draft.block.ids", "draft", 1, ("row",), int, "id"),
    Channel("draft.block.positions", "draft", 2, ("row",), int, "token"),
    Channel("draft.block.slots", "draft", 3, ("row",), int, "KV slot"),
    Channel("draft.block.visible", "draft", 4, ("row",), int, "token"),
    Channel("draft.block.proposal", "draft", 5, ("row",), observed.Choice, "id"),
    Channel("draft.discarded", "draft", 6, ("step",), observed.DiscardedRows, "slots", scope="engine"),
    Channel("propose.tokens", "propose", 2, (), observed.TokenIds, "id"),
    Channel("round.drafts", "propose", 3, (), observed.TokenIds, "id"),
    Channel("verify.ids", "verify", 1, ("row",), int, "id"),
    Channel("verify.positions", "verify", 2, ("row",), int, "token"),
    Channel("verify.slots", "verify", 3, ("row",), int, "KV slot"),
    Channel("verify.hidden", "verify", 5, ("row",), observed.Vector, "-"),
    Channel("verify.choice", "verify", 6, ("row",), observed.Choice, "id, logit"),
    Channel("verify.discarded", "verify", 7, ("step",), observed.DiscardedRows, "slots", scope="engine"),
    Channel("accept.correct_len", "accept", 1, (), int, "tokens"),
    Channel("accept.index", "accept", 2, (), tuple[int, ...], "row"),
    Channel("accept.bonus", "accept", 3, (), int, "id"),
    Channel("accept.emitted", "accept", 4, (), observed.TokenIds, "id"),
    Channel("commit.length", "commit", 1, (), int, "tokens"),
    Channel("commit.step_index", "commit", 2, (), int, "row"),
    Channel("commit.state", "commit", 3, ("layer",), observed.Vector, "-"),
    Channel("commit.intermediate", "commit", 4, ("layer", "row"), observed.Vector, "-", commit="snapshot"),
    Channel("commit.kv", "commit", 5, ("layer", "row"), observed.Vector, "-"),
    Channel("commit.written", "commit", 6, ("step",), observed.WriteSet, "slots", scope="engine"),
    Channel("commit.pending", "commit", 7, (), int, "tokens", commit="replay"),
    Channel("commit.base", "commit", 8, ("layer",), observed.Vector, "-", commit="replay"),
    Channel("commit.checkpoint", "commit", 9, ("layer",), observed.Vector, "-"),
    Channel("commit.final", "commit", 10, ("layer",), observed.Vector, "-"),
    Channel("commit.unfolded", "commit", 11, (), int, "tokens", commit="replay"),
    Channel("extend.ids", "extend", 1, ("layer", "row"), int, "id"),
    Channel("extend.positions", "extend", 2, ("layer", "row"), int, "token"),
    Channel("extend.slots", "extend", 3, ("layer", "row"), int, "KV slot"),
    Channel("extend.hidden_in", "extend", 4, ("layer", "row"), observed.Vector, "-"),
    Channel("extend.kv", "extend", 5, ("layer", "row"), observed.Vector, "-"),
    Channel("extend.proposal", "extend", 6, ("layer",), observed.Choice, "id"),
    Channel("extend.discarded", "extend", 7, ("step",), observed.DiscardedRows, "slots", scope="engine"),
    Channel("control.average", "control", 1, (), observed.Vector, "tokens", scope="engine"),
    Channel("total.rounds", "control", 2, (), int, "rounds", scope="engine"),
    Channel("total.drafts", "control", 3, (), int, "tokens", scope="engine"),
    Channel("total.accepted", "control", 4, (), int, "tokens", scope="engine"),
    Channel("total.accepted_at", "control", 5, (), tuple[int, ...], "tokens", scope="engine"),
    Channel("graph.replay", "graph", 1, ("step",), observed.LaunchRecord, "rows", scope="engine"),
    Channel("graph.work", "graph", 2, ("step",), observed.LaunchWork, "calls", scope="engine"),
    Channel("pool.owners", "pool", 1, (), observed.PoolReport, "pages", scope="engine"),
    Channel("pool.guards", "pool", 2, (), tuple[int, ...], "bytes", scope="engine"),
    Channel("pool.states", "pool", 3, (), observed.StatePoolReport, "state slots", scope="engine"),
    Channel("pool.reachable", "pool", 5, ("step",), observed.Footprint, "objects", scope="engine"),
    Channel("pool.drafts", "pool", 4, (), tuple[int, ...], "requests", scope="engine"),
)
_OF_DRAFTS = tuple(channel for kind in KINDS for channel in kind.channels)
CHANNELS: dict[str, Channel] = {
    channel.name: channel for channel in sorted((*_OF_DRAFTS, *_TABLE), key=lambda channel: PHASES.index(channel.phase))
}
TAPPED = frozenset(channel.name for channel in _TABLE if channel.is_tapped)
