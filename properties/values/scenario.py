"""Scenario: a complete, explicit, serializable description of one run.

Shapes and units: counts are tokens, rows or pages as named; `R` rows (requests), `W` verify width (drafts + 1).
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import replace

from draftproof.properties.lib.base import Value
from draftproof.properties.values.adaptive_steps import Adaptive, AdaptiveByBatch
from draftproof.properties.values.delays import Delay
from draftproof.properties.values.drafts import Draft, KvBits, KvCacheDtype, Lanes, Seed, Small, Window, kind_of
from draftproof.properties.values.grammar import Grammar
from draftproof.properties.values.penalties import Penalties
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.tree import Tree, TreeShape

SCENARIO_VERSION = 5

Positive = Annotated[int, Meta(ge=1)]
Token = Annotated[int, Meta(ge=0)]
Variant = Literal[
    "none",
    "graph_vs_eager",
    "other_memory",
    "other_batches",
    "taps_off",
    "other_commit",
    "chain_as_tree",
    "alone",
    "unmixed",
    "unoverlapped",
]
VARIANTS: tuple[Variant, ...] = Variant.__args__[1:]  # type: ignore[attr-defined]
LayerType = Literal["full_attention", "linear_attention", "sliding_attention"]
Wrong = Literal["next", "zero", "last", "stop", "far"]
WRONG: tuple[Wrong, ...] = Wrong.__args__  # type: ignore[attr-defined]


class Linear(Value, frozen=True, kw_only=True):
    """Sizes of a probe's gated delta net layers.

    `conv` is the width of the convolution, `value_heads` a multiple of `key_heads`. With `start` a new request begins
    with a state that is not zero.
    """

    key_heads: Small
    value_heads: Small
    key_dim: Small
    value_dim: Small
    conv: Annotated[int, Meta(ge=2, le=8)]
    start: bool = False

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values of all heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim


class ProbeModel(Value, frozen=True, kw_only=True, tag="probe", tag_field="kind"):
    """A target exact by construction, in the ring of integers modulo 2^64 (docs/semantics/probes.md).

    `heads` counts query heads, a multiple of `kv_heads`; `lanes` is the hidden width; `logit_bits` the resolution of
    the logits (few bits make exact ties frequent); in `agreement` of 256 contexts the head's choice is the target's.
    `layer_types` has a type for each layer (empty: full attention throughout), `linear` the sizes of the linear ones;
    rows of sliding ones see `window` positions, their own among them (0: there are none). Entries are numbers of 64
    bits, or codes of `kv_bits` with a scale for each head. With `mrope` a token has three positions (S-MROPE).
    """

    seed: Seed
    layers: Small
    heads: Small
    kv_heads: Small
    key_dim: Small
    value_dim: Small
    lanes: Lanes
    vocab: Annotated[int, Meta(ge=4, le=4096)]
    logit_bits: Annotated[int, Meta(ge=1, le=23)] = 23
    agreement: Annotated[int, Meta(ge=0, le=256)] = 192
    layer_types: tuple[LayerType, ...] = ()
    linear: Linear | None = None
    window: Window = 0
    kv_bits: KvBits = 64
    mrope: bool = False

    @property
    def types(self) -> tuple[LayerType, ...]:
        """The type of every layer; without `layer_types` all of them are full attention."""
        full: LayerType = "full_attention"
        return self.layer_types or (full,) * self.layers


class Checkpoint(Value, frozen=True, kw_only=True, tag="checkpoint", tag_field="kind"):
    """A Hugging Face checkpoint directory (config.json and safetensors), run in `dtype`; `kv_cache_dtype`: S-KV-4."""

    path: str
    vocab: Annotated[int, Meta(ge=4)]
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    kv_cache_dtype: KvCacheDtype = "auto"


class Memory(Value, frozen=True, kw_only=True):
    """The pools: page 0 and request row 0 are reserved for padding, so one page and one row more are allocated.

    In `checkpoint_slots` a prefix cache of a model with linear layers keeps recurrent states.
    """

    page_size: Annotated[int, Meta(ge=1, le=256)]
    pages: Annotated[int, Meta(ge=1, le=1 << 20)]
    request_slots: Annotated[int, Meta(ge=1, le=256)]
    max_len: Annotated[int, Meta(ge=4, le=1 << 24)]
    page_seed: Seed = 0
    poison: Annotated[int, Meta(ge=0, le=1)] = 0
    checkpoint_slots: Annotated[int, Meta(ge=0, le=256)] = 0


class States(Value, frozen=True, kw_only=True):
    """How a round commits recurrent states, and after how many tokens it keeps a checkpoint of them (0: never).

    Defined in docs/semantics/states.md.
    """

    commit: Literal["snapshot", "replay"] = "snapshot"
    checkpoint: Annotated[int, Meta(ge=0, le=4096)] = 0


class Graphs(Value, frozen=True, kw_only=True):
    """Batch sizes that launches are padded to, ascending; none means that everything runs eagerly at its own size.

    `capture` False pads alike but runs the same shapes eagerly. Packed launches are padded to the numbers of `tokens`
    (S-MIXED-4), where a schedule has any. `at_start`: all are captured before the first step (S-BATCH-12).
    """

    sizes: tuple[Small, ...] = ()
    capture: bool = True
    tokens: tuple[Annotated[int, Meta(ge=1, le=1 << 16)], ...] = ()
    at_start: bool = False


class Schedule(Value, frozen=True, kw_only=True):
    """At most `max_batch` requests decode together; a prompt is prefilled in chunks of `chunk` tokens.

    A batch of more than `draft_batch` rows gets no drafts (0: no such limit). With two `services` the requests are
    served a second time after the first; only what is kept is looked at then. With `preemption` pages are taken on
    demand, and a request that decodes gives way where they run out (docs/semantics/admission.md, S-SCHED-8). With a
    `prefix_cache` pages of requests that are done are kept for those that begin with the same tokens (S-CACHE). An
    engine step runs at most `token_budget` tokens of prompts and verify rows (0: no such limit, S-SCHED-10). A `mixed`
    one runs chunks of prompts and verify rows in one launch (S-MIXED-1). With `disaggregation` there are two engines of
    these sizes: one runs prompts, and transfers requests to one that decodes (S-DISAGG). With an `overlap` the host
    plans a step while the one before runs (S-OVERLAP): a delay for each engine step, repeated cyclically.
    """

    max_batch: Small
    chunk: Positive
    row_seed: Seed = 0
    draft_batch: Annotated[int, Meta(ge=0, le=64)] = 0
    services: Annotated[int, Meta(ge=1, le=2)] = 1
    preemption: bool = False
    prefix_cache: bool = False
    token_budget: Annotated[int, Meta(ge=0, le=1 << 16)] = 0
    mixed: bool = False
    disaggregation: bool = False
    overlap: tuple[Delay, ...] = ()


class Ranks(Value, frozen=True, kw_only=True):
    """Engines that run beside each other: data parallelism (S-RANK), or tensor parallelism (S-TP).

    Each request is served by one of `data` ranks. Or all of them by `tensor` ranks together, of which each has a part
    of the heads of every layer; the draft is cut among as many (`draft_tensor`), or each of them has it whole (1).
    """

    data: Annotated[int, Meta(ge=1, le=8)] = 1
    tensor: Annotated[int, Meta(ge=1, le=8)] = 1
    draft_tensor: Annotated[int, Meta(ge=1, le=8)] = 1

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.data * self.tensor


class RoundPlan(Value, frozen=True, kw_only=True):
    """What a request wants of a round: `num_drafts` wanted, of which `num_correct` are right (-1: none is forced).

    `wrong` is the token that stands in place of the first that is not right (S-PLAN-3). Of a tree
    `num_drafts` is the depth, and drafts that are forced have a `shape` with a path of `num_correct` rows (S-TREE-10).
    """

    num_drafts: Annotated[int, Meta(ge=0, le=64)]
    num_correct: Annotated[int, Meta(ge=-1, le=64)]
    wrong: Wrong = "next"
    shape: TreeShape | None = None


class TokenSpan(Value, frozen=True, kw_only=True):
    """Tokens `first` .. `last` that a request emits, counted from 0; -1 is the last token of its prompt, and so on."""

    first: Annotated[int, Meta(ge=-64, le=4096)]
    last: Annotated[int, Meta(ge=0, le=4096)]


class PromptLogprobs(Value, frozen=True, kw_only=True):
    """What a request is told of its prompt: so many `top` tokens beside each of those behind position `start`."""

    top: Annotated[int, Meta(ge=0, le=20)] = 0
    start: Annotated[int, Meta(ge=0)] = 0


class Image(Value, frozen=True, kw_only=True):
    """An image (or frames of a video) in a prompt: a grid of tokens from token `start` on, row by row."""

    start: Annotated[int, Meta(ge=0)]
    frames: Small
    height: Small
    width: Small

    @property
    def end(self) -> int:
        """The first token behind it."""
        return self.start + self.frames * self.height * self.width


def delta_of(length: int, images: tuple[Image, ...]) -> int:
    """Return by how much the positions behind a prompt differ from their index (S-MROPE-2)."""
    assert all(image.end <= length for image in images)
    return sum(max(one.frames, one.height, one.width) - (one.end - one.start) for one in images)


class Request(Value, frozen=True, kw_only=True):
    """One request of a scenario: its prompt, what ends it, how its tokens are chosen, and what its rounds want."""

    arrival: Annotated[int, Meta(ge=0, le=1000)]
    """The engine step, counted from 0, in which it arrives."""
    prompt: Annotated[tuple[Token, ...], Meta(min_length=1)]
    """The token ids of the prompt."""
    budget: Annotated[int, Meta(ge=1, le=4096)]
    """The most tokens that it emits, the one of its prefill among them."""
    rounds: Annotated[tuple[RoundPlan, ...], Meta(min_length=1)]
    """The plans of its rounds 1, 2, .., repeated cyclically."""
    stop_at: Annotated[int, Meta(ge=-1, le=4096)] = -1
    """The number, from 0, of the emitted token whose id is a stop token (S-PLAN-6); -1 means that there is none."""
    stops: tuple[Token, ...] = ()
    """Further ids that are stop tokens of this request."""
    sampling: Sampling | None = None
    """How it draws its tokens; None means that it takes the best one."""
    penalties: Penalties | None = None
    """What changes its logits before a token is chosen; None means nothing."""
    grammar: Grammar | None = None
    """Which tokens it allows; None means all."""
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    """How many of the likeliest tokens it is told beside each emitted one; None means that it asks for no logprobs."""
    abort_at: Annotated[int, Meta(ge=0, le=4096)] | None = None
    """The engine step at whose begin it is aborted, unless it is done (S-SCHED-9); None means never."""
    prompt_logprobs: PromptLogprobs | None = None
    """What it is told of the tokens of its prompt (S-SAMPLE-16); None means nothing."""
    images: tuple[Image, ...] = ()
    """The images of its prompt, in the order of their tokens."""
    stop_sequences: tuple[Annotated[tuple[Token, ...], Meta(min_length=1, max_length=64)], ...] = ()
    """Sequences of tokens, each of which ends it once it has been emitted (S-LIMIT-14)."""
    stop_sequences_at: tuple[TokenSpan, ...] = ()
    """Spans of its own text that are stop sequences as well (S-PLAN-9)."""
    min_tokens: Annotated[int, Meta(ge=0, le=4096)] = 0
    """The number of tokens before which neither a stop token nor a stop sequence ends it (S-LIMIT-15)."""
    ignore_eos: bool = False
    """Whether the scenario's `eos` ids do not end it."""
    rank: Annotated[int, Meta(ge=0, le=7)] = 0
    """The data-parallel rank that serves it."""
    flaw: Literal["none", "length", "token", "grammar"] = "none"
    """What makes it one that no engine can serve: it is handed over with that (S-LIMIT-18)."""

    @property
    def leaves_at(self) -> int | None:
        """Return the engine step at whose begin it is aborted, or refused; None means neither."""
        return self.abort_at if self.flaw == "none" else self.arrival

    @property
    def known_prompt(self) -> tuple[int, ...]:
        """What a prefix cache knows its prompt by: where an image begins stands a number of its own (S-CACHE-9)."""
        grids = {one.start: 10000 * one.frames + 100 * one.height + one.width for one in self.images}
        ids = enumerate(self.prompt)
        return tuple(-(1000000 * token + grids[place]) if place in grids else token for place, token in ids)

    @property
    def has_ends(self) -> bool:
        """Return whether anything says how it ends besides stop ids of its own, a budget and `max_len`."""
        return bool(self.stop_sequences or self.stop_sequences_at or self.min_tokens or self.ignore_eos)


