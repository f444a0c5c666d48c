"""EAGLE-3 by definition (S-EAGLE-8 .. S-EAGLE-11): an EAGLE draft on features, with a width and tokens of its own.

Entry i < n consumes t_{i+1} and fc f_i, f_i being the outputs of chosen layers of the target at position i side by
side. Entries of draft steps consume what the one before handed on, which is of the head's width: fc is never over it.
Source: Li et al., EAGLE-3 (2025), and SafeAILab/EAGLE `eagle/model/cnets.py`.
"""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.drafts import Eagle3
from draftproof.properties.values.scenario import ProbeModel
from draftproof.properties.weights.probe import Weights
from draftproof.reference.drafts.eagle import ReferenceEagle
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.probe.eagle3 import ProbeEagle3Head
from draftproof.reference.protocols import ReferenceWideHead


def probe(spec: Eagle3, target: ProbeModel, memo: Memo, weights: Weights | None = None) -> ReferenceEagle3:
    """Return the draft of a probe scenario."""
    return ReferenceEagle3(ProbeEagle3Head(spec, target, memo, weights))


class ReferenceEagle3(ReferenceEagle):
    """A draft that runs one head again and again, the first time over features."""

    head: ReferenceWideHead  # type: ignore[assignment]  # it takes layers

    def __init__(self, head: ReferenceWideHead) -> None:
        super().__init__(head)  # type: ignore[arg-type]  # it takes layers

    def _given(self, whole: Pass) -> np.ndarray:
        return np.concatenate([whole.layers[layer] for layer in self.head.features], axis=1)

    def _states(self, given: np.ndarray) -> np.ndarray:
        return self.head.join(given)
