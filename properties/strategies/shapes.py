"""What the requests of a scenario are like, and how large it is: two dimensions that every feature meets."""

from __future__ import annotations

from typing import Literal, NamedTuple

ShapeName = Literal[
    "any",
    "shrinking_batch",
    "partial_in_padding",
    "alternating",
    "switching",
    "oversized",
    "reuse",
    "limits",
    "boundaries",
]
SizeName = Literal["small", "long", "wide"]


class Shape(NamedTuple):
    """What real bugs needed of requests and batches.

    `requests` and `steps` (K) are the least that a scenario has. `pattern` is the accept pattern, `others` that of
    requests after the first where it differs. `limits`: something is cut by `max_len`; `long`: the first prompt is
    long; `together`: requests join the first one in one step; `crowded`: more requests decode than a batch may hold.
    `adaptive_steps` and `draft_batch` say whether a scenario has that feature.
    """

    name: ShapeName
    requests: int = 1
    steps: int = 1
    pattern: str = "any"
    others: str = ""
    limits: bool = False
    long: bool = False
    together: bool = False
    crowded: bool = False
    most_steps: int = 5
    adaptive_steps: bool = False
    draft_batch: bool = False


SHAPES: tuple[Shape, ...] = (
    Shape("any"),
    Shape("shrinking_batch", requests=3, steps=2, pattern="uneven", together=True),
    Shape("partial_in_padding", requests=3, steps=3, pattern="partial", crowded=True),
    Shape("alternating", requests=3, steps=2, pattern="alternating", crowded=True),
    Shape("switching", requests=2, steps=3, pattern="switching"),
    Shape("oversized", requests=3, steps=2, pattern="partial", together=True, most_steps=3),
    Shape("reuse", requests=4, steps=2, long=True),
    Shape("limits", requests=2, steps=4, pattern="all", others="slow", limits=True),
    Shape("boundaries", requests=2, steps=4, pattern="uneven", others="slow", limits=True),
)


class Size(NamedTuple):
    """How large a scenario is.

    Prompts are as long as one of `prompts` at most, and at least `shortest` (of a long size some of them); `requests`
    are drawn from (empty: what the shape asks for). `captured`: batch sizes to capture (empty: such as fit the batch).
    `layers`: the most that a target has. `cost`: CPU time of a scenario, compared with a small one.
    """

    name: SizeName
    cost: float
    prompts: tuple[int, ...] = (9,)
    shortest: int = 1
    chunks: tuple[int, ...] = (4, 3, 5, 16)
    pages: tuple[int, ...] = (2, 3, 1, 4, 5, 6)
    requests: tuple[int, ...] = ()
    captured: tuple[tuple[int, ...], ...] = ()
    layers: int = 4


SMALL = Size("small", 1.0)
LONG = Size(
    "long",
    1.7,
    prompts=(128, 256, 512, 600),
    shortest=49,
    chunks=(64, 33, 48, 100, 128, 200, 256, 300),
    pages=(8, 16, 64, 2),
    layers=3,
)
WIDE = Size(
    "wide",
    2.2,
    pages=(2, 4, 7, 16),
    requests=(9, 8, 10, 12, 17, 33),
    captured=((8,), (16,), (12, 32), (7, 20), (4, 8, 16, 32), (1, 14, 24), (16, 48)),
    layers=3,
)
SIZES: tuple[Size, ...] = (SMALL, LONG, WIDE)
Steps = Literal["one", "several", "many"]
MANY_STEPS = (6, 8, 7, 12, 16, 9)
"""Numbers of drafts above the five that a scenario has otherwise."""
SHAPES_BY_NAME = {shape.name: shape for shape in SHAPES}
SIZE_BY_NAME = {size.name: size for size in SIZES}