class Scenario(Value, frozen=True, kw_only=True):
    """One run, described completely."""

    model: ProbeModel | Checkpoint
    """The target."""
    draft: Draft
    """The draft: its algorithm, and the sizes or the checkpoint of its model."""
    steps: Annotated[int, Meta(ge=1, le=64)]
    """The most drafts of a round (K), so that a verify has up to steps + 1 rows.

    It is the largest step count of `adaptive_steps`, and the largest depth of a `tree`.
    """
    memory: Memory
    """The sizes of the pools."""
    graphs: Graphs
    """The batch sizes that launches are padded to, and whether these are captured."""
    schedule: Schedule
    """How requests are batched, and what is kept of them."""
    requests: Annotated[tuple[Request, ...], Meta(min_length=1)]
    """The requests; request i of a trace's keys is number i here, from 0."""
    variant: Variant = "none"
    """The one change under which the run is repeated; "none" means that it is not."""
    taps: bool = True
    """Whether graphs report what happens inside; without taps they run as they ship, and only the host reports."""
    states: States = States()
    """How recurrent states are committed."""
    adaptive_steps: Adaptive | AdaptiveByBatch | None = None
    """What changes the step count from round to round; None means that it is always `steps`."""
    tree: Tree | None = None
    """The form of the drafts as a tree; None means that they are a chain."""
    eos: tuple[Token, ...] = ()
    """Ids that end the text of every request that does not ignore them."""
    ranks: Ranks = Ranks()
    """How many engines run beside each other."""
    version: int = SCENARIO_VERSION
    """The version of this format."""

    @property
    def dynamic(self) -> bool:
        """Return whether the drafts of a round depend on which requests ran together: on the subject's schedule."""
        own = self.schedule
        return self.adaptive_steps is not None or own.draft_batch > 0 or own.preemption or own.token_budget > 0

    def columns(self, depth: int) -> int:
        """Return how many columns of the page table a round of this depth takes, from its context on."""
        return self.tree.columns(depth) if self.tree else depth + 1

    @property
    def step_counts(self) -> tuple[int, ...]:
        """Return the step counts that may be in force, in ascending order."""
        return self.adaptive_steps.steps if self.adaptive_steps else (self.steps,)

    @property
    def width(self) -> int:
        """Return the largest verify width: of the most drafts that a round can have, and one."""
        return self.most_drafts(self.steps) + 1

    def most_drafts(self, depth: int) -> int:
        """Return how many drafts a round of this depth has if nothing is forced: as many, but for a tree."""
        return self.tree.rows(depth) if self.tree else depth

    @property
    def is_sampled(self) -> bool:
        """Return whether any request draws its tokens."""
        return any(request.sampling for request in self.requests)

    @property
    def drafts_sampled(self) -> bool:
        """Return whether any request has drafts that are drawn."""
        return any(request.sampling and request.sampling.draft == "sampled" for request in self.requests)

    @property
    def is_penalized(self) -> bool:
        """Return whether any request has logits that its text changes."""
        return any(request.penalties for request in self.requests)

    @property
    def is_constrained(self) -> bool:
        """Return whether any request has a grammar."""
        return any(request.grammar for request in self.requests)

    @property
    def has_aborts(self) -> bool:
        """Return whether any request is aborted, unless it ends before."""
        return any(request.abort_at is not None for request in self.requests)

    @property
    def has_minimum(self) -> bool:
        """Return whether any request has a minimum of tokens."""
        return any(request.min_tokens for request in self.requests)

    @property
    def has_ends(self) -> bool:
        """Return whether any request ends by more than stop ids of its own, its budget and `max_len`."""
        return bool(self.eos) or any(request.has_ends for request in self.requests)

    @property
    def has_windows(self) -> bool:
        """Return whether layers of target or draft have windows."""
        return getattr(self.model, "window", 0) > 0 or getattr(self.draft, "window", 0) > 0

    def eos_of(self, request: Request) -> tuple[int, ...]:
        """Return the ids of `eos` that end a request."""
        return () if request.ignore_eos else self.eos

    @property
    def most_logprobs(self) -> int | None:
        """Return how many likeliest tokens the requests with logprobs ask for at most; None if none has any."""
        return max((one.logprobs for one in self.requests if one.logprobs is not None), default=None)

    @property
    def most_prompt_logprobs(self) -> int | None:
        """Return the most likeliest tokens that a request with prompt logprobs asks for; None if no request has any."""
        return max((one.prompt_logprobs.top for one in self.requests if one.prompt_logprobs), default=None)

    @property
    def widest_window(self) -> int:
        """Return how many positions are kept of a request (S-WINDOW-3); 0 if all are.

        They are those that a row of the target can see, or the first entry that the draft makes in a round.
        """
        model, draft = self.model, self.draft
        keeps = self.schedule.prefix_cache and not self.schedule.disaggregation
        if isinstance(model, Checkpoint) or "full_attention" in model.types or keeps:
            return 0
        if not kind_of(draft).extends:
            return model.window
        again = getattr(draft, "layers", 1) - 1 if kind_of(draft).layer_a_draft else 0
        own = getattr(draft, "window", 0)
        return max(model.window, own + again) if own else 0

    @property
    def engines(self) -> int:
        """Return how many engines there are, each with pools of its own: with PD disaggregation two."""
        return 2 if self.schedule.disaggregation else 1

    @property
    def all_pages(self) -> int:
        """Return the pages of all engines; a prefill engine's are numbered behind the decode engine's (S-DISAGG-2)."""
        return self.engines * self.memory.pages

    @property
    def all_rows(self) -> int:
        """Return the request rows of all engines, and the state slots, numbered alike."""
        return self.engines * self.memory.request_slots

    @property
    def is_served_twice(self) -> bool:
        """Return whether the requests are served twice (S-BATCH-8)."""
        return self.schedule.services > 1


