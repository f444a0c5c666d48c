"""Accept patterns: the drafts that a request wants of each round, and how many of them are right."""

from __future__ import annotations

from msgspec.structs import replace

from draftproof.properties.choose import Choose
from draftproof.properties.values.scenario import WRONG, RoundPlan

# Where a round can have this many drafts, it has half of them.
_MANY = 8
# Of six requests two verify in the last of their rounds what the draft proposes, and one begins with all accepted.
_MORE = ("", "own", "", "all", "", "own")
_ANY = ("all", "none", "partial", "alternating", "switching", "uneven", "unforced")


def plans(choose: Choose, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw one request's plans by an accept pattern, and for each what the first draft is that is not right."""
    rounds = _rounds(choose, pattern, steps)
    more = choose.one_of(_MORE)
    if more == "all":
        rounds = (RoundPlan(num_drafts=steps, num_correct=steps), *rounds)
    if more == "own":
        rounds = (*rounds, RoundPlan(num_drafts=steps, num_correct=-1))
    # One after another: each way to be wrong comes about as often, however long a request goes on.
    first = choose.integer(0, len(WRONG) - 1)
    return tuple(replace(plan, wrong=WRONG[(first + place) % len(WRONG)]) for place, plan in enumerate(rounds))


def _rounds(choose: Choose, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw plans by an accept pattern; "rising" and "falling" last long enough to move a controller."""
    if pattern == "any":
        pattern = choose.one_of(_ANY)
    if pattern in ("rising", "falling"):
        return _swing(choose, pattern, steps)
    if pattern == "slow":
        # With all drafts, next to none of them accepted: near a limit most of them would lie beyond it.
        return tuple(RoundPlan(num_drafts=steps, num_correct=some) for some in choose.one_of(((0, 0), (0, 1), (1, 0))))
    count = choose.integer(1, 4)
    if pattern == "alternating":
        drafts = choose.integer(max(min(2, steps), _least(steps)), steps)
        pairs = (RoundPlan(num_drafts=drafts, num_correct=drafts), RoundPlan(num_drafts=drafts, num_correct=0))
        return pairs if choose.boolean() else pairs[::-1]
    if pattern == "switching":
        drafts = choose.integer(max(min(2, steps), _least(steps)), steps)
        some = RoundPlan(num_drafts=drafts, num_correct=choose.integer(0, drafts))
        return (some, RoundPlan(num_drafts=0, num_correct=0), *(_plan(choose, "any", steps) for _ in range(count - 1)))
    return tuple(_plan(choose, pattern, steps) for _ in range(count))


def _swing(choose: Choose, pattern: str, steps: int) -> tuple[RoundPlan, ...]:
    """Draw rounds in which all or most is accepted, and little or nothing, sometimes with one of another kind."""
    most, least = choose.one_of((steps, max(steps - 1, 1))), choose.one_of((0, 0, min(steps - 1, 1)))
    right = (RoundPlan(num_drafts=steps, num_correct=most),) * choose.integer(2, 3)
    wrong = (RoundPlan(num_drafts=steps, num_correct=least),) * choose.integer(2, 3)
    odd = choose.one_of(((), (RoundPlan(num_drafts=steps, num_correct=1),), (_plan(choose, "any", steps),)))
    return (*right, *wrong, *odd) if pattern == "rising" else (*wrong, *right, *odd)


def _least(steps: int) -> int:
    """Return how many drafts there are at least, where that is not as many as there happen to be."""
    return steps // 2 if steps >= _MANY else 0


def _plan(choose: Choose, pattern: str, steps: int) -> RoundPlan:
    if pattern == "unforced":
        return RoundPlan(num_drafts=choose.integer(1, steps), num_correct=-1)
    many = _least(steps)
    if pattern == "partial" or (pattern not in ("all", "none") and choose.one_of((False, True, True))):
        drafts = choose.integer(max(min(2, steps), many), steps)
        return RoundPlan(num_drafts=drafts, num_correct=choose.integer(min(1, drafts - 1), max(1, drafts - 1)))
    drafts = choose.integer(max(1 if pattern in ("all", "none") else 0, many), steps)
    accept = {"all": drafts, "none": 0}.get(pattern)
    return RoundPlan(num_drafts=drafts, num_correct=choose.integer(-1, drafts) if accept is None else accept)
