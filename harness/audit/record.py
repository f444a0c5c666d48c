"""A subject's own rounds as a log: what it drafted and emitted on prompts, nothing forced."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from draftproof.harness.subject_crash import SubjectCrashedError
from draftproof.harness.subject_run import run_subject
from draftproof.properties.fit import fit
from draftproof.properties.formats.round_log import LogError, LoggedRound, LoggedText, Prompt
from draftproof.properties.lib.paths import put_in
from draftproof.properties.validate import validate
from draftproof.properties.values.drafts import CheckpointDraft, Ngram
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.scenario import (
    Checkpoint,
    Graphs,
    Memory,
    Request,
    RoundPlan,
    Scenario,
    Schedule,
)
from draftproof.properties.values.script import RequestScript, Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, MalformedTraceError, Trace

_ROWS, _PAGE, _CHUNK, _WAITING = 4, 16, 64, 64
_DURING = "on the prompts"


def record(
    subject: Subject,
    model: Checkpoint,
    draft: CheckpointDraft | Ngram,
    prompts: Sequence[Prompt],
    *,
    steps: int,
    budget: int,
    capture: bool = True,
) -> tuple[LoggedText, ...]:
    """Run a subject on prompts, four at a time, with what its draft proposes, and return what it did.

    Without `capture` it is asked to run the same shapes eagerly. Raises LogError if it does not say what it emitted
    round by round, and SubjectCrashedError for whatever it raises and for a trace that lacks anything.
    """
    texts = list[LoggedText]()
    for first in range(0, len(prompts), _WAITING):
        asked = own_drafts(model, draft, prompts[first : first + _WAITING], steps, budget)
        scenario = fit(put_in(asked, "graphs", capture=capture), subject.limits)
        unknown = Script(requests=tuple(RequestScript(tokens=(), stop=(), rounds=()) for _ in scenario.requests))
        trace = run_subject(subject, scenario, unknown, _DURING)
        for index, request in enumerate(scenario.requests):
            text = _text(trace, index, request.prompt)
            if wrong := _wrong(trace, text, index, request.budget, model.vocab):
                error = MalformedTraceError(wrong)
                raise SubjectCrashedError(_DURING, error) from error
            texts.append(text)
    return tuple(texts)


def _wrong(trace: Trace, text: LoggedText, index: int, budget: int, vocab: int) -> str:
    """Return what cannot be of a text that was decoded to its end, without a stop token; "" if nothing is wrong."""
    emitted = text.tokens[len(text.prompt) :]
    if len(emitted) < budget:
        return (
            f"accept.emitted of request {index} has {len(emitted)} tokens in rounds 0 to {len(text.rounds)}: expected"
            f" {budget}, as nothing ends a text early"
        )
    for one in text.rounds:
        where = f"of request {index}, round {one.round}"
        if one.drafts is None and "propose.tokens" in trace.channels:
            return f"the trace lacks propose.tokens {where}: expected the tokens of every round, () without drafts"
        most = len(one.emitted) if one.drafts is None else 1 + len(one.drafts)
        if not 1 <= len(one.emitted) <= most:
            return f"invalid accept.emitted {where}, {len(one.emitted)} tokens: expected 1 to {max(1, most)}"
    drafts = [token for one in text.rounds for token in one.drafts or ()]
    for channel, tokens in (("accept.emitted", emitted), ("propose.tokens", drafts)):
        for token in tokens:
            if not 0 <= token < vocab:
                return f"invalid {channel} of request {index}: {token}: expected token ids 0 .. {vocab - 1}"
    return ""


def own_drafts(
    model: Checkpoint, draft: CheckpointDraft | Ngram, prompts: Sequence[Prompt], steps: int, budget: int
) -> Scenario:
    """Return a scenario of these prompts in which every round has what its draft proposes."""
    budgets = [one.max_tokens or budget for one in prompts]
    longest = max(len(one.prompt) + most for one, most in zip(prompts, budgets, strict=True)) + steps + 1
    rows = min(_ROWS, len(prompts))
    pages, plan = rows * -(-longest // _PAGE), (RoundPlan(num_drafts=steps, num_correct=-1),)
    return validate(
        Scenario(
            model=model,
            draft=draft,
            steps=steps,
            memory=Memory(page_size=_PAGE, pages=pages, request_slots=len(prompts), max_len=longest),
            graphs=Graphs(sizes=(rows,)),
            schedule=Schedule(max_batch=rows, chunk=_CHUNK),
            requests=tuple(
                Request(arrival=0, prompt=one.prompt, budget=most, rounds=plan)
                for one, most in zip(prompts, budgets, strict=True)
            ),
            taps=False,
        )
    )


def _text(trace: Trace, index: int, prompt: tuple[int, ...]) -> LoggedText:
    emitted = {
        key.round: tokens for key, tokens in trace.typed("accept.emitted", TokenIds).items() if key.request == index
    }
    if sorted(emitted) != list(range(len(emitted))) or not emitted:
        raise LogError(f"{trace.subject}: expected what request {index} emitted in rounds 0, 1, .. (accept.emitted)")
    drafts = trace.typed("propose.tokens", TokenIds)
    if len(emitted) == 1 and len(emitted[0]) > 1 and Key(index, 0) not in drafts:
        raise LogError(
            f"{trace.subject} tells the whole text of request {index} at once: expected its rounds (a server:"
            " --set rounds=yes), or an audit of counts (--observed, --metrics)"
        )
    rounds = [
        LoggedRound(request=index, round=number, drafts=drafts.get(Key(index, number)), emitted=emitted[number])
        for number in range(len(emitted))
    ]
    return LoggedText.of(prompt, rounds)


def log_lines(log: Sequence[LoggedText], budgets: Sequence[int]) -> str:
    """Return a log as it is written to a file, with the most tokens that each request might emit."""
    lines = list[Any]()
    for index, (text, most) in enumerate(zip(log, budgets, strict=True)):
        lines.append({"request": index, "prompt": text.prompt, "max_tokens": most})
        if text.first:
            lines.append({"request": index, "round": 0, "emitted": text.first})
        for one in text.rounds:
            fields = msgspec.to_builtins(msgspec.structs.replace(one, request=index))
            lines.append({name: value for name, value in fields.items() if value is not None})
    return "".join(json.dumps(line) + "\n" for line in lines)
