"""What an engine runs in place of parts of its own: functions of another engine, say, between all that is ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from draftproof.engine.adaptive import AdaptiveConfig
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig
from draftproof.engine.controller import Controller
from draftproof.engine.drafts.base import Draft
from draftproof.engine.runtime import Runtime
from draftproof.engine.states.snapshot import Snapshot


@dataclass(frozen=True)
class EngineParts:
    """Classes that replace the engine's own: the draft algorithm, states by snapshot, and the runtime of a step count.

    `controller` makes a controller. None: the engine's own.
    """

    draft: type[Draft[Any]] | None = None
    snapshot: type[Snapshot] | None = None
    runtime: type[Runtime] | None = None
    controller: Callable[[AdaptiveConfig | BatchAdaptiveConfig], Controller] | None = None


OWN = EngineParts()
