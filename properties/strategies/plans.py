"""Accept patterns: the drafts that a request wants of each round, and how many of them are right."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.values.scenario import WRONG, RoundPlan

Draw = st.DrawFn
_ANY = ("all", "none", "partial", "alternating", "switching", "uneven", "unforced")


@st.composite
def plans(draw: Draw, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw one request's plans by an accept pattern, and for each what the first draft is that is not right."""
    return tuple(replace(plan, wrong=draw(st.sampled_from(WRONG))) for plan in draw(_rounds(pattern, steps)))


@st.composite
def _rounds(draw: Draw, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw plans by an accept pattern; "rising" and "falling" last long enough to move a controller."""
    if pattern == "any":
        pattern = draw(st.sampled_from(_ANY))
    if pattern in ("rising", "falling"):
        return _swing(draw, pattern, steps)
    count = draw(st.integers(1, 4))
    if pattern == "alternating":
        drafts = draw(st.integers(min(2, steps), steps))
        pairs = (RoundPlan(num_drafts=drafts, num_correct=drafts), RoundPlan(num_drafts=drafts, num_correct=0))
        return pairs if draw(st.booleans()) else pairs[::-1]
    if pattern == "switching":
        drafts = draw(st.integers(min(2, steps), steps))
        some = RoundPlan(num_drafts=drafts, num_correct=draw(st.integers(0, drafts)))
        none = RoundPlan(num_drafts=0, num_correct=0)
        return (some, none, *(draw(_plan("any", steps)) for _ in range(count - 1)))
    return tuple(draw(_plan(pattern, steps)) for _ in range(count))


def _swing(draw: Draw, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw rounds in which all is accepted and rounds in which nothing is, sometimes with one of another kind."""
    right = (RoundPlan(num_drafts=steps, num_correct=steps),) * draw(st.integers(2, 3))
    wrong = (RoundPlan(num_drafts=steps, num_correct=0),) * draw(st.integers(2, 3))
    odd = draw(st.sampled_from(((), (RoundPlan(num_drafts=steps, num_correct=1),), (draw(_plan("any", steps)),))))
    return (*right, *wrong, *odd) if pattern == "rising" else (*wrong, *right, *odd)


@st.composite
def _plan(draw: Draw, pattern: str, steps: int) -> RoundPlan:
    if pattern == "unforced":
        return RoundPlan(num_drafts=draw(st.integers(1, steps)), num_correct=-1)
    if pattern == "partial" and steps > 1:
        drafts = draw(st.integers(2, steps))
        return RoundPlan(num_drafts=drafts, num_correct=draw(st.integers(1, drafts - 1)))
    drafts = draw(st.integers(1 if pattern in ("all", "none", "partial") else 0, steps))
    accept = {"all": drafts, "none": 0}.get(pattern)
    return RoundPlan(num_drafts=drafts, num_correct=draw(st.integers(-1, drafts)) if accept is None else accept)
