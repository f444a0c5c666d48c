"""What `draftproof compare` does between its options and its report: engines are run, and what differs is explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from draftproof.cli import audited, inputs, screen
from draftproof.cli.audited import Passes, Recorded
from draftproof.cli.sides import Side, same_subject
from draftproof.properties.values.drafts import Algorithm
from draftproof.properties.values.subject_choice import BUILT_IN_SUBJECT
from draftproof.properties.values.verdict import Outcome
from draftproof.report.commands import command

if TYPE_CHECKING:
    from draftproof.harness.audit.audit import Simulator
    from draftproof.properties.formats.comparison import ComparedRound, ComparisonReport, EngineSeen, PairVerdict
    from draftproof.properties.formats.round_log import LoggedText, Prompt
    from draftproof.properties.values.drafts import CheckpointDraft, Ngram
    from draftproof.reference.audit.fast_pair import ReadPair
    from draftproof.reference.audit.pair import AuditedPair

Log = tuple["LoggedText", ...]


class ComparedPair(NamedTuple):
    """The target and the draft that all engines have, as directories and as they were read."""

    model: Path
    name: Algorithm
    spec: CheckpointDraft | Ngram
    passes: Passes
    read: ReadPair | AuditedPair


def prompts_of(logs: Mapping[int, Log]) -> tuple[Prompt, ...]:
    """Return the prompts of the first log, each with as many tokens as it has there."""
    from draftproof.properties.formats.round_log import Prompt

    texts = logs[min(logs)]
    return tuple(Prompt(prompt=one.prompt, max_tokens=max(2, len(one.tokens) - len(one.prompt))) for one in texts)


def require(found: Sequence[Side]) -> None:
    """Bring back the faults, and make and close every engine but the first that is run, which is made first anyway.

    A side that cannot be made is so noticed before another has run. Raises what `audited.record` raises of making.
    """
    from draftproof.harness.side_by_side import SideBySide
    from draftproof.harness.subject_run import closing

    ran = [side for side in found if side.log is None]

    def check(number: int, side: Side) -> None:
        with side.under_test.patched() as spec:
            if number and side.under_test.choice != BUILT_IN_SUBJECT:
                with closing(side.under_test.made(spec)):
                    pass

    for _ in SideBySide(check, ran, _processes(ran)):
        pass


def _processes(ran: Sequence[Side]) -> int:
    """Return 1, or one a side: a bug is in a copy of the engine, which is imported before ours or not at all."""
    return len(ran) if any(side.is_patched for side in ran) else 1


def record(found: Sequence[Side], pair: ComparedPair, given: Sequence[Prompt]) -> dict[int, Recorded]:
    """Run the engines that are not logs; one with other sources has a process of its own, and then each has.

    Raises what `audited.record` raises.
    """
    from draftproof.harness.side_by_side import SideBySide

    ran = [(at, side) for at, side in enumerate(found) if side.log is None]

    def run(_number: int, one: tuple[int, Side]) -> tuple[int, Recorded]:
        at, side = one
        recorded = audited.record(side.under_test, pair.model, pair.spec, given, pair.passes, capture=side.graphs)
        return at, recorded

    return dict(SideBySide(run, ran, _processes([side for _, side in ran])))


def settings_of(side: Side) -> dict[str, str]:
    """Return what a side was given, by name."""
    return {**side.under_test.settings, **({} if side.graphs else {"graphs": "off"})}


def save(folder: Path, logs: Sequence[Log]) -> None:
    """Write what each engine did, as 1.jsonl, 2.jsonl and so on. Raises InputError."""
    from draftproof.harness.audit.record import log_lines

    for number, log in enumerate(logs, start=1):
        most = [max(1, len(text.tokens) - len(text.prompt)) for text in log]
        inputs.write_text("--save-logs", folder / f"{number}.jsonl", log_lines(log, most))


def explained(
    pair: ComparedPair, logs: Sequence[Log], engines: Sequence[EngineSeen], pairs: Sequence[PairVerdict]
) -> tuple[list[EngineSeen], list[PairVerdict]]:
    """Return the same with an audit of the first engine, and of each that is not like it; and what was right.

    Raises LogError for a log of tokens or drafts that there cannot be.
    """
    from draftproof.harness.audit.audit import Question, Seen, audit

    unlike = [at for at, one in enumerate(pairs, start=1) if one.verdict is not Outcome.PASS]
    told, first = list(engines), None
    for at in [0, *unlike] if unlike else ():
        seen = Seen(logs[at])
        with screen.ticking(f"auditing {engines[at].side}"):
            simulator = audited.simulator(pair.read, pair.spec, seen, (), pair.passes)
            steps = max(engines[at].steps, pair.passes.steps)
            told[at] = replace(told[at], audit=audit(Question(pair.name, steps, seen, False, 0), simulator))
        first = first or simulator
    return told, [_with_right(pair, first, logs[0], one) if one.first and first else one for one in pairs]


def _with_right(pair: ComparedPair, simulator: Simulator, log: Log, one: PairVerdict) -> PairVerdict:
    """Return the same, its first round that differs with what a right draft proposes there."""
    from draftproof.reference.audit.mistakes import definition

    found: ComparedRound | None = one.first
    assert found is not None
    rounds = log[found.request].rounds
    place = next((at for at, logged in enumerate(rounds) if logged.round == found.rounds[0]), None)
    if place is None:  # round 0, in which it has no drafts
        return one
    played = simulator.play(definition(pair.name))[found.request][place]
    return replace(one, first=replace(found, right=played.drafts))


def case_of(pair: ComparedPair, logs: Sequence[Log], report: ComparisonReport) -> str:
    """Return the first request that differs as a scenario, "" if none does."""
    from draftproof.harness.audit.record import own_drafts
    from draftproof.properties.formats.case import encode
    from draftproof.properties.formats.checkpoint_config import read_config
    from draftproof.properties.values.scenario import Checkpoint

    found = next((one.first for one in report.pairs if one.first is not None), None)
    if found is None:
        return ""
    target = Checkpoint(path=str(pair.model), vocab=read_config(pair.model).vocab_size)
    (asked,) = prompts_of({0: (logs[0][found.request],)})
    return encode(own_drafts(target, pair.spec, (asked,), pair.passes.steps, pair.passes.tokens)) + "\n"


def next_steps(found: Sequence[Side], report: ComparisonReport, case: Path) -> Iterator[str]:
    """Yield the commands that run the request again, and that find the release which made it differ."""
    unlike = next((at for at, one in enumerate(report.pairs, start=1) if one.first is not None), None)
    if unlike is None:
        return
    if found[unlike].log is None:
        yield f"what is wrong inside: {command('replay', case, **found[unlike].under_test.of_cases)}"
    choice = same_subject(found)
    if choice is None:
        return
    from draftproof.fuzz.releases.packages import packages_of

    old, new = report.engines[0].versions, report.engines[unlike].versions
    for package in packages_of(choice.name):
        if package in old and package in new and old[package] != new[package]:
            words = ("lab", "bisect", "releases", case)
            yield f"which release: {command(*words, package=package, good=old[package], bad=new[package])}"
