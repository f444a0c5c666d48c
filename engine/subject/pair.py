"""A target and its draft, as a scenario names them."""

from __future__ import annotations

from typing import Any, NamedTuple

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.models.base import Target


class Pair(NamedTuple):
    """Target and draft, the configuration object that both were built from, and its fingerprints (config_fields): as
    handed in, after the target was built, after the draft was built."""

    target: Target
    draft: DraftModel
    config: Any
    seen: tuple[tuple[int, ...], ...]