def of_rank(scenario: Scenario, rank: int) -> Scenario:
    """Return what one rank serves of a scenario, which may be no request at all; tensor-parallel ranks serve all."""
    if scenario.ranks.tensor > 1:
        return scenario
    return replace(scenario, requests=tuple(one for one in scenario.requests if one.rank == rank))


def round_plan(request: Request, number: int) -> RoundPlan:
    """Return the plan for a request's own round `number` (1, 2, ..)."""
    return request.rounds[(number - 1) % len(request.rounds)]


def drafts_if_forced(scenario: Scenario, plan: RoundPlan, depth: int) -> int:
    """Return how many drafts a round of this depth verifies if they are forced: of a tree the rows of its shape."""
    most = scenario.most_drafts(depth)
    return len(plan.shape.cut(depth, most).parents) if plan.shape and depth else most


def drafts_allowed(wanted: int, *, context: int, max_len: int, budget_left: int) -> int:
    """Return K of a round: min(wanted, max_len - 1 - n, budget left - 1), not below 0 (docs/semantics/limits.md)."""
    return max(0, min(wanted, max_len - 1 - context, budget_left - 1))


def drafts_within(scenario: Scenario, wanted: int, tokens: int) -> int:
    """Return K of a round that wants so many and gets these tokens of a step: of a tree all or none (S-SCHED-10)."""
    if scenario.tree:
        return wanted if scenario.tree.rows(wanted) < tokens else 0
    return max(0, min(wanted, tokens - 1))


def columns_freed(scenario: Scenario, context: int) -> int:
    """Return how many columns of a page table no window reaches any more after `context` tokens (S-WINDOW-3)."""
    window = scenario.widest_window
    return max(0, context + 1 - window) // scenario.memory.page_size if window else 0


def least_window(scenario: Scenario) -> int:
    """Return how many positions a window has at least: a page, and two where pages are on demand (S-WINDOW-4)."""
    return max(scenario.memory.page_size, 2 if scenario.schedule.preemption else 1)


def pages_needed(scenario: Scenario, request: Request) -> int:
    """Return the pages that a request can come to own: its longest context plus the drafts of one round.

    Rows of a tree lie in columns of their own, which `max_len` does not bound.
    """
    tokens, most = len(request.prompt) + request.budget, scenario.memory.max_len
    if scenario.tree:
        columns = min(most, tokens) + scenario.columns(scenario.steps)
    else:
        columns = min(most, tokens + scenario.steps)
    return -(-columns // scenario.memory.page_size)
