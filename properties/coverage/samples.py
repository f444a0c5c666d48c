"""Samples of a run: one record for the scenario, each request, each decode batch and each decode round.

This is the only place that reads evidence for coverage: bins are crosses over samples, counts are sums over them.
A field named like a coverpoint (points.py) holds its value, None where the point does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from draftproof.properties.evidence.forms import Form
from draftproof.properties.evidence.schedule import StepLaunch


class RunSample(NamedTuple):
    """One scenario. `changed` is its variant if the variant run was another run, else "none".

    `is_sampled`: some of its requests draw their tokens; `is_constrained`: some have a grammar. `prefixes` are the
    counts of its prefix cache, `step_tokens` those of a budget of its steps, `mixed` of its packed launches, `overlap`
    of what runs while its host plans, and `handovers` of two engines.
    """

    draft: str
    layers: str
    page_size: str
    variant: str | None
    taps: str
    poison: str
    control: str
    start: str | None
    chain: str | None
    takes: str | None
    handed: str | None
    embedding: str | None
    head: str | None
    vocabulary: str | None
    first_embedding: str | None

    keys: str | None
    state_shape: str | None
    draft_width: str | None
    vocabulary_size: str
    evicted: str | None
    copied: str | None
    shared: str | None
    continued: str | None
    windows: str | None
    entries: str | None
    draft_entries: str | None

    form: Form
    changed: str
    is_by_batch: bool
    steps: int
    engine_steps: int
    ties: int
    token_ties: int
    exact_ties: int
    chained_extends: int
    first_layer_extends: int
    guesses_replaced: int
    is_shown: bool
    has_text: bool
    drafts_seen: int
    is_sampled: bool
    is_constrained: bool
    prefixes: Mapping[str, int]
    step_tokens: Mapping[str, int]
    mixed: Mapping[str, int]
    overlap: Mapping[str, int]
    handovers: Mapping[str, int]
    unequal_windows: bool
    ranks: Mapping[str, int]
    lockstep: str

    @property
    def is_hybrid(self) -> bool:
        """Return whether the target has recurrent states."""
        return self.layers != "dense"


class RequestSample(NamedTuple):
    """One request; `reuses` pages that another request had before, `shorter_reuses` where that one was longer.

    `ends` are the counts of ends that it adds to. `is_text_settled`: no schedule decides what it emits.
    """

    run: RunSample
    end: str | None
    pages: str | None
    state: str | None
    chunks: str
    joined: str
    waited: str
    length: str
    stops: str
    stopped_by: str | None
    preempted: str | None
    resumed_in: str | None
    refilled: str | None
    prefix: str | None
    ended_by: str | None
    sequence: str | None
    freed: str | None
    handover: str | None
    images: str | None

    is_admitted_before_others: bool
    reuses: int
    shorter_reuses: int
    is_prefilled: bool
    is_chunked: bool
    aborted: str | None
    is_aborted_before_others: bool
    is_aborted_on_served_pages: bool
    preemptions: int
    resumed_in_chunks: int
    ends_across_resume: bool
    tokens: int
    is_text_settled: bool
    stops_in_run: bool
    is_at_limit: bool
    prompt_logprobs: frozenset[str]
    zero_tails: int
    has_final_state: bool
    flushes: int
    ends: frozenset[str]
    pages_freed: int
    beyond_window: bool
    delta: int
    cuts_image: bool


class BatchSample(NamedTuple):
    """One decode batch. `size` is the captured size it ran at (0: eager), `steps` the step count in force.

    The fields from `has_fewer_rows` on compare it with the decode batch before.
    """

    rows: str | None
    bucket: str
    captured: str
    batch: str
    mix: str
    switch: str
    beside: str
    launch: str
    delay: str

    run: RunSample
    has_drafts: bool
    is_too_large_for_drafts: bool
    is_unfound_beside_found: bool
    has_fewer_rows: bool
    has_more_rows: bool
    is_below_captured_size: bool
    steps: int
    steps_change: int
    drafts_again: bool
    is_uneven: bool
    is_half_sampled: bool
    has_deltas: bool


class RoundSample(NamedTuple):
    """One decode round. `is_reported`: the subject said how many drafts were right.

    `found` is the number of tokens that a lookup could propose (None for other drafts); `is_fewer_found`: fewer than
    the round may have. `pending` tokens had not been folded into the state before the round. `lacks`: the right
    token for the first draft is none that the draft can propose. `asked`: what was to come of its drafts by its plan
    alone, as in `accept`; "own" if none are forced, "drawn" if coins decide.
    `is_sampled`: its request draws its tokens, `is_constrained`: it has a grammar, `has_logprobs`: it asks for them;
    `is_drawn`: its draft drew those that were verified. `depth`: as many levels of drafts as it may have, of a tree
    others than its `drafts`; `tree` are the counts of trees that it adds to, `told` those that only the reference can
    tell: of penalties, of grammars, and of minima.
    """

    request: RequestSample
    batch: BatchSample | None
    accept: str
    before: str
    K: str
    stage: str
    page: str
    crossing: str
    proposals: str
    limit: str | None
    cut: str
    tie: str
    checkpoint: str | None
    wrong: str | None
    surplus: str | None
    block: str | None
    match: str | None
    attempt: str | None
    path: str | None
    topk: str | None
    nodes: str | None
    moved: str | None
    choice: str
    drawn: str | None
    filter: str | None
    temperature: str | None
    penalty: str | None
    grammar: str | None
    logprobs: str | None
    minimum: str | None
    window: str | None

    is_reported: bool
    drafts: int
    correct_len: int
    found: int | None
    is_fewer_found: bool
    pending: int
    lacks: bool
    asked: str
    is_sampled: bool
    is_constrained: bool
    has_logprobs: bool
    is_drawn: bool
    depth: int
    beyond_draft_window: bool
    tree: frozenset[str]
    told: frozenset[str]


class Samples(NamedTuple):
    """Everything that is measured of one run."""

    run: RunSample
    requests: tuple[RequestSample, ...]
    batches: tuple[BatchSample, ...]
    launches: tuple[StepLaunch, ...]
    rounds: tuple[RoundSample, ...]
