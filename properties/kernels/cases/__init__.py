"""What makes the calls of ops: `CASES[op](choose, dtypes, aim)`.

Sizes are pairwise distinct, since many wrong strides hide behind sizes that are equal. Every tensor lies somewhere in a
larger allocation, its dimensions in any order, and what is around it is poison; so are pool slots that no request owns.
An aim asks for sizes (blocks.py); what is asked for is of consequence, in the last row or the first token.
"""

from collections.abc import Callable

from draftproof.properties.kernels.case import KernelCase
from draftproof.properties.kernels.cases import (
    cache,
    decisions,
    dense,
    penalties,
    replay,
    sampling,
    state,
    token,
    trees,
)
from draftproof.properties.kernels.table import functions_of

CASES: dict[str, Callable[..., KernelCase]] = functions_of(
    (cache, decisions, dense, penalties, replay, sampling, state, token, trees)
)
"""What makes the calls of each op, sorted by the op's name."""
