"""EAGLE-3 with topk = 1: a head on the outputs of several layers of the target, with a width and tokens of its own.

Only entries of what was committed are made of the target's states, which `fc` joins; draft steps take the head's own.
`B` rows of a launch, `D` width of the features, `Dd` width of the head. Source: Li et al., "EAGLE-3" (2025);
docs/semantics/eagle.md.
"""

from __future__ import annotations

from torch import Tensor

from draftproof.engine.drafts.base import Needs
from draftproof.engine.drafts.eagle import EagleDraft
from draftproof.engine.models.base import AttentionMetadata, Eagle3Head, Target
from draftproof.engine.models.probe import ProbeParts
from draftproof.engine.models.probe_eagle3 import ProbeEagle3


class Eagle3Draft(EagleDraft):
    """A `Draft` with an `Eagle3Head` as its model."""

    model: Eagle3Head

    @classmethod
    def needed(cls, model: Eagle3Head) -> Needs:  # type: ignore[override]  # its own kind of head
        """Return the layers that the model was made for."""
        return Needs("layers", model.features)

    @classmethod
    def output_width(cls, model: Eagle3Head, target: Target) -> int:  # type: ignore[override]  # its own kind of head
        """Return the width of the head's own states."""
        return model.width

    def enter(self, ids: Tensor, hidden_states: Tensor, metadata: AttentionMetadata) -> tuple[Tensor, Tensor]:
        """Write the entries of ids [T] and features [T, D]; return the head's states, both [T, Dd]."""
        return self.model.forward(ids, self.model.join(hidden_states), metadata, self.cache)


def probe(parts: ProbeParts) -> ProbeEagle3:
    """Return the model of a probe's draft."""
    return ProbeEagle3(parts)


ALGORITHM = Eagle3Draft
