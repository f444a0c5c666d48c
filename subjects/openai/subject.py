"""The subject: what a server emits for each request, and what it counts meanwhile."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Hook, Subject
from draftproof.properties.values.trace import Key, Observation, Trace
from draftproof.subjects.making import whole
from draftproof.subjects.openai.counters import TOTALS, counts, observed, places_of, settled
from draftproof.subjects.openai.dialects import DIALECTS, ServerRequest, answer_of, text_of
from draftproof.subjects.openai.http import Server, ServerError

_TEXT = "accept.emitted"
Api = Literal["vllm", "llama", "sglang"]


class OpenaiSubject(Subject):
    """A server at `url` that serves the scenario's checkpoint, with the draft that it was started with.

    `api` is the kind of server: vllm, llama or sglang. `arrivals`: requests come together, or one after another
    (serial). With `drafts`, the number of drafts that it was started with, its counters are read, too: the scenario's
    draft must then be the server's own, and nothing else may use it meanwhile. With `rounds` "yes" the text is split by
    round, as answers of newer vLLMs have it. Raises ServerError.
    """

    def __init__(
        self,
        url: str,
        api: Api = "vllm",
        arrivals: Literal["together", "serial"] = "together",
        drafts: str = "0",
        timeout: str = "60",
        rounds: Literal["yes", "no"] = "no",
    ) -> None:
        self._drafts, seconds = whole("drafts", drafts, 0, 64), whole("timeout", timeout, 1, 86400)
        self.name = f"openai ({api})"
        self._by_round = rounds == "yes"
        self._server, self._dialect = Server(url, seconds), DIALECTS[api]
        self.limits = Limits(
            models=("checkpoint",),
            max_drafts=self._drafts,
            arrivals=arrivals,
            steering="none",
            allocation="ahead",
            chunks="own",
            own_preemption=True,
            persistent=True,
            variants=(),
        )
        at = self._server.url
        self.assumes = f"{at} serves the checkpoint of --model: {at}{self._dialect.serves} says what it serves"
        self._reach()
        if self._drafts:
            self.assumes += "; and whether it was started with the draft of --draft, as drafts=K asks for"
            self._require_drafts()

    def channels(self, scenario: Scenario) -> frozenset[str]:
        """Return the text, and the counters of scenarios with as many drafts as the server has."""
        return frozenset({_TEXT, *(TOTALS if self._counted(scenario) else ())})

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Have every request served; the whole text of each is one observation, unless its rounds are seen."""
        before = counts(self._server) if self._counted(scenario) else {}
        limit = scenario.memory.max_len
        asked = [
            ServerRequest(request.prompt, min(request.budget, limit - len(request.prompt)), steered.stop)
            for request, steered in zip(scenario.requests, script.requests, strict=True)
        ]
        at_once = len(asked) if self.limits.arrivals == "together" else 1
        with ThreadPoolExecutor(at_once) as threads:
            answers = list(threads.map(lambda one: answer_of(self._server, self._dialect, one), asked))
        texts = [one.rounds() if self._by_round else (one.ids,) for one in answers]
        seen = [
            Observation(_TEXT, Key(number, place), tokens)
            for number, text in enumerate(texts)
            for place, tokens in enumerate(text)
        ]
        if self._counted(scenario):
            seen += observed(before, settled(self._server), scenario.steps)
        return Trace(self.name, self.channels(scenario), tuple(seen))

    def hooks(self) -> tuple[Hook, ...]:
        """Return what the server offers: token ids in its answers, and counters."""
        url = self._server.url
        return (
            Hook(name="token ids", found=self._answers_ids(), channels=(_TEXT,), where=url + self._dialect.path),
            Hook(name="counters", found=self._has_counters(), channels=TOTALS, where=f"{url}/metrics"),
        )

    def _counted(self, scenario: Scenario) -> bool:
        return 0 < self._drafts == scenario.steps

    def _reach(self) -> None:
        """Raise ServerError unless the server answers; one that does not tell its version is accepted."""
        path, field = self._dialect.version
        try:
            version = self._server.get_json(path).get(field, "")
        except ServerError as error:
            if "invalid --url" in str(error) or "did not answer" in str(error):
                raise
            return
        except AttributeError:
            return
        self.name = f"openai ({self._dialect.name} {version})" if version else self.name

    def _require_drafts(self) -> None:
        """Raise ServerError unless the server counts drafts, and as many in a round."""
        counted, said = counts(self._server), f"invalid --set drafts={self._drafts}"
        if ("num_drafts", -1) not in counted:
            raise ServerError(
                f"{said}: expected a server whose {self._server.url}/metrics count speculative decoding, as vLLM's do"
                " with a draft"
            )
        places = places_of(counted)
        if places not in (0, self._drafts):
            raise ServerError(
                f"{said}: expected {places}, the drafts of a round that the server was started with, as"
                f" {self._server.url}/metrics says"
            )

    def _answers_ids(self) -> bool:
        try:
            return bool(text_of(self._server, self._dialect, ServerRequest((1, 2), 1, ())))
        except ServerError:
            return False

    def _has_counters(self) -> bool:
        try:
            return ("num_drafts", -1) in counts(self._server)
        except ServerError:
            return False
