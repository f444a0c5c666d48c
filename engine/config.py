"""What an engine is built for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from draftproof.engine.adaptive import AdaptiveConfig, effective_max_speculative_num_draft_tokens
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig


@dataclass(frozen=True)
class EngineConfig:
    """Sizes of pools and batches. `steps` drafts a round at first, and for good unless `adaptive` chooses.

    `pages` and `request_slots` are without the reserved ones; `page_order` and `state_order` say in which order pages
    and state slots are handed out. `sizes` are batch sizes that launches are padded to; `capture` says whether they are
    graphs. A batch of more than `draft_batch` rows gets no drafts (0: no such limit). `commit` is how rounds commit
    recurrent states, of which a checkpoint is kept every `checkpoint` tokens (0: never). Without `sampled` every
    request is greedy, and launches have nothing else in them.
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
    adaptive: AdaptiveConfig | BatchAdaptiveConfig | None = None
    draft_batch: int = 0
    commit: Literal["snapshot", "replay"] = "replay"
    checkpoint: int = 0
    sampled: bool = False

    @property
    def candidates(self) -> tuple[int, ...]:
        """The step counts that may run."""
        return self.adaptive.steps if self.adaptive else (self.steps,)

    @property
    def most_width(self) -> int:
        """The largest verify width that can ever run: whatever is allocated once is sized by it."""
        return effective_max_speculative_num_draft_tokens(self.candidates)

    @property
    def most_rows(self) -> int:
        """Rows of the largest launch, padding included."""
        return max(self.max_batch, *self.sizes) if self.sizes else self.max_batch

    @property
    def pages_per_row(self) -> int:
        return -(-self.max_len // self.page_size)
