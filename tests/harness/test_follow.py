"""The reference follows what a subject verified: one wrong proposal is one difference, and what comes after is judged.

The subject is the engine, with drafts changed between propose and verify.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

import pytest
from msgspec.structs import replace as put

from draftproof.engine.runtime import Runtime
from draftproof.engine.stages import DecodeRow, HostDrafts, Proposal
from draftproof.engine.subject import EngineSubject
from draftproof.harness.lockstep import evidence
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.evidence.observed_run import read_run
from draftproof.properties.judge import Judgement, judge
from draftproof.properties.values.drafts import ALGORITHMS
from draftproof.properties.values.limits import FirstDrafts, Limits
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import Request, RoundPlan, Scenario, drafts_allowed, round_plan
from draftproof.properties.values.script import RequestScript, Script, forced
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.reference.answer import follow
from draftproof.reference.build import build
from draftproof.reference.decode import RequestLimits, verify
from draftproof.reference.memo import Memo
from draftproof.reference.solved import solved
from tests.properties.evidence import ADAPTIVE, OF_DRAFTS, STATIC

PLANS = tuple(RoundPlan(num_drafts=3, num_correct=right) for right in (1, -1, -1, 2, -1, 0))
VOCAB = STATIC.model.vocab
Change = Callable[[TokenIds], TokenIds]


@cache
def right_run(scenario: Scenario) -> Evidence:
    return evidence(EngineSubject(), scenario)


def mixed(scenario: Scenario) -> Scenario:
    """Two of its requests, with rounds that are forced, and others between them."""
    requests = tuple(put(one, rounds=PLANS) for one in scenario.requests[:2])
    return put(scenario, requests=requests)


class Changing(EngineSubject):
    """The engine, of which one observation is told as `told` makes it."""

    def __init__(self, channel: str, told: Callable[[Observation], Observation]) -> None:
        super().__init__()
        self._channel, self._told = channel, told

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace = super().run(scenario, script)
        told = (self._told(one) if one.channel == self._channel else one for one in trace.observations)
        return replace(trace, observations=tuple(told))


def proposes(monkeypatch: pytest.MonkeyPatch, request: int, round_: int, change: Callable[[int], int]) -> None:
    """Let the engine's draft propose another first token in one round."""
    right = Runtime.propose

    def propose(
        runtime: Runtime, batch: tuple[DecodeRow, ...], num_rows: int, found: HostDrafts | None = None
    ) -> Proposal:
        proposal = right(runtime, batch, num_rows, found)
        tokens = proposal.draft_tokens.clone()
        for index, row in enumerate(batch):
            if (row.request.id, row.round) == (request, round_) and proposal.num_drafts[index]:
                tokens[index, 0] = change(int(tokens[index, 0]))
        return Proposal(tokens, proposal.num_drafts)

    monkeypatch.setattr(Runtime, "propose", propose)


def failed(judged: Judgement) -> list[str]:
    return [name for name, found in judged.results.items() if found]


def first_proposal(of: Evidence, scenario: Scenario) -> Key:
    """Where something is proposed and verified before rounds that are forced."""
    proposed = of.reference.typed("propose.tokens", TokenIds)
    return next(
        key
        for key, tokens in sorted(proposed.items())
        if tokens
        and scenario.requests[key.request].rounds[(key.round - 1) % len(PLANS)].num_correct < 0
        and len(of.script.requests[key.request].rounds) > key.round
    )


@pytest.mark.parametrize("draft", ALGORITHMS)
@pytest.mark.parametrize("change", ["another", "the right one"])
def test_one_wrong_proposal_fails_one_contract(monkeypatch: pytest.MonkeyPatch, draft: str, change: str) -> None:
    """Also one that makes the round accept more, so that all that follows is at other places."""
    scenario = mixed(OF_DRAFTS[draft])
    right = right_run(scenario)
    assert judge(right).passed
    key = first_proposal(right, scenario)
    own = right.reference.typed("propose.tokens", TokenIds)[key]
    true = right.reference.choices("verify.choice")[key._replace(row=0)][0]
    token = (
        true
        if change == "the right one" and own[0] != true
        else next(id_ for id_ in range(3) if id_ not in (true, own[0]))
    )
    proposes(monkeypatch, key.request, key.round, lambda _: token)
    of = evidence(EngineSubject(), scenario)
    judged = judge(of)
    assert failed(judged) == ["draft.proposed"]
    assert judged.first is not None
    assert judged.first.key == key
    solved_round = of.script.requests[key.request].rounds[key.round - 1]
    assert solved_round.verified == (token, *own[1:])
    assert of.script.requests[key.request].tokens == right.script.requests[key.request].tokens


