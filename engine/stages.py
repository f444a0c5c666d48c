"""The frozen values that pass between the stages of an engine step: plan -> propose -> verify -> commit.

`R` rows (requests of a batch), `W` verify width (drafts + 1), `D` hidden width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor

from draftproof.engine.penalty_params import PenaltyParams
from draftproof.engine.sampling import SamplingParams


class GrammarParams(Struct, frozen=True):
    """A regular expression, what each token spells, and the token that comes after a word of it."""

    pattern: str
    token_texts: tuple[str, ...]
    end_token: int


class Minimum(Struct, frozen=True):
    """`tokens` more tokens must be emitted before one of `ids`."""

    tokens: int
    ids: tuple[int, ...]


class PromptLogprobParams(Struct, frozen=True):
    """The `top` likeliest tokens at each position of a prompt behind `start` are to be told, and what was there."""

    top: int
    start: int


class ImageSpan(Struct, frozen=True):
    """An image of frames x height x width tokens of a prompt, from token `start` on."""

    start: int
    frames: int
    height: int
    width: int

    @property
    def count(self) -> int:
        return self.frames * self.height * self.width


class GenerationRequest(Struct, frozen=True):
    """A request of a user; `num_drafts_wanted` in decode rounds 1, 2, .., repeated cyclically.

    Without `sampling` it is greedy. It is aborted when engine step `abort_at` begins, if it is not done by then. See
    stopping.py for what else ends it.
    """

    id: int
    arrival: int
    prompt: tuple[int, ...]
    budget: int
    stop: frozenset[int]
    num_drafts_wanted: tuple[int, ...]
    sampling: SamplingParams | None = None
    penalties: PenaltyParams | None = None
    grammar: GrammarParams | None = None
    logprobs: int | None = None
    abort_at: int | None = None
    stop_sequences: tuple[tuple[int, ...], ...] = ()
    min_tokens: int = 0
    ignore_eos: bool = False
    prompt_logprobs: PromptLogprobParams | None = None
    images: tuple[ImageSpan, ...] = ()


class PrefillRow(Struct, frozen=True):
    """Tokens start .. end-1 of a text, run as one chunk; `state_slot` is the request's state slot.

    The text is the prompt, and of a request that is resumed in its round `round` what it has `emitted`. Its first
    `cached` tokens were run for others, and the state after them is in `checkpoint` (0: none, or a later chunk).
    With `prompt_logprobs` what its tokens were weighed among is to be told.
    """

    request: GenerationRequest
    req_row: int
    chunk: int
    start: int
    end: int
    state_slot: int = 0
    round: int = 0
    emitted: tuple[int, ...] = ()
    cached: int = 0
    checkpoint: int = 0
    minimum: Minimum | None = None
    prompt_logprobs: PromptLogprobParams | None = None

    @property
    def text(self) -> tuple[int, ...]:
        """Return the tokens that all chunks run."""
        return self.request.prompt + self.emitted

    @property
    def ids(self) -> tuple[int, ...]:
        """Return the tokens of the chunk."""
        return self.text[self.start : self.end]

    @property
    def tail(self) -> int:
        """Return the token of the text after them, -1 if the target is to choose it."""
        return self.text[self.end] if self.end < len(self.text) else -1


class DecodeRow(Struct, frozen=True):
    """One request in a decode batch: context length n, pending token t_n, K drafts in its own round, and state slot."""

    request: GenerationRequest
    req_row: int
    round: int
    seq_len: int
    pending_token: int
    num_drafts: int
    state_slot: int = 0
    minimum: Minimum | None = None

    def having(self, num_drafts: int) -> DecodeRow:
        """Return the row with this many drafts."""
        return self if num_drafts == self.num_drafts else replace(self, num_drafts=num_drafts)

    def within(self, most: int) -> DecodeRow:
        """Return the row with at most so many drafts."""
        return self if self.num_drafts <= most else replace(self, num_drafts=most)


def relayed(batch: tuple[DecodeRow, ...], inputs: Mapping[str, Tensor]) -> tuple[DecodeRow, ...]:
    """Return rows with what only the device knows of them; waits for it. A row of padding has -1 drafts."""
    known = zip(*(inputs[name].tolist() for name in ("positions", "pending_tokens", "num_drafts")), strict=True)
    return tuple(
        replace(row, seq_len=seq_len, pending_token=token, num_drafts=count)
        for row, (seq_len, token, count) in zip(batch, known, strict=True)
    )


class Released(Struct, frozen=True):
    """What a request gave back: its row, its pages (but those that a cache keeps) and its state slot (0: none)."""

    request: int
    req_row: int
    pages: tuple[int, ...]
    state_slot: int


class KeptState(NamedTuple):
    """The state after `tokens` tokens of a request, copied for others from `place` to `checkpoint`."""

    checkpoint: int
    place: int
    request: int
    tokens: int


class Retired(Struct, frozen=True):
    """What was given back at the end of a step, and the states that are `kept` for others.

    `dropped` are pages that no window reaches any more, of requests that go on.
    """

    released: tuple[Released, ...] = ()
    kept: tuple[KeptState, ...] = ()
    dropped: tuple[int, ...] = ()


class StepPlan(Struct, frozen=True):
    """What one engine step runs; `steps` are the most drafts that a row may have in it.

    `preempted` requests gave their pages to others, and `evicted` pages and their checkpoints are free. The prompts of
    `installed` were run by another engine, which transferred them: each row is the whole prompt, with its first token.
    """

    step: int
    steps: int
    prefill: tuple[PrefillRow, ...]
    decode: tuple[DecodeRow, ...]
    preempted: tuple[Released, ...] = ()
    evicted: tuple[int, ...] = ()
    evicted_checkpoints: tuple[int, ...] = ()
    installed: tuple[PrefillRow, ...] = ()


class Launch(Struct, frozen=True):
    """One launch: `size` captured rows (0: eager), `rows` of them live, `replays` of that graph so far.

    `width` is the verify width of its runtime (0: none), `layer` the part of an extend that has several. For a packed
    launch `size` counts tokens, `tokens` of them live, and `packed` are its rows: request, whether it verifies.
    """

    kind: str
    size: int
    rows: int
    replays: int
    width: int = 0
    layer: int = 0
    tokens: int = 0
    packed: tuple[tuple[int, bool], ...] = ()


class BufferUse(Struct, frozen=True):
    """One use of a buffer that host and device share: number `place` among those of its `kind`.

    It belongs to the work of this number, and the host has waited for the work up to `waited`.
    """

    kind: str
    place: int
    by_device: bool
    work: int
    waited: int


class HostDrafts(Struct, frozen=True):
    """Drafts of each row that are known before its round begins, on the host; `parents` of a tree's, as verify rows."""

    tokens: Sequence[Sequence[int]]
    parents: Sequence[Sequence[int]] | None = None

    @property
    def num_drafts(self) -> tuple[int, ...]:
        return tuple(map(len, self.tokens))

    def columns(self, width: int) -> dict[str, list[int]]:
        """Return draft_tokens, and parents of a tree's: `width` of each row, zero behind the last, row after row."""
        named = {"draft_tokens": self.tokens} | ({} if self.parents is None else {"parents": self.parents})
        flat: dict[str, list[int]] = {name: [] for name in named}
        for name, rows in named.items():
            for row in rows:
                flat[name] += row
                flat[name] += [0] * (width - len(row))
        return flat


