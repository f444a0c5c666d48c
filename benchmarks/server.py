"""What benchmarks of a scheduler share: an engine that is asked for texts, and whose steps are timed.

Its graphs are captured before anything is timed, and every prompt is of random tokens.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import timing
import torch
from decode_model import PAGE, Setup, engine_model
from shapes import eagle_shapes, llama_shapes, random_tensors

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import DraftModel
from draftproof.engine.engine import Engine
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.graphs.cuda import CudaBackend
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.models.base import NgramSettings
from draftproof.engine.models.eagle_head import EagleHead
from draftproof.engine.models.llama import Llama
from draftproof.engine.overlap import OverlapEngine
from draftproof.engine.probes import Probes
from draftproof.engine.stages import Commit, GenerationRequest, Launch, StepPlan

STEPS = 3
NGRAM = DraftModel("ngram", NgramSettings(max_n=3))
Text = tuple[int, ...]


class Plans(Probes):
    """Keeps the plan of the newest step, and what has been launched since."""

    plan: StepPlan
    launches: tuple[Launch, ...] = ()

    def on_plan(self, plan: StepPlan) -> None:
        self.plan, self.launches = plan, ()

    def on_launch(self, launch: Launch) -> None:
        self.launches += (launch,)


@dataclass(frozen=True)
class Timed:
    """One engine step: what was planned and launched, what requests gained, and its seconds."""

    plan: StepPlan
    launches: tuple[Launch, ...]
    commits: tuple[Commit, ...]
    seconds: float

    @property
    def resumes(self) -> bool:
        """Return whether the step runs the text of a request that was preempted."""
        return any(row.emitted for row in self.plan.prefill)


class Server:
    """An engine over the model, its graphs captured."""

    def __init__(
        self,
        given: Setup,
        dense: Llama,
        config: EngineConfig,
        draft: DraftModel = NGRAM,
        plans: Plans | None = None,
        backend: Backend | None = None,
    ) -> None:
        self._device, self._plans, self._served = given.device, plans or Plans(), 0
        kind = OverlapEngine if config.overlap else Engine
        self._engine = kind(dense, draft, config, torch.device(given.device), self._plans)
        self._engine.capture(backend or (CudaBackend() if given.device == "cuda" else HostBackend()))
        self._engine.warm_up()

    def add(self, prompts: Iterable[Text], budget: int, num_drafts: int = STEPS) -> None:
        """Ask for texts of so many tokens, with so many drafts in each round."""
        for prompt in prompts:
            self._engine.add(GenerationRequest(self._served, 0, prompt, budget, frozenset(), (num_drafts,)))
            self._served += 1

    @property
    def idle(self) -> bool:
        """Return whether all texts have ended."""
        return self._engine.idle

    def serve(self, prompts: Sequence[Text], budget: int) -> list[Timed]:
        """Serve these prompts together, to their ends; return all steps."""
        self.add(prompts, budget)
        steps = []
        while not self._engine.idle:
            steps.append(self.step())
        return steps

    def rounds(self, prompts: Iterable[Text], budget: int, num_drafts: int = STEPS) -> list[Timed]:
        """Serve these prompts together; return the steps behind that of the prompts, one behind the other (`rest`)."""
        self.add(prompts, budget, num_drafts)
        self.step()
        return self.rest()

    def step(self) -> Timed:
        """Run one step, and wait for the device."""
        timing.synchronize(self._device)
        begin = time.perf_counter()
        commits = self._engine.step()
        timing.synchronize(self._device)
        return Timed(self._plans.plan, self._plans.launches, commits, time.perf_counter() - begin)

    def rest(self) -> list[Timed]:
        """Run until all texts have ended, and only then wait for the device: the times are those of the host."""
        steps = []
        timing.synchronize(self._device)
        before = time.perf_counter()
        while not self._engine.idle:
            commits = self._engine.step()
            if self._engine.idle:
                timing.synchronize(self._device)
            now = time.perf_counter()
            steps.append(Timed(self._plans.plan, self._plans.launches, commits, now - before))
            before = now
        return steps


def dense_model(given: Setup) -> Llama:
    """Return the target with random weights."""
    return engine_model(given, random_tensors(llama_shapes(given.sizes), given.device, given.dtype, given.seed))


def eagle_draft(given: Setup, dense: Llama) -> DraftModel:
    """Return an EAGLE head of the target's sizes with random weights."""
    tensors = random_tensors(eagle_shapes(given.sizes), given.device, given.dtype, given.seed + 1)
    return DraftModel("eagle", EagleHead(Llama.eagle_config(dense.config), tensors, dense))


def sizes(given: Setup, batch: int, prompt: int, new: int) -> EngineConfig:
    """Return a configuration with pages for all requests of a batch."""
    longest = prompt + new + STEPS + 1
    return EngineConfig(
        steps=STEPS,
        page_size=PAGE,
        pages=batch * -(-longest // PAGE),
        request_slots=batch,
        max_len=longest,
        max_batch=batch,
        chunk=longest,
        sizes=(batch,),
    )


def generator(given: Setup) -> torch.Generator:
    """Return the source of all prompts."""
    return torch.Generator().manual_seed(given.seed)


def prompts(given: Setup, random: torch.Generator, count: int, length: int) -> list[Text]:
    """Return new prompts of random tokens."""
    drawn = torch.randint(given.sizes["vocab_size"], (count, length), generator=random)
    return [tuple(row) for row in drawn.tolist()]
