"""The adaptive policy of SGLang, `AdaptiveSpeculativeParams`, in the place of the engine's controller."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from draftproof.engine.adaptive import AdaptiveConfig, ControllerState
from draftproof.engine.adaptive_by_batch import BatchAdaptiveConfig
from draftproof.engine.parts import EngineParts
from draftproof.properties.values.scenario import Scenario
from draftproof.subjects.making import SubjectNameError
from draftproof.subjects.sglang.worker import Place, WorkerSubject, on_probes

_MODULE = "speculative.adaptive_spec_params"
POLICY_KINDS: dict[str, Place] = {
    "list": (_MODULE, "AdaptiveSpeculativeParams"),
    "slots": (_MODULE, "AdaptiveStepSlot"),
    "slots with none": (_MODULE, "AdaptiveStepSlot"),
}
"""What a policy chooses from: one list of step counts, or a list for each range of batch sizes, zero steps or not."""


class WorkerPolicy:
    """A `Controller` that a release has."""

    def __init__(self, params: Any) -> None:
        self._params = params

    def steps(self, num_rows: int) -> int:
        """Return the steps in force for a batch of this many rows."""
        return int(self._slot(num_rows).current_steps)

    def update(self, num_drafts: Sequence[int], correct_len: Sequence[int]) -> tuple[ControllerState, ControllerState]:
        """Let it take in the rows that had drafts, as a worker does after verify; all of them while there are none."""
        rows = len(num_drafts)
        before = self._state(rows)
        correct = [right for count, right in zip(num_drafts, correct_len, strict=True) if count or not before.steps]
        if hasattr(self._params, "update"):
            self._params.update(correct)
        else:
            self._params.on_verify_complete(correct, rows)
        return before, self._state(rows)

    def _state(self, num_rows: int) -> ControllerState:
        slot = self._slot(num_rows)
        return ControllerState(slot.current_steps, slot.ema_accept_len, slot._batch_count)

    def _slot(self, num_rows: int) -> Any:
        return self._params if hasattr(self._params, "current_steps") else self._params._route(num_rows)


def _policy(kind: type, config: AdaptiveConfig | BatchAdaptiveConfig) -> WorkerPolicy:
    """Return a release's policy with these settings, read from a file as a server reads them."""
    shared = {"ema_alpha": config.alpha, "update_interval": config.interval, "warmup_batches": config.warmup}
    if isinstance(config, AdaptiveConfig):
        steps = {"candidate_steps": list(config.steps), "down_hysteresis": config.down, "up_hysteresis": config.up}
        return WorkerPolicy(kind(config.initial, {**shared, **steps}))
    slots = {
        str(slot.batch): {
            "candidate_steps": list(slot.candidates),
            "down_hysteresis": slot.down,
            "up_hysteresis": slot.up,
            "ceiling_coeff": slot.ceiling,
        }
        for slot in config.slots
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "adaptive.json")
        file.write_text(json.dumps({**shared, **slots}), encoding="utf-8")
        params = kind(config.initial, cfg_path=str(file))
    params.set_cuda_graph_bs(list(config.rounding) or None)
    return WorkerPolicy(params)


class AdaptivePolicy(WorkerSubject):
    """The decisions of the adaptive policy; `kind` is "list", "slots" or "slots with none"."""

    name = "sglang adaptive"
    limits = on_probes()
    own = frozenset({"adaptive_steps.steps", "adaptive_steps.average"})

    def __init__(self, wheel: str, kind: str = "slots with none") -> None:
        if kind not in POLICY_KINDS:
            raise SubjectNameError(f"invalid setting kind={kind!r}: expected {', '.join(POLICY_KINDS)}")
        self.needs = (POLICY_KINDS[kind],)
        super().__init__(wheel)
        self._params = self.source.find(*POLICY_KINDS["list"])
        if not self._takes(kind):
            self._found[POLICY_KINDS[kind]] = None

    def _takes(self, kind: str) -> bool:
        """Return whether the policy of the release is of this kind."""
        if self._params is None or hasattr(self._params, "update") != (kind == "list"):
            return False
        if kind != "slots with none":
            return True
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "adaptive.json")
            file.write_text('{"1": {"candidate_steps": [0, 1]}}', encoding="utf-8")
            try:
                self._params(1, cfg_path=str(file))
            except ValueError:
                return False
        return True

    def parts(self, scenario: Scenario) -> EngineParts:
        """Return the release's policy."""
        return EngineParts(controller=partial(_policy, self._params))
