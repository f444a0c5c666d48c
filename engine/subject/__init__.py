"""The engine as a subject: from Scenario and Script to a Trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from draftproof.engine.config import EngineConfig
from draftproof.engine.engine import Engine
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.models.config_fields import fingerprint
from draftproof.engine.overlap import OverlapEngine
from draftproof.engine.parts import OWN, EngineParts
from draftproof.engine.prefill_decode import PrefillDecode
from draftproof.engine.ranks import SOLO, DataParallelGroup, Solo
from draftproof.engine.stages import Commit, GenerationRequest
from draftproof.engine.subject import build
from draftproof.engine.subject.memory import MemoryWatch
from draftproof.engine.subject.overlap_recorder import OverlapRecorder
from draftproof.engine.subject.pair import Pair
from draftproof.engine.subject.prefill_recorder import PrefillRecorder
from draftproof.engine.subject.ranks import group_of
from draftproof.engine.subject.recorder import TraceRecorder
from draftproof.engine.subject.taps import RecordingTaps
from draftproof.engine.tensor_ranks import TensorGroup
from draftproof.properties.lib.devices import present
from draftproof.properties.values.channels import CHANNELS, DISAGGREGATION_CHANNELS, OVERLAP_CHANNELS, TAPPED
from draftproof.properties.values.drafts import DRAFT_CHANNELS, tapped
from draftproof.properties.values.scenario import Scenario, of_rank
from draftproof.properties.values.script import Script, script_of_rank
from draftproof.properties.values.subject import RankPlace, Subject
from draftproof.properties.values.trace import Trace

STEP_LIMIT = 10_000


class EngineSubject(Subject):
    """Runs scenarios on `device`: "cpu" (HostGraph) or "cuda" (CUDA graphs, Triton kernels).

    `announce` is told the engine step (-1 before the first) and "plan" or the kind of the launch, before each of them.
    Raises DeviceError for another device, and for "cuda" where there is none.
    """

    name = "engine"

    def __init__(self, device: str = "cpu") -> None:
        self._device = torch.device(present(device, "device"))
        self._group: DataParallelGroup | None = None
        self._tensor_group: TensorGroup | None = None
        self.announce: Callable[[int, str], None] = _say_nothing

    def channels(self, scenario: Scenario) -> frozenset[str]:
        """Return all channels except those of other kinds of draft, and the taps' if the scenario has none."""
        own = tapped(scenario.draft, scenario.tree is not None)
        channels = frozenset(CHANNELS) - (DRAFT_CHANNELS - own)
        if not self.has_ranks or scenario.ranks.size > self.most_ranks:
            channels -= {"rank.collectives"}
        if not scenario.schedule.prefix_cache:
            channels -= {"pool.cached", "pool.checkpoints", "commit.cached"}
        if not scenario.schedule.disaggregation:
            channels -= DISAGGREGATION_CHANNELS
        # A request that has ended still changes its state, which no request owns then.
        channels -= {"commit.final", "commit.unfolded"} if scenario.schedule.overlap else OVERLAP_CHANNELS
        return channels if scenario.taps else channels - TAPPED

    def run(self, scenario: Scenario, script: Script) -> Trace:
        """Serve the scenario's requests to the end; return everything observed. Raises what the engine raises."""
        with self._without_gradients():
            return self._run(scenario, script)

    def _without_gradients(self) -> AbstractContextManager[object]:
        # On a CPU small operations take a twentieth less without views and versions of tensors.
        return torch.inference_mode() if self._device.type == "cpu" else torch.no_grad()

    @property
    def has_ranks(self) -> bool:
        """True where each rank can have a device of its own."""
        return self._device.type == "cpu" or torch.cuda.device_count() > 1

    @property
    def most_ranks(self) -> int:
        """As many as there are devices."""
        return super().most_ranks if self._device.type == "cpu" else torch.cuda.device_count()

    @property
    def spawned_as(self) -> tuple[str, dict[str, str]] | None:
        """Return what makes it anew: a device cannot be used on both sides of a fork."""
        if self._device.type == "cpu":
            return None
        return f"{type(self).__module__}:{type(self).__qualname__}", {"device": self._device.type}

    def run_rank(self, scenario: Scenario, script: Script, place: RankPlace) -> Trace:
        """Serve the requests of one rank, or with the others all; return everything observed of them.

        Raises what the engine raises.

        Where ranks entered collectives of other shapes, the trace ends there.
        """
        torch.set_num_threads(1)
        if self._group is None:
            self._group = group_of(place, self._device)
            self._device = self._group.device
        if self._tensor_group is None:
            self._tensor_group = TensorGroup(self._group)
        group = self._tensor_group if scenario.ranks.tensor > 1 else self._group
        own, of_requests = of_rank(scenario, place.rank), script_of_rank(script, scenario, place.rank)
        with self._without_gradients():
            return self._run(own, of_requests, group)

    def _run(self, scenario: Scenario, script: Script, group: Solo = SOLO) -> Trace:
        models = self.models(scenario) if group is SOLO else build.models(scenario, self._device, group)
        taps = RecordingTaps() if scenario.taps else None
        recording = OverlapRecorder if scenario.schedule.overlap else TraceRecorder
        recorder = recording(scenario, script, taps, self.announce)
        recorder.config.report_seen(models.seen, first=0)
        prefill = None
        if scenario.schedule.disaggregation:
            prefill = self._prefill_engine(scenario, script, models, recorder, group)
        engine = self._engine(scenario, models, build.config(scenario), recorder, group)
        served = PrefillDecode(prefill, engine) if prefill else engine
        if scenario.graphs.sizes and scenario.graphs.capture:
            for one in (prefill, engine) if prefill else (engine,):
                one.capture(self._backend())
                if scenario.graphs.at_start:
                    one.warm_up()
        group.watch(recorder.probes.on_collective)  # and no longer those of the run before
        recorder.report_kept(-1)
        try:
            steps = _serve(served, build.requests(scenario, script), recorder.report_returned)
        except Exception:
            if not group.mismatch:
                raise
            return Trace(self.name, self.channels(scenario), recorder.observations)
        recorder.report_pools(steps)
        recorder.report_totals()
        recorder.config.report_draft(engine.draft.cache)
        recorder.config.report_index_bytes((*engine.dtypes(), *recorder.dtypes))
        recorder.config.report_seen((self.seen_last(models.config),), first=len(models.seen))
        if scenario.is_served_twice:
            recorder.report_reachable(served, steps, service=1)
            recorder.stop_recording()
            again = build.first_step_again(scenario, steps)
            steps += _serve(served, build.requests(scenario, script, again, len(scenario.requests)), _look_away)
            recorder.report_reachable(served, steps, service=2)
        return Trace(self.name, self.channels(scenario), recorder.observations)

    def _prefill_engine(
        self, scenario: Scenario, script: Script, models: Pair, recorder: TraceRecorder, group: Solo
    ) -> Engine:
        """Return an engine that runs prompts for another, which the recorder is to watch."""
        taps = RecordingTaps() if scenario.taps else None
        own = PrefillRecorder(scenario, script, taps, self.announce, recorder.log)
        recorder.follow(own)
        return self._engine(scenario, models, build.prefill_config(scenario), own, group)

    def _engine(
        self, scenario: Scenario, models: Pair, config: EngineConfig, recorder: TraceRecorder, group: Solo = SOLO
    ) -> Engine:
        """Return an engine with poisoned memory that the recorder watches."""
        kind = OverlapEngine if config.overlap else Engine
        engine = kind(models.target, models.draft, config, self._device, recorder.probes, self.parts(scenario), group)
        memory = MemoryWatch(engine, scenario.memory.poison)
        memory.poison_all()
        recorder.attach(engine, memory)
        return engine

    def models(self, scenario: Scenario) -> Pair:
        """Return the scenario's models, and what was seen of their configuration."""
        return build.models(scenario, self._device)

    def seen_last(self, config: Any) -> tuple[int, ...]:
        """Return the fingerprint of the configuration at the end."""
        return fingerprint(config)

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return what the engine runs in place of parts of its own."""
        return OWN

    def _backend(self) -> Backend:
        if self._device.type == "cuda":
            from draftproof.engine.graphs.cuda import CudaBackend

            return CudaBackend(self._device)
        from draftproof.engine.graphs.host import HostBackend

        return HostBackend()


def _serve(
    engine: Engine | PrefillDecode,
    requests: Sequence[GenerationRequest],
    report: Callable[[int, tuple[Commit, ...]], None],
) -> int:
    """Serve requests to the end and report what each step returns; return how many steps that took."""
    for request in requests:
        engine.add(request)
    steps = 0
    while not engine.idle:
        report(steps, engine.step())
        steps += 1
        if steps > STEP_LIMIT:
            raise RuntimeError(f"the engine did not finish within {STEP_LIMIT} steps")
    return steps


def _look_away(step: int, commits: tuple[Commit, ...]) -> None:
    """Do nothing."""


def _say_nothing(step: int, kind: str) -> None:
    """Do nothing."""
