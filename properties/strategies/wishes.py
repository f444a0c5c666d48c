"""Accept patterns: the drafts that a request wants of each round, and how many of them are right."""

from __future__ import annotations

from hypothesis import strategies as st

from draftproof.properties.values.scenario import RoundWish

Draw = st.DrawFn
_ANY = ("all", "none", "partial", "alternating", "switching", "uneven", "unforced")


@st.composite
def wishes(draw: Draw, pattern: str, steps: int) -> tuple[RoundWish, ...]:
    """The wishes of one request by an accept pattern; "rising" and "falling" last long enough to move a controller."""
    if pattern == "any":
        pattern = draw(st.sampled_from(_ANY))
    if pattern in ("rising", "falling"):
        return _swing(draw, pattern, steps)
    count = draw(st.integers(1, 4))
    if pattern == "alternating":
        drafts = draw(st.integers(min(2, steps), steps))
        pairs = (RoundWish(drafts=drafts, accept=drafts), RoundWish(drafts=drafts, accept=0))
        return pairs if draw(st.booleans()) else pairs[::-1]
    if pattern == "switching":
        drafts = draw(st.integers(min(2, steps), steps))
        some = RoundWish(drafts=drafts, accept=draw(st.integers(0, drafts)))
        none = RoundWish(drafts=0, accept=0)
        return (some, none, *(draw(_wish("any", steps)) for _ in range(count - 1)))
    return tuple(draw(_wish(pattern, steps)) for _ in range(count))


def _swing(draw: Draw, pattern: str, steps: int) -> tuple[RoundWish, ...]:
    """Rounds in which everything is accepted and rounds in which nothing is, sometimes with one of another kind."""
    right = (RoundWish(drafts=steps, accept=steps),) * draw(st.integers(2, 3))
    wrong = (RoundWish(drafts=steps, accept=0),) * draw(st.integers(2, 3))
    odd = draw(st.sampled_from(((), (RoundWish(drafts=steps, accept=1),), (draw(_wish("any", steps)),))))
    return (*right, *wrong, *odd) if pattern == "rising" else (*wrong, *right, *odd)


@st.composite
def _wish(draw: Draw, pattern: str, steps: int) -> RoundWish:
    if pattern == "unforced":
        return RoundWish(drafts=draw(st.integers(1, steps)), accept=-1)
    if pattern == "partial" and steps > 1:
        drafts = draw(st.integers(2, steps))
        return RoundWish(drafts=drafts, accept=draw(st.integers(1, drafts - 1)))
    drafts = draw(st.integers(1 if pattern in ("all", "none", "partial") else 0, steps))
    accept = {"all": drafts, "none": 0}.get(pattern)
    return RoundWish(drafts=drafts, accept=draw(st.integers(-1, drafts)) if accept is None else accept)
