"""A target and its draft, as a scenario names them."""

from __future__ import annotations

from typing import Any, NamedTuple

from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.models.base import Target


class Pair(NamedTuple):
    """Target and draft, the configuration object that both were built from, and its fingerprints.

    Those are of the object as handed in, after the target was built, and after the draft was built (config_fields).
    """

    target: Target
    draft: DraftModel
    config: Any
    seen: tuple[tuple[int, ...], ...]
