"""Judge a recorded log: every request is a scenario of its own, and its rounds are the trace (docs/judge.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from draftproof.harness.accept_lengths import JudgedLength, LengthRule, LengthsOfRuns, judged_length, length_of_log
from draftproof.harness.checkpoint_scenarios import RealDraft
from draftproof.harness.lockstep import evidence
from draftproof.properties.contracts.base import Contract
from draftproof.properties.contracts.registry import find
from draftproof.properties.coverage.counts import counts, total
from draftproof.properties.coverage.shown import CHANNELS_THAT_SHOW_DRAFTS, observation_gaps
from draftproof.properties.formats.checkpoint_config import read_config
from draftproof.properties.formats.judged_log import LoggedRun
from draftproof.properties.formats.round_log import LogError, LoggedText
from draftproof.properties.judge import RUNS_CONTRACT, Judgement, judge, summarise
from draftproof.properties.lib.base import Value
from draftproof.properties.values.drafts import Ngram, is_free
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.observed import Datum
from draftproof.properties.values.scenario import (
    Checkpoint,
    Graphs,
    Memory,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
)
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.verdict import Divergence, Outcome, Verdict, worst

_PAGE = 16
_SHOWN = ("tokens_emitted", "token_ties", "ties", "decode_rounds", "drafts_accepted", "drafts_rejected")


class LogReport(Value, frozen=True, kw_only=True):
    """The result of judging a log: a verdict a contract, and the first divergence of every request that has one.

    `counts` are summed over all requests: tokens and rounds, drafts accepted and rejected, and tokens that rounding
    cannot tell from the best (`token_ties`). `unseen` says what the log has nothing of. `length` is there where a rule
    for it was given.
    """

    verdict: Outcome
    log: str
    requests: int
    counts: dict[str, int]
    contracts: tuple[Verdict, ...]
    first: tuple[Divergence, ...] = ()
    unseen: str = ""
    length: JudgedLength | None = None


class RecordedRun(Subject):
    """The run of one request of a log."""

    name = "log"

    def __init__(self, logged: LoggedRun, shows_drafts: bool) -> None:
        self._logged, self._channels = logged, frozenset({"accept.emitted", "round.drafts"})
        if shows_drafts:
            self._channels |= {"propose.tokens"}
        self.limits = Limits(
            models=("checkpoint",),
            features=("trees", "preemption", "prefix-cache", "kv-quantization"),
            arrivals="serial",
            steering="none",
            first_drafts="with prompt" if logged.drafts[0] else "own round",
            variants=(),
        )

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return self._channels

    def run(self, scenario: Scenario, script: Script) -> Trace:
        told: list[Observation] = []
        for round_, drafts in zip(self._logged.rounds, self._logged.drafts, strict=True):
            values: dict[str, Datum] = {"accept.emitted": round_.emitted}
            if round_.round or drafts:
                values |= dict.fromkeys(("round.drafts", "propose.tokens"), drafts)
            told += [
                Observation(channel, Key(0, round_.round), value)
                for channel, value in values.items()
                if channel in self._channels
            ]
        return Trace(self.name, self._channels, tuple(told))


def judge_log(
    log: Sequence[LoggedRun],
    name: str,
    model: Path,
    draft: RealDraft | None,
    progress: Callable[[], None] = lambda: None,
    rule: LengthRule | None = None,
) -> LogReport:
    """Judge every request of a log; its drafts if one is named, else only what came of them.

    By a `rule` its acceptance length is judged, too: beside a golden one, else beside that of a right draft. Raises
    LogError for a log that does not fit the draft.
    """
    judged: list[Judgement] = []
    lengths = LengthsOfRuns()
    counted: list[dict[str, int]] = []
    contracts = _contracts(log, draft)
    target = Checkpoint(path=str(model), vocab=read_config(model).vocab_size)
    for one in log:
        ran = evidence(RecordedRun(one, draft is not None), _scenario(one, name, target, draft))
        judged.append(_named(judge(ran, contracts), one.request.request))
        counted.append(counts(ran))
        lengths.add(one, ran)
        progress()
    missing = observation_gaps(total(counted), CHANNELS_THAT_SHOW_DRAFTS).missing
    outcome = Outcome.INCONCLUSIVE if missing else Outcome.PASS
    seen = Verdict(name=RUNS_CONTRACT, verdict=outcome, scenarios=len(log), missing=missing)
    verdicts = (seen, *summarise(judged, counted, contracts))
    length = _length(log, rule, lengths) if rule else None
    verdicts += (length.contract(len(log)),) if length else ()
    return LogReport(
        verdict=worst([verdict.verdict for verdict in verdicts]),
        log=name,
        requests=len(log),
        counts={shown: total(counted)[shown] for shown in _SHOWN},
        contracts=verdicts,
        first=tuple(one.first for one in judged if one.first),
        unseen=_without_drafts(log) if missing else "",
        length=length,
    )


def _length(log: Sequence[LoggedRun], rule: LengthRule, lengths: LengthsOfRuns) -> JudgedLength:
    """Return the acceptance length beside the golden one, if the rule has one, else beside that of a right draft."""
    if rule.golden is None:
        return lengths.judged(rule)
    texts = [LoggedText.of(one.request.prompt, one.rounds) for one in log]
    return judged_length(rule, length_of_log(texts), rule.golden.length, f"golden of {rule.golden.place}")


def _without_drafts(log: Sequence[LoggedRun]) -> str:
    """Return what a log lacks that has no draft, and what is to be logged."""
    rounds = sum(len(one.rounds) - 1 for one in log)
    if not rounds:
        return "no request has a round after round 0, so nothing is said of drafting"
    return (
        f"no draft was seen in {rounds} rounds after the prompts', so nothing is said of drafting; log the drafts that"
        " each round verified"
    )


def _contracts(log: Iterable[LoggedRun], draft: RealDraft | None) -> tuple[Contract, ...]:
    """Return what can be said of a log: of its text, of what it accepted where it drafts, and of a draft's tokens."""
    names = ["output.lossless"]
    if draft or any(any(one.drafts) for one in log):
        names.append("accept.emitted")
    return tuple(map(find, (*names, "draft.proposed") if draft else names))