def test_with_a_controller_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the controller averages is what was accepted of the drafts that were verified."""
    scenario = mixed(ADAPTIVE)
    key = first_proposal(right_run(scenario), scenario)
    proposes(monkeypatch, key.request, key.round, lambda token: (token + 1) % VOCAB)
    assert failed(judge(evidence(EngineSubject(), scenario))) == ["draft.proposed"]


def told_of(key: Key, change: Change) -> Callable[[Observation], Observation]:
    return lambda one: one._replace(value=change(one.value)) if one.key == key else one  # type: ignore[arg-type]


def other(tokens: TokenIds) -> TokenIds:
    return ((tokens[0] + 1) % VOCAB, *tokens[1:])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (other, {"draft.verified", "verify.ids"}),
        (lambda tokens: tokens[1:], {"draft.verified", "verify.ids"}),
        (lambda tokens: (*tokens, 1), {"draft.verified", "verify.ids"}),
        (lambda tokens: (VOCAB, *tokens[1:]), {"draft.verified", "memory.bounds"}),
        (lambda tokens: (-1, *tokens[1:]), {"draft.verified", "memory.bounds"}),
    ],
    ids=["another", "one less", "one more", "no token", "a hole"],
)
@pytest.mark.parametrize("forced", [True, False], ids=["forced", "own"])
def test_who_says_other_drafts_than_it_verified_is_caught(forced: bool, change: Change, expected: set[str]) -> None:
    scenario = mixed(STATIC)
    key = Key(0, 1) if forced else first_proposal(right_run(scenario), scenario)
    judged = judge(evidence(Changing("round.drafts", told_of(key, change)), scenario))
    assert expected <= set(failed(judged))


def test_who_ignores_forced_drafts_fails_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own proposals are what it verifies, as it says: nothing else is wrong than what it verified."""
    scenario = mixed(STATIC)
    monkeypatch.setattr("draftproof.engine.subject.steering.forced", lambda *_: None)
    judged = judge(evidence(EngineSubject(), scenario))
    assert failed(judged) == ["draft.verified", "verify.steered"]


class Reporting(EngineSubject):
    """The engine, which reports some channels only."""

    def __init__(self, *channels: str) -> None:
        super().__init__()
        self._only = frozenset(channels)

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return self._only

    def run(self, scenario: Scenario, script: Script) -> Trace:
        trace = super().run(scenario, script)
        kept = tuple(one for one in trace.observations if one.channel in self._only)
        return Trace(self.name, self._only, kept)


ACCEPT = ("accept.correct_len", "accept.index", "accept.bonus", "accept.emitted")


@pytest.mark.parametrize(
    ("channels", "expected"),
    [
        (("round.drafts", *ACCEPT), ["draft.verified"]),
        (("propose.tokens", *ACCEPT), ["draft.proposed"]),
        (ACCEPT, ["accept.greedy"]),
        (("accept.emitted",), []),
    ],
    ids=["what it verified", "what it proposed", "what it accepted", "text only"],
)
def test_what_a_subject_reports_is_what_is_followed(
    monkeypatch: pytest.MonkeyPatch, channels: Iterable[str], expected: list[str]
) -> None:
    """Of one that does not say what it verified, the rounds are judged by what it should have verified."""
    scenario = mixed(STATIC)
    right = right_run(scenario)
    key = first_proposal(right, scenario)
    true = right.reference.choices("verify.choice")[key._replace(row=0)][0]
    own = right.reference.typed("propose.tokens", TokenIds)[key][0]
    proposes(monkeypatch, key.request, key.round, lambda _: true if own != true else (true + 1) % VOCAB)
    assert failed(judge(evidence(Reporting(*channels), scenario))) == expected


def test_a_wrong_accept_of_the_drafts_that_were_verified_fails() -> None:
    scenario = mixed(STATIC)
    of = right_run(scenario)
    key = next(key for key, value in of.reference.typed("accept.correct_len", int).items() if value)
    told = lambda one: one._replace(value=one.value - 1) if one.key == key else one  # noqa: E731
    judged = judge(evidence(Changing("accept.correct_len", told), scenario))  # type: ignore[arg-type]
    assert "accept.greedy" in failed(judged)


