"""One run of a subject: a trace that is whole is handed on, and whatever else happens is a crash of the subject."""

from dataclasses import replace

import pytest

from draftproof.harness.signals import TimeLimitError
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.subject_run import limits_of, require_whole, run_subject, silent_channels
from draftproof.properties.values.limits import NO_LIMITS, Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, MalformedTraceError, Observation, Trace
from draftproof.reference.solved import solved
from tests.properties.evidence import STATIC

SCRIPT = solved(STATIC).script
BONUS = Observation("accept.bonus", Key(0, 1), 7)


class Telling(Subject):
    """Returns a trace, or raises an error."""

    name = "telling"

    def __init__(self, *told: Observation, error: BaseException | None = None, declared: str = "accept.bonus") -> None:
        self._told, self._error, self._declared = told, error, frozenset(declared.split())

    def channels(self, scenario: Scenario) -> frozenset[str]:
        if self._error:
            raise self._error
        return self._declared

    def run(self, scenario: Scenario, script: Script) -> Trace:
        if self._error:
            raise self._error
        assert not any(request.tokens for request in script.requests), "no script says what a run has to show"
        return Trace(self.name, self._declared, self._told)


def test_a_whole_trace_is_handed_on() -> None:
    trace = run_subject(Telling(BONUS), STATIC, SCRIPT, "in a run")
    assert trace == Trace("telling", frozenset({"accept.bonus"}), (BONUS,))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ((BONUS, BONUS), "is reported twice"),
        ((BONUS._replace(key=Key(4, 1)),), "expected a request from 0 to 3, or -1 for none"),
        ((BONUS._replace(value=(7,)),), r"invalid accept\.bonus"),
    ],
    ids=["twice", "of nobody", "of another type"],
)
def test_a_trace_that_is_not_whole_is_none(wrong: tuple[Observation, ...], message: str) -> None:
    with pytest.raises(MalformedTraceError, match=message):
        require_whole(Telling(*wrong).run(STATIC, Script(requests=())), STATIC)
    with pytest.raises(SubjectCrashedError, match=f"{message}.*in a run$"):
        run_subject(Telling(*wrong), STATIC, SCRIPT, "in a run")


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), GeneratorExit()])
def test_whatever_is_raised_is_a_crash_of_the_subject(error: BaseException) -> None:
    with pytest.raises(SubjectCrashedError, match=type(error).__name__) as raised:
        run_subject(Telling(error=error), STATIC, SCRIPT, "in a run")
    assert (raised.value.cause, raised.value.during) == (error, "in a run")
    assert raised.value.where.startswith("harness/test_subject_run.py:")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), TimeLimitError()])
def test_an_end_from_outside_is_none(error: BaseException) -> None:
    with pytest.raises(type(error)):
        run_subject(Telling(error=error), STATIC, SCRIPT, "in a run")
    with pytest.raises(type(error)):
        silent_channels(Telling(error=error), STATIC, Trace("", frozenset(), ()), Trace("", frozenset(), ()))


def test_declared_channels_of_which_nothing_is_observed_are_silent() -> None:
    known = solved(STATIC).trace
    assert known is not None
    told, mute = (run_subject(Telling(*given), STATIC, SCRIPT, "") for given in ((BONUS,), ()))
    assert silent_channels(Telling(), STATIC, told, known) == frozenset()
    assert silent_channels(Telling(), STATIC, mute, known) == {"accept.bonus"}
    assert silent_channels(Telling(), STATIC, mute, replace(known, observations=())) == frozenset()
    assert silent_channels(Telling(declared="pool.owners"), STATIC, mute, known) == frozenset(), "only it has these"


def test_declared_channels_that_a_trace_lacks_are_a_crash() -> None:
    known, nothing = solved(STATIC).trace, Trace("", frozenset(), ())
    assert known is not None
    with pytest.raises(SubjectCrashedError, match=r"the trace lacks accept\.bonus, which its subject declares"):
        silent_channels(Telling(), STATIC, nothing, known)
    with pytest.raises(SubjectCrashedError, match=r"'accept\.bonas'.*did you mean accept\.bonus"):
        silent_channels(Telling(declared="accept.bonas"), STATIC, nothing, known)
    with pytest.raises(SubjectCrashedError, match="in its declaration"):
        silent_channels(Telling(error=KeyError("x")), STATIC, nothing, known)


def test_rows_of_a_subject_with_a_prefix_cache_want_what_it_served() -> None:
    known = solved(STATIC).trace
    assert known is not None
    subject = Telling(declared="round.rows")
    assert silent_channels(subject, STATIC, known, known) == frozenset()
    subject.limits = Limits(own_prefix_cache=True)
    with pytest.raises(SubjectCrashedError, match=r"expected round\.cached beside round\.rows, as its limits"):
        silent_channels(subject, STATIC, known, known)
    both = Telling(declared="round.rows round.cached")
    both.limits = subject.limits
    assert silent_channels(both, STATIC, known, known) == frozenset()


def test_an_object_that_is_no_subject_has_no_limits() -> None:
    assert limits_of(Telling()) == NO_LIMITS
    with pytest.raises(SubjectCrashedError, match="invalid subject object: expected name, limits"):
        limits_of(object())  # type: ignore[arg-type]
