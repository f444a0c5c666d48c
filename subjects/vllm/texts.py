"""One scenario on a running engine; only its text is read, and nothing is hooked, forced or turned off.

So it covers what hooks cannot reach: asynchronous scheduling, preemption, and tokens that are not computed.
"""

from __future__ import annotations

from typing import Any

from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.trace import Key, Observation
from draftproof.subjects.vllm.serving import Served, Serving
from draftproof.subjects.vllm.stepping import name_of


class TextRun:
    """Serves the requests of a scenario, each from the engine step of its arrival on.

    `preempted` and `cached` count what the run's scheduler has done: preemptions, and prompt tokens that it did not
    compute.
    """

    def __init__(self, engine: Any, scenario: Scenario, script: Script) -> None:
        self._engine, self._serving = engine, Serving(scenario, script)
        self._core = engine.engine_core.engine_core
        self._seen: dict[str, Any] = {}
        self.preempted = self.cached = 0

    def run(self) -> list[Observation]:
        """Serve every request; return what each has emitted, an engine step after the other."""
        waiting = sorted(self._serving.requests, key=lambda one: (one.request.arrival, one.index))
        told: list[Observation] = []
        step = 0
        while waiting or self._engine.has_unfinished_requests():
            while waiting and waiting[0].request.arrival <= step:
                self._add(waiting.pop(0))
            for output in self._engine.step():
                one = self._serving.by_name[name_of(output.request_id)]
                tokens = list(output.outputs[0].token_ids)
                new = tuple(map(int, tokens[len(one.emitted) :]))
                one.round, one.emitted = one.round + 1, tokens
                told.append(Observation("accept.emitted", Key(one.index, one.round), new))
                if not one.round:
                    told.append(Observation("round.cached", Key(one.index, 0), output.num_cached_tokens or 0))
                    self.cached += output.num_cached_tokens or 0
            step += 1
        while self._core.scheduler.has_requests():
            self._engine.step()
        self.preempted = sum(request.num_preemptions for request in self._seen.values())
        return told

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
        self._seen |= self._core.scheduler.requests
