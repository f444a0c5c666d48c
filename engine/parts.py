"""What an engine runs in place of parts of its own: functions of another engine, say, between all that is ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from draftproof.engine.drafts.base import Draft
from draftproof.engine.states.snapshot import Snapshot


@dataclass(frozen=True)
class EngineParts:
    """The classes of the draft algorithm, and of the states that are committed by snapshot; None: the engine's own."""

    draft: type[Draft[Any]] | None = None
    snapshot: type[Snapshot] | None = None


OWN = EngineParts()
