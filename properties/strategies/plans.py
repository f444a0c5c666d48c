"""Accept patterns: the drafts that a request wants of each round, and how many of them are right."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from draftproof.properties.strategies.examples import composed, integers, sampled
from draftproof.properties.values.scenario import WRONG, RoundPlan

Draw = st.DrawFn
# Where so many drafts can be in a round, half of them are.
_MANY = 8
# Of six requests two verify in the last of their rounds what the draft proposes, and one begins with all accepted.
_MORE = ("", "own", "", "all", "", "own")
_ANY = ("all", "none", "partial", "alternating", "switching", "uneven", "unforced")


@composed
def plans(draw: Draw, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw one request's plans by an accept pattern, and for each what the first draft is that is not right."""
    rounds = draw(_rounds(pattern, steps))
    more = draw(sampled(_MORE))
    if more == "all":
        rounds = (RoundPlan(num_drafts=steps, num_correct=steps), *rounds)
    if more == "own":
        rounds = (*rounds, RoundPlan(num_drafts=steps, num_correct=-1))
    return tuple(replace(plan, wrong=draw(sampled(WRONG))) for plan in rounds)


@composed
def _rounds(draw: Draw, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw plans by an accept pattern; "rising" and "falling" last long enough to move a controller."""
    if pattern == "any":
        pattern = draw(sampled(_ANY))
    if pattern in ("rising", "falling"):
        return _swing(draw, pattern, steps)
    if pattern == "slow":
        # With all drafts, of which the target takes next to none: near a limit most of them would lie beyond it.
        return tuple(RoundPlan(num_drafts=steps, num_correct=some) for some in draw(sampled(((0, 0), (0, 1), (1, 0)))))
    count = draw(integers(1, 4))
    if pattern == "alternating":
        drafts = draw(integers(max(min(2, steps), _least(steps)), steps))
        pairs = (RoundPlan(num_drafts=drafts, num_correct=drafts), RoundPlan(num_drafts=drafts, num_correct=0))
        return pairs if draw(st.booleans()) else pairs[::-1]
    if pattern == "switching":
        drafts = draw(integers(max(min(2, steps), _least(steps)), steps))
        some = RoundPlan(num_drafts=drafts, num_correct=draw(integers(0, drafts)))
        none = RoundPlan(num_drafts=0, num_correct=0)
        return (some, none, *(draw(_plan("any", steps)) for _ in range(count - 1)))
    return tuple(draw(_plan(pattern, steps)) for _ in range(count))


def _swing(draw: Draw, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw rounds in which all or most is accepted, and little or nothing, sometimes with one of another kind."""
    most, least = draw(sampled((steps, max(steps - 1, 1)))), draw(sampled((0, 0, min(steps - 1, 1))))
    right = (RoundPlan(num_drafts=steps, num_correct=most),) * draw(integers(2, 3))
    wrong = (RoundPlan(num_drafts=steps, num_correct=least),) * draw(integers(2, 3))
    odd = draw(sampled(((), (RoundPlan(num_drafts=steps, num_correct=1),), (draw(_plan("any", steps)),))))
    return (*right, *wrong, *odd) if pattern == "rising" else (*wrong, *right, *odd)


def _least(steps: int) -> int:
    """Return how many drafts there are at least, where that is not as many as there happen to be."""
    return steps // 2 if steps >= _MANY else 0


@composed
def _plan(draw: Draw, pattern: str, steps: int) -> RoundPlan:
    if pattern == "unforced":
        return RoundPlan(num_drafts=draw(integers(1, steps)), num_correct=-1)
    many = _least(steps)
    if pattern == "partial" or (pattern not in ("all", "none") and draw(sampled((False, True, True)))):
        drafts = draw(integers(max(min(2, steps), many), steps))
        return RoundPlan(num_drafts=drafts, num_correct=draw(integers(min(1, drafts - 1), max(1, drafts - 1))))
    drafts = draw(integers(max(1 if pattern in ("all", "none") else 0, many), steps))
    accept = {"all": drafts, "none": 0}.get(pattern)
    return RoundPlan(num_drafts=drafts, num_correct=draw(integers(-1, drafts)) if accept is None else accept)
