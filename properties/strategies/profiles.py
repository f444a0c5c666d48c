"""What scenarios are about, and how large they are: tables with the share that each row has of a list (turns.py)."""

from __future__ import annotations

from typing import NamedTuple


class Profile(NamedTuple):
    """A trigger.

    `requests` and `steps` (K) are the least of them that a scenario takes; `shape` names the profile whose batches and
    memory it has. `pattern`: of its accepted drafts, `others`: where requests after the first have another one.
    `crowded`: more requests decode than a batch may hold. `hybrid`: the target has linear layers; `adaptive`: a
    controller chooses the step count; `draft_batch`: larger batches get no drafts. `share`: so many of `len(CARDS)`
    scenarios of a draft have it.
    """

    name: str
    requests: int = 1
    steps: int = 1
    graphs: bool = False
    pattern: str = "any"
    others: str = ""
    limits: bool = False
    long: bool = False
    together: bool = False
    crowded: bool = False
    most_steps: int = 5
    hybrid: bool = False
    adaptive: bool = False
    draft_batch: bool = False
    shape: str = ""
    share: int = 1

    @property
    def shaped(self) -> str:
        """The name of the profile whose batches and memory it has."""
        return self.shape or self.name


def _hybrid(name: str, **other: object) -> Profile:
    """Return the same trigger on a target with linear layers."""
    return BY_NAME[name]._replace(**{"name": f"hybrid_{name}", "hybrid": True, "shape": name, **other})  # type: ignore[arg-type]


_ANY = Profile("any", share=0)
_DENSE = (
    Profile("shrinking_batch", requests=3, steps=2, graphs=True, pattern="uneven", together=True),
    Profile("partial_in_padding", requests=3, steps=3, graphs=True, pattern="partial", crowded=True),
    Profile("alternating", requests=3, steps=2, graphs=True, pattern="alternating", crowded=True),
    Profile("switching", requests=2, steps=3, graphs=True, pattern="switching"),
    Profile("oversized", requests=3, steps=2, graphs=True, pattern="partial", together=True, most_steps=3),
    Profile("reuse", requests=4, steps=2, graphs=True, pattern="any", long=True),
    Profile("limits", requests=2, steps=4, graphs=True, pattern="all", others="slow", limits=True),
    Profile("boundaries", requests=2, steps=4, graphs=True, pattern="uneven", others="slow", limits=True),
)
BY_NAME: dict[str, Profile] = {profile.name: profile for profile in _DENSE}
_HYBRID = (
    _hybrid("partial_in_padding"),
    _hybrid("reuse"),
    _hybrid("shrinking_batch"),
    _hybrid("alternating"),
    _hybrid("switching"),
    _hybrid("limits", requests=4, shape="reuse"),
    _hybrid("oversized"),
)
_ADAPTIVE = Profile("adaptive", requests=2, graphs=True, pattern="falling", adaptive=True)
_DYNAMIC = (
    _ADAPTIVE._replace(name="adaptive_rising", pattern="rising", hybrid=True, share=2),
    _ADAPTIVE._replace(share=2),
    _ADAPTIVE._replace(name="adaptive_falling", hybrid=True),
    _ADAPTIVE._replace(
        name="adaptive_oversized", pattern="rising", hybrid=True, requests=3, together=True, shape="oversized", share=2
    ),
    _ADAPTIVE._replace(
        name="adaptive_draft_batch", requests=3, pattern="rising", together=True, draft_batch=True, share=2
    ),
    _ADAPTIVE._replace(name="adaptive_limits", pattern="rising", hybrid=True, limits=True),
    Profile(
        "draft_batch", requests=3, steps=2, graphs=True, pattern="partial", together=True, hybrid=True, draft_batch=True
    ),
)
PROFILES = (_ANY, *_DENSE, *_HYBRID, *_DYNAMIC)
BY_NAME = {profile.name: profile for profile in PROFILES}

CARDS = tuple(profile for profile in PROFILES for _ in range(profile.share))
"""The profiles, each as often as its share says."""


class Size(NamedTuple):
    """How large a scenario is; `share` of twenty scenarios of a list have this size.

    Prompts are as long as one of `prompts` at most, and at least `shortest`; `requests` and `steps` (K) are drawn from,
    empty: what the profile asks for. `captured`: batch sizes to capture, empty: such as fit the batch. `layers`: the
    most that a target has. `controllers` are pairs of what a controller begins with, and what it may choose from.
    """

    name: str
    share: int
    prompts: tuple[int, ...] = (9,)
    shortest: int = 1
    chunks: tuple[int, ...] = (4, 3, 5, 16)
    pages: tuple[int, ...] = (2, 3, 1, 4, 5)
    requests: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    captured: tuple[tuple[int, ...], ...] = ()
    layers: int = 4
    controllers: tuple[tuple[int, tuple[int, ...]], ...] = ()


SMALL = Size("small", 15)
LONG = Size(
    "long",
    3,
    prompts=(64, 128, 256, 512, 600, 600),
    shortest=33,
    chunks=(64, 33, 48, 100, 128, 200, 256, 300),
    pages=(8, 16, 64),
    requests=(1, 2),
    layers=2,
)
WIDE = Size(
    "wide",
    2,
    pages=(2, 4, 7, 16),
    requests=(6, 6, 8, 8, 12, 17, 33),
    steps=(8, 8, 9, 12, 16),
    captured=((8,), (16,), (12, 32), (7, 20), (4, 8, 16, 32), (1, 14, 24)),
    layers=2,
    controllers=((8, (2, 12)), (3, (1, 3, 7)), (12, (4, 16))),
)
SIZES = (SMALL, LONG, WIDE)
