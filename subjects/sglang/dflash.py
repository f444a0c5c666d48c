"""How DFlash of SGLang accepts a block: correct drafts and bonus, in the place of the engine's own acceptance.

`R` requests, `W` verify width.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch

from draftproof.engine.parts import EngineParts
from draftproof.engine.runner import Outputs
from draftproof.engine.runtime import Runtime
from draftproof.engine.stages import Proposal
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.sglang.release import SglangRelease
from draftproof.subjects.sglang.worker import Place, WorkerSubject, on_probes

UTILS = "speculative.dflash_utils"
PLACES: tuple[Place, ...] = (
    (UTILS, "compute_dflash_correct_drafts_and_bonus"),
    (UTILS, "compute_dflash_accept_len_and_bonus"),
    ("speculative.dflash_worker_v2", "compute_dflash_correct_drafts_and_bonus"),
)
"""Where it is, the newer name first; the last one imports it from its kernels."""
_NO_TOKEN = -1


class WorkerAcceptance(Runtime):
    """A `Runtime` that accepts drafts as a release does."""

    accept: ClassVar[tuple[Callable[..., Any]]]

    def verify(self, proposal: Proposal, count: int, num_rows: int) -> Outputs:
        """Return what the release accepts of the same ids and choices; a row of fewer drafts ends in no token."""
        found = super().verify(proposal, count, num_rows)
        if not self.steps:
            return found
        behind = torch.arange(found["ids"].shape[1]) > torch.tensor(proposal.num_drafts).unsqueeze(1)
        candidates = found["ids"].masked_fill(behind, _NO_TOKEN)
        correct, bonus, *_ = self.accept[0](candidates=candidates, target_predict=found["target_tokens"])
        return {**found, "correct_len": correct.to(torch.int64), "bonus": bonus.to(torch.int64)}


class BlockAcceptance(WorkerSubject):
    """The greedy acceptance of DFlash."""

    name = "sglang dflash"
    limits = on_probes("dflash")
    own = frozenset({"accept.correct_len", "accept.bonus", "accept.index", "accept.emitted"})

    def __init__(self, wheel: str) -> None:
        source = SglangRelease.open(wheel)
        place = next((one for one in PLACES if source.find(*one) is not None), PLACES[0])
        self.needs = (place,)
        super().__init__(wheel)
        self._runtime = type("WorkerAcceptance", (WorkerAcceptance,), {"accept": (self._found[place],)})

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return a round with the release's acceptance."""
        return EngineParts(runtime=self._runtime)
