"""Controllers of the step count: what changes how many drafts a round may have (S-ADAPT)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from draftproof.properties.lib.base import Value
from draftproof.properties.values.drafts import Small


class Adaptive(Value, frozen=True, kw_only=True, tag="one list", tag_field="kind"):
    """The step-count controller of SGLang up to 0.5.12 (S-ADAPT-1): what it may choose, its gains.

    `initial` is in force first and is a candidate even if `candidates` lacks it.
    """

    initial: Small
    candidates: tuple[Small, ...] = (1, 3, 7)
    alpha: Annotated[float, Meta(gt=0, le=1)] = 0.2
    interval: Annotated[int, Meta(ge=1, le=1000)] = 5
    warmup: Annotated[int, Meta(ge=0, le=1000)] = 10
    down: Annotated[float, Meta(ge=-64, le=64)] = -0.25
    up: Annotated[float, Meta(ge=-64, le=64)] = 0.0

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step count that may run: sorted, unique, the initial one among them."""
        return tuple(sorted({self.initial, *self.candidates}))


class AdaptiveSlot(Value, frozen=True, kw_only=True):
    """The step counts for batches of `batch` rows and more, up to the next slot's, and the thresholds between them.

    A step count of 0 is a round without drafts. `ceiling`: no more steps than this times the average (0: no ceiling).
    """

    batch: Small
    candidates: Annotated[tuple[Annotated[int, Meta(ge=0, le=64)], ...], Meta(min_length=1)]
    down: Annotated[float, Meta(ge=-64, le=64)] = -0.25
    up: Annotated[float, Meta(ge=-64, le=64)] = 0.0
    ceiling: Annotated[float, Meta(ge=0, le=64)] = 0.0


class AdaptiveByBatch(Value, frozen=True, kw_only=True, tag="by batch", tag_field="kind"):
    """The step-count controller of later releases of SGLang (S-ADAPT-7): one of `slots` a batch.

    A slot begins with `initial`, or with its middle candidate. `rounding`: a number of rows counts as the smallest of
    these that is no smaller, if there is one (SGLang: the captured sizes).
    """

    initial: Annotated[int, Meta(ge=0, le=64)]
    slots: Annotated[tuple[AdaptiveSlot, ...], Meta(min_length=1)]
    alpha: Annotated[float, Meta(gt=0, le=1)] = 0.2
    interval: Annotated[int, Meta(ge=1, le=1000)] = 5
    warmup: Annotated[int, Meta(ge=0, le=1000)] = 10
    rounding: tuple[Small, ...] = ()

    @property
    def steps(self) -> tuple[int, ...]:
        """Every step count that may run: sorted, unique."""
        return tuple(sorted({count for slot in self.slots for count in slot.candidates}))
