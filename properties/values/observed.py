"""The values that a trace holds: a struct for each observation that is more than a number, a vector or token ids."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Union

import msgspec

if TYPE_CHECKING:
    import numpy as np

# The name in quotes keeps numpy out of commands that only list channels.
Vector = Union[bytes, "np.ndarray"]
"""Little-endian bytes of a probe's 64-bit integers, or a read-only float64 array of a real model."""
TokenIds = tuple[int, ...]
Choice = tuple[int, float]
"""The token with the highest logit, and that logit minus the second highest (0.0 on a tie)."""


class LaunchKind(IntEnum):
    """What a launch does; see GRAPHED for what may be captured."""

    PREFILL = 0
    DRAFT = 1
    VERIFY = 2
    EXTEND = 3
    EXTEND_PROMPT = 4
    CAPTURE = 5
    COMMIT = 6
    FINISH = 7
    KEEP = 8
    MIXED = 9
    PACK = 10
    INSTALL = 11
    RESTORE = 12


GRAPHED = (LaunchKind.DRAFT, LaunchKind.VERIFY, LaunchKind.EXTEND)
"""The launches of a decode batch that may run as captured graphs, by rows."""
PACKED = (LaunchKind.PREFILL, LaunchKind.MIXED)
"""The launches of a mixed schedule that may run as captured graphs, by tokens."""


class MemoryRegion(IntEnum):
    """Memory that a launch writes, and what numbers a place in it.

    KV entries of the target and of the draft: a slot. Other memory: a byte. Recurrent states and their checkpoints: a
    state slot. Intermediate states: place in the batch * (steps + 1) + verify row.
    """

    TARGET = 0
    DRAFT = 1
    OTHER = 2
    STATES = 3
    INTERMEDIATE = 4
    CHECKPOINTS = 5


class LayerKind(IntEnum):
    """How a layer of the target mixes tokens."""

    FULL_ATTENTION = 0
    LINEAR_ATTENTION = 1
    SLIDING_ATTENTION = 2


class Observed(msgspec.Struct, frozen=True, order=True):
    """The base of structs in a trace. Like tuples they are built by position, compared and sorted by their fields."""


class BatchRow(Observed, frozen=True):
    """One request's row of a batch, in channel round.rows.

    `place` in the batch; `count` drafts (K) of a decode row or tokens of a prefill chunk; `phase` 0 prefill, 1 decode;
    `size` captured rows of the graph that ran (0: eager); `step` engine step.
    """

    place: int
    count: int
    phase: int
    size: int
    step: int


class LaunchRecord(Observed, frozen=True):
    """One launch, in channel graph.replay.

    `kind` of the launch; `size` captured rows (0: eager), `rows` of them live, `replays` of that graph so far, `width`
    verify width of the runtime that the launch belongs to (0: none), `layer` of a chain's extend (0 otherwise). Of a
    packed launch `size` is captured tokens, and `tokens` of them are live; of any other that is 0.
    """

    kind: LaunchKind
    size: int
    rows: int
    replays: int
    width: int
    layer: int
    tokens: int = 0


class PackedRow(Observed, frozen=True):
    """One row of a packed launch, in channel verify.packed.

    Its `request`; `phase` 0 a chunk of a prompt, 1 a verify row; `tokens` it has from token `offset` of the launch on;
    the `position` that the first of them ran at, and the KV slots of all.
    """

    request: int
    phase: int
    offset: int
    tokens: int
    position: int
    slots: tuple[int, ...]


PackedRows = tuple[PackedRow, ...]
"""The rows of one packed launch, in its order."""


class LaunchWork(Observed, frozen=True):
    """How often a launch did each part of its work, in channel graph.work: a call for a layer, or for all of them.

    `writes` of KV entries, `attentions`, `recurrences` of linear layers (S-BATCH-6), `commits` of
    their states, `decisions` (choices among logits, and acceptance); `kernels` of any kind in all.
    """

    writes: int
    attentions: int
    recurrences: int
    commits: int
    decisions: int
    kernels: int


