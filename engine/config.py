"""What an engine is built for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.engine.adaptive import AdaptiveConfig
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig
from draftproof.engine.tree import TreeConfig

Delay = Literal["none", "early", "late"]
"""When the results of a step are there: at its end, or a step later, of work that runs at once or as late as it may."""


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of pools and batches. `steps` drafts a round at first, and always, unless `adaptive_steps` chooses.

    `pages` and `request_slots` do not count the reserved ones; `page_order` and `state_order` say in which order pages
    and state slots are allocated. `sizes` are batch sizes that launches are padded to; `capture` says whether they are
    graphs. A batch of more than `draft_batch` rows gets no drafts (0: no such limit). With `preemption` pages are taken
    on demand (scheduler.py), with a `prefix_cache` pages are kept for other requests, and states in `checkpoint_slots`.
    A step runs at most `token_budget` tokens of prompts and verify rows (0: no such limit). An engine that is
    `prefill_only` runs prompts only, for another engine. `commit` is how rounds commit recurrent states; a checkpoint
    is kept every `checkpoint` tokens (0: never). Without `sampled` every request is greedy, and launches have no
    sampling in them; the same goes for `drafts_sampled`, `penalized`, `constrained` (some tokens are excluded),
    `most_logprobs` and `most_prompt_logprobs`. With a `tree` drafts form a tree of `steps` levels. `eos` are the ids
    after which the model ends a text. With `mrope` tokens have three positions. A `mixed` engine runs chunks of prompts
    and verify rows in one launch, packed, and padded to the numbers of `token_sizes`. With an `overlap` the host plans
    a step while the one before runs (overlap.py): a delay for each step, repeated cyclically.
    """

    steps: int
    page_size: int
    pages: int
    request_slots: int
    max_len: int
    max_batch: int
    chunk: int
    sizes: tuple[int, ...] = ()
    capture: bool = True
    row_seed: int = 0
    page_order: tuple[int, ...] = ()
    state_order: tuple[int, ...] = ()
    adaptive_steps: AdaptiveConfig | BatchAdaptiveConfig | None = None
    draft_batch: int = 0
    preemption: bool = False
    prefix_cache: bool = False
    checkpoint_slots: int = 0
    token_budget: int = 0
    prefill_only: bool = False
    commit: Literal["snapshot", "replay"] = "replay"
    checkpoint: int = 0
    sampled: bool = False
    drafts_sampled: bool = False
    penalized: bool = False
    constrained: bool = False
    most_logprobs: int | None = None
    most_prompt_logprobs: int | None = None
    tree: TreeConfig | None = None
    eos: frozenset[int] = frozenset()
    mrope: bool = False
    mixed: bool = False
    token_sizes: tuple[int, ...] = ()
    overlap: tuple[Delay, ...] = ()

    @property
    def candidates(self) -> tuple[int, ...]:
        """The step counts that may run."""
        return self.adaptive_steps.steps if self.adaptive_steps else (self.steps,)

    @property
    def most_width(self) -> int:
        """The largest verify width that can ever run: whatever is allocated once is sized by it."""
        return self.num_drafts(self.most_steps) + 1

    @property
    def most_steps(self) -> int:
        """The largest step count that may run."""
        return max(self.candidates)

    @property
    def runtimes(self) -> tuple[int, ...]:
        """The step counts that have a runtime, 0 first: of those that verify equally many drafts the largest."""
        return tuple({self.num_drafts(steps): steps for steps in (0, *self.candidates)}.values())

    def num_drafts(self, steps: int) -> int:
        """Return how many drafts are verified when `steps` steps are allowed."""
        return self.tree.num_drafts(steps) if self.tree else steps

    def steps_within(self, steps: int, tokens: int) -> int:
        """Return how many of these steps a round has that gets so many tokens: of a tree all or none (S-SCHED-10)."""
        if self.tree:
            return steps if self.num_drafts(steps) < tokens else 0
        return min(steps, tokens - 1)

    def num_columns(self, steps: int) -> int:
        """Return how many columns of the page table a round takes from its context on."""
        return self.tree.num_columns(steps) if self.tree else steps + 1

    @property
    def most_rows(self) -> int:
        """Rows of the largest launch, padding included."""
        return max(self.max_batch, *self.sizes) if self.sizes else self.max_batch

    @property
    def most_tokens(self) -> int:
        """Tokens of the largest packed launch, padding included."""
        chunks = self.request_slots * min(self.chunk, self.max_len)
        return max(chunks + self.max_batch * self.most_width, *self.token_sizes, 0)

    @property
    def num_rows(self) -> int:
        """Request rows, the reserved one included."""
        return self.request_slots + 1

    @property
    def checkpoint_turns(self) -> int:
        """Checkpoints that a request has in turns: with an overlap the next is made before the last is kept."""
        return 2 if self.overlap and self.prefix_cache else 1

    @property
    def checkpoint_range(self) -> range:
        """Slots of checkpoints that belong to no request: those behind one for each row."""
        return range(self.num_rows, self.num_rows + self.checkpoint_slots)

    @property
    def pages_per_row(self) -> int:
        beyond = self.num_columns(self.most_steps) if self.tree else 0
        return -(-(self.max_len + beyond) // self.page_size)
