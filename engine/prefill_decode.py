"""Two engines that step in turns: one runs prompts and transfers requests, one decodes them."""

from __future__ import annotations

from draftproof.engine.engine import Engine
from draftproof.engine.stages import Commit, GenerationRequest


class PrefillDecode:
    """Serves requests as one engine does. A request that is transferred in a step is received in the next."""

    def __init__(self, prefill: Engine, decode: Engine) -> None:
        self.prefill, self.decode = prefill, decode

    def add(self, request: GenerationRequest) -> None:
        """See Engine."""
        self.prefill.add(request)

    @property
    def idle(self) -> bool:
        return self.prefill.idle and self.decode.idle

    def step(self) -> tuple[Commit, ...]:
        """Run one step of both engines; return what each request gained in it."""
        first, leaving = self.prefill.step_with_transfers()
        for transfer in leaving:
            self.decode.scheduler.receive(transfer)
        commits = first + self.decode.step()
        for waiting in self.decode.scheduler.turned_away():
            self.prefill.scheduler.resume(waiting)
        return commits