class Collective(Observed, frozen=True):
    """A collective as one rank issued it, in channel rank.collectives; its shape is the shape over all ranks.

    `op` is agree (1: the largest of some numbers), gather (2: rows of all ranks) or sum (3: of all ranks' parts),
    `dtype` the dtype that is sent: int64 (1) or float32 (2), or another (0).
    """

    op: int
    rows: int
    lanes: int
    dtype: int = 1

    def __str__(self) -> str:
        known = {1: "agree", 2: "gather", 3: "sum"}.get(self.op, f"operation {self.op}")
        sent = {1: "", 2: " of float32"}.get(self.dtype, " of another dtype")
        return f"{known} [{self.rows}, {self.lanes}]{sent}"


class BufferKind(IntEnum):
    """What a buffer holds that host and device share (docs/semantics/overlap.md, S-OVERLAP)."""

    INPUTS = 0
    ROUNDS = 1
    PROMPTS = 2


class Returned(Observed, frozen=True):
    """When a round came back, in channel accept.returned.

    The engine `step` that returned what the round emitted, and whether that `finished` its request (S-LIMIT-17); of a
    request that was refused (S-LIMIT-18) the `error`.
    """

    step: int
    finished: bool
    error: str = ""

    def __str__(self) -> str:
        what = "its last round" if self.finished else "a round before others"
        return f"returned by step {self.step} as {f'refused ({self.error})' if self.error else what}"


class SharedUse(Observed, frozen=True):
    """One use of a buffer that host and device share, in channel overlap.buffers.

    `place` of the buffer among those of its `kind`; `side` 0 the host, 1 the device, which does so in work number
    `work` (1, 2, … as they are given). The host has `waited` for the work up to this number.
    """

    kind: BufferKind
    place: int
    side: int
    work: int
    waited: int


class DiscardedRound(Observed, frozen=True):
    """A round that a request ran after it had ended, in channel overlap.discarded.

    Its `context` before it, `drafts` it verified (-1: there was no position for it, it ran as a padding row), and
    `committed` tokens.
    """

    context: int
    drafts: int
    committed: int


class WrittenPlace(Observed, frozen=True):
    """One place whose bytes a launch changed in any layer, in channel commit.written.

    `region` of memory; `place` in it.
    """

    region: MemoryRegion
    place: int

    def __str__(self) -> str:
        return f"place {self.place} of region {self.region}"


WriteSet = tuple[WrittenPlace, ...]
"""What one launch changed: places once each, ascending."""


class DiscardedRow(Observed, frozen=True):
    """One row of a launch whose results are thrown away, in draft.discarded, verify.discarded, extend.discarded.

    `place` in the launch; `column` of a verify, a block or an extend, or the draft step (of a tree's steps:
    (s - 1) k + b); the `position`, KV `slot`, request row (`req_row`) and `state_slot` that it ran with (0 where a
    launch has no states: only a verify has).
    """

    place: int
    column: int
    position: int
    slot: int
    req_row: int
    state_slot: int


DiscardedRows = tuple[DiscardedRow, ...]
"""The surplus columns and padding of one launch, by place and column."""


class Owner(Observed, frozen=True):
    """The request that owns a page or a state slot: `index` of that, and the `request`."""

    index: int
    request: int

    def __str__(self) -> str:
        return f"{self.index} of request {self.request}"


class PoolReport(Observed, frozen=True):
    """The pages in use after an engine step, in channel pool.owners.

    `free_pages` and `free_rows` are numbers; `owners` of the others, by page.
    """

    free_pages: int
    free_rows: int
    owners: tuple[Owner, ...]


class CachedPage(Observed, frozen=True):
    """A page that a prefix cache keeps after an engine step, in channel pool.cached.

    `page` is its number; `locks` requests run on it; `tokens` are all of the text that its entries are made of,
    with a negative number where an image begins (S-CACHE-9).
    """

    page: int
    locks: int
    tokens: TokenIds = ()

    def __str__(self) -> str:
        return f"page {self.page} of tokens {', '.join(map(str, self.tokens))}, locked {self.locks} times"


