"""What an engine runs in place of parts of its own: functions of another engine, say, between all that is ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftproof.engine.drafts.base import Draft


@dataclass(frozen=True)
class EngineParts:
    """The class of the draft algorithm; None is the engine's own."""

    draft: type[Draft[Any]] | None = None


OWN = EngineParts()
