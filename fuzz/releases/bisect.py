"""Which release brought a failure in, or mended it: a search by halves between a good release and a bad one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Literal

from msgspec.structs import replace
from packaging.version import Version

from draftproof.fuzz.releases.environment import NotInstalledError
from draftproof.fuzz.releases.index import ReleaseError
from draftproof.fuzz.releases.trial import Releases, timed
from draftproof.harness.identity import Identity, Level
from draftproof.properties.fit import UnfitError
from draftproof.properties.lib.base import Value
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.verdict import Divergence, Outcome

_SAME: Level = "channel"
"""As for commits: code between two releases may move the place of one bug."""


class ReleaseResult(Value, frozen=True, kw_only=True):
    """What was seen of a release; `reason` says why it is not runnable, or that another failure hides this one."""

    version: str
    said: Literal["good", "bad", "not runnable", "another failure"]
    reason: str = ""
    identity: Identity | None = None
    first: Divergence | None = None
    detail: str = ""
    seconds: float = 0.0


class ReleaseBisection(Value, frozen=True, kw_only=True):
    """The first bad release, or, where releases between could not be judged, all that it may be.

    Where the bad end is the older one the failure was `mended`, and these are the first good release.
    """

    package: str
    verdict: Outcome
    candidates: tuple[str, ...]
    identity: Identity
    between: int
    releases: tuple[ReleaseResult, ...]
    mended: bool = False

    @property
    def first(self) -> str | None:
        """The first bad release, or the first good one if the failure was mended, where there is no doubt."""
        return self.candidates[0] if len(self.candidates) == 1 else None


Progress = Callable[[ReleaseResult], None]


def bisect_releases(
    releases: Releases, versions: Sequence[str], scenario: Scenario, progress: Progress = lambda _: None
) -> ReleaseBisection:
    """Find where the scenario begins to fail as it does on the last of `versions`, which are in their order.

    That is the first bad release; with the newest first, the first good one. Raises ReleaseError if the first of
    `versions` is not good or the last not bad, and RuntimeError for an error of our own.
    """
    seen: dict[int, ReleaseResult] = {}

    def tested(place: int, expected: Identity | None) -> ReleaseResult:
        seen[place] = test(releases, versions[place], scenario, expected)
        progress(seen[place])
        return seen[place]

    last = len(versions) - 1
    at_bad = _end(tested(last, None), "bad")
    _end(tested(0, None), "good")
    assert at_bad.identity is not None
    good, bad = 0, last
    while untested := [place for place in range(good + 1, bad) if place not in seen]:
        # Nearest to the middle of what is left, around those that could not be judged.
        place = min(untested, key=lambda one: (abs(2 * one - good - bad), one))
        said = tested(place, at_bad.identity).said
        good, bad = (place if said == "good" else good), (place if said == "bad" else bad)
    mended = Version(versions[0]) > Version(versions[-1])
    candidates = tuple(reversed(versions[good:bad])) if mended else tuple(versions[good + 1 : bad + 1])
    return ReleaseBisection(
        package=releases.package,
        verdict=Outcome.PASS if len(candidates) == 1 else Outcome.INCONCLUSIVE,
        candidates=candidates,
        identity=at_bad.identity,
        between=last,
        releases=tuple(seen.values()),
        mended=mended,
    )


def test(releases: Releases, version: str, scenario: Scenario, expected: Identity | None) -> ReleaseResult:
    """Run the scenario on a release: bad if it fails as expected (None: in any way).

    Raises RuntimeError for an error of our own.
    """
    started = time.monotonic()
    try:
        (answer,) = releases.answers(version, [scenario])
    except NotInstalledError as error:
        return ReleaseResult(version=version, said="not runnable", reason=str(error), seconds=timed(started))
    blank = ReleaseResult(version=version, said="not runnable", seconds=timed(started))
    if isinstance(answer, UnfitError):
        return replace(blank, reason=str(answer))
    if not answer.failing and not answer.judged:
        return replace(blank, reason="no contract could be judged")
    if not answer.failing:
        return replace(blank, said="good")
    shown = replace(blank, said="bad", identity=answer.identity, first=answer.first, detail=answer.detail)
    if expected is None or answer.is_same(expected, _SAME):
        return shown
    if not answer.judged:
        return replace(blank, reason=answer.reason)
    return replace(shown, said="another failure", reason="it fails in another way")


def _end(result: ReleaseResult, wanted: Literal["good", "bad"]) -> ReleaseResult:
    if result.said != wanted:
        does = {"good": "the case passes on it", "bad": "the case fails on it"}.get(result.said, result.reason)
        expected = "passes" if wanted == "good" else "fails"
        raise ReleaseError(
            f"invalid --{wanted} {result.version!r}: expected a release on which the case {expected}: {does}"
        )
    return result
