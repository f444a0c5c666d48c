"""Samples of a run: what facts are read of. One for the run, each request, each decode batch and each decode round.

They hold the scenario, and what readers (read_*.py) take of the evidence; nothing else of coverage sees evidence.
`notes` are how often facts are in a sample that a reader knows by their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from draftproof.properties.evidence.forms import Form
from draftproof.properties.evidence.schedule import StepLaunch
from draftproof.properties.values.scenario import Request, Scenario


class RunSample(NamedTuple):
    """One run. `changed` is its variant if the variant run was another run, else "none".

    `layers` is how a target with recurrent states commits them, else "dense"; `chain` is what a draft of layers is.
    `narrow_replays` are verifies from graphs that are narrower than the drafts of a round could be.
    """

    scenario: Scenario
    form: Form
    layers: str
    page_size: int
    changed: str
    chain: str
    chained_extends: int
    first_layer_extends: int
    guesses_replaced: int
    ties: int
    token_ties: int
    is_shown: bool
    has_text: bool
    drafts_seen: int
    narrow_replays: int
    notes: Mapping[str, int]

    @property
    def is_hybrid(self) -> bool:
        """Return whether the target has recurrent states."""
        return self.layers != "dense"

    @property
    def is_controlled(self) -> bool:
        """Return whether a controller chooses the step count."""
        return self.scenario.adaptive_steps is not None

    @property
    def topk(self) -> int:
        """Return how many tokens a row of a tree proposes; 0 if drafts are none."""
        return self.scenario.tree.topk if self.scenario.tree else 0


class RequestSample(NamedTuple):
    """One request; it `reuses` pages that others had before, `shorter_reuses` where those were longer.

    `length` counts its tokens at its end, `rounds` those that are reported. `is_text_settled`: no schedule decides what
    it emits. `resumed_in` is the first round in which it ran again after a preemption (-1: it never did).
    `is_transferred`: another engine runs its rounds, and has waited for a place with it, or got hidden states.
    """

    run: RunSample
    request: Request
    length: int
    chunks: str
    end: str | None
    stopped_by: str | None
    is_admitted_before_others: bool
    reuses: int
    shorter_reuses: int
    has_state: bool
    reuses_state: bool
    is_prefilled: bool
    rounds: int
    is_chunked: bool
    aborted: str
    is_aborted_before_others: bool
    is_aborted_on_served_pages: bool
    preemptions: int
    resumed_in: int
    resumed_in_chunks: int
    ends_across_resume: bool
    is_served: bool
    tokens: int
    is_text_settled: bool
    stops_in_run: bool
    is_at_limit: bool
    zero_tails: int
    has_final_state: bool
    flushes: int
    pages_freed: int
    is_transferred: bool
    waited_for_place: bool
    has_hidden_handed: bool
    notes: Mapping[str, int]


class BatchSample(NamedTuple):
    """One decode batch. `size` is the captured size it ran at (0: eager), `rows` how its rows fill one.

    `drafts` has the number of each row; `steps` is the step count in force, `steps_change` by how much that differs
    from the decode batch before, with which all that follows compares this one.
    """

    run: RunSample
    rows: str
    size: int
    num_rows: int
    drafts: tuple[int, ...]
    is_beside_prefill: bool
    is_too_large_for_drafts: bool
    is_unfound_beside_found: bool
    is_uneven: bool
    is_half_sampled: bool
    has_deltas: bool
    steps: int
    steps_change: int
    has_fewer_rows: bool
    has_more_rows: bool
    is_below_captured_size: bool
    drafts_again: bool


class RoundSample(NamedTuple):
    """One decode round that the subject reports.

    `accept` names the outcome of its drafts, `before` that of the round before; `asked` is the outcome that its plan
    alone asks for: "own" if no drafts are forced, "drawn" if coins decide.

    `drafts` were verified, in `levels` levels, where `depth` levels would have been possible. `found` is the number of
    tokens that a lookup could propose (None for other drafts); `is_fewer_found` says that this is less than the round
    may have. `pending` tokens had not been folded into the state before the round. `lacks` says that the draft cannot
    propose the right first token. `is_drawn` says that the draft drew the tokens that were verified.
    """

    request: RequestSample
    batch: BatchSample | None
    accept: str
    before: str
    asked: str
    stage: str
    page: str
    pages_crossed: int
    proposals: str
    limit: str
    surplus: str
    checkpoint: str
    wrong: str | None
    block: str
    is_cut_by_max_len: bool
    drafts: int
    levels: int
    depth: int
    correct_len: int
    found: int | None
    is_fewer_found: bool
    pending: int
    lacks: bool
    is_drawn: bool
    window: str
    beyond_draft_window: bool
    notes: Mapping[str, int]

    @property
    def is_sampled(self) -> bool:
        """Return whether its request draws its tokens."""
        return self.request.request.sampling is not None

    @property
    def is_hybrid(self) -> bool:
        """Return whether the target has recurrent states."""
        return self.request.run.is_hybrid

    @property
    def is_padded(self) -> bool:
        """Return whether its batch ran at a captured size with rows to spare."""
        return self.batch is not None and self.batch.rows == "padded"


class Samples(NamedTuple):
    """Everything that is measured of one run."""

    run: RunSample
    requests: tuple[RequestSample, ...]
    batches: tuple[BatchSample, ...]
    launches: tuple[StepLaunch, ...]
    rounds: tuple[RoundSample, ...]
