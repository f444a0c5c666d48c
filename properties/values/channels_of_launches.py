"""Channels of what happens inside of launches: those that verify or extend, and the graphs that they are."""

from __future__ import annotations

from draftproof.properties.values import observed
from draftproof.properties.values.channel import Channel

LAUNCH_CHANNELS = (
    Channel("verify.ids", "verify", 1, ("row",), int, "id", what="the input token of a verify row"),
    Channel("verify.positions", "verify", 2, ("row",), int, "token", what="the position of a verify row"),
    Channel("verify.slots", "verify", 3, ("row",), int, "KV slot", what="the KV slot of a verify row"),
    Channel("verify.parents", "verify", 4, ("row",), int, "row", what="the parent row of a verify row"),
    Channel(
        "verify.hidden", "verify", 5, ("row",), observed.Vector, "-", what="the target's hidden state of a verify row"
    ),
    Channel(
        "verify.allowed",
        "verify",
        6,
        ("row",),
        observed.TokenIds,
        "id",
        what="the tokens that grammar or minimum allow after a verify row",
    ),
    Channel(
        "verify.choice",
        "verify",
        6,
        ("row",),
        observed.Choice,
        "id, logit",
        what="the target's choice after a verify row",
    ),
    Channel(
        "verify.discarded",
        "verify",
        7,
        ("step",),
        observed.DiscardedRows,
        "slots",
        scope="engine",
        what="the surplus columns and padding rows of a verify launch",
    ),
    Channel(
        "verify.packed",
        "verify",
        8,
        ("step",),
        observed.PackedRows,
        "slots",
        scope="engine",
        what="the rows of a packed launch",
    ),
    Channel("extend.ids", "extend", 1, ("layer", "row"), int, "id", what="the input token of a draft extend"),
    Channel(
        "extend.positions",
        "extend",
        2,
        ("layer", "row"),
        int,
        "token",
        what="the position of a draft extend's input token",
    ),
    Channel(
        "extend.slots",
        "extend",
        3,
        ("layer", "row"),
        int,
        "KV slot",
        what="the KV slot of a draft extend's input token",
    ),
    Channel(
        "extend.hidden_in",
        "extend",
        4,
        ("layer", "row"),
        observed.Vector,
        "-",
        what="the hidden state that a draft extend is fed",
    ),
    Channel(
        "extend.kv", "extend", 5, ("layer", "row"), observed.Vector, "-", what="the draft's KV entry of a position"
    ),
    Channel(
        "extend.proposal", "extend", 6, ("layer",), observed.Choice, "id", what="the token that a draft extend proposes"
    ),
    Channel(
        "extend.discarded",
        "extend",
        7,
        ("step",),
        observed.DiscardedRows,
        "slots",
        scope="engine",
        what="the surplus columns and padding rows of an extend launch",
    ),
    Channel(
        "graph.replay",
        "graph",
        1,
        ("step",),
        observed.LaunchRecord,
        "rows",
        scope="engine",
        what="the launches of an engine step",
    ),
    Channel(
        "graph.work",
        "graph",
        2,
        ("step",),
        observed.LaunchWork,
        "calls",
        scope="engine",
        what="how often a launch did each part of its work",
    ),
)
