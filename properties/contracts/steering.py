"""Compare what was verified with what the scenario asked for, from the plan and the subject's own report alone.

This module reads neither the script nor the reference, nor anything that they are made with: a mistake there would be
on both sides of every other comparison and would go unnoticed. `K` drafts of a round, `n` its context length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from draftproof.properties.contracts.base import listed
from draftproof.properties.diagnosis.compare import Mismatch
from draftproof.properties.evidence.evidence import Evidence
from draftproof.properties.values.limits import num_accepted
from draftproof.properties.values.observed import TokenIds
from draftproof.properties.values.relations import Different, off_by
from draftproof.properties.values.scenario import Request, RoundPlan
from draftproof.properties.values.trace import Key


class _Verified(NamedTuple):
    """A round as a subject reports it: its drafts d_1 .. d_K, the choices y_0 .. y_K, and the tokens that it emitted.

    `done` tokens came before; `text` are all that the request emitted, also those after this round.
    """

    request: int
    number: int
    drafts: TokenIds
    choices: TokenIds
    emitted: TokenIds
    done: int
    text: TokenIds

    def key(self, draft: int) -> Key:
        """Return where draft 1, 2, .. was verified."""
        return Key(self.request, self.number, row=draft)


def goes_another_way(evidence: Evidence, key: Key, rows: Iterable[int]) -> bool:
    """Return whether a round of a real model may follow another text than the one that its plan was made for."""
    tied = any(key._replace(row=row) in evidence.tied_choices for row in rows)
    return tied or key.request in evidence.ties or key.request in evidence.followed


def _rounds(evidence: Evidence) -> Iterator[_Verified]:
    """Yield every round with complete rows and choices, except of requests of a real model that have a tie."""
    ids, choices = defaultdict[tuple[int, int], dict[int, int]](dict), evidence.subject.choices("verify.choice")
    for key, token in evidence.subject.typed("verify.ids", int).items():
        ids[key.request, key.round][key.row] = token
    runs = defaultdict[int, list[TokenIds]](list)
    for key, tokens in sorted(evidence.subject.typed("accept.emitted", TokenIds).items()):
        runs[key.request].append(tokens)
    for (request, number), rows in sorted(ids.items()):
        chosen = [choices.get(Key(request, number, row=row)) for row in range(len(rows))]
        if goes_another_way(evidence, Key(request, number), rows):
            continue
        if sorted(rows) != list(range(len(rows))) or None in chosen:
            continue
        yield _Verified(
            request,
            number,
            drafts=tuple(rows[row] for row in range(1, len(rows))),
            choices=tuple(choice[0] for choice in chosen if choice),
            emitted=(*runs[request], *[()] * number)[number],
            done=sum(map(len, runs[request][:number])),
            text=tuple(token for run in runs[request] for token in run),
        )


def _steered(evidence: Evidence) -> Iterator[Mismatch]:
    """Yield drafts that are not those asked for, rounds with too few or too many, and what comes of them otherwise."""
    correct_len = evidence.subject.typed("accept.correct_len", int)
    for one in _rounds(evidence):
        request = evidence.scenario.requests[one.request]
        plan = request.rounds[(one.number - 1) % len(request.rounds)]
        if not one.number:
            # No plan covers what is verified with the prompt (S-FOLLOW-6).
            plan = RoundPlan(num_drafts=evidence.scenario.steps, num_correct=-1)
        yield from _number(evidence, one, request, plan)
        right = _leading(one)
        if plan.num_correct < 0:
            proposed = evidence.subject.typed("propose.tokens", TokenIds)
            yield from _differing(one, dict(enumerate(proposed.get(Key(one.request, one.number), ()), start=1)))
        elif request.sampling is None:
            # Of a sampled request only the script knows what is right: it depends on coins (S-SAMPLE-7), and
            # `draft.verified` holds it to that.
            right = min(plan.num_correct, len(one.drafts))
            yield from _forced(evidence, one, request, plan, right)
        key = Key(one.request, one.number)
        chosen = one.choices[: len(one.emitted)]
        if one.emitted != chosen:
            yield Mismatch("accept.emitted", key, chosen, one.emitted, Different())
        right = num_accepted(right, len(one.emitted), evidence.limits)
        if correct_len.get(key, right) != right:
            yield Mismatch("accept.correct_len", key, right, correct_len[key], off_by(right, correct_len[key]))


def _leading(one: _Verified) -> int:
    """Return how many drafts match before the first that does not (S-ROUND-4)."""
    matches = [draft == choice for draft, choice in zip(one.drafts, one.choices, strict=False)]
    return (*matches, False).index(False)


def _number(evidence: Evidence, one: _Verified, request: Request, plan: RoundPlan) -> Iterator[Mismatch]:
    """Yield a round that has not min(wanted, steps, max_len - 1 - n, budget left - 1) drafts (S-LIMIT-4).

    A controller or the size of a batch may make them fewer, and so may a draft that looks for a match. A subject that
    chooses their number may have up to `steps`, or a number of its own (S-FOLLOW-7).
    """
    n, scenario, limits = len(request.prompt) + one.done - 1, evidence.scenario, evidence.limits
    room = min(scenario.memory.max_len - 1 - n, request.budget - one.done - 1)
    asked, got = max(0, min(plan.num_drafts, scenario.steps, room)), len(one.drafts)
    exact = bool(one.number) and not scenario.dynamic and (plan.num_correct >= 0 or evidence.form.proposes != "lookup")
    if limits.chooses_drafts:
        asked, exact = scenario.steps, bool(one.number and limits.fixed_drafts)
    if got > asked or (got < asked and exact):
        place = one.key(min(asked, got) + 1)
        yield Mismatch("verify.ids", place, f"{asked} drafts", f"{got} drafts", off_by(asked, got))


def _forced(evidence: Evidence, one: _Verified, request: Request, plan: RoundPlan, right: int) -> Iterator[Mismatch]:
    """Yield drafts that are not what S-PLAN-3 forces: `right` true ones, a wrong one, the choice after it, true ones.

    What is true is the target's own choice, and behind a wrong draft what the request emits in the end, if it does.
    """
    asked: dict[int, int] = {place: one.choices[place - 1] for place in range(1, right + 1)}
    if right < len(one.drafts):
        true, got = one.choices[right], one.drafts[right]
        wrong = _wrong(evidence, one, request, plan, true)
        if wrong is not None:
            asked[right + 1] = wrong
        elif got == true:
            yield Mismatch("verify.ids", one.key(right + 1), f"another than {true}", got, Different())
        asked[right + 2] = one.choices[right + 1]
        behind = range(right + 3, len(one.drafts) + 1)
        asked |= {place: one.text[one.done + place - 1] for place in behind if one.done + place <= len(one.text)}
    yield from _differing(one, asked)


def _wrong(evidence: Evidence, one: _Verified, request: Request, plan: RoundPlan, true: int) -> int | None:
    """Return the token that the plan wants in place of a true one; None if the stop token is not known.

    `stop_at` names one that only shows if the request gets there, and with a minimum not even then.
    """
    vocab, stops = evidence.scenario.model.vocab, set(request.stops)
    if plan.wrong == "stop" and request.stop_at >= 0:
        if request.stop_at >= len(one.text) or request.min_tokens:
            return None
        stops.add(one.text[request.stop_at])
    kinds = {"zero": 0, "last": vocab - 1, "far": (true + vocab // 2) % vocab, "stop": min(stops, default=true)}
    token = kinds.get(plan.wrong, true)
    return token if token != true else (true + 1) % vocab


def _differing(one: _Verified, asked: Mapping[int, int]) -> Iterator[Mismatch]:
    """Yield the drafts 1, 2, .. that are others than those asked for."""
    for place, draft in enumerate(one.drafts, start=1):
        if asked.get(place, draft) != draft:
            yield Mismatch("verify.ids", one.key(place), asked[place], draft, Different())


_CHANNELS = ("verify.ids", "verify.choice", "accept.correct_len", "accept.emitted", "propose.tokens")
CONTRACTS = (
    listed(
        "verify.steered",
        _steered,
        _CHANNELS,
        partial=_CHANNELS,
        # Of trees see tree.steered.
        concerns=lambda evidence: evidence.scenario.tree is None,
        cites="S-PLAN-7, S-PLAN-3, S-PLAN-4, S-LIMIT-4",
        minimum="accept_none accept_partial accept_all rounds_without_drafts unsteered_rounds",
    ),
)
