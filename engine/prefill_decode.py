"""Two engines that step in turns: one runs prompts and transfers requests, one decodes them."""

from __future__ import annotations

from draftproof.engine.engine import Engine
from draftproof.engine.kv_transfer import KvTransfer
from draftproof.engine.stages import Commit, GenerationRequest


class PrefillDecode:
    """Serves requests as one engine does. A request that is transferred in a step is received when the next begins."""

    def __init__(self, prefill: Engine, decode: Engine) -> None:
        self.prefill, self.decode = prefill, decode
        self._on_its_way: tuple[KvTransfer, ...] = ()

    def add(self, request: GenerationRequest) -> None:
        """See Engine."""
        self.prefill.add(request)

    @property
    def idle(self) -> bool:
        return not self._on_its_way and self.prefill.idle and self.decode.idle

    def step(self) -> tuple[Commit, ...]:
        """Run one step of both engines; return what each request gained in it."""
        for transfer in self._on_its_way:
            self.decode.exchange.receive(transfer)
        first, self._on_its_way = self.prefill.step_with_transfers()
        return first + self.decode.step()
