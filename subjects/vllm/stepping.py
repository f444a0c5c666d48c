"""One scenario on a running engine: requests come at their step, drafts are forced, every step is observed."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

from draftproof.properties.lib.errors import DraftproofError
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Observation
from draftproof.subjects.vllm import drafting, observing
from draftproof.subjects.vllm.observing import StepTurn
from draftproof.subjects.vllm.serving import Served, Serving
from draftproof.subjects.vllm.taps import ModelTaps, StepSeen

_MOST_IDLE = 64


class StalledError(DraftproofError, RuntimeError):
    """vLLM schedules nothing although requests wait; the message says for how many steps."""


class Stepper:
    """Steps an engine through a scenario, with a scheduler that is new for each run.

    `probes` turn what one step showed into observations; they run after it, in their order.
    """

    def __init__(self, engine: Any, scenario: Scenario, script: Script, taps: ModelTaps | None, entries: Any) -> None:
        self._engine, self._scenario, self._taps, self._entries = engine, scenario, taps, entries
        self._core = engine.engine_core.engine_core
        self._serving = Serving(scenario, script)
        self._turns: list[StepTurn] = []
        self._steered = False
        self.observations: list[Observation] = []

    def run(self) -> list[Observation]:
        """Serve every request; return what was observed."""
        self._core.scheduler = scheduler = fresh_scheduler(self._core, self._scenario)
        scheduler.schedule = self._noting(scheduler.schedule, self._scheduled)
        scheduler.update_from_output = self._updating(scheduler.update_from_output)
        scheduler.update_draft_token_ids = self._steering(scheduler.update_draft_token_ids)
        step, idle = 0, 0
        waiting = sorted(self._serving.requests, key=lambda one: (one.request.arrival, one.index))
        while waiting or not all(one.done for one in self._serving.requests):
            while waiting and waiting[0].request.arrival <= step:
                self._add(waiting.pop(0))
            self._step(step)
            idle = 0 if self._turns or not self._engine.has_unfinished_requests() else idle + 1
            if idle > _MOST_IDLE:
                raise StalledError(f"no request was scheduled in {idle} steps, although some wait")
            step += 1
        self._turns = []
        while scheduler.has_requests():  # the runner is told of the last that ended
            self._engine.step()
        return self.observations

    def _add(self, one: Served) -> None:
        from vllm import SamplingParams

        limits = SamplingParams(
            temperature=0.0,
            max_tokens=self._serving.budget(one),
            ignore_eos=True,
            stop_token_ids=list(one.script.stop),
            detokenize=False,
        )
        self._engine.add_request(one.name, {"prompt_token_ids": list(one.request.prompt)}, limits)

    def _step(self, number: int) -> None:
        self._turns, self._steered = [], False
        if self._taps:
            self._taps.seen, self._taps.active = StepSeen(), True
        self._engine.step()
        if self._taps:
            self._taps.active = False
        if not self._turns:
            return
        if not self._steered:
            self._propose({})
        self._observe(number)

    def _observe(self, number: int) -> None:
        turns = self._turns
        self.observations += observing.of_host(turns, number)
        if not self._taps:
            return
        seen = self._taps.seen
        by_name = {turn.one.name: turn for turn in turns}
        turns = [by_name[name_of(one)] for one in seen.order]
        at = 0
        for turn in turns:
            turn.rows = slice(at, at + turn.width)
            at += turn.width
        self.observations += observing.of_target(turns, seen)
        self.observations += self._entries.observations(turns)
        if not seen.drafter:
            return
        hidden = seen.drafter[0].hidden_in is not None
        self.observations += drafting.extends(turns, seen, hidden=hidden)
        for turn, step, made in drafting.steps(turns, seen, hidden=hidden):
            # K drafts take K - 1 forwards of a head, K of a language model.
            if step <= len(turn.one.verifies) - hidden:
                self.observations += made

    def _noting(self, original: Callable[..., Any], note: Callable[[Any], None]) -> Callable[..., Any]:
        def noted(*given: Any, **named: Any) -> Any:
            returned = original(*given, **named)
            note(returned)
            return returned

        return noted

    def _scheduled(self, output: Any) -> None:
        scheduler = self._core.scheduler
        for name, count in output.num_scheduled_tokens.items():
            one = self._serving.by_name[name_of(name)]
            first = scheduler.requests[name].num_computed_tokens - count
            prefills = one.round < 0
            drafts = tuple(output.scheduled_spec_decode_tokens.get(name, ()))
            real = tuple(draft for draft in drafts if draft >= 0)  # beside decode rows a prompt's last token is padded
            turn = StepTurn(
                one=one,
                name=name,
                first=first,
                width=count,
                count=count - (len(drafts) - len(real)),
                drafts=real,
                pages=tuple(scheduler.kv_cache_manager.get_block_ids(name)[0]),
                round=one.round + 1,
                chunk=one.chunks if prefills else 0,
                proposed=one.proposed,
            )
            one.chunks += prefills
            self._turns.append(turn)

    def _updating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Read what acceptance found before it is cut at a stop, and what is left of it afterwards."""

        def updated(scheduled: Any, output: Any) -> Any:
            requests = dict(self._core.scheduler.requests)
            for turn in self._turns:
                found = output.sampled_token_ids
                turn.sampled = tuple(map(int, found[output.req_id_to_index[turn.name]])) if len(found) else ()
            returned = original(scheduled, output)
            for turn in self._turns:
                self._account(turn, requests[turn.name])
            return returned

        return updated

    def _account(self, turn: StepTurn, request: Any) -> None:
        one = turn.one
        if not turn.sampled:
            return
        tokens = list(request.output_token_ids)
        turn.emitted, turn.context, turn.ended = (
            tuple(tokens[len(one.emitted) :]),
            request.num_computed_tokens,
            request.is_finished(),
        )
        one.emitted, one.round, one.context, one.done = tokens, turn.round, turn.context, turn.ended

    def _steering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def steered(drafts: Any) -> Any:
            self._steered = True
            proposed = {
                name_of(name): tuple(ids) for name, ids in zip(drafts.req_ids, drafts.draft_token_ids, strict=False)
            }
            chosen = self._propose(proposed, place=False)
            listed = [list(chosen.get(name_of(name), ())) for name in drafts.req_ids]
            return original(type(drafts)(drafts.req_ids, listed))

        return steered

    def _propose(self, proposed: dict[str, tuple[int, ...]], *, place: bool = True) -> dict[str, tuple[int, ...]]:
        """Choose what the next round of each request verifies; `place` it where vLLM asks for nothing."""
        chosen = {}
        for turn in self._turns:
            if turn.ended or not turn.sampled:
                continue
            one = turn.one
            one.verifies = chosen[one.name] = self._serving.next_drafts(one, proposed.get(one.name, ()))
        if place:
            for name, request in self._core.scheduler.requests.items():
                if name_of(name) in chosen:
                    request.spec_token_ids = list(chosen[name_of(name)])
        return chosen


