"""One decode round of a real engine, of which the draft's part can be run again and again: in graphs, and eagerly.

Both sides are runtimes over the same engine's memory, draft and verifier, so they run the same functions at the same
shapes; every run starts from the memory that the round began with. `R` requests, `K` drafts, `W` = K + 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import timing
import torch
from extend_models import STEPS, Built, Setup

from draftproof.engine.config import EngineConfig
from draftproof.engine.drafts.base import Accepted
from draftproof.engine.engine import Engine
from draftproof.engine.graphs.backend import Backend
from draftproof.engine.graphs.cuda import CudaBackend
from draftproof.engine.graphs.host import HostBackend
from draftproof.engine.probes import Probes
from draftproof.engine.runtime import Runtime
from draftproof.engine.stages import Acceptance, DecodeRow, GenerationRequest, Launch, StepPlan

PAGE, NEW = 16, 16
Timed = tuple[Launch, timing.Mark, timing.Mark]


class Clock(Probes):
    """When each launch began and ended, on the device if there is one; captures do not count."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device
        self._begin: timing.Mark = 0.0
        self._launches: list[Timed] = []

    def before_launch(self, kind: str) -> None:
        self._begin = timing.mark(self._device)

    def on_launch(self, launch: Launch) -> None:
        if launch.kind != "capture":
            self._launches.append((launch, self._begin, timing.mark(self._device)))

    def take(self) -> list[Timed]:
        """All launches since the last call."""
        taken, self._launches = self._launches, []
        return taken


class _Watch(Probes):
    """Keeps the first round of `count` requests: the memory that it began with, its rows and what was accepted."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count
        self.engine: Engine | None = None
        self.before: torch.Tensor | None = None
        self.found: tuple[tuple[DecodeRow, ...], Acceptance] | None = None

    def on_plan(self, plan: StepPlan) -> None:
        if self.engine and self.before is None and len(plan.decode) == self._count:
            self.before = self.engine.arena.memory.clone()

    def on_accept(self, batch: tuple[DecodeRow, ...], acceptance: Acceptance) -> None:
        if self.before is not None and self.found is None:
            self.found = (batch, acceptance)


@dataclass(frozen=True)
class Side:
    """A runtime and the clock that its launches are watched with."""

    runtime: Runtime
    clock: Clock


class Round:
    """A round of `count` requests with K drafts each. Every draft counts as accepted: no extend has more to do."""

    def __init__(self, given: Setup, built: Built, count: int) -> None:
        self.count, self.device, watch = count, given.device, _Watch(count)
        self.engine = watch.engine = Engine(
            built.target, built.draft, _config(given, count), torch.device(given.device), watch
        )
        self._before, self.batch, acceptance = _served(self.engine, watch, given, count)
        self.accepted = self._accepted(acceptance)
        self.eager, self.replay = self._side(given), self._side(given)
        backend: Backend = CudaBackend() if given.device == "cuda" else HostBackend()
        weights = (*built.target.weights(), *self.engine.draft.weights())
        self.replay.runtime.capture_with(backend, (self.engine.arena.memory, *weights))
        self.replay.runtime.warm_up(count)

    def extend(self, side: Side) -> dict[str, torch.Tensor]:
        """Runtime.extend; all that it leaves is in the arena."""
        side.runtime.extend(self.accepted, len(self.accepted.requests))
        return {}

    def block(self, side: Side) -> dict[str, torch.Tensor]:
        """Return the drafts [R, K] of a draft that proposes in a graph."""
        side.runtime.begin_from(self._values, self.count, self.count)
        return {"drafts": side.runtime.propose(self.batch, self.count).draft_tokens}

    def restore(self) -> None:
        """Restore the memory that the round began with."""
        self.engine.arena.memory.copy_(self._before)

    def left(self) -> dict[str, torch.Tensor]:
        """Return copies of all tensors of the arena; of pools without page 0, which belongs to nobody."""
        arena, left = self.engine.arena, {}
        for region in arena.regions:
            pool = region.name.startswith(("target.", "draft."))
            left[region.name] = arena[region.name][PAGE if pool else 0 :].clone()
        return left

    def _side(self, given: Setup) -> Side:
        clock, engine = Clock(given.device), self.engine
        return Side(Runtime(STEPS, engine.config, engine.verifier, engine.draft, clock), clock)

    def _accepted(self, acceptance: Acceptance) -> Accepted:
        return Accepted(
            requests=tuple(row.request for row in self.batch),
            req_rows=self._ints([row.req_row for row in self.batch]),
            seq_lens=self._ints([row.seq_len for row in self.batch]),
            correct_len=torch.full_like(acceptance.correct_len, STEPS),
            ids=acceptance.ids,
            target_tokens=acceptance.target_tokens,
            hidden_states=acceptance.hidden_states,
            tokens=tuple(map(tuple, acceptance.target_tokens.tolist())),
        )

    @property
    def _values(self) -> dict[str, torch.Tensor]:
        return {
            "req_rows": self.accepted.req_rows,
            "state_slots": torch.zeros_like(self.accepted.req_rows),
            "positions": self.accepted.seq_lens,
            "num_drafts": self._ints([row.num_drafts for row in self.batch]),
            "pending_tokens": self._ints([row.pending_token for row in self.batch]),
        }

    def _ints(self, values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self.device)


def _config(given: Setup, count: int) -> EngineConfig:
    longest = given.prompt + NEW + STEPS + 1
    pages = count * -(-longest // PAGE)
    # Pages in a shuffled order, as they are in a pool that has been in use.
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(given.seed)) + 1
    return EngineConfig(
        steps=STEPS,
        page_size=PAGE,
        pages=pages,
        request_slots=count,
        max_len=longest,
        max_batch=count,
        chunk=given.prompt,
        sizes=(count,),
        page_order=tuple(order.tolist()),
    )


def _served(
    engine: Engine, watch: _Watch, given: Setup, count: int
) -> tuple[torch.Tensor, tuple[DecodeRow, ...], Acceptance]:
    """Prefill random prompts and run one round of all requests."""
    generator = torch.Generator().manual_seed(given.seed)
    vocab = engine.verifier.target.vocab
    for number in range(count):
        prompt = tuple(torch.randint(0, vocab, (given.prompt,), generator=generator).tolist())
        engine.add(GenerationRequest(number, 0, prompt, NEW, frozenset(), (STEPS,)))
    while watch.found is None and not engine.idle:
        engine.step()
    if watch.before is None or watch.found is None:
        raise RuntimeError(f"no round of all {count} requests")
    batch, acceptance = watch.found
    if any(row.num_drafts != STEPS for row in batch):
        raise RuntimeError(f"not every request has {STEPS} drafts in its first round")
    return watch.before, batch, acceptance


def first_difference(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> str:
    """Where two sets of tensors differ in a bit, and both values; "" if nowhere."""
    if got.keys() != expected.keys():
        return f"there are {sorted(got)}, expected {sorted(expected)}"
    for name, tensor in expected.items():
        wrong = (timing.bits(got[name].contiguous()) != timing.bits(tensor.contiguous())).nonzero()
        if len(wrong):
            place = tuple(wrong[0].tolist())
            return f"{name} at {place} is {got[name][place].item()}, expected {tensor[place].item()}"
    return ""