def _scenario(one: LoggedRun, name: str, model: Checkpoint, draft: RealDraft | None) -> Scenario:
    """Return the scenario that a request is: with as many drafts in each round as it had."""
    asked, drafts = one.request, list(map(len, one.drafts))
    steps = max(1, *drafts)
    if draft and steps > draft.steps:
        place = drafts.index(steps)
        raise LogError(
            f"invalid {name}: request {asked.request} has {steps} drafts in round {place}: expected at most"
            f" {draft.steps}, as the {draft.name} draft has {draft.origin}"
        )
    if draft and drafts[0] and not is_free(draft.draft):
        raise LogError(
            f"invalid {name}: request {asked.request} has drafts in round 0: expected none, as the {draft.name} draft"
            " takes what the target makes of the prompt"
        )
    plans = tuple(RoundPlan(num_drafts=count, num_correct=-1) for count in drafts[1:])
    assert asked.max_tokens is not None
    length = len(asked.prompt) + asked.max_tokens + steps
    return Scenario(
        model=model,
        draft=draft.draft if draft else Ngram(max_n=1),
        steps=steps,
        memory=Memory(page_size=_PAGE, pages=-(-length // _PAGE), request_slots=1, max_len=max(4, length)),
        graphs=Graphs(),
        schedule=Schedule(max_batch=1, chunk=len(asked.prompt)),
        requests=(
            Request(
                arrival=0,
                prompt=asked.prompt,
                budget=asked.max_tokens,
                rounds=plans or (RoundPlan(num_drafts=0, num_correct=-1),),
                stops=asked.stop,
            ),
        ),
    )


def _named(judged: Judgement, request: int) -> Judgement:
    """Return the judgement with the number that a request has in the log."""

    def named(found: Divergence | None) -> Divergence | None:
        return msgspec.structs.replace(found, request=request) if found else None

    results = {name: named(found) for name, found in judged.results.items()}
    return Judgement(results, named(judged.first), judged.channels, judged.unreachable, judged.draft)
