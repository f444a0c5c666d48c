"""The round that ends a request: a subject that commits it uncut passes if it says so, and no other does."""

import dataclasses

import msgspec
import pytest

from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.properties.contracts.registry import find
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.judge import judge
from draftproof.properties.validate import validate
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.relations import OffBy
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Finish
from draftproof.properties.values.trace import Key
from draftproof.reference.solved import solved
from tests.properties.evidence import ADAPTIVE, CHAIN, STATIC
from tests.properties.ideal import IdealSubject


def cutting(scenario: Scenario) -> Scenario:
    """Requests 0 and 1 end at a stop token in the middle of a round that accepts three drafts."""
    plans = msgspec.structs.replace(scenario.requests[1].rounds[0], num_drafts=3, num_correct=3)
    stopped = tuple(
        msgspec.structs.replace(one, rounds=(plans,), stop_at=5, budget=12) if index < 2 else one
        for index, one in enumerate(scenario.requests)
    )
    return validate(msgspec.structs.replace(scenario, requests=stopped))


SNAPSHOT, REPLAY, CHAINED = cutting(STATIC), cutting(ADAPTIVE), cutting(CHAIN)


class Misdeclared(IdealSubject):
    """Does one thing and declares the other."""

    def __init__(self, does: Finish, says: Finish) -> None:
        super().__init__(says)
        self._does = IdealSubject(does)

    def run(self, *arguments):  # type: ignore[no-untyped-def]
        return self._does.run(*arguments)


def last_round(of: Evidence) -> Key:
    """The first round of request 0 that is cut: the last one that it has."""
    return Key(0, len(of.script.requests[0].rounds))


@pytest.mark.parametrize("scenario", [SNAPSHOT, REPLAY, CHAINED], ids=["snapshot", "replay", "chain"])
@pytest.mark.parametrize("finish", ["cut", "uncut", "token"])
def test_a_subject_that_does_what_it_declares_passes(scenario: Scenario, finish: Finish) -> None:
    for variant in ("none", "other_commit"):
        of = evidence(IdealSubject(finish), msgspec.structs.replace(scenario, variant=variant))
        assert judge(of).first is None


def test_the_length_after_the_last_round_is_what_is_declared() -> None:
    solved_rounds = solved(SNAPSHOT).script.requests[0].rounds
    last = solved_rounds[-1]
    assert len(last.emitted) < last.correct_len + 1
    for finish, committed in (
        ("cut", len(last.emitted)),
        ("uncut", last.correct_len + 1),
        ("token", len(last.emitted) + 1),
    ):
        of = evidence(IdealSubject(finish), SNAPSHOT)  # type: ignore[arg-type]
        assert of.reference.channel("commit.length")[last_round(of)] == last.context + committed
        assert of.reference.channel("accept.emitted")[last_round(of)] == last.emitted


@pytest.mark.parametrize(("more", "fails"), [(2, False), (0, False), (-1, True)])
def test_the_round_that_is_cut_accepts_as_much_as_it_emits_or_more(more: int, *, fails: bool) -> None:
    of = evidence(IdealSubject(), SNAPSHOT)
    at, implied = last_round(of), len(of.script.requests[0].rounds[-1].emitted) - 1
    changed = dataclasses.replace(of.subject)
    told = {**of.subject.typed("accept.correct_len", int), at: implied + more}
    vars(changed)["index"] = {**of.subject.index, "accept.correct_len": told}
    assert bool(find("accept.counted").check(dataclasses.replace(of, subject=changed))) == fails


@pytest.mark.parametrize(("does", "says", "sign"), [("uncut", "cut", 1), ("cut", "uncut", -1)])
@pytest.mark.parametrize("scenario", [SNAPSHOT, REPLAY], ids=["snapshot", "replay"])
def test_a_subject_that_does_the_other_fails(scenario: Scenario, does: Finish, says: Finish, sign: int) -> None:
    of = evidence(Misdeclared(does, says), scenario)
    results = judge(of).results
    failed = {name for name, found in results.items() if found}
    assert failed >= {"commit.length", "commit.step_index", "commit.state", "commit.final"}
    assert not results["accept.greedy"]
    assert not results["output.lossless"]
    length = results["commit.length"]
    assert length is not None
    assert isinstance(length.relation, OffBy)
    assert length.relation.by * sign > 0


def test_whoever_declares_nothing_is_held_to_the_cut_run() -> None:
    assert EngineSubject().limits.finish == "cut"
    assert judge(evidence(EngineSubject(), SNAPSHOT)).first is None


def test_a_declaration_that_nobody_knows_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Invalid enum value .whole. - at `\$.finish`"):
        msgspec.convert({"finish": "whole"}, Limits)
    subject = IdealSubject()
    subject.limits = "uncut"  # type: ignore[assignment]
    with pytest.raises(SubjectCrashedError, match=r"IdealSubject: expected a draftproof\.subject\.Limits"):
        evidence(subject, SNAPSHOT)