class Proposal(Struct, frozen=True):
    """draft_tokens [R, W - 1], row r meaning its first num_drafts[r] columns; `parents` of a tree's, as verify rows.

    `weights` [R, W - 1, V] that they were drawn by, 0 where they were not; `excluded` [R, W, V] are tokens that must
    not follow the rows of the verify. `counts` [R] stand for num_drafts where the host does not know these.
    """

    draft_tokens: Tensor
    num_drafts: tuple[int, ...]
    parents: Tensor | None = None
    weights: Tensor | None = None
    excluded: Tensor | None = None
    counts: Tensor | None = None


class Acceptance(Struct, frozen=True):
    """ids [R, W] verified, target_tokens [R, W] after each, correct_len [R] drafts accepted, also on the host.

    hidden_states [R, W, D] are what the draft reads; tokens are the accepted ones and the bonus. Accepted rows come
    first in all of these; `walked` has their numbers in the verify, -1 behind the last, and `weights` [R, W, ..] the
    weights that the target_tokens were chosen from, if any request asked. `steps` [R, W] are the numbers by which
    states know the rows of trees, -1 behind the last; rows of chains are known by their places.
    """

    ids: Tensor
    hidden_states: Tensor | None
    target_tokens: Tensor
    correct_len: Tensor
    weights: Mapping[str, Tensor]
    correct_len_cpu: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    walked: Sequence[Sequence[int]]
    steps: Tensor | None = None

    @property
    def accept_index(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple([place for place in row if place >= 0]) for row in self.walked)


class Commit(Struct, frozen=True):
    """Tokens that a request gained (cut at its end), its length after, whether it is finished, and its logprobs.

    After the prompt `prompt_logprobs` are (position, what it was weighed among). `error` says why one was refused.
    """

    request: int
    req_row: int
    state_slot: int
    round: int
    seq_len_before: int
    emitted: tuple[int, ...]
    seq_len: int
    finished: bool
    logprobs: tuple[tuple[int, ...], ...] = ()
    prompt_logprobs: tuple[tuple[int, tuple[int, ...]], ...] = ()
    error: str = ""

    @classmethod
    def of(
        cls,
        row: PrefillRow | DecodeRow,
        before: int,
        emitted: tuple[int, ...],
        seq_len: int,
        finished: bool = False,
        told: tuple[tuple[int, tuple[int, ...]], ...] = (),
    ) -> Commit:
        """Return what the request of a row gained, from `before` tokens on; `told` are its prompt logprobs."""
        place = (row.request.id, row.req_row, row.state_slot, row.round)
        return cls(*place, before, emitted, seq_len, finished, prompt_logprobs=told)
