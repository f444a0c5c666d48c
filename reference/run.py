"""The reference as a subject: the trace of a script, every value recomputed from its definition.

A round knows tokens only. It draws on no state of an earlier round and on no other request: the target's pass starts at
token zero, a draft's at its first entry, with true entries first and guesses after them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import lcm
from typing import NamedTuple

import numpy as np

from draftproof.properties.values.drafts import DRAFT_CHANNELS, tapped
from draftproof.properties.values.limits import finish_of
from draftproof.properties.values.observed import Datum, DraftNeeds, LayerKind
from draftproof.properties.values.sampling import Sampling
from draftproof.properties.values.scenario import LayerType, Scenario, States, columns_freed
from draftproof.properties.values.script import Finish, RequestScript, RoundScript, Script
from draftproof.properties.values.subject import Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.properties.values.tree import lineage
from draftproof.reference import minimum
from draftproof.reference.build import build
from draftproof.reference.chooser import chooser_of, weights_of
from draftproof.reference.decode import RequestLimits, Verification, choices_along, verify
from draftproof.reference.drafts.base import ReferenceDraft, Said, draft_for_request, propose, said_choice, vector
from draftproof.reference.grammar import allowed, counted, state_of
from draftproof.reference.memo import Memo, Pass
from draftproof.reference.protocols import ReferenceTarget
from draftproof.reference.request_target import placed, target_of, weakened_targets
from draftproof.reference.sampling import logprob
from draftproof.reference.solve import resolve, solve
from draftproof.reference.trees import verify_tree

_ALWAYS = frozenset(
    {f"verify.{name}" for name in ("ids", "positions", "hidden", "allowed", "choice")}
    | {f"accept.{name}" for name in ("correct_len", "index", "bonus", "emitted", "logprobs", "prompt_logprobs")}
    | {f"commit.{name}" for name in ("length", "allowed", "kv")}
    | {"config.routing", "config.draft", "propose.tokens", "propose.weights", "round.drafts"}
)
_STATES = frozenset({"commit.step_index", "commit.state", "commit.final"})
_SNAPSHOT = frozenset({"commit.intermediate"})
_REPLAY = frozenset({"commit.pending", "commit.base", "commit.unfolded"})
_CHECKPOINT = frozenset({"commit.checkpoint"})
_CACHED = frozenset({"commit.cached"})
# What a device that knows of no end does not do (S-OVERLAP-4).
_ENDS = frozenset({"commit.final", "commit.unfolded"})
_UNSEEN = frozenset({f"{stage}.slots" for stage in ("draft.step", "draft.block", "draft.beam", "extend")})
_UNSEEN |= {"draft.discarded", "extend.discarded"}
_DRAFTS = DRAFT_CHANNELS - _UNSEEN
_ACCEPTED = ("correct_len", "index", "bonus", "emitted")
Gaps = dict[tuple[int, int], float]
Near = dict[tuple[str, Key], tuple[tuple[int, float], ...]]
Told = dict[tuple[int, int], frozenset[str]]
Out = Callable[[Observation], None]
REFERENCE_CHANNELS = _ALWAYS | _DRAFTS | _STATES | _SNAPSHOT | _REPLAY | _CHECKPOINT | _CACHED


def channels(scenario: Scenario, layer_types: tuple[LayerType, ...]) -> frozenset[str]:
    """Return the channels that a trace of the scenario declares.

    They are the channels of its draft, and of states for a model that has them, in the form that its commit gives them.
    """
    always = _ALWAYS | (tapped(scenario.draft, scenario.tree is not None) - _UNSEEN)
    if "linear_attention" not in layer_types:
        return always
    form = _SNAPSHOT if scenario.states.commit == "snapshot" else _REPLAY
    of_states = _STATES | form | (_CHECKPOINT if scenario.states.checkpoint else frozenset())
    of_states |= _CACHED if scenario.schedule.prefix_cache and scenario.states.checkpoint else frozenset()
    return always | (of_states - _ENDS if scenario.schedule.overlap else of_states)


def run(scenario: Scenario, script: Script, memo: Memo | None = None, finish: Finish = "cut") -> Trace:
    """Every channel that does not depend on batching or memory, for a subject that declares `finish`.

    Raises ValueError for a script that `resolve` lacks.
    """
    memo = memo or Memo()
    return trace(scenario, script, Models(*build(scenario, memo), scenario.states, finish, memo))


def trace(scenario: Scenario, script: Script, models: Models) -> Trace:
    """See `run`; with the models of the scenario, or others like them."""
    if any(one.chains and len(one.tokens) > 1 and not (one.rounds or one.first) for one in script.requests):
        raise ValueError("the script of a dynamic scenario has no rounds: expected a resolved one (reference/solve.py)")
    observations = list[Observation]()
    known = observe(scenario, script, models, observations.append)
    declared = channels(scenario, models.target.layer_types)
    return Trace(subject="reference", channels=declared, observations=tuple(observations), **known._asdict())


class Known(NamedTuple):
    """What the reference alone knows of a run; see `Trace`."""

    gaps: Gaps
    near: Near
    told: Told
    unsure: frozenset[tuple[str, Key]]


def observe(scenario: Scenario, script: Script, models: Models, out: Out) -> Known:
    """Hand every observation of a trace to `out`, in order."""
    out(Observation("config.draft", Key(-1, 0), DraftNeeds(*models.draft.config())))
    for layer, kind in enumerate(models.target.layer_types):
        out(Observation("config.routing", Key(-1, 0, layer=layer), LayerKind[kind.upper()]))
    known, unsure = Known(Gaps(), Near(), Told(), frozenset()), set[tuple[str, Key]]()
    for index, (request, solved) in enumerate(zip(scenario.requests, script.requests, strict=True)):
        eos = scenario.eos_of(request)
        limits = RequestLimits.of(request, scenario.memory.max_len, solved.stop, solved.sequences, eos)
        own = models._replace(draft=draft_for_request(models.draft, scenario, request))
        one = _RequestTrace(index, scenario, limits, own, out)
        one.run(solved)
        known.gaps.update({(index, number): gap for number, gap in enumerate(one.gaps)})
        known.near.update(one.near)
        known.told.update({(index, number): names for number, names in one.told.items()})
        unsure |= one.unsure
    return known._replace(unsure=frozenset(unsure))


class ReferenceSubject(Subject):
    """The control: a subject that must pass every contract that it can be held to."""

    name = "reference"

    def channels(self, scenario: Scenario) -> frozenset[str]:
        return REFERENCE_CHANNELS

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """See `run`; solves the scenario itself. In a dynamic scenario every round gets the drafts that it plans."""
        memo = Memo()
        script = resolve(scenario, solve(scenario, memo), {}, memo)
        return run(scenario, script, memo, finish_of(scenario, self.limits))


class Span(NamedTuple):
    """A round's place in the sequence: `committed` tokens after `context`.

    `rows` are the rows of a verify, each with its pass and position (none: a prefill); the rows in `walked` are
    accepted.
    """

    context: int
    committed: int
    rows: tuple[tuple[Pass, int], ...] = ()
    walked: tuple[int, ...] = ()

    def completed(self, interval: int) -> int:
        """Return the position of the token that completed the last multiple of `interval` so far; -1 if none did."""
        return (self.context + self.committed) // interval * interval - 1 if interval else -1


class Models(NamedTuple):
    """What a request runs on, how states are committed, what the last round commits, and what the models remember."""

    target: ReferenceTarget
    draft: ReferenceDraft
    states: States
    finish: Finish
    memo: Memo


class _RequestTrace:
    def __init__(self, index: int, scenario: Scenario, limits: RequestLimits, models: Models, out: Out) -> None:
        self._vocab, self._tree = scenario.model.vocab, scenario.tree is not None
        self._scenario, self._received, self._cached = scenario, 0, 0
        self._knows_ends = not scenario.schedule.overlap
        self._index, self._request, self._limits, self._out = index, scenario.requests[index], limits, out
        self._plain, self._draft, self._states, self._finish, self._memo = models
        self._stops = frozenset({*limits.stop, *scenario.eos})
        self._target = target_of(self._plain, self._request, self._stops)
        self.gaps: list[float] = []
        """For each round, how close the closest choice of experts was (`Pass.gap`)."""
        self.near = Near()
        self.unsure = set[tuple[str, Key]]()
        self.told: dict[int, frozenset[str]] = {}
        self._followed: tuple[int, ...] = ()
        kinds = list(enumerate(self._target.layer_types))
        self._full = tuple(layer for layer, kind in kinds if kind != "linear_attention")
        self._linear = tuple(layer for layer, kind in kinds if kind == "linear_attention")

    def run(self, solved: RequestScript) -> None:
        if not solved.tokens:
            # Aborted before its prompt was run.
            return
        self._memo.take_closest()
        self._memo.follow(self._index, 0)
        self._followed = self._request.prompt + solved.followed
        # Who is aborted on its way is never received.
        self._received = len(solved.rounds) if self._scenario.schedule.disaggregation else 0
        self._prompt_logprobs()
        emitted = self._round(0, solved.first, (), 0) if solved.first else self._prefill()
        self.gaps.append(self._memo.take_closest())
        for number, round_ in enumerate(solved.rounds, start=1):
            if self._limits.ended(emitted):
                # In float32 another choice may have ended it earlier.
                break
            self._memo.follow(self._index, number)
            emitted += (
                self._prefill(number, emitted)
                if round_.resumed
                else self._round(number, round_, emitted, len(self._request.prompt + emitted) - 1)
            )
            self.gaps.append(self._memo.take_closest())

    def _say(self, channel: str, round_: int, value: Datum, step: int = -1, layer: int = -1, row: int = -1) -> None:
        self._out(Observation(channel, Key(self._index, round_, step, layer, row), value))

    def _report(self, round_: int, said: Iterable[Said]) -> None:
        for one in said:
            self._say(one.channel, round_, one.value, one.step, one.layer, one.row)
            if not one.sure:
                self.unsure.add((one.channel, Key(self._index, round_, one.step, one.layer, one.row)))
            if self._plain.widened and (near := one.near()):
                self.near[one.channel, Key(self._index, round_, one.step, one.layer, one.row)] = near

    def _prefill(self, number: int = 0, emitted: tuple[int, ...] = ()) -> tuple[int, ...]:
        """Report the prompt's round, or one that runs the whole text again (S-SCHED-6); return the tokens it emits."""
        tokens = self._request.prompt + emitted
        whole = self._target.forward(tokens, len(tokens) - 1)
        (choice,) = choices_along(
            whole.logits[-1:], tokens, self._followed, chooser_of(self._target, self._request.sampling)
        )
        new = (choice.token,)
        ended = self._limits.ended(emitted + new)
        self._allowed(number, emitted, ((),))
        self._allowed_next(number, emitted + new, ended)
        self._report(number, (said_choice("verify.choice", choice, row=0),))
        self._say("accept.emitted", number, new)
        self._logprobs(number, new, [whole.logits[-1]])
        if number:
            self._without_drafts(number, choice.token)
        self._commit(number, whole, range(len(tokens)))
        self._commit_states(number, whole, Span(0, len(tokens)), ended)
        if not ended:
            self._report(number, self._draft.extend(tokens + new, whole, first=0))
            if number < self._received:
                self._report_transfer(number + 1, whole, tokens + new)
        return new

    def _report_transfer(self, number: int, whole: Pass, tokens: tuple[int, ...]) -> None:
        """Report what the decode engine holds of t_0 .. t_n before a round, as if it had run them.

        Defined in S-DISAGG-3.
        """
        last = len(tokens) - 2
        first = columns_freed(self._scenario, last + 1) * self._scenario.memory.page_size
        self._say("disaggregation.length", number, last + 1)
        self._say("disaggregation.token", number, tokens[-1])
        for layer, entries in zip(self._full, whole.kv, strict=True):
            for position in range(first, last + 1):
                self._say("disaggregation.kv", number, vector(entries[position]), layer=layer, row=position)
        for order, layer in enumerate(self._linear):
            self._say("disaggregation.state", number, vector(whole.states[order][last]), layer=layer)
        for one in self._draft.extend(tokens, whole, first=0):
            if one.channel == "extend.kv" and one.row >= first:
                self._say("disaggregation.draft_kv", number, one.value, layer=one.layer, row=one.row)
        for position, state in self._draft.carried_states(tokens, whole):
            self._say("disaggregation.hidden", number, vector(state), row=position)

    def _without_drafts(self, number: int, token: int) -> None:
        for channel in ("propose.tokens", "round.drafts"):
            self._say(channel, number, ())
        self._say("accept.correct_len", number, 0)
        self._say("accept.index", number, (0,))
        self._say("accept.bonus", number, token)

    def _round(self, number: int, round_: RoundScript, emitted: tuple[int, ...], before: int) -> tuple[int, ...]:
        """Report a round before which `before` tokens were committed (none in round 0), and return what it emits."""
        tokens = self._request.prompt + emitted
        drafts, drawn_by = self._drafts(number, round_, tokens)
        if self._tree:
            self._say("round.parents", number, round_.parents)
            for row, parent in enumerate(round_.parents, start=1):
                self._say("verify.parents", number, parent, row=row)
        verified = self._verify(self._target, tokens, drafts, round_, drawn_by)
        tried = {
            name: self._verify(other, tokens, drafts, round_, drawn_by)
            for name, other in weakened_targets(self._plain, self._request, self._stops, len(tokens))
        }
        changed = frozenset(name for name, other in tried.items() if other.tokens != verified.tokens)
        paths = self._paths(drafts, round_)
        free = tried.get("grammar_changed_choice", verified).correct_len
        of_grammar = counted(self._request, self._vocab, emitted, paths, verified, free)
        of_minimum = minimum.counted(self._request, emitted, paths, verified)
        self.told[number] = changed.union(of_grammar, of_minimum)
        self._allowed(number, emitted, paths)
        new = self._limits.cut(emitted, verified.emitted)
        if self._finish == "token":
            verified = verified._replace(accepted=verified.accepted[: len(new) + 1])
        self._verified(number, (tokens[-1], *drafts), verified)
        self._say("accept.emitted", number, new)
        walked = [verified.rows[row] for row in verified.accepted[: len(new)]]
        self._logprobs(number, new, [whole.logits[position] for whole, position in walked])
        ended = self._limits.ended(emitted + new)
        self._allowed_next(number, emitted + new, ended)
        end = len(tokens) - 1 + len(new if self._finish == "cut" else verified.emitted)
        self._commit(number, verified.whole, range(before, end))
        rows = verified.rows if number else ()
        self._commit_states(number, verified.whole, Span(before, end - before, rows, verified.accepted), ended)
        if not ended:
            whole = verified.whole.first(len(tokens) + len(new) - 1)
            self._report(number, self._draft.extend(tokens + new, whole, first=before))
        return new

    def _paths(self, drafts: tuple[int, ...], round_: RoundScript) -> tuple[tuple[int, ...], ...]:
        """Return the drafts on the way to each row."""
        if not self._tree:
            return tuple(drafts[:row] for row in range(len(drafts) + 1))
        rows = (lineage(round_.parents, row) for row in range(len(drafts) + 1))
        return tuple(tuple(drafts[row - 1] for row in path) for path in rows)

    def _allowed(self, number: int, emitted: tuple[int, ...], paths: tuple[tuple[int, ...], ...]) -> None:
        """Report the tokens that may follow each row (S-GRAMMAR-4, S-LIMIT-15)."""
        grammar = self._request.grammar
        if grammar is None and not self._request.min_tokens:
            return
        for row, path in enumerate(paths):
            state = state_of(grammar, emitted + path, self._vocab) if grammar else None
            never = minimum.excluded(self._request, len(emitted + path), self._stops)
            some = tuple(token for token in allowed(state, self._vocab) if token not in never)
            self._say("verify.allowed", number, some, row=row)

    def _logprobs(self, number: int, emitted: tuple[int, ...], logits: Sequence[np.ndarray]) -> None:
        """Report the logprobs of each emitted token, by the logits [V] of its row (S-SAMPLE-12)."""
        if (top := self._request.logprobs) is not None:
            for place, (token, row) in enumerate(zip(emitted, logits, strict=True)):
                weights = weights_of(self._target, row, self._request.sampling or Sampling())
                self._say("accept.logprobs", number, logprob(weights, token, top), row=place)

    def _prompt_logprobs(self) -> None:
        """Report the logprobs of each prompt token (S-SAMPLE-16), by logits without penalties, grammar or minimum."""
        prompt = self._request.prompt
        if (asked := self._request.prompt_logprobs) is not None:
            logits = placed(self._plain, self._request).forward(prompt).logits
            for position in range(asked.start + 1, len(prompt)):
                weights = weights_of(self._plain, logits[position - 1], Sampling())
                told = logprob(weights, prompt[position], asked.top)
                self._say("accept.prompt_logprobs", 0, told, row=position)

    def _allowed_next(self, number: int, emitted: tuple[int, ...], ended: bool) -> None:
        """Report the tokens that may follow those that were emitted (S-GRAMMAR-5)."""
        if (grammar := self._request.grammar) is not None and not ended:
            self._say("commit.allowed", number, allowed(state_of(grammar, emitted, self._vocab), self._vocab))

    def _verify(
        self,
        target: ReferenceTarget,
        tokens: tuple[int, ...],
        drafts: tuple[int, ...],
        round_: RoundScript,
        drawn_by: tuple[tuple[int, ...], ...],
    ) -> Verification:
        if self._tree:
            return verify_tree(target, tokens, drafts, round_.parents, self._followed, self._request.sampling)
        return verify(target, tokens, drafts, self._followed, self._request.sampling, drawn_by)

    def _drafts(
        self, number: int, round_: RoundScript, tokens: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]]:
        """Report the draft's own proposal; return the tokens to verify, and the weights that they were drawn by."""
        own = propose(self._draft, self._target, tokens, round_.depth if self._tree else round_.drafts)
        self._report(number, own.said)
        if not all(one.sure for one in own.said):
            self.unsure.update((channel, Key(self._index, number)) for channel in ("propose.tokens", "round.drafts"))
        self._say("propose.tokens", number, own.tokens)
        for row, weights in enumerate(own.weights, start=1):
            if weights:
                self._say("propose.weights", number, weights, row=row)
        asked = own.tokens if round_.forced is None else round_.forced
        drafts = asked if round_.verified is None else round_.verified
        self._say("round.drafts", number, drafts)
        return drafts, own.weights if round_.forced is None else ()

    def _verified(self, number: int, ids: tuple[int, ...], verified: Verification) -> None:
        for row, (token, choice) in enumerate(zip(ids, verified.choices, strict=True)):
            self._say("verify.ids", number, token, row=row)
            whole, position = verified.rows[row]
            self._say("verify.positions", number, position, row=row)
            sure = position < whole.unsure
            said = Said("verify.hidden", vector(whole.hidden[position]), row=row, sure=sure)
            self._report(number, (said, said_choice("verify.choice", choice, row=row, sure=sure)))
            if row in verified.accepted and not sure:
                self.unsure.update((f"accept.{name}", Key(self._index, number)) for name in _ACCEPTED)
        self._say("accept.correct_len", number, verified.correct_len)
        self._say("accept.index", number, verified.accepted)
        self._say("accept.bonus", number, verified.emitted[-1])

    def _commit(self, number: int, whole: Pass, positions: Iterable[int]) -> None:
        positions = tuple(positions)
        self._say("commit.length", number, positions[-1] + 1)
        for layer, entries in zip(self._full, whole.kv, strict=True):
            for position in positions:
                self._say("commit.kv", number, vector(entries[position]), layer=layer, row=position)

    def _commit_states(self, number: int, whole: Pass, span: Span, ended: bool) -> None:
        """docs/semantics/states.md; a row of `whole.states` is the state after it."""
        if not self._linear:
            return
        ended = ended and self._knows_ends
        last, replay = span.context + span.committed - 1, self._states.commit == "replay"
        said = {"commit.state": last} | ({"commit.final": last} if ended else {})
        if span.rows:
            at = span.committed - 1
            self._say("commit.step_index", number, at if replay else span.walked[at])
        if replay:
            self._say("commit.pending", number, span.committed if span.rows else 0)
            said["commit.base"] = span.context - 1 if span.rows else last
            if ended:
                self._say("commit.unfolded", number, 0)
        if (completed := span.completed(self._states.checkpoint)) >= 0:
            said["commit.checkpoint"] = completed
        for order, layer in enumerate(self._linear):
            for channel, position in said.items():
                self._say(channel, number, vector(whole.states[order][position]), layer=layer)
            for row, (through, position) in enumerate(() if replay else span.rows):
                self._say("commit.intermediate", number, vector(through.states[order][position]), layer=layer, row=row)
        self._cache_states(whole, span)

    def _cache_states(self, whole: Pass, span: Span) -> None:
        """S-CACHE-6: the states that a prefix cache may come to keep, of whole pages, each said once."""
        if not (self._scenario.schedule.prefix_cache and self._states.checkpoint):
            return
        size, end = lcm(self._states.checkpoint, self._scenario.memory.page_size), span.context + span.committed
        for tokens in range(self._cached + size, end + 1, size):
            self._cached = tokens
            for order, layer in enumerate(self._linear):
                self._say("commit.cached", 0, vector(whole.states[order][tokens - 1]), layer=layer, row=tokens)