def test_who_verified_what_was_expected_is_solved_once() -> None:
    known = solved(mixed(STATIC))
    ran = EngineSubject().run(known.scenario, known.script)
    assert follow(known, read_run(known.scenario, ran)) is known


class WithPrompt(Subject):
    """Greedy decoding with lookup drafts, whose first are verified with the prompt; by the reference's target alone.

    As a loop of tokens it verifies as many as it may still emit, and ends at one of them.
    """

    name = "with prompt"

    def __init__(self, first: FirstDrafts = "with prompt", wrong: bool = False, loop: bool = False) -> None:
        self.limits = Limits(drafts=("ngram",), first_drafts=first, arrivals="serial", variants=())
        if loop:
            self.limits = put(self.limits, steering="none", finish="token")
        self._wrong, self._loop = wrong, loop

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return frozenset({"propose.tokens", "round.drafts", *ACCEPT})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        said: list[Observation] = []
        for index, (request, steered) in enumerate(zip(scenario.requests, script.requests, strict=True)):
            said += self._decode(scenario, index, request, steered)
        return Trace(self.name, self.channels(scenario), tuple(said))

    def _decode(self, scenario: Scenario, index: int, request: Request, steered: RequestScript) -> list[Observation]:
        said, emitted, number = [], (), 0
        target, draft = build(scenario, Memo())
        limits = RequestLimits.of(request, scenario.memory.max_len, steered.stop)
        while not emitted or not limits.ended(emitted):
            tokens = request.prompt + emitted
            wanted = round_plan(request, number).num_drafts if number else scenario.steps
            left = request.budget - len(emitted) + self._loop
            count = drafts_allowed(wanted, context=len(tokens) - 1, max_len=scenario.memory.max_len, budget_left=left)
            own = draft.propose(tokens, target.forward(tokens), count).tokens
            own = ((own[0] + 1) % scenario.model.vocab, *own[1:]) if self._wrong and own and not number else own
            given = forced(steered, number, len(emitted), count) if number and not self._loop else None
            drafts = own if given is None else given[:count]
            verified = verify(target, tokens, drafts)
            new = limits.cut(emitted, verified.emitted)
            if self._loop:
                verified = verified._replace(accepted=verified.accepted[: len(new) + 1])
            told = {"propose.tokens": own, "round.drafts": drafts, "accept.correct_len": verified.correct_len}
            told |= {"accept.index": tuple(range(verified.correct_len + 1)), "accept.bonus": verified.emitted[-1]}
            told["accept.emitted"] = new
            if number or drafts:
                said += [Observation(channel, Key(index, number), value) for channel, value in told.items()]
            else:
                said.append(Observation("accept.emitted", Key(index, 0), new))
            emitted, number = emitted + new, number + 1
        return said


LOOKUP = mixed(OF_DRAFTS["ngram"])
# Of the first prompt a draft is right.
LOOKUP = put(
    LOOKUP,
    requests=tuple(
        put(one, prompt=prompt)
        for one, prompt in zip(LOOKUP.requests, ((4, 4, 4, 3, 1, 1), (4, 1, 0, 1, 4, 4)), strict=True)
    ),
)


def test_drafts_that_are_verified_with_the_prompt_are_judged_like_others() -> None:
    of = evidence(WithPrompt(), LOOKUP)
    assert judge(of).passed
    firsts = [request.first for request in of.script.requests]
    assert all(first is not None and first.drafts for first in firsts)
    assert firsts[0] is not None
    assert firsts[0].correct_len == 1
    forced_after = [round_.forced for request in of.script.requests for round_ in request.rounds]
    assert any(drafts for drafts in forced_after)
    assert failed(judge(evidence(WithPrompt(wrong=True), LOOKUP))) == ["draft.proposed"]


def test_a_loop_of_tokens_may_end_at_a_draft_of_the_prompts_round() -> None:
    short = put(LOOKUP, requests=tuple(put(one, budget=1) for one in LOOKUP.requests))
    of = evidence(WithPrompt(loop=True), short)
    assert judge(of).passed
    assert of.subject.channel("accept.correct_len")[Key(0, 0)] == 1


def test_who_does_not_declare_drafts_with_the_prompt_may_have_none() -> None:
    found = failed(judge(evidence(WithPrompt("own round"), LOOKUP)))
    assert {"draft.proposed", "accept.greedy"} <= set(found)
    assert "output.lossless" not in found