CachedPages = tuple[CachedPage, ...]
"""The pages of a prefix cache, by page."""


class CachedCheckpoint(Observed, frozen=True):
    """The `slot` of a recurrent state that a prefix cache keeps, and the `tokens` that its page is known by."""

    slot: int
    tokens: TokenIds

    def __str__(self) -> str:
        return f"checkpoint {self.slot} behind tokens {', '.join(map(str, self.tokens))}"


class CheckpointReport(Observed, frozen=True):
    """The checkpoints of a prefix cache after an engine step, in channel pool.checkpoints.

    `free_slots` is a number; the others are `kept`, by slot.
    """

    free_slots: int
    kept: tuple[CachedCheckpoint, ...]


class Footprint(Observed, frozen=True):
    """What an engine keeps with no request left, in channel pool.reachable.

    `objects` that can be reached from it, `entries` of containers among them, `tensor_bytes` of their storages.
    """

    objects: int
    entries: int
    tensor_bytes: int


KEPT_EVERY = 8
"""Steps from one look at what an engine keeps to the next, where no request ends in between (S-BATCH-11)."""


class Holdings(Observed, frozen=True):
    """What an engine keeps after a step beside graphs and buffers, in channel pool.kept.

    `requests` of which something can be reached from it, those of two engines twice; `tensor_bytes` of the storages of
    its tensors; `nodes` of a prefix cache that are not in its tree.
    """

    requests: tuple[int, ...]
    tensor_bytes: int
    nodes: int


class StatePoolReport(Observed, frozen=True):
    """The state slots in use after an engine step, in channel pool.states.

    `free_slots` is a number; `owners` of the others, by state slot.
    """

    free_slots: int
    owners: tuple[Owner, ...]


class ConfigSeen(Observed, frozen=True):
    """The configuration object as it was at one point of a run, in channel config.seen.

    `crc` is the CRC-32 of its canonical JSON, `num_layers` the number of layers, `layer_kinds` the type of each.
    """

    crc: int
    num_layers: int
    layer_kinds: tuple[LayerKind, ...]


class DraftNeeds(Observed, frozen=True):
    """What a draft is built for, in channel config.draft.

    `hidden_size` of what it is handed for a token (0: nothing), `num_layers` with KV entries of its own.
    """

    hidden_size: int
    num_layers: int

    def __str__(self) -> str:
        lanes, layers = self.hidden_size or "no", self.num_layers or "no"
        return f"{lanes} lanes of hidden states and {layers} layers of entries"


class IndexBytes(Observed, frozen=True):
    """How many bytes an index has in the narrowest tensor of its kind, in channel config.index_bytes; 0: in none.

    Those of `token_ids`, `positions`, `slots` (shown by taps), `pages`, `req_rows` and `state_slots`.
    """

    token_ids: int
    positions: int
    slots: int
    pages: int
    req_rows: int
    state_slots: int


class StepsInForce(Observed, frozen=True):
    """The controller before an engine step, in channel adaptive_steps.steps.

    `steps` for this step's decode batch: the most drafts of a round; `verifies` counted before it (of its slot).
    """

    steps: int
    verifies: int


class NgramMatch(Observed, frozen=True):
    """What an n-gram draft found, in channel propose.match.

    `length` of the suffix that occurred before (0: none did), `place` of the token that followed it (-1).
    """

    length: int
    place: int

    def __str__(self) -> str:
        if not self.length:
            return "none"
        return f"{self.length} {'token' if self.length == 1 else 'tokens'}, followed by that at place {self.place}"


Datum = int | TokenIds | Choice | Vector | Observed | tuple[Observed, ...]


def numbers(value: object) -> tuple[int | float, ...]:
    """Return every number of a value in order, including numbers in nested structs and tuples; () for a vector."""
    if isinstance(value, (int, float)):
        return (value,)
    parts = msgspec.structs.astuple(value) if isinstance(value, Observed) else value
    if not isinstance(parts, tuple):
        return ()
    found = list[int | float]()
    for part in parts:
        found += (part,) if isinstance(part, (int, float)) else numbers(part)
    return tuple(found)