def name_of(name: str) -> str:
    """Return what a request was added as: newer releases append something random."""
    return name.partition("-")[0]


def fresh_scheduler(core: Any, scenario: Scenario) -> Any:
    """Return a scheduler of the core's kind with nothing in it, with the rows and the token budget of a scenario.

    A prompt is cut at `chunk` tokens where others wait or run; alone it has the budget of the whole step. Where vLLM
    cuts none (compressed attention on a CPU), there is a budget for the longest beside the others' rounds.
    """
    old = core.scheduler
    config = old.vllm_config.scheduler_config
    rows = min(scenario.schedule.max_batch, scenario.memory.request_slots)
    config.max_num_seqs = rows
    chunk = max(scenario.schedule.chunk, scenario.steps + 1)  # it cuts a verify, too
    cuts = config.enable_chunked_prefill
    config.long_prefill_token_threshold = chunk if cuts else 0
    pages = dataclasses.replace(old.kv_cache_config, num_blocks=scenario.memory.pages + 1)
    known = {"include_finished_set": False, "log_stats": False, "kv_cache_config": pages}
    names = [name for name in inspect.signature(type(old)).parameters if name in known or hasattr(old, name)]
    made = type(old)(**{name: known.get(name, getattr(old, name, None)) for name in names})
    longest = 0 if cuts else max(len(one.prompt) for one in scenario.requests)
    made.max_num_scheduled_tokens = rows * chunk + longest
    return made
