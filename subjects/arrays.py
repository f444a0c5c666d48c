"""Values of a trace, made of the arrays that an adapter has read from its engine."""

from __future__ import annotations

import numpy as np

from draftproof.properties.values.observed import Choice, Datum


def choice(logits: np.ndarray, ids: np.ndarray | None = None) -> Choice:
    """Return the token with the highest logit, of equals the lowest, and its margin; `ids` are the tokens of logits."""
    place = int(logits.argmax())
    rest = np.delete(logits.astype(np.float64), place)
    return place if ids is None else int(ids[place]), float(np.float64(logits[place]) - rest.max())


def vector(x: np.ndarray) -> Datum:
    """Return a vector as a trace has it."""
    made = x.astype(np.float64)
    made.flags.writeable = False
    return made
